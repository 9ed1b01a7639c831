"""`MemoryStream`: the backing queue of a stream on a node that keeps everything in memory."""

from __future__ import annotations

from ...index.segment_jobs import SegmentReadJob
from ...messages.run import Run
from ..memory_queue import MemoryQueue
from .stream_segments import StreamBacking, StreamSegments


class MemoryStream(MemoryQueue, StreamBacking):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.segments = StreamSegments()

    def span_from(self, first: int, most: int) -> range:
        return range(first, min(first + most, self._next))

    def prepare_runs(self, span: range) -> None:
        """None: every message is in memory."""

    def runs_prepared(self, job: SegmentReadJob, span: range) -> None:
        """None, as for `prepare_runs`."""

    def runs(self, span: range) -> list[Run]:
        found = []
        for run in self._ready.runs.from_number(span.start):
            if run.first >= span.stop:
                break
            found.append(run.part(max(0, span.start - run.first), min(len(run.contents), span.stop - run.first)))
        return found

    def drop_before(self, number: int) -> int:
        messages, _ = self.segments.drop_before(number)
        return self.drop(messages)
