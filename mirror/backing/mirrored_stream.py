"""`MirroredStream`: the backing queue of a replica of a mirrored stream, around the one that has its messages.

The messages of a stream leave at its low end only, one segment at a time, by the master's retention. So a mirror
carries out three instructions: messages were published, a segment begins, and all messages before a number are dropped.
The copy that a learner makes has segments of its own.

A new master continues with the next number. Consumers receive a message only when all members of the ring have it, so
no consumer has seen a number that the old master alone had given. For the same reason a new master delivers no message
that it took as a mirror before all members have these messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...store.index.segment_jobs import SegmentReadJob
from ...store.messages.run import Run
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.range_read import SupportsRangeRead
from ...store.queue.streams.stream_segments import StreamBacking, StreamSegments
from .. import instructions
from .mirrored_queue import MirroredQueue
from .mirrored_range_queue import MirroredRangeQueue

#: Body bytes of a segment in a learner's copy, because the chunks do not show where the source's segments begin.
COPIED_SEGMENT_BYTES = 16 << 20


class MirroredStream(MirroredQueue, StreamBacking):
    """See the module."""

    def __init__(self, inner: StreamBacking, is_durable: bool) -> None:
        super().__init__(inner, is_durable)
        self._stream = inner
        #: The numbers that a new master may not deliver before all members have them; None if it may deliver all.
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

    def resurrect(self, reign: int) -> None:
        """Do nothing: all messages on the disk may be delivered, because no other replica has any."""

    def floors(self) -> tuple[int, list[int]]:
        return 1, []

    def note_floors(self, reign: int, floors: Iterable[int]) -> None:
        """Do nothing: the numbers of a stream have no gaps, and a replica that comes back begins without messages."""

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
