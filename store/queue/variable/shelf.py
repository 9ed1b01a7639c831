"""`Shelf`: the messages of fair lanes that are on the disk only.

A queue with lanes has all messages in its pending ones (`lane_level`), in memory. Messages that need not be there are
moved to the shelf: of them, nothing but their count stays in memory, beside their numbers in the lanes. The youngest go
first, because mostly they are delivered last. A message comes back to the pending ones before its lane delivers it.

The index has an entry of each message on the shelf, transient ones included. So recovery and `store verify` treat these
messages as those of delta.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ...messages.pending_runs import PendingRuns
from ...messages.run import ABSENT, Run
from ...messages.spans import consecutive
from ..lane_level import LaneLevel
from .placement import BodyIds, Placement, recovered
from .read_ahead import READ_BYTES, ReadAheadJob
from .segment_writer import SegmentWriter
from .sub_queues import DELTA_READ, RUN_COUNTS_AS, Delta, SubQueues

#: Ready messages of lanes that paging leaves in memory whatever the target is, and the fewest that a first round moves.
LEAST_KEPT = 4096


class Shelf:
    """See the module. Pending messages with numbers in `unacked`, or in one of the ranges that `moved` returns, stay
    where they are. Messages below `redelivered_below` are flagged redelivered when they come back. `counts` are the
    messages on the shelf.
    """

    __slots__ = (
        "_lost",
        "_moved",
        "_pending",
        "_place",
        "_sub_queues",
        "_unacked",
        "_wanted",
        "counts",
        "is_due",
        "redelivered_below",
    )

    def __init__(
        self,
        place: Placement,
        pending: PendingRuns,
        sub_queues: SubQueues,
        unacked: Collection[int],
        moved: Callable[[], Iterable[range]],
        redelivered_below: int,
    ) -> None:
        self._moved = moved
        self._place = place
        self._pending = pending
        self._sub_queues = sub_queues
        self._unacked = unacked
        self.redelivered_below = redelivered_below
        self.counts = Delta()
        #: The numbers for which the job that is under way was made.
        self._wanted: Sequence[int] = ()
        #: The numbers that the disk did not have.
        self._lost: list[int] = []
        #: Whether the last round of paging left more to do.
        self.is_due = False

    # -- out of memory

    @property
    def in_memory(self) -> int:
        """Ready messages of lanes that are in memory, with or without their bodies."""
        return self._pending.count - len(self._unacked)

    def put(self, most: int) -> bool:
        """Move about `most` messages to the shelf. Returns whether there were any."""
        has_moved = False
        moved = {number for span in self._moved() for number in span}
        for run in list(reversed(self._pending.runs)):
            if most <= 0:
                break
            if run.redelivered and run.end > self.redelivered_below:
                continue  # the flag would be lost: `_bring_back` sets it by the numbers only
            ready = [
                number
                for number, content in enumerate(run.contents, run.first)
                if content is not None and number not in self._unacked and number not in moved
            ]
            most -= max(RUN_COUNTS_AS, len(ready))
            spans = consecutive(ready)
            for part in [run.part(span.start - run.first, span.stop - run.first) for span in spans]:
                self._place.write_body(part)
                self._place.write_index(part)
                self.counts.extend(part)
                has_moved = True
            for span in spans:
                self._pending.discard_pieces(self._pending.pieces(span))
        return has_moved

    def page(self, target: int, quota: int) -> bool:
        """Do a round of paging: move messages to the shelf, about `quota` at most. Returns whether there were any.

        Of h messages in memory h · target / (h + target) stay, as of betas in `paging`, but at least `LEAST_KEPT`.
        """
        here = self.in_memory
        excess = here - (max(LEAST_KEPT, here - here * here // (here + target)) if target else LEAST_KEPT)
        fewest = 1 if self.is_due else LEAST_KEPT
        has_moved = excess >= fewest and self.put(min(excess, quota))
        self.is_due = has_moved and excess > quota
        return has_moved

    # -- into memory

    def is_readable(self, number: int) -> bool:
        """Whether a message of a lane is in memory with its body."""
        found = self._pending.slot(number)
        return found is not None and (not found[0].kind & ABSENT or bool(self._place.readable(found[0].slot(found[1]))))

    def prepare(self, numbers: Sequence[int], needs_bodies: bool) -> ReadAheadJob | None:
        """As `LaneLevel.prepare_lanes`. Moves messages into memory that need no job."""
        for number in numbers:
            if self._pending.slot(number) is None and number not in self._lost:
                span = self._span(number)
                read = self._place.index.reads.take(span.start, span.stop)
                if read is not None:
                    self._wanted = numbers
                    return ReadAheadJob(self, read, BodyIds([], []))
                self._bring_back(span, numbers)
        if not needs_bodies:
            return None
        absent = [run.part(at, at + 1) for run, at in self._slots(numbers) if run.kind & ABSENT]
        if all(map(self._place.readable, absent[:1])):
            return None
        self._wanted = numbers
        return ReadAheadJob(self, None, self._place.missing_bodies(absent, READ_BYTES))

    def _slots(self, numbers: Sequence[int]) -> Iterator[tuple[Run, int]]:
        return (found for number in numbers if (found := self._pending.slot(number)) is not None)

    def _span(self, number: int) -> range:
        """The numbers about this one that one job reads. The spans of all numbers end at the same ones."""
        index = self._place.index
        start = max(number - number % DELTA_READ, index.boundary_before(number))
        return range(start, min(index.reach(number), start + DELTA_READ))

    def _bring_back(self, span: range, wanted: Sequence[int]) -> None:
        """Move the wanted messages of this span into memory. The entries of the span can be read without a job."""
        missing = sorted(number for number in wanted if number in span and self._pending.slot(number) is None)
        for run, is_stored in self._place.index.read(span.start, span.stop):
            here = [number for number in missing if run.first <= number < run.end]
            for piece in consecutive(here):
                part = recovered(run.part(piece.start - run.first, piece.stop - run.first), is_stored)
                self.counts.loaded(part)
                # All messages of a run are on one side: what a queue with lanes has from before its start was written
                # before, so no later message is in the same entry.
                part.redelivered = part.redelivered or part.first < self.redelivered_below
                self._pending.add(part)
        self._place.index.reads.uncounted = 0  # messages whose acks were damaged are in no lane
        lost = [number for number in missing if self._pending.slot(number) is None]
        self._note_lost(lost)
        self.counts.count -= len(lost)
        if not self.counts.count:
            self.counts = Delta()

    def _note_lost(self, numbers: list[int]) -> None:
        self._lost += numbers
        self._sub_queues.lost += len(numbers)

    def prepared(
        self, job: ReadAheadJob, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]
    ) -> None:
        """Take what a job has read, as `ReadAhead.prepared`."""
        wanted, self._wanted = self._wanted, ()
        reads = self._place.index.reads
        if job.read is not None:
            reads.loaded(job.read)
            for number in wanted:
                if self._pending.slot(number) is None and number not in self._lost:
                    span = self._span(number)
                    if reads.take(span.start, span.stop) is None:
                        self._bring_back(span, wanted)
                    return
            return
        self._place.loaded(job.missing, persistent, transient)
        if None in persistent or None in transient:
            lost = [run.first + at for run, at in self._slots(wanted) if self._place.lost_in(run.part(at, at + 1))]
            self._place.forget(self._pending.take(lost))
            self._note_lost(lost)

    def take_lost(self) -> list[int]:
        """The numbers that were found to be lost since the last call."""
        lost, self._lost = self._lost, []
        return lost


class ShelvingLevel(LaneLevel):
    """The part of a variable queue that concerns lanes."""

    __slots__ = ()

    _moved: deque[tuple[int, range]] | None
    _next: int
    _pending: PendingRuns
    _place: Placement
    _redelivered_below: int
    _watermark: int
    segment_writer: SegmentWriter
    sub_queues: SubQueues
    #: None for a queue without lanes.
    shelf: Shelf | None

    def begin_lanes(self, unacked: Collection[int]) -> None:
        self.shelf = Shelf(
            self._place, self._pending, self.sub_queues, unacked, self._moved_numbers, self._redelivered_below
        )

    def mark_redelivered(self) -> None:
        self._watermark = self._redelivered_below = self._next
        for run in self._pending.runs:
            run.redelivered = True
        if self.shelf is not None:
            self.shelf.redelivered_below = self._next

    def _moved_numbers(self) -> list[range]:
        """The numbers of messages that stay pending until the journal has recorded their move to another queue."""
        return [span for _, span in self._moved or ()]

    def end_lanes(self) -> None:
        assert self.shelf is None or not self.shelf.counts.count
        self.shelf = None

    @property
    def has_all_in_memory(self) -> bool:
        return not self._pending.absent and (self.shelf is None or not self.shelf.counts.count)

    def is_readable(self, number: int) -> bool:
        return self._shelf.is_readable(number)

    @property
    def on_disk(self) -> tuple[int, int]:
        counts = self._shelf.counts
        return counts.count, counts.body_bytes

    @property
    def has_backlog_on_disk(self) -> bool:
        return self.sub_queues.delta.count > 0

    def prepare_lanes(self, numbers: Sequence[int], needs_bodies: bool) -> ReadAheadJob | None:
        return self._shelf.prepare(numbers, needs_bodies)

    def take_lost_in_lanes(self) -> list[int]:
        return self._shelf.take_lost()

    def keep_in_lanes(self, most: int) -> None:
        if self._shelf.put(self._shelf.in_memory - most):
            self.segment_writer.needs_flush = True

    def purge_on_disk(self) -> None:
        shelf, pending, place = self._shelf, self._pending, self._place
        counts, shelf.counts = shelf.counts, Delta()
        if not counts.count:
            return
        self.segment_writer.release(counts, pending)
        keep = pending.numbers_in(range(counts.start, counts.end))
        place.forget_between(counts.start, counts.end, keep)
        place.index.ack_between(counts.start, counts.end, keep)

    @property
    def _shelf(self) -> Shelf:
        assert self.shelf is not None, "the queue has lanes"
        return self.shelf
