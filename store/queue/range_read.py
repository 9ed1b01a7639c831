"""Reading a range of a queue's numbers without consuming (design, section 5), a **portion** at a time.

A range is read as the numbers tell: from its first number on, whatever is in the queue, ready or pending; numbers that are not there are passed over. A queue is never held
up by it: what a portion finds is copied references, so that acks, paging and folds may go on between two portions and while one is completed.

    job = queue.prepare_range(first, last)                      None: no index segment must be read
    while job is not None:
        job.run();  job = queue.range_prepared(job, first, last)    `run` in another thread
    portion = queue.take_range(first, last, most, most_bytes)
    bodies of portion.wanted, read from the stores;             portion.complete(persistent, transient)
    first = portion.next_number

"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter, itemgetter

from ..index.segment_jobs import SegmentReadJob
from ..messages.message import QueuedMessage
from ..messages.records import stub_id
from ..messages.run import Run
from .placement import ABSENT, Wanted

RANGE_BATCH_MESSAGES = 256
RANGE_BATCH_BYTES = 1 << 20

Runs = Sequence[Run]


class RangeBatch:
    """The messages found, in the order of their numbers; those whose bodies are `wanted` have none until `complete`. The range goes on at `next_number`."""

    __slots__ = ("messages", "next_number", "wanted", "_absent")

    def __init__(self, next_number: int) -> None:
        self.messages: list[QueuedMessage] = []
        self.next_number = next_number
        self.wanted = Wanted([], [])
        self._absent: list[tuple[int, bool]] = []  # position in `messages`, and whether it is persistent

    @property
    def is_complete(self) -> bool:
        return not self._absent

    def add(self, number: int, run: Run, index: int, redelivered: bool) -> None:
        content = run.contents[index]
        if run.kind & ABSENT:
            self._absent.append((len(self.messages), run.origin.persistent))
            (self.wanted.persistent if run.origin.persistent else self.wanted.transient).append(stub_id(content))
            content = b""
        self.messages.append(QueuedMessage(number, content, run.origin, run.expiry, redelivered))

    def complete(self, persistent: Iterable[bytes | None], transient: Iterable[bytes | None]) -> None:
        """The bodies of `wanted`; a message whose body is None was acknowledged meanwhile, and is passed over."""
        bodies = {True: iter(persistent), False: iter(transient)}
        for position, is_persistent in self._absent:
            self.messages[position] = self.messages[position]._replace(content=next(bodies[is_persistent]) or b"")
        self.messages = [message for message in self.messages if message.content]
        self._absent = []


class SupportsRangeRead(ABC):
    """A backing queue that numbers all its messages in one sequence, and can read by it. See the module."""

    gap: range
    """Numbers that nothing here has, because an unclean end left them out."""

    @abstractmethod
    def numbers(self) -> range:
        """From the lowest number that is in the queue, ready or pending, to the next that will be given. While the head is on disk the lowest may be higher than said."""

    @abstractmethod
    def kept_numbers(self) -> range:
        """Of `numbers`, those that are never given again, even after a crash: nobody is shown others."""

    @abstractmethod
    def prepare_range(self, first: int, last: int) -> SegmentReadJob | None:
        """The job after which `take_range` of the same numbers need not wait for an index segment, None if there is nothing to read."""

    @abstractmethod
    def range_prepared(self, read: SegmentReadJob, first: int, last: int) -> SegmentReadJob | None:
        """The job was run; None if `take_range` may be called, at once, else another job."""

    @abstractmethod
    def take_range(
        self, first: int, last: int, most: int = RANGE_BATCH_MESSAGES, most_bytes: int = RANGE_BATCH_BYTES
    ) -> RangeBatch:
        """What comes first of the messages `first <= number <= last`, up to `most` and, but for one message, `most_bytes` of bodies. It may be nothing though there is more."""

    @abstractmethod
    def drop_to(self, last: int, limit: int) -> int:
        """Forget up to `limit` ready messages from the head with numbers up to `last`; how many there were. Those on disk are left until they were read (`prepare`)."""


def from_number(runs: Runs, number: int) -> Iterator[Run]:
    """Of ascending runs those that end above `number`, and perhaps one before."""
    return (runs[position] for position in range(max(0, bisect_right(runs, number, key=_FIRST) - 1), len(runs)))


def take_range_batch(
    ready: Iterable[Run], pending: Runs, first: int, stop: int, watermark: int, most: int, most_bytes: int
) -> RangeBatch:
    """A portion of `[first, stop)` from ascending runs; what is pending or below the watermark was delivered before."""
    portion = RangeBatch(stop)
    size = 0
    for number, run, index, is_pending in merge(
        _slots(ready, first, stop, False), _slots(from_number(pending, first), first, stop, True), key=itemgetter(0)
    ):
        if len(portion.messages) == most or size >= most_bytes:
            portion.next_number = number
            break
        portion.add(number, run, index, is_pending or run.redelivered or number < watermark)
        size += run.size_at(index)
    return portion


def count_to(runs: Iterable[Run], last: int, limit: int) -> int:
    """How many messages of ascending runs, up to `limit`, have numbers up to `last`."""
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


_FIRST = attrgetter("first")
