"""`StreamQueue`: the backing queue of a stream on the disk.

It is a lazy variable queue that only grows at its tail and shrinks at its head. All its messages are in delta: entries
that only the journal has are in memory until the next flush, all others on the disk alone. So a stream costs memory for
its segments and nothing for its messages.

Its numbers are the offsets of the messages, without a gap after a crash: the queue reserves no numbers, because its
process shows consumers only messages that are on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ...index.queue_index import SEGMENT_ENTRIES, QueueIndex
from ...index.segment_jobs import SegmentReadJob
from ...index.segment_scan import SPAN_BYTES
from ...journal.replay import Replayed
from ...messages.run import Run
from ..variable.paging import IO_BATCH_SIZE
from ..variable.placement import EMBED_BELOW, Bodies, recovered
from ..variable.queue_recovery import RecoveredQueue
from ..variable.sub_queues import Delta
from ..variable.variable_queue import VariableQueue
from .stream_segments import StreamBacking, StreamSegments


class StreamQueue(VariableQueue, StreamBacking):
    """See the module. The arguments are those of `VariableQueue`; a stream never `keeps_numbers`."""

    __slots__ = ("_has_holes", "_terms", "segments")

    def __init__(
        self,
        queue: int,
        index: QueueIndex,
        persistent: Bodies,
        transient: Bodies,
        replayed: Replayed | None = None,
        embed_below: int = EMBED_BELOW,
        io_batch_size: int = IO_BATCH_SIZE,
        segment_entries: int = SEGMENT_ENTRIES,
        clock: Callable[[], float] = time.monotonic,
        keeps_numbers: bool = False,
    ) -> None:
        super().__init__(
            queue, index, persistent, transient, replayed, embed_below, io_batch_size, segment_entries, clock, False
        )
        super().set_queue_mode("lazy")
        self.segments = StreamSegments()
        self._terms: dict[str, Any] | None = None
        #: Whether damage has cost messages, so that some numbers between the first and the last have none.
        self._has_holes = False

    # -- life

    def recover(self, terms: dict[str, Any] | None, missing: Sequence[int], is_copy: bool = False) -> None:
        self._terms = terms
        super().recover(terms, missing, is_copy)
        self._terms = None

    def _find_messages(self, found: RecoveredQueue) -> None:
        if not found.messages:
            return
        if not found.is_scanned and self._terms is not None:
            self.segments = StreamSegments(self._terms["stream"])
        else:
            # The messages of each file become a segment, or several if they are large: the disk does not record where
            # the segments began before.
            file = None
            for span in sorted(found.spans):
                if (boundary := self._index.boundary_after(span.first)) != file:
                    file = boundary
                    self.segments.begin()
                numbers = range(span.first, span.first + span.messages)
                self.segments.append(numbers, span.body_bytes, span.latest, SPAN_BYTES)
        first = self.segments.first(self._next)
        self._place.has_bodies = True
        self._has_holes = found.messages < self._next - first
        self.sub_queues.delta = Delta(first, self._next, found.messages, found.body_bytes)

    def terminate(self) -> dict[str, Any]:
        return {**super().terminate(), "stream": self.segments.rows()}

    @property
    def has_lost_entries(self) -> bool:
        return self._has_holes or super().has_lost_entries

    # -- what a stream does not need

    def set_queue_mode(self, mode: str) -> None:
        """Do nothing: a stream stays lazy, whatever its settings are."""

    def available(self, limit: int) -> int:
        """0: nothing is taken from the head."""
        return 0

    def prepare(self) -> None:
        """None: the head is read like everything else."""

    # -- by offset

    def numbers(self) -> range:
        return range(self.segments.first(self._next), self._next)

    def span_from(self, first: int, most: int) -> range:
        return range(first, min(first + most, self._index.boundary_after(first), self._next))

    def prepare_runs(self, span: range) -> SegmentReadJob | None:
        return self._index.reads.take(span.start, span.stop)

    def runs_prepared(self, job: SegmentReadJob, span: range) -> SegmentReadJob | None:
        self._index.reads.loaded(job)
        return self._index.reads.take(span.start, span.stop)

    def runs(self, span: range) -> list[Run]:
        return [recovered(run, is_stored) for run, is_stored in self._index.read(span.start, span.stop)]

    def drop_before(self, number: int) -> int:
        delta = self.sub_queues.delta
        messages, body_bytes = self.segments.drop_before(number)
        stop = self.segments.first(self._next)
        if stop > delta.start:
            # Only files name the shared bodies, so they are released before the index forgets the messages.
            self.segment_writer.release(Delta(delta.start, stop, stop - delta.start), self._pending)
            self._place.forget_between(delta.start, stop)
            if self.has_lost_entries:
                # Damage has left numbers without a message, so the numbers to ack are read, from one file at most.
                self._index.ack_between(delta.start, stop)
            else:
                self._index.ack(range(delta.start, stop))
            delta.start = stop
            delta.count = max(0, delta.count - messages)
            delta.body_bytes = max(0, delta.body_bytes - body_bytes)
        return messages
