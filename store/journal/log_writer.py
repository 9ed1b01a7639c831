"""Encoding and gathering one queue's journal records until they are sent to the journal.

Positions count this writer's own records, from 1. The journal reports with the same numbers up to which position it has
synced them (`durable`). The levels of a priority queue share one writer, each under its own queue number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...seams import seam
from ..messages.lives import Lives, encode_lives
from ..messages.records import Type, encode_returns, encode_run, encode_sizes, encode_spans, record
from ..messages.run import Run
from .in_transit import HandedOver, Taken, encode_handed_over, encode_taken


class QueueRecords(NamedTuple):
    """Gathered records of one queue number.

    parts         the encoded records, as buffers
    records       how many records
    messages      how many messages they publish or hand over
    next_number   where the queue's numbering stands after them, None if it was deleted
    sizes         the sizes of segments that they record
    is_joined     they are in one frame with the `QueueRecords` before them, so that a recovery finds both or neither
    handed_over   the dead letters that the queue has handed over, recorded or not
    taken         the dead letters that it has taken
    repeated      how many bytes of the records the journal has already, in files that it is about to give up
    lives         the lives of the queue if the records have them
    """

    queue: int
    parts: list[bytes]
    records: int
    messages: int
    next_number: int | None
    sizes: dict[int, int]
    is_joined: bool = False
    handed_over: Sequence[HandedOver] = ()
    taken: Sequence[Taken] = ()
    repeated: int = 0
    lives: Lives | None = None

    @property
    def has_sizes_only(self) -> bool:
        """Whether these are nothing but the sizes of segments after one flush."""
        return self.records == 1 and bool(self.sizes)


class _Gathered:
    """The records of one queue number in the frame that is gathered; the attributes are those of `QueueRecords`."""

    __slots__ = ("handed_over", "is_joined", "lives", "messages", "parts", "records", "repeated", "sizes", "taken")

    def __init__(self, is_joined: bool) -> None:
        self.is_joined = is_joined
        self.parts: list[bytes] = []
        self.records = self.messages = self.repeated = 0
        self.sizes: dict[int, int] = {}
        self.lives: Lives | None = None
        self.handed_over: list[HandedOver] = []
        self.taken: list[Taken] = []


class LogWriter:
    """Gathers records until `take`. The journal writes what is gathered between two calls of `cut` in one frame.

    has_gathered        there is something to take
    is_awaited          a process waits until the gathered records are on the disk
    bodies_are_spared   the bodies that the message store reported last were acknowledged before their sync
    position            how many records this writer has made
    durable             the position up to which the journal has synced them
    is_journaled        False for a queue that no start recovers. It is not registered with the journal, which drops its
                        records, so neither its acknowledgements nor the sizes of its segments are recorded

    The publisher of a message waits for its record, and for its body if that is in the message store. Where consumers
    keep up, the store waits for acknowledgements before it syncs (its *dwell*), so these records need not hurry either.
    When the store has written bodies nevertheless, `hurry` has the journal write their records too.
    """

    __slots__ = (
        "_frames",
        "_gathered",
        "_next",
        "_sizes_later",
        "bodies_are_spared",
        "durable",
        "has_gathered",
        "is_awaited",
        "is_journaled",
        "position",
    )

    def __init__(self, is_journaled: bool = True) -> None:
        self.has_gathered = self.is_awaited = self.bodies_are_spared = False
        self.is_journaled = is_journaled
        self.position = self.durable = 0
        self._gathered: dict[int, _Gathered] = {}
        self._next: dict[int, int | None] = {}
        #: What was gathered before the last `cut`; None if there was no `cut`.
        self._frames: list[QueueRecords] | None = None
        #: The sizes of segments that the next records take along; None if there are none.
        self._sizes_later: dict[int, dict[int, int]] | None = None

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int:
        """Record the publish of a run without holes; returns the position.

        The contents are stubs if the bodies are in the message store (`is_stored`).
        """
        if not (is_stored and self.bodies_are_spared):
            self.is_awaited = True
        self._advance(queue, run.end)
        return self._add(queue, record(Type.PUBLISH, queue, encode_run(run, is_stored)), len(run.contents))

    @seam("which acknowledgements the journal records")
    def ack(self, queue: int, spans: Sequence[range]) -> int:
        """Record that messages left the queue for good, as `messages.spans` groups them; returns the position."""
        if not self.is_journaled:
            return 0
        return self._add(queue, record(Type.ACK, queue, [encode_spans(spans)]))

    def delete(self, queue: int) -> int:
        """Record that the queue was deleted, unless it has no record at all; returns the position."""
        if self._sizes_later is not None:
            self._sizes_later.pop(queue, None)
        if queue not in self._next:
            return self.position
        self._next[queue] = None
        return self._add(queue, record(Type.DELETE, queue, []))

    def resume(self, queue: int, next_number: int) -> None:
        """Note that the journal may have records of the queue from before this writer."""
        self._next[queue] = next_number

    def skip_to(self, queue: int, next_number: int) -> None:
        """Note that the messages below `next_number` were published without a record.

        The queue's next record carries the new number to the journal (`QueueRecords.next_number`).
        """
        self._advance(queue, next_number)

    def reserve(self, queue: int, number: int) -> int:
        """Record that the numbering continues at `number` or above after an unclean end; returns the position."""
        self.is_awaited = True  # range readers wait for it, because they get only messages whose numbers are kept
        self._advance(queue, number)
        return self._add(queue, record(Type.STATE, queue, [number.to_bytes(8, "big")]))

    @seam("which lives of a queue survive a crash")
    def lives(self, queue: int, lives: Lives) -> int:
        """Record the lives of the queue; returns the position."""
        self._of(queue).lives = lives
        return self._add(queue, record(Type.LIVES, queue, [encode_lives(lives)]))

    def digests(self, queue: int, body: bytes) -> int:
        """Record the digests of messages (`deduplication.digest_records`); returns the position."""
        return self._add(queue, record(Type.DIGESTS, queue, [body]))

    def sizes(self, queue: int, sizes: dict[int, int]) -> int:
        """Record the sizes of segments, so that a start notices a segment that was shortened; returns the position.

        The size is 0 for a segment that has no message left. Its file may be removed when the position is durable.
        """
        if not self.is_journaled:
            return 0
        if self._sizes_later is not None:
            # The older sizes of these segments must not follow this record.
            later = self._sizes_later.get(queue, {})
            for number in sizes.keys() & later.keys():
                del later[number]
        self._of(queue).sizes |= sizes
        return self._add(queue, record(Type.SIZES, queue, [encode_sizes(sizes)]))

    def sizes_later(self, queue: int, sizes: dict[int, int]) -> None:
        """Keep the sizes of segments back, and record them with the next record, or when `record_sizes` is called."""
        if self.is_journaled:
            if self._sizes_later is None:
                self._sizes_later = {}
            self._sizes_later.setdefault(queue, {}).update(sizes)

    @property
    def has_sizes_later(self) -> bool:
        """Whether sizes of segments wait for a record."""
        return self._sizes_later is not None

    def record_sizes(self) -> None:
        """Record the sizes of segments that wait."""
        waiting, self._sizes_later = self._sizes_later, None
        for queue, sizes in (waiting or {}).items():
            if sizes:
                self.sizes(queue, sizes)

    @seam("which returns of messages survive a crash")
    def returned(self, queue: int, returns: Mapping[int, int], is_repeated: bool = False) -> int:
        """Record how often messages were returned to the queue by now; returns the position.

        `is_repeated` if the journal has all of these returns already, in files that it is about to give up.
        """
        self.is_awaited = True  # the count must survive a crash of the broker that the message itself may cause
        parts = record(Type.RETURNED, queue, [encode_returns(returns)])
        if is_repeated:
            self._of(queue).repeated += sum(map(len, parts))
        return self._add(queue, parts)

    def hand_over(self, queue: int, handed: HandedOver) -> int:
        """Record that the journal owns these dead letters of the queue from now on; returns the position.

        Transient ones get no record: the journal only passes them on, in order with the others.
        """
        self.is_awaited = True  # the targets wait for it: they get the dead letters when the record is on the disk
        gathered = self._of(queue)
        gathered.handed_over.append(handed)
        if handed.is_recorded:
            return self._add(queue, record(Type.HANDED_OVER, queue, encode_handed_over(handed)), len(handed.contents))
        self.has_gathered = True
        gathered.messages += len(handed.contents)
        self._next.setdefault(queue, 0)
        return self.position

    @seam("which dead letters a queue records as taken")
    def take_over(self, queue: int, first_id: int, count: int) -> int:
        """Record that the queue has taken dead letters that were in transit to it; returns the position."""
        self._of(queue).taken.append(Taken(queue, first_id, count))
        return self._add(queue, record(Type.TAKEN, queue, encode_taken(first_id, count)))

    def hurry(self) -> None:
        """Have the journal write at once what it has not written yet, because something waits for it now."""
        if self.durable < self.position:
            self.has_gathered = self.is_awaited = True

    def cut(self) -> None:
        """Allow a new frame from here on. Records between two cuts stay in one frame, so no crash separates them."""
        if self._gathered:
            self._frames = self._frames or []
            self._frames += self._take_frame()

    def _advance(self, queue: int, number: int) -> None:
        """Note that the numbering stands at `number`, or higher if more numbers are reserved."""
        before = self._next.get(queue)
        self._next[queue] = number if before is None else max(before, number)

    def _of(self, queue: int) -> _Gathered:
        """The records of a queue number in the present frame; none at first."""
        gathered = self._gathered.get(queue)
        if gathered is None:
            gathered = self._gathered[queue] = _Gathered(bool(self._gathered))
        return gathered

    def _add(self, queue: int, parts: list[bytes], messages: int = 0) -> int:
        self.has_gathered = True
        gathered = self._gathered.get(queue) or self._of(queue)
        gathered.parts += parts
        gathered.records += 1
        gathered.messages += messages
        self._next.setdefault(queue, 0)
        self.position += 1
        return self.position

    def take(self) -> list[QueueRecords]:
        """The records gathered since the last call."""
        self.record_sizes()
        self.has_gathered = self.is_awaited = False
        taken = self._take_frame()
        if self._frames is not None:
            taken = self._frames + taken
            self._frames = None
        return taken

    def _take_frame(self) -> list[QueueRecords]:
        gathered, self._gathered = self._gathered, {}
        return [
            QueueRecords(
                queue,
                found.parts,
                found.records,
                found.messages,
                self._next[queue],
                found.sizes,
                found.is_joined,
                found.handed_over,
                found.taken,
                found.repeated,
                found.lives,
            )
            for queue, found in gathered.items()
        ]
