"""The backing queue of a node without a data directory: every message is in memory, and ends with the queue.

Every publish is safe at once. The tests of other backing queues use this one as their model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...seams import seam
from ..index.segment_jobs import SegmentReadJob
from ..messages.arrivals import UNKNOWN
from ..messages.lives import FIRST_LIFE, Lives
from ..messages.message import (
    Expiries,
    FetchedMessages,
    Origin,
    Origins,
    QueuedMessage,
    any_of,
    expiries_of,
    have_same_fate,
    joined,
    slice_of,
)
from ..messages.parts import Part
from ..messages.pending_runs import PendingRuns
from ..messages.run import Run, free_last
from ..messages.run_queue import RunQueue
from .backing_queue import UNLIMITED, Dispose, Totals
from .lane_level import LaneLevel
from .range_read import (
    RANGE_BATCH_BYTES,
    RANGE_BATCH_MESSAGES,
    RangeBatch,
    RunBatch,
    SupportsRangeRead,
    count_to,
    take_range_batch,
    take_run_batch,
)


class MemoryQueue(LaneLevel, SupportsRangeRead):
    """Ready messages are in a `RunQueue`, pending ones in `PendingRuns`."""

    def __init__(self) -> None:
        self._ready = RunQueue()
        self._pending = PendingRuns()
        self._next = 0
        self._redelivered_below = 0  # another replica may have delivered the messages with lower numbers
        self.returns = {}
        self._confirmed: list[tuple[int, int]] = []

    def delete_and_terminate(self) -> Dispose:
        detached = [self._ready.detach(), self._pending.detach()]
        return lambda limit: bool(free_last(detached, limit))

    # -- in

    def publish(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        numbers = self._number(len(contents), confirm)
        self._ready.append(numbers.start, contents, origins, expiries, body_bytes, self.arrived, is_redelivered)
        return numbers

    def publish_delivered(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        assert not self._ready.count, "publish_delivered on a queue that is not empty"
        numbers = self._number(len(contents), confirm)
        whole = slice(None)
        columns = slice_of(origins, whole), expiries_of(expiries, whole)
        self._pending.add(
            Run(numbers.start, list(contents), *columns, is_redelivered, body_bytes, arrived=self.arrived)
        )
        return numbers

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        return self._number(count, confirm)

    def _number(self, count: int, confirm: bool) -> range:
        first = self._next
        self._next = end = first + count
        if confirm:
            confirmed = self._confirmed
            if confirmed and confirmed[-1][1] == first - 1:
                confirmed[-1] = (confirmed[-1][0], end - 1)
            else:
                confirmed.append((first, end - 1))
        return range(first, end)

    def drain_confirmed(self) -> list[tuple[int, int]]:
        confirmed = self._confirmed
        if confirmed:
            self._confirmed = []
        return confirmed

    # -- out

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        runs = self._take(count)
        deliveries = _joined(runs)
        if ack_required:
            for run in runs:
                self._pending.add(run)
        return deliveries

    def _take(self, count: int) -> list[Run]:
        """Take runs from the head, each with the redelivered flag that consumers will see."""
        runs, below = self._ready.take(count), self._redelivered_below
        if not runs or runs[0].first >= below:
            return runs
        seen = []
        for run in runs:
            if run.first < below < run.end and not run.redelivered:
                first = run.take(below - run.first)
                first.redelivered = True
                seen.append(first)
            run.redelivered = run.redelivered or run.first < below
            seen.append(run)
        return seen

    def drop(self, count: int) -> int:
        return sum([len(run.contents) for run in self._ready.take(count)])

    def drop_expired(self, now: int, limit: int) -> int:
        return self.drop(self._expired(now, limit))

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        runs = self._take(self._expired(now, limit))
        messages = [message for run in runs for message in run.messages()]
        for run in runs:
            self._pending.add(run)
        return messages

    def _expired(self, now: int, limit: int) -> int:
        """How many messages at the head, up to `limit`, expire no later than `now`."""
        count = 0
        for run in self._ready.runs:
            expired = run.expired(now, limit - count)
            count += expired
            if count == limit or expired < len(run.contents):
                break
        return count

    def ack(self, tags: Sequence[int]) -> int:
        return self._pending.discard(tags)

    def move(self, tags: Sequence[int]) -> int:
        return self.ack(tags)

    @seam("which messages are requeued")
    def requeue(self, tags: Sequence[int]) -> int:
        runs = self._pending.take(tags)
        if not runs:
            return 0
        self._ready.insert(runs)
        return sum([len(run.contents) for run in runs])

    def mark_redelivered(self) -> None:
        self._redelivered_below = self._next
        for run in self._pending.runs:
            run.redelivered = True

    def purge(self, limit: int = UNLIMITED) -> int:
        return sum([len(run.contents) for run in self._ready.take_last(limit)])

    def available(self, limit: int) -> int:
        return min(self._ready.count, limit)

    def prepare(self) -> None:
        """None: every message is in memory."""

    def prepare_pending(self, tags: Sequence[int]) -> None:
        """None, as for `prepare`."""

    # -- inspection

    def __len__(self) -> int:
        return self._ready.count

    def totals(self) -> Totals:
        ready, pending = self._ready, self._pending
        return Totals(ready.count, pending.count, ready.body_bytes, pending.body_bytes)

    def head(self) -> QueuedMessage | None:
        runs = self._ready.runs
        if not runs:
            return None
        message = runs.head.message(0)
        return message._replace(redelivered=message.redelivered or message.tag < self._redelivered_below)

    def head_expiry(self) -> int | None:
        runs = self._ready.runs
        return runs.head.expiry if runs else None

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        return [run.message(index) for run, index in self._pending.find(tags)]

    def pending_numbers(self) -> Iterator[int]:
        return self._pending.numbers()

    # -- by number

    def record_returns(self, numbers: Iterable[int]) -> None:
        """Does nothing, because the queue ends with its node."""

    def numbers(self) -> range:
        ready, pending = self._ready.runs, self._pending.lowest
        lowest = self._next if pending is None else pending
        return range(min(lowest, ready.head.first) if ready else lowest, self._next)

    def pass_over(self, count: int) -> range:
        numbers = self.discard(Origin("", ("",)), count, False)
        self.lives = self.lives.after(numbers)
        return numbers

    def note_lives(self, lives: Lives) -> None:
        self.lives = lives

    lives = FIRST_LIFE
    arrived = UNKNOWN

    def kept_numbers(self) -> range:
        return self.numbers()

    def prepare_range(self, first: int, last: int, window: int = RANGE_BATCH_MESSAGES) -> None:
        """None, as for `prepare`."""

    def range_prepared(self, job: SegmentReadJob, first: int, last: int, window: int = RANGE_BATCH_MESSAGES) -> None:
        """None, as for `prepare`."""

    def take_range(
        self, first: int, last: int, most: int = RANGE_BATCH_MESSAGES, most_bytes: int = RANGE_BATCH_BYTES
    ) -> RangeBatch:
        return take_range_batch(
            self._ready.runs.from_number(first),
            self._pending.runs,
            first,
            last + 1,
            self._redelivered_below,
            most,
            most_bytes,
        )

    def take_runs(self, first: int, last: int, window: int, most_bytes: int) -> RunBatch:
        ready, watermark = self._ready.runs.from_number(first), self._redelivered_below
        return take_run_batch(ready, self._pending.runs, first, last + 1, watermark, most_bytes)

    def drop_to(self, last: int, limit: int) -> int:
        return self.drop(count_to(self._ready.runs, last, limit))

    # -- mode

    def set_queue_mode(self, mode: str) -> None:
        """Do nothing: a lazy queue moves messages to the disk early, and this queue has no disk."""


def _joined(runs: list[Run]) -> list[FetchedMessages]:
    """The deliveries of runs. Neighbouring runs that differ only in expiry or origin become one delivery."""
    deliveries: list[FetchedMessages] = []
    for run in runs:
        last = deliveries[-1] if deliveries else None
        if (
            last is not None
            and have_same_fate(any_of(last.origins), run.origin)
            and last.redelivered == run.redelivered
            and last.tags[-1] + 1 == run.first
        ):
            origins = joined(last.origins, len(last.contents), run.origins, len(run.contents))
            last.contents.extend(run.contents)
            deliveries[-1] = FetchedMessages(origins, last.redelivered, range(last.tags[0], run.end), last.contents)
        else:
            deliveries.append(run.delivery())
    return deliveries
