"""Reads the head of a variable queue from disk before it is needed, so that the queue's process never waits for the
disk.

    job = queue.prepare()                               # None if nothing must be read
    job.run()                                           # in another thread: index segments
    job.reader.prepared(job, persistent, transient)     # the bodies of job.missing, read from the message stores

Meanwhile the owner takes no more from the head than `SubQueues.available` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...index.segment_jobs import SegmentReadJob
from ...messages.pending_runs import PendingRuns
from ...messages.run import ABSENT
from .paging import UNBOUNDED
from .placement import BodyIds, Placement
from .sub_queues import SubQueues

#: Bytes of bodies that one job brings into memory.
READ_BYTES = 4 << 20


class ReadsAhead(Protocol):
    """Gives out jobs, and takes what they have read."""

    def prepared(
        self, job: ReadAheadJob, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]
    ) -> None:
        """Take what a job has read. `persistent` and `transient` are the bodies of `job.missing`, in that order."""


@dataclass
class ReadAheadJob:
    """What must be read so that the head of a queue is in memory. `missing` are ids of bodies in the message stores.

    The owner runs the job, reads the bodies, and hands both to `reader.prepared`.
    """

    reader: ReadsAhead
    read: SegmentReadJob | None
    missing: BodyIds

    def run(self) -> None:
        """Read the index segment. Waits for the disk."""
        if self.read is not None:
            self.read.run()


class ReadAhead:
    """The read-ahead of one queue."""

    __slots__ = ("_index", "_pending", "_place", "_sub_queues")

    def __init__(self, sub_queues: SubQueues, pending: PendingRuns, place: Placement) -> None:
        self._sub_queues = sub_queues
        self._pending = pending
        self._place = place
        self._index = place.index

    def pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        """The job that brings the bodies of the pending messages `tags` into memory; None if they are there.

        The bodies stay until the next job is done, so the caller must use them at once.
        """
        found = [run.slot(index) for run, index in self._pending.find(tags) if run.kind & ABSENT]
        if all(map(self._place.readable, found)):
            return None
        # The job reads all these bodies again, even those that an earlier job has read: what this job brings replaces
        # them (`Placement.loaded`).
        return ReadAheadJob(self, None, self._place.missing_bodies(found, UNBOUNDED))

    def head(self, becomes_default: bool) -> ReadAheadJob | None:
        """Load what needs no disk, and return the job that reads the rest of the head; None if no disk is needed.

        One job at a time.
        `becomes_default`: a lazy queue becomes a default one as soon as its head is in memory.
        """
        sub = self._sub_queues
        read = None
        while (span := sub.next_slice()) is not None:
            read = self._index.reads.take(span.start, span.stop)
            if read is not None:
                break
            sub.load_from_delta(1)
        if becomes_default and sub.is_lazy:
            sub.become_default()
        missing = BodyIds([], []) if sub.available(1) else self._place.missing_bodies(sub.unread(), READ_BYTES)
        return (
            ReadAheadJob(self, read, missing) if read is not None or missing.persistent or missing.transient else None
        )

    def prepared(
        self, job: ReadAheadJob, persistent: Sequence[bytes | None], transient: Sequence[bytes | None]
    ) -> None:
        if job.missing.persistent or job.missing.transient:
            self._place.loaded(job.missing, persistent, transient)
            if None in persistent or None in transient:
                self._sub_queues.drop_lost()
        if job.read is not None:
            self._index.reads.loaded(job.read)
            span = self._sub_queues.next_slice()
            if span is not None and self._index.reads.take(span.start, span.stop) is None:
                self._sub_queues.load_from_delta(1)
