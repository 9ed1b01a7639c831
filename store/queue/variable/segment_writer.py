"""Writes the segments of a variable queue, and removes those without messages, by jobs that run in another thread.

    flush = segment_writer.take_flush(is_synced)        after `parts` calls of take_part()
    flush.run()                                         # in another thread
    segment_writer.flushed(flush)

    release = segment_writer.take_release()
    release.run()                                       # in another thread
    segment_writer.released(release)

A **flush** writes the entries that only the journal has to segments. The queue asks for one when it would free memory
(`needs_flush`); the journal asks for a synced one before it gives up a file. A **release** finds out which shared
bodies a purge or the end of the queue has let go: only segments name them. Releases run before flushes and removals,
which would delete what they read, and only one job runs at a time.
"""

from __future__ import annotations

from collections import deque

from ...index.segment_jobs import FlushJob, ReleaseJob
from ...messages.pending_runs import PendingRuns
from .placement import Placement, recovered
from .sub_queues import Delta
from .unconfirmed import Unconfirmed

#: Runs of index entries, bytes of their bodies, and entries that one part of a flush has at most. A turn goes through
#: the runs, at 4 µs each, and the bytes are copied: a queue that pages because memory is short must not take much more
#: first. Another turn frees what was written. With 180,000 messages of a byte, that took 8 ms.
PART_RUNS = 256
PART_BYTES = 4 << 20
PART_MESSAGES = 32_768

#: A flush of fewer bytes is written without a check whether the disk has room for it.
UNCHECKED_BYTES = 64 << 10


class SegmentWriter:
    """See the module. `unconfirmed` is notified of flushes, because publishes may wait for one."""

    __slots__ = ("_index", "_place", "_releases", "_unconfirmed", "needs_flush")

    def __init__(self, place: Placement, unconfirmed: Unconfirmed) -> None:
        self._index = place.index
        self._place = place
        self._unconfirmed = unconfirmed
        #: None before the first, because an empty deque takes 760 bytes.
        self._releases: deque[ReleaseJob] | None = None
        #: Whether a flush would free memory or remove files.
        self.needs_flush = False

    # -- flushes

    def flush(self, is_synced: bool = False) -> None:
        """Flush at once. Waits for the disk.

        If it raises OSError, the next flush writes the entries that this one did not.
        """
        self.needs_flush = False
        self._index.flush(is_synced)

    @property
    def may_lack_room(self) -> bool:
        """Whether `check_room` should be called before a flush is taken.

        The job of a flush checks the room as well. A check of its own costs a switch to another thread and back, which
        a lazy queue would pay for every batch of messages.
        """
        size = self._index.unflushed_bytes
        return size > UNCHECKED_BYTES and size > self._index.unchecked_bytes

    def check_room(self) -> None:
        """Raise OSError if the disk has no room for a flush. Waits for the disk."""
        self._index.check_room(self._index.unflushed_bytes)

    def take_flush(self, is_synced: bool = False) -> FlushJob | None:
        """The job of a flush; None if there is nothing to write."""
        assert not self._releases, "a release reads files that a flush may remove"
        flush = self._index.take_flush(is_synced or self._unconfirmed.needs_sync)
        self.needs_flush = False
        self._unconfirmed.flush_taken()
        if flush is None:
            self._unconfirmed.flush_done()
        return flush

    def take_last_flush(self) -> FlushJob | None:
        """The job of the flush with which the queue ends: it also writes what the journal has not synced."""
        self._index.unflushed.hold_nothing()
        return self.take_flush(True)

    @property
    def needs_sync(self) -> bool:
        """Whether publishes wait for the next whole flush."""
        return self._unconfirmed.needs_sync

    @property
    def parts(self) -> int:
        """How many times `take_part` should be called before a flush is taken."""
        unflushed = self._index.unflushed
        return (
            unflushed.runs // PART_RUNS + unflushed.embedded.body_bytes // PART_BYTES + unflushed.count // PART_MESSAGES
        )

    def take_part(self) -> FlushJob | None:
        """The job of an unsynced flush of the oldest entries; None if there is nothing to write.

        Publishes that wait for a flush wait for the next whole one, which syncs what this one has written.
        """
        assert not self._releases, "a release reads files that a flush may remove"
        return self._index.take_flush(False, (PART_RUNS, PART_BYTES, PART_MESSAGES))

    def flushed(self, flush: FlushJob) -> None:
        self._unconfirmed.flush_done()
        self._index.flushed(flush)

    # -- removal of files

    @property
    def has_work(self) -> bool:
        """Whether there is a flush that would free memory, a segment without messages, or a release."""
        return self.needs_flush or self._index.has_emptied or bool(self._releases)

    def take_removal(self) -> FlushJob | None:
        """The job that removes segments without messages; None if there are none. It is handed back to `flushed`."""
        assert not self._releases, "a release reads files that a removal deletes"
        return self._index.take_removal()

    def forget(self) -> None:
        """Forget all entries, because the queue ends. Its owner then runs the releases and calls `delete_files`."""
        self._index.forget()

    def delete_files(self) -> None:
        """Delete every segment. Waits for the disk.

        Call it after `forget`, when no job is under way and no release is left.
        """
        self._index.delete_files()

    # -- shared bodies

    def release(self, delta: Delta, pending: PendingRuns) -> None:
        """Let go of the shared bodies of delta except those of pending messages. Only the index has their ids."""
        if not delta.count or not self._place.has_shared:
            return
        known, jobs = self._index.shared_between(
            delta.start, delta.end, pending.numbers_in(range(delta.start, delta.end))
        )
        self._place.forget_shared(recovered(run, True) for run in known)
        if self._releases is None:
            self._releases = deque()
        self._releases += jobs

    def take_release(self) -> ReleaseJob | None:
        """The next job that finds ids of bodies to let go; None if there is none."""
        return self._releases[0] if self._releases else None

    def released(self, release: ReleaseJob) -> None:
        assert self._releases is not None
        first = self._releases.popleft()
        assert release is first, "releases are handed back in their order"
        self._index.released(release)
        self._place.released(release)
