"""`Stream`: the role of the replica of a stream, an append-only queue that each of its consumers reads as a whole.

    Arrivals         publishes, until the end of the turn
    StreamSegments   the segments, of which the oldest are dropped; a part of the backing queue
    Committed        which messages are on the disk
    StreamReaders    the consumers, and what they read

A publish is stored at the end of its turn, whatever its delivery mode or expiration. It is confirmed, and shown to
consumers, when it is on the disk: so no offset that a consumer has seen is given to another message after a crash.

Retention is applied when a segment is begun, and when the settings change: as long as the stream is larger than
`max_length_bytes`, or its oldest segment is older than `max_age`, that segment is dropped.

Limits: messages are never taken, so there are no dead letters, no expiry, no purge and no basic.get.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....amqp.constants import NOT_IMPLEMENTED
from ....amqp.errors import AmqpError
from ....routing.arguments.queue_settings import QueueSettings
from ....routing.arguments.stream_arguments import DEFAULT_SEGMENT_BYTES
from ....routing.phrases import queue_phrase
from ....store.queue.streams.stream_segments import StreamBacking
from ..arrivals import Arrivals
from ..consumers.consumer import ChannelRecord, Consumer
from ..consumers.grants import Grants
from ..listing import replica_items
from ..role import Result, Role, Steps
from .readers import StreamReaders

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices
    from ....store.messages.message import FetchedMessages
    from ....store.queue.backing_queue import BackingQueue
    from ...contracts.channel import ConfirmRange, Outcome
    from ...contracts.disk import HandedEntry
    from ...contracts.info_items import InfoItems
    from ...contracts.queue import AtMostOnceEntry, PublishEntry
    from ..replica_state import ReplicaState

#: Microseconds to which the time of a publish is rounded down. Neighbours with one time take less room.
TIME_STEP = 100_000


class Committed:
    """The messages of a stream that are on the disk: all below `stop`."""

    __slots__ = ("_ahead", "stop")

    def __init__(self, stop: int) -> None:
        self.stop = stop
        #: Ranges of numbers that became safe before others in front of them: the last number by the first.
        self._ahead: dict[int, int] = {}

    def add(self, safe: Sequence[ConfirmRange]) -> None:
        """Add closed ranges, which never overlap."""
        self._ahead.update(safe)
        while self.stop in self._ahead:
            self.stop = self._ahead.pop(self.stop) + 1


class Stream(Role):
    """The role of one stream."""

    __slots__ = (
        "_arrivals",
        "_backing",
        "_committed",
        "_grants",
        "_has_new_settings",
        "_phrase",
        "_settings",
        "_state",
        "readers",
    )

    def __init__(self, state: ReplicaState, settings: QueueSettings) -> None:
        backing = state.backing
        assert isinstance(backing, StreamBacking)
        self._state = state
        self._settings = settings
        self._has_new_settings = False
        self._backing = backing
        self._phrase = queue_phrase(state.row.vhost, state.row.name)
        self._arrivals = Arrivals(True, state.transit)
        self._committed = Committed(backing.committed())
        self._grants = Grants(state.row.queue_id, state.effects)
        self.readers = StreamReaders(state, backing, self._grants)

    # -- life ---------------------------------------------------------------------------------------

    def apply(self, settings: QueueSettings) -> None:
        self._has_new_settings = settings != self._settings
        self._settings = settings

    def use_backing(self, backing: BackingQueue) -> None:
        assert isinstance(backing, StreamBacking)
        self._backing = backing
        self.readers.use_backing(backing)

    def release(self) -> None:
        # A new master of a mirrored stream drops nothing yet: the master before would have dropped segments only when
        # the next one began, and consumers must find everything that they would have found there.
        if self._has_new_settings or not self._backing.is_inherited:
            self._retain()

    def leave(self) -> None:
        self.take_delayed()
        for record in self._state.channels.values():
            self.readers.forget_channel(record)

    @property
    def is_quiet(self) -> bool:
        return True

    # -- turns --------------------------------------------------------------------------------------

    def end_turn(self, is_held: bool) -> None:
        if self._arrivals.arrivals:
            self._accept_arrivals()
        if not is_held and self.readers.are_due:
            self.readers.deliver()

    def confirmed(self, safe: Sequence[ConfirmRange]) -> None:
        self._committed.add(safe)
        self.readers.advance(self._committed.stop)
        if self.readers.are_due:
            self.readers.deliver()

    def timer_fired(self, name: str) -> None:
        """Do nothing: a stream has no timer."""

    def head_loaded(self) -> None:
        """Do nothing: a stream does not read its head ahead."""

    # -- publishing ---------------------------------------------------------------------------------

    def publish(self, record: ChannelRecord, entries: list[PublishEntry]) -> None:
        count = len(entries[0][1]) if len(entries) == 1 else sum([len(entry[1]) for entry in entries])
        state = self._state
        state.credit.take(record.channel_id, count)
        state.counts.publish += count
        if state.is_short:
            entries = state.confirms.refuse_awaited(record, entries)
        self._arrivals.add(record, entries)

    def publish_at_most_once(self, entries: list[AtMostOnceEntry]) -> None:
        self._arrivals.add_at_most_once(entries)

    def take_dead_letters(self, entries: list[AtMostOnceEntry], first: int, is_repeated: bool) -> None:
        self._arrivals.add_dead_letters(entries, first, is_repeated)

    def take_handed_over(self, entries: list[HandedEntry]) -> None:
        self._arrivals.add_handed_over(entries)

    def take_delayed(self) -> None:
        self._accept_arrivals()

    def _accept_arrivals(self) -> None:
        """Store what was published."""
        arrivals = self._arrivals.take()
        if not arrivals:
            return
        self._state.effects.messages_came = True
        backing, segments = self._backing, self._backing.segments
        most = DEFAULT_SEGMENT_BYTES if self._settings.segment_bytes is None else self._settings.segment_bytes
        # The clock may go backwards; the time of a stream does not.
        time = max(int(self._state.wall_clock() * 1_000_000) // TIME_STEP * TIME_STEP, segments.published)
        index, has_begun = self._state.effects.index, False
        for arrival in arrivals:
            origins = self._arrivals.as_stored(arrival.origins)
            if segments.is_full(most):
                backing.begin_segment()
            if arrival.is_handed:
                self._arrivals.take_over(arrival)
            numbers = backing.publish(
                origins,
                arrival.contents,
                arrival.body_bytes,
                time,
                True,  # Consumers, too, get messages only when the backing queue has reported them as safe.
                arrival.parts,
                arrival.shared,
                arrival.is_handed,
                arrival.is_redelivered,
            )
            has_begun = segments.append(numbers, arrival.body_bytes, time, most) or has_begun
            if index is not None:
                index.came(numbers.start, arrival.contents)
            self.readers.published(numbers, origins, arrival.contents, time)
            if arrival.awaits_confirm:
                self._state.confirms.recent.append((numbers.start, numbers.stop - 1, arrival.parts))
        if has_begun:
            self._retain()

    def _retain(self) -> None:
        """Drop the oldest segments that the settings do not allow any more."""
        settings, segments = self._settings, self._backing.segments
        if (settings.max_age is None and settings.max_length_bytes is None) or not len(segments):
            return
        oldest = 0 if settings.max_age is None else int((self._state.wall_clock() - settings.max_age) * 1_000_000)
        dropped = self._backing.drop_before(segments.kept_from(settings.max_length_bytes, oldest))
        index = self._state.effects.index
        if dropped and index is not None:
            index.rest_is_gone("dropped", self._backing.numbers().start)

    # -- consuming ----------------------------------------------------------------------------------

    def deliver_due(self) -> None:
        """Do nothing: a message that is not on the disk is not delivered before the end of the turn."""

    def consume(self, consumer: Consumer) -> Steps[bool]:
        self.readers.begin(consumer)
        return _at_once(True)

    def cancel(self, channel_id: str, tag: str) -> None:
        self.readers.cancel(channel_id, tag)

    def get(self, record: ChannelRecord | None) -> Steps[tuple[FetchedMessages | None, int]]:
        raise self._not_supported("basic.get")

    def settle(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> None:
        for tags in pieces:
            self.readers.settle(tags)

    def settle_in_slices(self, record: ChannelRecord, outcome: Outcome, pieces: list[Sequence[int]]) -> Slices[None]:
        self.settle(record, outcome, pieces)  # counting takes no time
        yield from ()

    def sent(self, record: ChannelRecord, count: int) -> None:
        record.unsent -= count
        self.readers.resume(record)

    def limiter_changed(self, record: ChannelRecord, is_limited: bool) -> None:
        self._grants.set_limited(record, is_limited)
        self.readers.resume(record)

    def limiter_grant(self, record: ChannelRecord, count: int) -> None:
        if record.is_limited:
            self._grants.add(record, count)
            self.readers.use_grant(record)

    def forget_channel(self, record: ChannelRecord) -> Slices[None]:
        self.readers.forget_channel(record)
        self._grants.forget(record)
        self._state.effects.outbox.forget_channel(record)
        yield from ()

    # -- the queue as a whole -----------------------------------------------------------------------

    def use(self) -> None:
        """Do nothing: a stream does not expire."""

    def counts(self) -> tuple[int, int]:
        return len(self._backing), len(self.readers.by_number)

    def purge(self) -> Slices[int]:
        raise self._not_supported("queue.purge")

    def _not_supported(self, operation: str) -> AmqpError:
        return AmqpError(NOT_IMPLEMENTED, f"{operation} not supported by stream queues {self._phrase}")

    def info(self) -> InfoItems:
        state, readers = self._state, self.readers.by_number.values()
        numbers = self._backing.numbers()
        return {
            **replica_items(state, state.channels.values()),
            "consumers": len(readers),
            "readers": len(readers),
            "first_number": numbers.start,
            "next_number": numbers.stop,
        }

    def consumers_info(self) -> Iterator[InfoItems]:
        return iter(self.readers.info())


def _at_once(value: Result) -> Steps[Result]:
    """The steps of an operation that waits for nothing."""
    yield from ()
    return value
