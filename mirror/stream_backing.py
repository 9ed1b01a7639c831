"""`MirroredStream`: the backing queue of a replica of a mirrored stream, around the one that has its messages.

Messages of a stream leave from the low end alone, a segment at a time, when the master's retention says so. So a mirror
follows three instructions: what was published, where a segment begins, and from which number on the stream is kept.
What a learner copies has segments of its own.

A new master goes on with the next number. Consumers are only shown what the whole ring has, so nobody has seen a number
that only the old master had given. For the same reason a new master shows nothing before the ring has everything that
this replica had taken as a mirror.
"""

from __future__ import annotations

from ..store.index.segment_jobs import SegmentReadJob
from ..store.messages.run import Run
from ..store.queue.backing_queue import BackingQueue
from ..store.queue.range_read import SupportsRangeRead
from ..store.queue.streams.stream_segments import StreamBacking, StreamSegments
from . import instructions
from .backing import MirroredQueue, MirroredRangeQueue

#: Body bytes of a segment of a copy, which does not know where the segments of its source begin.
COPIED_SEGMENT_BYTES = 16 << 20


class MirroredStream(MirroredQueue, StreamBacking):
    """See the module."""

    def __init__(self, inner: StreamBacking, is_durable: bool) -> None:
        super().__init__(inner, is_durable)
        self._stream = inner
        #: What a new master may not show before the ring has it; None if it may show everything.
        self._unshown: range | None = None
        self._settled: list[tuple[int, int]] = []

    @property
    def segments(self) -> StreamSegments:  # type: ignore[override]  # the stream inside sets it
        return self._stream.segments

    # -- the mirror

    def take(self, run: Run) -> range:
        numbers = super().take(run)
        self.segments.append(numbers, run.body_bytes, run.expiry or 0, COPIED_SEGMENT_BYTES)
        return numbers

    def follow_segment(self) -> None:
        self._stream.begin_segment()

    def follow_drop(self, number: int) -> None:
        self._stream.drop_before(number)

    def promote(self) -> None:
        self._unshown = self.numbers()
        self.is_inherited = True

    def resurrect(self) -> None:
        """Everything that the disk has may be shown: no other replica has anything else."""

    def reached_by_all(self) -> None:
        unshown, self._unshown = self._unshown, None
        if unshown:
            self._settled.append((unshown.start, unshown.stop - 1))

    # -- the master

    def committed(self) -> int:
        return self.numbers().stop if self._unshown is None else self._unshown.start

    def drain_confirmed(self) -> list[tuple[int, int]]:
        found = super().drain_confirmed()
        if self._settled and self.may_confirm:
            found, self._settled = self._settled + found, []
        return found

    def begin_segment(self) -> None:
        self.is_inherited = False
        self._stream.begin_segment()
        if self.is_followed:
            self.out.append(instructions.segment())

    def drop_before(self, number: int) -> int:
        dropped = self._stream.drop_before(number)
        if dropped and self.is_followed:
            self.out.append(instructions.kept_from(number))
        return dropped

    # -- passed on

    def numbers(self) -> range:
        return self._stream.numbers()

    def span_from(self, first: int, most: int) -> range:
        return self._stream.span_from(first, most)

    def prepare_runs(self, span: range) -> SegmentReadJob | None:
        return self._stream.prepare_runs(span)

    def runs_prepared(self, job: SegmentReadJob, span: range) -> SegmentReadJob | None:
        return self._stream.runs_prepared(job, span)

    def runs(self, span: range) -> list[Run]:
        return self._stream.runs(span)


def mirrored(inner: BackingQueue, is_durable: bool) -> MirroredQueue:
    """The backing queue of a replica, around the one that has its messages."""
    if isinstance(inner, StreamBacking):
        return MirroredStream(inner, is_durable)
    kind = MirroredRangeQueue if isinstance(inner, SupportsRangeRead) else MirroredQueue
    return kind(inner, is_durable)
