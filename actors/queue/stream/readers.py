"""`StreamReaders`: the consumers of a stream, each of which reads all of it from an offset of its own.

A reader that can take messages is **due**. It is served from the window. What the window lacks is read from the disk,
one chunk for all readers that wait for it, and the chunk behind it is read ahead while that one is delivered. What is
published while a reader waits at the tail goes to the window directly, as soon as it is on the disk.

An acknowledgement makes room in the reader's prefetch and does nothing else. Deliveries carry minus the reader's number
as their ack tag.

A reader that begins at a time **searches** first: it reads single messages of the segment that has that time, and each
of them halves what is left to search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ....amqp.constants import NOT_IMPLEMENTED, PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....routing.arguments.stream_arguments import stream_offset
from ....routing.phrases import queue_phrase
from ....routing.rows import QueueRow
from ....store.index.segment_jobs import SegmentReadJob
from ....store.messages.message import Origins, slice_of
from ....store.messages.records import stub_id
from ....store.messages.run import ABSENT, Run
from ....store.queue.range_read import count_within
from ....store.queue.streams.stream_segments import StreamBacking
from ....store.queue.variable.placement import BodyIds
from ..consumers.consumer import ChannelRecord, Consumer
from ..consumers.grants import Grants
from ..disk.disk_loader import Bodies, BodyRead, SegmentRead
from ..effects import Effects
from ..replica_state import ReplicaState
from .window import CHUNK_BYTES, Chunk, Piece, StreamWindow

if TYPE_CHECKING:
    from ...contracts.info_items import InfoItems

#: How many messages one read covers: at most, and at least.
READ_MESSAGES = 2048
LEAST_READ_MESSAGES = 16
#: Bytes of bodies in message stores that one read covers, about. The number of messages follows from their average
#: size, and some may be much larger.
READ_BYTES = 4 << 20

#: A search for a time ends when this few messages are left; the reader skips those that are too old.
SEARCHED_MESSAGES = 256

#: Microseconds in a second.
_SECOND = 1_000_000


@dataclass(slots=True, eq=False)
class OffsetReader:
    """One reader. Its `consumer` counts its deliveries."""

    number: int
    consumer: Consumer
    #: The offset of the next message that it gets.
    position: int
    #: Messages that were published before this time are skipped; microseconds since the epoch.
    since: int = 0
    #: The offsets among which it searches for the first message since that time; None if it does not search.
    search: range | None = None
    #: Whether the search waits for the disk.
    is_searching: bool = False


class StreamReaders:
    """The readers of one stream. They get messages below `limit`, which are on the disk."""

    __slots__ = (
        "_backing",
        "_due",
        "_effects",
        "_fresh",
        "_grants",
        "_last_number",
        "_loads",
        "_of_channel",
        "_row",
        "_state",
        "_window",
        "by_number",
        "limit",
    )

    def __init__(self, state: ReplicaState, backing: StreamBacking, grants: Grants) -> None:
        self._state = state
        self._row: QueueRow = state.row
        self._backing = backing
        self._effects: Effects = state.effects
        self._grants = grants
        self._window = StreamWindow()
        self.limit = backing.committed()
        self.by_number: dict[int, OffsetReader] = {}
        self._of_channel: dict[ChannelRecord, list[OffsetReader]] = {}
        self._last_number = 0
        #: Readers that may be able to take messages, in the order in which they became so.
        self._due: dict[OffsetReader, None] = {}
        #: Messages that were published while there were readers, and are not on the disk yet.
        self._fresh: deque[Piece] = deque()
        #: The spans that are being read.
        self._loads: list[range] = []

    def use_backing(self, backing: StreamBacking) -> None:
        """Use this backing queue, which has the messages from now on, under the same numbers."""
        self._backing = backing

    # -- coming and going ---------------------------------------------------------------------------

    def begin(self, consumer: Consumer) -> None:
        """Register a reader. Raise AmqpError if its arguments do not fit a stream."""
        phrase = queue_phrase(self._row.vhost, self._row.name)
        if not consumer.prefetch:
            raise AmqpError(PRECONDITION_FAILED, f"consumer prefetch count is not set for '{phrase}'")
        if consumer.channel.is_limited:
            raise AmqpError(NOT_IMPLEMENTED, f"{phrase} does not support global qos")
        if consumer.no_ack:
            raise AmqpError(NOT_IMPLEMENTED, f"automatic acknowledgement not supported by stream queues {phrase}")
        self._last_number += 1
        reader = OffsetReader(self._last_number, consumer, 0)
        self._place(reader)
        self.by_number[reader.number] = reader
        self._of_channel.setdefault(consumer.channel, []).append(reader)
        self._effects.change_consumers()
        self._due[reader] = None

    def _place(self, reader: OffsetReader) -> None:
        """Set where the reader begins."""
        offset, numbers = stream_offset(reader.consumer.arguments), self._backing.numbers()
        reader.position = numbers.stop
        if offset.kind == "first":
            reader.position = numbers.start
        elif offset.kind == "last":
            reader.position = max(numbers.start, numbers.stop - 1)
        elif offset.kind == "number":
            reader.position = max(numbers.start, offset.value)
        elif offset.kind != "next":
            seconds = offset.value if offset.kind == "time" else self._state.wall_clock() - offset.value
            since = int(seconds * _SECOND)
            found = self._backing.segments.published_from(since)
            if found:
                reader.position, reader.since, reader.search = found.start, since, found

    def cancel(self, channel_id: str, tag: str) -> None:
        for reader in list(self.by_number.values()):
            if reader.consumer.tag == tag and reader.consumer.channel.channel_id == channel_id:
                self._of_channel[reader.consumer.channel].remove(reader)
                self._forget(reader)

    def forget_channel(self, record: ChannelRecord) -> None:
        for reader in self._of_channel.pop(record, ()):
            self._forget(reader)

    def _forget(self, reader: OffsetReader) -> None:
        del self.by_number[reader.number]
        self._due.pop(reader, None)
        self._effects.change_consumers()
        if not self.by_number:
            self._window.clear()
            self._fresh.clear()

    def info(self) -> list[InfoItems]:
        """A row for each reader in the listing of consumers."""
        row = self._row
        return [reader.consumer.info_items(row.name, row.vhost, True, "up") for reader in self.by_number.values()]

    # -- what makes readers due ---------------------------------------------------------------------

    def settle(self, tags: Sequence[int]) -> None:
        """Deliveries to one reader were acknowledged."""
        reader = self.by_number.get(-tags[0])
        if reader is not None:
            reader.consumer.unacked -= len(tags)
            self._due[reader] = None

    def resume(self, record: ChannelRecord) -> None:
        """Serve the readers of a channel again, because it can take deliveries."""
        for reader in self._of_channel.get(record, ()):
            self._due[reader] = None

    def use_grant(self, record: ChannelRecord) -> None:
        """Let the readers of a channel use what its limiter has granted, and return the rest."""
        for reader in self._of_channel.get(record, ()):
            self._serve(reader)
        self._grants.give_back(record)

    def published(self, numbers: range, origins: Origins, contents: Sequence[bytes], time: int) -> None:
        """Keep messages that were published, and are not on the disk yet, for readers at the tail."""
        if self.by_number:
            self._fresh.append(Piece(numbers.start, origins, list(contents), time))

    def advance(self, limit: int) -> None:
        """Note that everything below `limit` is on the disk, and may be delivered."""
        before, self.limit = self.limit, limit
        fresh, pieces = self._fresh, []
        while fresh and fresh[0].stop <= limit:
            pieces.append(fresh.popleft())
        readers = self.by_number.values()
        if pieces and any(reader.position >= before for reader in readers):
            self._window.append(range(pieces[0].first, pieces[-1].stop), pieces, self._read_from())
        for reader in readers:
            if reader.position < limit:
                self._due[reader] = None

    def _read_from(self) -> int:
        return min((reader.position for reader in self.by_number.values()), default=self.limit)

    # -- delivering ---------------------------------------------------------------------------------

    @property
    def are_due(self) -> bool:
        return bool(self._due)

    def deliver(self) -> None:
        """Serve the readers that are due, as far as the work of this turn allows."""
        work, due = self._state.work, self._due
        while due:
            if work.left <= 0:
                self._effects.need_turn()
                return
            reader = next(iter(due))
            del due[reader]
            work.left -= 1 + self._serve(reader)

    def _serve(self, reader: OffsetReader) -> int:
        """Deliver what the reader can take without waiting; returns how many messages."""
        consumer, delivered = reader.consumer, 0
        while reader.search is not None:
            if not self._search(reader, reader.search):
                return 0
        while reader.position < self.limit:
            room = consumer.capacity
            if room <= 0:
                if consumer.awaits_grant and not consumer.channel.is_grant_requested:
                    self._grants.request(consumer.channel, consumer.prefetch - consumer.unacked)
                break
            chunk = self._window.find(reader.position)
            if chunk is None:
                reader.position = max(reader.position, self._backing.numbers().start)
                # Retention may have dropped everything that is on the disk already: then there is nothing to read yet.
                if reader.position >= self.limit or not self._load(reader.position):
                    break
                continue
            delivered += self._deliver_from(chunk, reader, room)
            if chunk.stop < self.limit and self._window.find(chunk.stop) is None:
                self._load(chunk.stop)
        return delivered

    def _deliver_from(self, chunk: Chunk, reader: OffsetReader, room: int) -> int:
        """Deliver up to `room` messages of the chunk, and move the reader; returns how many."""
        consumer, put, pieces = reader.consumer, self._effects.outbox.put, chunk.pieces
        position, left = reader.position, room
        at = max(0, bisect_right(chunk.firsts, position) - 1)
        while at < len(pieces) and left:
            piece = pieces[at]
            start = max(0, position - piece.first)
            if start < len(piece.contents) and piece.published >= reader.since:
                reader.since = 0
                stop = min(start + left, len(piece.contents))
                tags = [-reader.number] * (stop - start)
                put(consumer, (slice_of(piece.origins, slice(start, stop)), False, tags, piece.contents[start:stop]))
                left -= stop - start
                position = piece.first + stop
                if stop < len(piece.contents):
                    break
            at += 1
        reader.position = position if at < len(pieces) else chunk.stop
        consumer.took(room - left)
        return room - left

    # -- reading ------------------------------------------------------------------------------------

    def _load(self, first: int) -> bool:
        """Read a chunk from the offset `first` on into the window. False if that takes time: then it is begun."""
        if any(first in span for span in self._loads):
            return False
        size = self._backing.totals().ready_bytes // max(1, len(self._backing))
        most = min(max(LEAST_READ_MESSAGES, CHUNK_BYTES // max(1, size)), READ_MESSAGES)
        behind = self._window.next_after(first)
        stop = self.limit if behind is None else min(self.limit, behind)
        span = self._backing.span_from(first, min(most, stop - first))
        self._loads.append(span)
        return self._read(span, partial(self._runs_read, span))

    def _read(self, span: range, done: Callable[[list[Run]], bool]) -> bool:
        """Give `done` the runs of a span, and return its answer: whether it has what it needs. False if the disk has to
        be read first; then `done` is called after that.
        """
        job = self._backing.prepare_runs(span)
        if job is None:
            return done(self._backing.runs(span))
        self._effects.run(SegmentRead(job, partial(self._segment_read, span, done)))
        return False

    def _segment_read(self, span: range, done: Callable[[list[Run]], bool], job: SegmentReadJob) -> None:
        more = self._backing.runs_prepared(job, span)
        if more is not None:
            self._effects.run(SegmentRead(more, partial(self._segment_read, span, done)))
        elif done(self._backing.runs(span)):
            self._wake()

    def _runs_read(self, span: range, runs: list[Run]) -> bool:
        # A stream keeps the time of publishing in the field for the expiry.
        stop = _cut(runs)
        if stop is not None:
            self._loads.remove(span)
            span = range(span.start, stop)
            self._loads.append(span)
        ids = [stub_id(stub) for run in runs if run.kind & ABSENT for stub in run.contents]
        if ids:
            self._effects.run(BodyRead(BodyIds(ids, []), partial(self._bodies_read, span, runs)))
            return False
        self._loaded(span, [Piece(run.first, run.origins, run.contents, run.expiry or 0) for run in runs])
        return True

    def _bodies_read(self, span: range, runs: list[Run], bodies: Bodies, _: Bodies) -> None:
        """Take the bodies of the span's large messages, which were read; None stands for a body that was lost."""
        left, pieces = iter(bodies), []
        for run in runs:
            if not run.kind & ABSENT:
                pieces.append(Piece(run.first, run.origins, run.contents, run.expiry or 0))
                continue
            for index in range(len(run.contents)):
                body = next(left)
                if body is not None:
                    pieces.append(Piece(run.first + index, run.origin_at(index), [body], run.expiry or 0))
        self._loaded(span, pieces)
        self._wake()

    def _loaded(self, span: range, pieces: Iterable[Piece]) -> None:
        self._loads.remove(span)
        if self.by_number:
            self._window.add(span, pieces, self._read_from())

    def _wake(self) -> None:
        """Serve all readers that lack messages, because a read is done for which some may have waited."""
        for reader in self.by_number.values():
            if reader.position < self.limit:
                self._due[reader] = None
        self.deliver()

    # -- searching a time ---------------------------------------------------------------------------

    def _search(self, reader: OffsetReader, among: range) -> bool:
        """Take a step of the search. False if it waits for the disk."""
        if reader.is_searching:
            return False
        if len(among) <= SEARCHED_MESSAGES:
            reader.position, reader.search = among.start, None
            return True
        middle = among.start + len(among) // 2
        is_done = self._read(self._backing.span_from(middle, 1), partial(self._found, reader, middle))
        reader.is_searching = not is_done
        return is_done

    def _found(self, reader: OffsetReader, middle: int, runs: list[Run]) -> bool:
        """Go on with a search whose middle message was read. `runs` has no message if its data was damaged."""
        reader.is_searching = False
        among = reader.search
        assert among is not None
        is_early = bool(runs) and (runs[0].expiry or 0) < reader.since
        reader.search = range(middle + 1, among.stop) if is_early else range(among.start, middle)
        return True


def _cut(runs: list[Run]) -> int | None:
    """Leave `READ_BYTES` of the bodies in message stores, and at least one of them. Returns the number of the first
    message that was left out; None if there is none.
    """
    left = READ_BYTES
    for at, run in enumerate(runs):
        if not run.kind & ABSENT:
            continue
        if left <= 0:
            del runs[at:]
            return run.first
        count = count_within(run, 0, len(run.contents), left)
        left -= run.body_bytes
        if count < len(run.contents):
            runs[at:] = [run.part(0, count)]
            return run.first + count
    return None
