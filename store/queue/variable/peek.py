"""Reads messages of a variable queue without taking them: the head, pending messages by tag, and ranges by number.

Bodies that are not in memory are read one at a time and not kept; a message whose body is gone is skipped. Messages
below the `watermark` were at the head before, so they count as redelivered (D-5).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...index.segment_jobs import SegmentReadJob
from ...messages.message import QueuedMessage
from ...messages.pending_runs import PendingRuns
from ...messages.run import ABSENT, IN_STORE, INDEXED, TO_STORE, Run
from ..range_read import (
    RANGE_BATCH_MESSAGES,
    RangeBatch,
    RunBatch,
    take_range_batch,
    take_run_batch,
    window_from,
)
from .placement import Placement
from .sub_queues import SubQueues


class Peek:
    """The read-only view of the sub-queues and pending messages of one queue."""

    __slots__ = ("_index", "_pending", "_place", "_sub_queues")

    def __init__(self, sub_queues: SubQueues, pending: PendingRuns, place: Placement) -> None:
        self._sub_queues = sub_queues
        self._pending = pending
        self._place = place
        self._index = place.index

    def head(self, watermark: int) -> QueuedMessage | None:
        """The next message; its content is empty if the body is on disk."""
        run = self._sub_queues.head()
        if run is None:
            return None
        first = run.part(0, 1)
        content = self._place.read(first)[0] if self._place.readable(first) else b""
        return QueuedMessage(
            run.first, content or b"", run.origin_at(0), run.expiry, run.redelivered or run.first < watermark
        )

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        """The pending messages with these tags, without those whose bodies are lost."""
        return [
            QueuedMessage(run.first + index, content, run.origin_at(index), run.expiry_at(index), run.redelivered)
            for run, index in list(self._pending.find(tags))
            if (content := self._content(run, index)) is not None
        ]

    def _content(self, run: Run, index: int) -> bytes | None:
        if run.kind & ABSENT:
            return self._place.read(run.slot(index))[0]
        content: bytes = run.contents[index]
        return content

    # -- ranges (see `range_read`)

    def lowest(self, otherwise: int) -> int:
        """The lowest number of a ready or pending message; `otherwise` if there is none."""
        held = [number for number in (self._sub_queues.lowest, self._pending.lowest) if number is not None]
        return min(held, default=otherwise)

    def prepare_range(self, first: int, last: int, window: int) -> SegmentReadJob | None:
        """As `SupportsRangeRead.prepare_range`. The job reads more than one batch needs; the next batches find the rest
        in memory, unless another read replaces it.
        """
        sub, index = self._sub_queues, self._index
        part = sub.on_disk(first, last, window)
        if not part or index.reads.take(part.start, part.stop) is None:
            return None
        whole = sub.on_disk(first, last, max(window, window_from(first)))
        return index.reads.take(whole.start, whole.stop)

    def range_prepared(self, job: SegmentReadJob, first: int, last: int, window: int) -> SegmentReadJob | None:
        self._index.reads.loaded(job)
        return self.prepare_range(first, last, window)

    def take_range(self, first: int, last: int, watermark: int, most: int, most_bytes: int) -> RangeBatch:
        ready, stop = self._sub_queues.ready_from(first, last, RANGE_BATCH_MESSAGES)
        return take_range_batch(ready, self._pending.runs, first, stop, watermark, most, most_bytes)

    def take_runs(self, first: int, last: int, window: int, watermark: int, most_bytes: int) -> RunBatch:
        ready, stop = self._sub_queues.ready_from(first, last, window)
        return take_run_batch(ready, self._pending.runs, first, stop, watermark, most_bytes)

    def check(self) -> None:
        """Assert QS-1 to QS-10 and QS-12. Tests call it after each step."""
        self._sub_queues.check()
        pending = self._pending
        if not pending.runs:
            assert (pending.absent, pending.movable, pending.absent_bytes) == (0, 0, 0), "QS-8"
            return
        assert not any(pending.count_in(range(run.first, run.end)) for run in self._sub_queues.runs_in_memory()), (
            "QS-12"
        )
        large = [run for run in pending.runs if run.kind & TO_STORE]
        absent = sum(run.live for run in large if run.kind & ABSENT)
        assert (pending.absent, pending.movable) == (absent, sum(run.live for run in large) - absent), "QS-8"
        assert pending.absent_bytes == sum(run.body_bytes for run in large if run.kind & ABSENT), "QS-8"
        for run in pending.runs:
            assert not run.kind & ABSENT or run.kind & IN_STORE, "QS-10"
            assert not run.origin.persistent or run.kind & INDEXED, "QS-10"
