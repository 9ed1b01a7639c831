"""Reads a range of a queue's messages by number without consuming them (design section 5), one **batch** at a time.

A reader gets every message of the range that the queue still has, ready or pending, in the order of the numbers. A
batch has references of its own to the messages, so acks, paging and flushes go on between two batches and while the
bodies of one are read.

    job = queue.prepare_range(first, last)                      # None if no index segment must be read
    while job is not None:
        job.run()                                               # in another thread
        job = queue.range_prepared(job, first, last)
    batch = queue.take_range(first, last, most, most_bytes)
    batch.complete(persistent, transient)                       # the bodies of batch.missing, read from the stores
    first = batch.next_number

A reader of blocks takes whole runs instead, which cost it no work for each message: `prepare_range`, `range_prepared`
and `take_runs`, all with `window_from(first)`, give a `RunBatch`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import accumulate
from operator import itemgetter

from ..index.segment_jobs import SegmentReadJob
from ..messages.ascending_runs import AscendingRuns
from ..messages.lives import Lives
from ..messages.message import QueuedMessage
from ..messages.records import stub_id
from ..messages.run import ABSENT, Run
from ..messages.spans import consecutive
from .variable.placement import BodyIds

RANGE_BATCH_MESSAGES = 256
RANGE_BATCH_BYTES = 1 << 20

#: How many numbers one job reads from a segment, at most.
RANGE_READ = 2048

#: Bytes that a message adds to `RunBatch.size` beside its body: frames, usual properties, its share of the tables.
MESSAGE_OVERHEAD = 64


def window_from(first: int) -> int:
    """How many numbers from `first` on one job reads.

    The windows of all readers end at the same numbers, so the entries that one reader has loaded serve the others too.
    """
    return RANGE_READ - first % RANGE_READ


class RangeBatch:
    """The messages found, in the order of their numbers. The next batch begins at `next_number`.

    `missing` are the ids of the bodies that must be read from a store; their messages are empty until `complete`.
    """

    __slots__ = ("messages", "next_number", "missing", "_absent")

    def __init__(self, next_number: int) -> None:
        self.messages: list[QueuedMessage] = []
        self.next_number = next_number
        self.missing = BodyIds([], [])
        self._absent: list[tuple[int, bool]] = []  # position in `messages`, and whether it is persistent

    @property
    def is_complete(self) -> bool:
        return not self._absent

    def add(self, number: int, run: Run, index: int, redelivered: bool) -> None:
        content = run.contents[index]
        if run.kind & ABSENT:
            self._absent.append((len(self.messages), run.origin.persistent))
            (self.missing.persistent if run.origin.persistent else self.missing.transient).append(stub_id(content))
            content = b""
        self.messages.append(QueuedMessage(number, content, run.origin_at(index), run.expiry_at(index), redelivered))

    def complete(self, persistent: Iterable[bytes | None], transient: Iterable[bytes | None]) -> None:
        """Fill in the bodies of `missing`.

        A body is None if its message was acknowledged meanwhile; that message is dropped.
        """
        bodies = {True: iter(persistent), False: iter(transient)}
        for position, is_persistent in self._absent:
            self.messages[position] = self.messages[position]._replace(content=next(bodies[is_persistent]) or b"")
        self.messages = [message for message in self.messages if message.content]
        self._absent = []


class RunBatch:
    """The messages found, as runs in the order of their numbers. The next batch begins at `next_number`.

    `missing` are the ids of the bodies that must be read from a store. A body that is gone by then leaves a hole.
    `size` is the bytes of the bodies and `MESSAGE_OVERHEAD` for each message.
    """

    __slots__ = ("runs", "next_number", "missing", "size", "_absent")

    def __init__(self, next_number: int) -> None:
        self.runs: list[Run] = []
        self.next_number = next_number
        self.missing = BodyIds([], [])
        self.size = 0
        self._absent: list[Run] = []

    @property
    def is_complete(self) -> bool:
        return not self._absent

    def add(self, run: Run) -> None:
        """Add a run without holes, and take it over."""
        self.runs.append(run)
        self.size += run.body_bytes + MESSAGE_OVERHEAD * len(run.contents)
        if run.kind & ABSENT:
            self._absent.append(run)
            missing = self.missing.persistent if run.origin.persistent else self.missing.transient
            missing += map(stub_id, run.contents)

    def complete(self, persistent: Iterable[bytes | None], transient: Iterable[bytes | None]) -> None:
        """Fill in the bodies of `missing`; a body is None if its message was acknowledged meanwhile."""
        bodies = {True: iter(persistent), False: iter(transient)}
        for run in self._absent:
            read = bodies[run.origin.persistent]
            run.contents = [next(read) for _ in run.contents]
            run.live = len(run.contents) - run.contents.count(None)
        self._absent = []


class SupportsRangeRead(ABC):
    """A backing queue that numbers all its messages in one sequence and can be read by number."""

    #: By number, how often each message was returned, if the owner counts that; it may have messages that have left.
    #: The owner changes it and calls `record_returns`.
    returns: dict[int, int]

    #: The arrival time of the messages that are published next; see `stamp`.
    arrived: int

    def stamp(self, now: int) -> None:
        """Set the arrival time to `now`, in microseconds since the epoch.

        It never decreases, even if the clock is set back.
        """
        if now > self.arrived:
            self.arrived = now

    #: The lives of the queue, and the gaps in its numbers.
    lives: Lives

    @abstractmethod
    def pass_over(self, count: int) -> range:
        """Leave out the next numbers, which begins a new life; returns them."""

    @abstractmethod
    def note_lives(self, lives: Lives) -> None:
        """Replace the lives of the queue by these."""

    @abstractmethod
    def record_returns(self, numbers: Iterable[int]) -> None:
        """Write the counts in `returns` for these numbers to the disk, if the messages are durable themselves."""

    @abstractmethod
    def numbers(self) -> range:
        """From the lowest number of a ready or pending message to the next number that will be given.

        While the head is on disk, the lowest number in the queue may be higher than the start of this range.
        """

    @abstractmethod
    def kept_numbers(self) -> range:
        """The part of `numbers` that the queue cannot give again after a crash. Readers get only these.

        If there is no such number, the range is empty and ends with the number below which none is given again.
        """

    @abstractmethod
    def prepare_range(self, first: int, last: int, window: int = RANGE_BATCH_MESSAGES) -> SegmentReadJob | None:
        """The job that reads an index segment for `take_range` of the same numbers, or for `take_runs` with the same
        `window`; None if none must be read.
        """

    @abstractmethod
    def range_prepared(
        self, job: SegmentReadJob, first: int, last: int, window: int = RANGE_BATCH_MESSAGES
    ) -> SegmentReadJob | None:
        """Take the result of a job. Returns the next one, or None if the messages can be taken, in the same turn."""

    @abstractmethod
    def take_range(
        self, first: int, last: int, most: int = RANGE_BATCH_MESSAGES, most_bytes: int = RANGE_BATCH_BYTES
    ) -> RangeBatch:
        """The first messages with `first <= number <= last`: up to `most` of them, and up to `most_bytes` of bodies
        but at least one.

        The batch may be empty although the range has more messages; the reader then continues at its `next_number`.
        """

    @abstractmethod
    def take_runs(self, first: int, last: int, window: int, most_bytes: int) -> RunBatch:
        """The first messages with `first <= number <= last`, as runs, up to a `size` of `most_bytes` but at least one
        message. On disk, it examines up to `window` numbers.

        The batch may be empty although the range has more messages; the reader then continues at its `next_number`.
        """

    @abstractmethod
    def drop_to(self, last: int, limit: int) -> int:
        """Remove up to `limit` ready messages with numbers up to `last` from the head; returns how many.

        Messages on disk stay until a job of `prepare` has read them.
        """


def take_range_batch(
    ready: Iterable[Run], pending: AscendingRuns[Run], first: int, stop: int, watermark: int, most: int, most_bytes: int
) -> RangeBatch:
    """A batch of `[first, stop)` from ascending runs.

    Pending messages and those below the watermark count as redelivered.
    """
    batch = RangeBatch(stop)
    size = 0
    for number, run, index, is_pending in merge(
        _slots(ready, first, stop, False), _slots(pending.from_number(first), first, stop, True), key=itemgetter(0)
    ):
        if len(batch.messages) == most or size >= most_bytes:
            batch.next_number = number
            break
        batch.add(number, run, index, is_pending or run.redelivered or number < watermark)
        size += run.size_at(index)
    return batch


def take_run_batch(
    ready: Iterable[Run], pending: AscendingRuns[Run], first: int, stop: int, watermark: int, most_bytes: int
) -> RunBatch:
    """The same as `take_range_batch`, as runs."""
    batch = RunBatch(stop)
    for number, run, start, end, redelivered in merge(
        _ready_pieces(ready, first, stop, watermark),
        _pending_pieces(pending.from_number(first), first, stop),
        key=itemgetter(0),
    ):
        left = most_bytes - batch.size
        if left <= 0:
            batch.next_number = number
            break
        taken = count_within(run, start, end, left)
        piece = run.part(start, start + taken)
        piece.redelivered = redelivered
        batch.add(piece)
        if taken < end - start:
            batch.next_number = number + taken
            break
    return batch


def count_within(run: Run, start: int, end: int, size: int) -> int:
    """How many messages from the slot `start` to before `end` reach this size, with `MESSAGE_OVERHEAD` for each; at
    least one, and all if they do not reach it.
    """
    sizes, count = run.measured(), end - start
    if isinstance(sizes, int):
        return min(count, -(-size // (sizes + MESSAGE_OVERHEAD)))
    # No more messages than this fit, so the sizes of the rest of a long run are not added up.
    end = min(end, start + size // MESSAGE_OVERHEAD + 1)
    reached = list(accumulate(map(MESSAGE_OVERHEAD.__add__, sizes[start:end])))
    return min(count, bisect_left(reached, size) + 1)


#: Number, run, the slots from start to before end, whether they count as redelivered.
_Piece = tuple[int, Run, int, int, bool]


def _ready_pieces(runs: Iterable[Run], first: int, stop: int, watermark: int) -> Iterator[_Piece]:
    """The pieces of ready runs, which have no holes, with numbers of `[first, stop)`."""
    for run in runs:
        if run.first >= stop:
            return
        start, end = max(0, first - run.first), min(len(run.contents), stop - run.first)
        seen = end if run.redelivered else min(end, max(start, watermark - run.first))
        if start < seen:
            yield run.first + start, run, start, seen, True
        if seen < end:
            yield run.first + seen, run, seen, end, False


def _pending_pieces(runs: Iterable[Run], first: int, stop: int) -> Iterator[_Piece]:
    """The pieces between the holes of pending runs with numbers of `[first, stop)`."""
    for run in runs:
        if run.first >= stop:
            return
        contents = run.contents
        start, end = max(0, first - run.first), min(len(contents), stop - run.first)
        if run.live == len(contents):
            yield run.first + start, run, start, end, True
            continue
        for piece in consecutive([index for index in range(start, end) if contents[index] is not None]):
            yield run.first + piece.start, run, piece.start, piece.stop, True


def count_to(runs: Iterable[Run], last: int, limit: int) -> int:
    """How many messages of ascending runs have numbers up to `last`; at most `limit`."""
    count = 0
    for run in runs:
        if run.first > last or count >= limit:
            break
        count += min(len(run.contents), last + 1 - run.first)
    return min(count, limit)


def _slots(runs: Iterable[Run], first: int, stop: int, is_pending: bool) -> Iterator[tuple[int, Run, int, bool]]:
    for run in runs:
        if run.first >= stop:
            return
        contents = run.contents
        for index in range(max(0, first - run.first), min(len(contents), stop - run.first)):
            if contents[index] is not None:
                yield run.first + index, run, index, is_pending
