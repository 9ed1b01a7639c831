"""What a variable queue writes to its segments, and removes of them.

    flush = folding.take_flush(is_synced);      flush.run();        folding.flushed(flush)
    release = folding.take_release();           release.run();      folding.released(release)

A **flush** folds what the journal alone has into segments; `wants_flush` tells that one would free memory, and one that is synced must be made before the journal
gives up a file. A **release** finds out which shared bodies a purge, or the end of the queue, has let go. Releases come before any flush or removal, and one job is
under way at a time. A queue that does not read ahead does all of it where it is wanted, and waits for the disk.
"""

from __future__ import annotations

from collections import deque

from ..index.segment_jobs import FlushJob, ReleaseJob
from ..messages.pending_runs import PendingRuns
from .placement import Placement, recovered
from .sub_queues import Delta
from .unconfirmed import Unconfirmed


class SegmentWriter:
    """See the module. `unconfirmed` hears of flushes, for something may wait for one."""

    __slots__ = ("_index", "_place", "_reads_ahead", "_releases", "_unconfirmed", "wants_flush")

    def __init__(self, place: Placement, unconfirmed: Unconfirmed, reads_ahead: bool) -> None:
        self._index = place.index
        self._place = place
        self._unconfirmed = unconfirmed
        self._reads_ahead = reads_ahead
        self._releases: deque[ReleaseJob] = deque()
        self.wants_flush = False
        """A flush would free memory, or remove files."""

    # -- flushes

    def request(self) -> None:
        """Have a flush made soon."""
        if self._reads_ahead:
            self.wants_flush = True
        else:
            self.flush()

    def flush(self, is_synced: bool = False) -> None:
        """Fold what the journal alone has into segments, here and now. After an OSError nothing is lost, and the next flush goes on with it."""
        self.wants_flush = False
        self._index.flush(is_synced)

    def take_flush(self, is_synced: bool = False) -> FlushJob | None:
        """The job that folds what the journal alone has into segments; None if there is nothing. One at a time."""
        assert not self._releases, "they read what a flush may remove"
        flush = self._index.take_flush(is_synced or self._unconfirmed.wants_sync)
        self.wants_flush = False
        self._unconfirmed.flush_taken()
        if flush is None:
            self._unconfirmed.flush_done()
        return flush

    def flushed(self, flush: FlushJob) -> None:
        self._unconfirmed.flush_done()
        self._index.flushed(flush)

    # -- removal of files

    @property
    def wants_removal(self) -> bool:
        """There are files of which nothing is wanted."""
        return self._index.has_emptied

    def take_removal(self) -> FlushJob | None:
        """The job that removes them; as a flush, and not beside one."""
        assert not self._releases, "they read what it may remove"
        return self._index.take_removal()

    def forget(self) -> None:
        """The queue is at its end. If it reads ahead, its files stay for `delete_files`, and releases may have to be run before that."""
        self._index.forget()
        if not self._reads_ahead:
            self.delete_files()

    def delete_files(self) -> None:
        """Waits for the disk; after `forget`, and when no job is under way or waits to be taken."""
        self._index.delete_files()

    # -- shared bodies

    def release(self, delta: Delta, pending: PendingRuns) -> None:
        """Let go of the shared bodies of delta but those of pending messages; only the index knows which they are."""
        if not delta.count or not self._place.has_shared:
            return
        known, jobs = self._index.shared_between(
            delta.start, delta.end, [run.first + index for run, index in pending.slots()]
        )
        self._place.forget_shared(recovered(run, True) for run in known)
        self._releases += jobs
        while not self._reads_ahead and (release := self.take_release()) is not None:
            release.run()
            self.released(release)

    def take_release(self) -> ReleaseJob | None:
        """The next job that finds out what was let go; None if there is none."""
        return self._releases[0] if self._releases else None

    def released(self, release: ReleaseJob) -> None:
        first = self._releases.popleft()
        assert release is first, "one after the other"
        self._index.released(release)
        self._place.released(release)
