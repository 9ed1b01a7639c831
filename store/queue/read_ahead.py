"""Reading from the disk before it is needed: a variable queue whose owner runs jobs in another thread never waits for it.

    load = queue.prepare();     load.run(), and read the bodies of load.wanted;     load.reader.prepared(load, bodies)

What may be taken from the head meanwhile is what `SubQueues.available` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..index.segment_jobs import SegmentReadJob
from ..messages.pending_runs import PendingRuns
from ..messages.run import Run
from .paging import UNBOUNDED
from .placement import ABSENT, Placement, Wanted
from .sub_queues import SubQueues

READ_BYTES = 4 << 20
"""Bodies that one load brings into memory."""


@dataclass
class ReadAheadJob:
    """What must be read so that the head of a queue is in memory. `wanted` are ids of bodies in the stores; whoever has run it tells the `reader`."""

    reader: ReadAhead
    read: SegmentReadJob | None
    wanted: Wanted

    def run(self) -> None:
        """The part that concerns the index; in another thread."""
        if self.read is not None:
            self.read.run()


class ReadAhead:
    """See the module."""

    __slots__ = ("_index", "_pending", "_place", "_sub_queues")

    def __init__(self, sub_queues: SubQueues, pending: PendingRuns, place: Placement) -> None:
        self._sub_queues = sub_queues
        self._pending = pending
        self._place = place
        self._index = place.index

    def pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        """The job after which the bodies of the pending messages `tags` are in memory, for whoever wants them at once; None if none is needed."""
        found: list[Run] = []
        for run, index in self._pending.find(tags):
            if run.kind & ABSENT and not self._place.readable(slot := run.slot(index)):
                found.append(slot)
        wanted = self._place.wanted(found, UNBOUNDED)
        return ReadAheadJob(self, None, wanted) if wanted.persistent or wanted.transient else None

    def head(self, becomes_default: bool) -> ReadAheadJob | None:
        """What is at hand without the disk is done at once; the job that reads the rest, None if there is nothing to read. One at a time.

        `becomes_default`: a queue that is lazy is to be so no longer as soon as that can be.
        """
        sub = self._sub_queues
        read = None
        while (span := sub.slice_wanted()) is not None:
            read = self._index.take_read(span.start, span.stop)
            if read is not None:
                break
            sub.load_from_delta(1)
        if becomes_default and sub.is_lazy:
            sub.become_default()
        wanted = Wanted([], []) if sub.available(1) else self._place.wanted(sub.unread(), READ_BYTES)
        return ReadAheadJob(self, read, wanted) if read is not None or wanted.persistent or wanted.transient else None

    def prepared(
        self, load: ReadAheadJob, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]
    ) -> None:
        """The job was run, and the bodies of `load.wanted` were read, in that order."""
        if load.wanted.persistent or load.wanted.transient:
            self._place.loaded(load.wanted, persistent, transient)
            if None in persistent or None in transient:
                self._sub_queues.drop_lost()
        if load.read is not None:
            self._index.loaded(load.read)
            span = self._sub_queues.slice_wanted()
            if span is not None and self._index.take_read(span.start, span.stop) is None:
                self._sub_queues.load_from_delta(1)
