"""`Arrivals`: what is published to a queue in one turn.

Runs wait until the end of the queue's turn, so that neighbours of one fate are joined, whichever channel sent them.
Without that, many publishers that each send a few similar messages would cost the queue one pass over its consumers for
each publisher. At the end of the turn the queue's role takes the runs and decides what happens to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...store.messages.message import (
    Expiries,
    Origin,
    Origins,
    QueuedMessage,
    any_of,
    body_sizes,
    each_of,
    expiries_of,
    have_same_fate,
    joined,
    slice_of,
)
from ...store.messages.packed_contents import PackedContents
from ...store.messages.parts import Part, part_of_nobody, split_parts
from .consumers.consumer import ChannelRecord
from .disk.transit import Transit

if TYPE_CHECKING:
    from ..contracts.disk import HandedEntry
    from ..contracts.queue import AtMostOnceEntry, PublishEntry
    from .master.deduplication import Deduplication

#: How many origins `Arrivals.as_stored` remembers, each with the one under which its messages are stored.
ORIGINS_REMEMBERED = 256


@dataclass(slots=True)
class Arrival:
    """A run of messages that arrived in this turn, from one publisher or several."""

    #: The origin of the first message. All messages of the run have its fate.
    origin: Origin
    origins: Origins
    contents: Sequence[bytes]
    body_bytes: int
    #: The publishers of `contents`, in order.
    parts: list[Part]
    #: Whether a channel awaits a confirm for one of the messages.
    awaits_confirm: bool
    #: The id of the first message if other queues get the same large bodies, else 0.
    shared: int
    #: Whether these are dead letters that another queue has handed over to the journal, which keeps them until this
    #: queue records that it has taken them (`Arrivals.take_over`). Then `shared` is set.
    is_handed: bool = False
    #: Whether the limiters of channels were asked for grants for these messages.
    has_asked: bool = False
    #: The digest of each message's key, by which a second publish is recognised (`master/deduplication.py`). None if
    #: the queue does not deduplicate, or if no message has a key.
    digests: list[bytes] | None = None
    #: Whether a former process of the queue, or another master of it (CL-95), may have delivered the messages.
    is_redelivered: bool = False
    #: When the messages expire; None until `Intake` has computed it, or if they never expire.
    expiries: Expiries = None
    #: The same list as `contents` after the first join. None before: then `contents` belongs to the actor's message
    #: that brought the run, and must not be changed.
    _joined: list[bytes] | None = None

    def join(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        part: Part,
        shared: int,
        digests: list[bytes] | None = None,
    ) -> bool:
        """Append a later run, unless its fate differs or its ids do not continue these. True if it was appended."""
        if self.has_asked or (digests is None) is not (self.digests is None):
            return False
        if isinstance(contents, PackedContents) or isinstance(self.contents, PackedContents):
            return False  # to cut a run of another node takes longer than to handle it by itself
        own = self.origins
        has_one_origin = not isinstance(own, list) and (own is origins or own == origins)
        if not has_one_origin and not have_same_fate(self.origin, any_of(origins)):
            return False
        if (shared or self.shared) and shared != self.shared + len(self.contents):
            return False
        if self._joined is None:
            self.contents = self._joined = list(self.contents)
        if not has_one_origin:
            self.origins = joined(own, len(self._joined), origins, len(contents))
        self._joined += contents
        self.body_bytes += body_bytes
        self.parts.append(part)
        if part[3]:
            self.awaits_confirm = True
        if digests is not None:
            self.digests = [*(self.digests or ()), *digests]
        return True

    def cut(self, count: int) -> Arrival:
        """Cut off the first `count` messages, fewer than there are, and return them."""
        contents, origins = self.contents[:count], slice_of(self.origins, slice(count))
        body_bytes = body_bytes_of(contents)
        parts, self.parts = split_parts(self.parts, count)
        head = Arrival(
            self.origin, origins, contents, body_bytes, parts, self.awaits_confirm, self.shared, self.is_handed
        )
        head.is_redelivered = self.is_redelivered
        head.expiries = expiries_of(self.expiries, slice(count))
        self.expiries = expiries_of(self.expiries, slice(count, None))
        if self.digests is not None:
            head.digests, self.digests = self.digests[:count], self.digests[count:]
        self.origins, self.contents = slice_of(self.origins, slice(count, None)), self.contents[count:]
        self.body_bytes -= body_bytes
        self.shared = self.shared and self.shared + count
        return head

    def singles(self) -> Iterator[Arrival]:
        """Each message as a run of its own."""
        identities = (
            (channel_id, first + index, 1, awaits_confirm)
            for channel_id, first, count, awaits_confirm in self.parts
            for index in range(count)
        )
        origins = each_of(self.origins, len(self.contents))
        for index, (content, origin, part) in enumerate(zip(self.contents, origins, identities)):
            shared = self.shared and self.shared + index
            size = body_bytes_of([content])
            single = Arrival(origin, origin, [content], size, [part], part[3], shared, self.is_handed)
            single.is_redelivered = self.is_redelivered
            single.expiries = expiries_of(self.expiries, slice(index, index + 1))
            if self.digests is not None:
                single.digests = [self.digests[index]]
            yield single

    def stretches(self, ends: Iterable[int]) -> Iterator[Arrival]:
        """Cut the arrival at the indexes `ends`, and yield the pieces. `ends` ascend, and the last one is the number of
        messages.
        """
        rest, start = self.parts, 0
        for end in ends:
            piece = slice(start, end)
            origins, contents = slice_of(self.origins, piece), self.contents[piece]
            parts, rest = split_parts(rest, end - start)
            awaits_confirm = any([part[3] for part in parts])
            shared = self.shared and self.shared + start
            stretch = Arrival(
                any_of(origins),
                origins,
                contents,
                body_bytes_of(contents),
                parts,
                awaits_confirm,
                shared,
                self.is_handed,
            )
            stretch.is_redelivered = self.is_redelivered
            stretch.expiries = expiries_of(self.expiries, piece)
            stretch.digests = None if self.digests is None else self.digests[piece]
            yield stretch
            start = end

    def messages(self) -> list[QueuedMessage]:
        """The messages, for dead letters. They have no ack tags."""
        count = len(self.contents)
        columns = self.contents, each_of(self.origins, count), each_of(self.expiries, count)
        return [QueuedMessage(0, content, origin, expiry, False) for content, origin, expiry in zip(*columns)]


class Arrivals:
    """The runs of one queue that were published in this turn and are not accepted yet."""

    __slots__ = ("_persistence", "_stored_origins", "_transit", "arrivals", "deduplication")

    def __init__(
        self, persistence: bool | None, transit: Transit | None, deduplication: Deduplication | None = None
    ) -> None:
        """`persistence`: whether messages are stored as persistent ones; None: as they were published."""
        self._persistence = persistence
        self._transit = transit
        #: Finds the key of each message that arrives; None if the queue does not deduplicate.
        self.deduplication = deduplication
        self.arrivals: list[Arrival] = []
        #: For each origin with which messages came, without its expiration: the origin with which they are stored. That
        #: one has the queue's persistence, and no expiration.
        self._stored_origins: dict[tuple[object, ...], Origin] = {}

    def add(self, record: ChannelRecord, entries: Iterable[PublishEntry]) -> None:
        """Keep the runs that a channel has published until the end of the turn."""
        arrivals, channel_id, deduplication = self.arrivals, record.channel_id, self.deduplication
        for origins, contents, body_bytes, first_number, awaits_confirm, shared in entries:
            part = (channel_id, first_number, len(contents), awaits_confirm)
            digests = None if deduplication is None else deduplication.digests(record.user, origins, contents)
            is_redelivered = first_number < record.repeated_below
            if (
                not arrivals
                or arrivals[-1].is_redelivered is not is_redelivered
                or not arrivals[-1].join(origins, contents, body_bytes, part, shared, digests)
            ):
                arrival = Arrival(any_of(origins), origins, contents, body_bytes, [part], awaits_confirm, shared)
                arrival.digests, arrival.is_redelivered = digests, is_redelivered
                arrivals.append(arrival)

    def add_at_most_once(self, entries: Iterable[AtMostOnceEntry]) -> None:
        """Keep dead letters and traced messages, for which nobody awaits a confirm, until the end of the turn."""
        for origin, contents, body_bytes, shared in entries:
            parts = [part_of_nobody(len(contents))]
            self.arrivals.append(Arrival(origin, origin, contents, body_bytes, parts, False, shared))

    def add_dead_letters(self, entries: Iterable[AtMostOnceEntry], first: int, is_redelivered: bool) -> None:
        """Keep dead letters, numbered from `first` on, until the end of the turn. The queue that has sent them awaits
        that they are safe.
        """
        for origin, contents, body_bytes, shared in entries:
            parts: list[Part] = [("", first, len(contents), True)]
            first += len(contents)
            arrival = Arrival(origin, origin, contents, body_bytes, parts, True, shared)
            arrival.is_redelivered = is_redelivered
            self.arrivals.append(arrival)

    def add_handed_over(self, entries: Iterable[HandedEntry]) -> None:
        """Keep dead letters in transit until the end of the turn. The journal keeps those that it has recorded until
        `take_over` is on the disk.
        """
        for origin, contents, body_bytes, first_id, is_recorded, is_redelivered in entries:
            parts = [part_of_nobody(len(contents))]
            arrival = Arrival(origin, origin, contents, body_bytes, parts, False, first_id, is_recorded)
            arrival.is_redelivered = is_recorded and is_redelivered
            self.arrivals.append(arrival)

    def deduplicate(self, deduplication: Deduplication | None) -> None:
        """Look for duplicates from now on, or do so no longer. Runs that have arrived already are accepted without that
        check in either case.
        """
        self.deduplication = deduplication
        for arrival in self.arrivals:
            arrival.digests = None

    def take(self) -> list[Arrival]:
        """Remove and return the runs that arrived."""
        arrivals, self.arrivals = self.arrivals, []
        return arrivals

    def take_over(self, arrival: Arrival, is_kept: bool = True) -> None:
        """Record that the queue has taken dead letters in transit; the journal keeps them until this record is on the
        disk. `is_kept` is False if the queue has dropped them, so that their stored bodies are removed.
        """
        assert self._transit is not None
        self._transit.take_over(arrival.shared, len(arrival.contents))
        if not is_kept:
            self._transit.drop_bodies(arrival.shared, arrival.contents)

    def as_stored(self, origins: Origins) -> Origins:
        """The origins with the queue's persistence and without expirations: a stored message has its expiry beside its
        origin.

        The last answers are remembered, because publishers repeat their origins.
        """
        if not isinstance(origins, list):
            return self._stored(origins)
        stored = [self._stored(origin) for origin in origins]
        # Origins that differed in nothing but their expirations have become one value.
        first = stored[0]
        return first if all(origin is first for origin in stored) else stored

    def _stored(self, origin: Origin) -> Origin:
        lasting = origin[:4]
        found = self._stored_origins.get(lasting)
        if found is None:
            if len(self._stored_origins) >= ORIGINS_REMEMBERED:
                self._stored_origins.clear()
            persistent = origin.persistent if self._persistence is None else self._persistence
            found = self._stored_origins[lasting] = origin._replace(persistent=persistent, expiration=None)
        return found


def body_bytes_of(contents: Sequence[bytes]) -> int:
    """The sum of the body sizes of these contents."""
    sizes = body_sizes(contents)
    return sizes * len(contents) if isinstance(sizes, int) else sum(sizes)
