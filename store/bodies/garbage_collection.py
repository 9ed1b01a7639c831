"""The garbage collection of a message store. It takes either two neighbouring files, to combine them, or all files
without a wanted body, to delete them, through the stations that `combine` describes.

    job = garbage.take()            # None if there is nothing to do now
    job.run()                       # in another thread
    garbage.finish(job)             # after an OSError: garbage.fail(job)

One job runs at a time. Two stations wait for an index commit: `needs_sync` asks for one, and the owner calls
`sync_taken` when it takes the commit's changes and `synced` when the commit is durable.
"""

from __future__ import annotations

import enum

from ..disk.disk import Disk
from .combine import CombineJob, DeleteJob, Move, UnlinkJob
from .file_summary import FileSummary
from .location_index import LocationIndex
from .open_files import OpenFile, OpenFiles
from .owner_lock import OwnerLock

GcJob = CombineJob | DeleteJob | UnlinkJob


class _Station(enum.Enum):
    """See `combine`."""

    NONE = enum.auto()
    PLANNED = enum.auto()
    READY = enum.auto()
    RUNNING = enum.auto()
    APPLIED = enum.auto()
    UNLINKABLE = enum.auto()


class GarbageCollection:
    """See the module. `index`, `summary` and `files` belong to the store; its files are in `directory` on `disk`."""

    __slots__ = (
        "_at",
        "_at_in_sync",
        "_directory",
        "_disk",
        "_files",
        "_held",
        "_index",
        "_job",
        "_owner_lock",
        "_summary",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        owner_lock: OwnerLock,
        index: LocationIndex,
        summary: FileSummary,
        files: OpenFiles,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._owner_lock = owner_lock
        self._index = index
        self._summary = summary
        self._files = files
        self._at = _Station.NONE
        self._at_in_sync = _Station.NONE  # the station when the commit under way was taken
        self._job: GcJob | None = None
        self._held: list[OpenFile] = []  # the files being combined, kept open for readers

    # -- commits of the index

    @property
    def needs_sync(self) -> bool:
        """Whether the job waits for an index commit."""
        return self._at in (_Station.PLANNED, _Station.APPLIED)

    def sync_taken(self) -> list[tuple[int, ...]]:
        """Note that a commit takes the present state of the index. Returns the intents to commit with it.

        An intent is a group of files that a crash may leave in a state that the index does not show.
        """
        self._at_in_sync = self._at
        if self._at in (_Station.PLANNED, _Station.READY, _Station.RUNNING) and isinstance(
            self._job, CombineJob | DeleteJob
        ):
            return [self._job.files]
        return []

    def synced(self) -> None:
        """Note that the commit that was last taken is durable."""
        if self._at is self._at_in_sync:
            self._at = {_Station.PLANNED: _Station.READY, _Station.APPLIED: _Station.UNLINKABLE}.get(self._at, self._at)

    # -- jobs

    @property
    def is_running(self) -> bool:
        return self._at is _Station.RUNNING

    def take(self) -> GcJob | None:
        """The next job; None if there is none, or if it waits for a commit (`needs_sync`)."""
        if self._at is _Station.NONE:
            self._plan()
        if self._at is _Station.UNLINKABLE and self._job is not None:
            unlinked = self._job.files[1:] if isinstance(self._job, CombineJob) else self._job.files
            self._job = UnlinkJob(self._owner_lock, self._disk, self._directory, unlinked)
        elif self._at is not _Station.READY:
            return None
        elif isinstance(self._job, CombineJob):
            # The job may replace a file before the index has the new places. Until then readers use the old, open file.
            self._held = [self._files.hold(file) for file in self._job.files]
        self._at = _Station.RUNNING
        return self._job

    def _plan(self) -> None:
        emptied = self._summary.take_emptied()
        if emptied:
            self._job = DeleteJob(self._owner_lock, self._index, emptied)
        else:
            pair = self._summary.combinable()
            if pair is None:
                return
            self._job = CombineJob(self._owner_lock, self._disk, self._directory, self._index, *pair)
        for file in self._job.files:
            self._summary.rows[file].locked = True
        self._at = _Station.PLANNED

    def finish(self, job: GcJob) -> list[bytes]:
        """Apply the result of a job. Returns the ids of wanted bodies that it found damaged, which are dropped."""
        assert job is self._job and self._at is _Station.RUNNING
        if isinstance(job, UnlinkJob):
            self._at, self._job = _Station.NONE, None
            return []
        for file in job.files:
            self._files.forget(file)
            self._index.empty(file)
        self._release_held()
        damaged: list[bytes] = []
        if isinstance(job, CombineJob):
            damaged = self._apply_combined(job)
        else:
            for move in job.moves:
                self._apply(move, None)
            for file in job.files:
                assert not self._summary.rows[file].valid_total_size, "a file to delete has a wanted body"
                self._summary.remove(file)
        self._at = _Station.APPLIED
        return damaged

    def _apply_combined(self, job: CombineJob) -> list[bytes]:
        older, younger = job.files
        rows = self._summary.rows
        damaged = set(job.damaged)
        gone: list[bytes] = []
        valid = lost = 0
        for move in job.moves:
            wanted = self._apply(move, older)
            if wanted and move.offset is None:
                assert move.located.message_id in damaged, "a wanted body was not copied"
                gone.append(move.located.message_id)
                lost += wanted
            else:
                valid += wanted
        assert valid + lost == rows[older].valid_total_size + rows[younger].valid_total_size, (
            "a wanted body has no new place"
        )
        self._summary.resize(older, valid, job.file_size)
        self._summary.remove(younger)
        self._summary.unlock(older)
        return gone

    def _apply(self, move: Move, file: int | None) -> int:
        """Give a body its new place, or drop it, unless it has moved since the job read the index.

        Returns its size if it is wanted.
        """
        (message_id, was), offset = move
        now = self._index.get(message_id)
        if now is None or (now.file, now.offset) != (was.file, was.offset):
            return 0
        if offset is None or file is None:
            self._index.drop(message_id)
        else:
            self._index.place(message_id, now._replace(file=file, offset=offset))
        return now.total_size if now.ref_count else 0

    def fail(self, job: GcJob) -> None:
        """Leave the files as they are, because `job.run` raised OSError. A later job may try them again."""
        assert job is self._job and self._at is _Station.RUNNING
        if isinstance(job, UnlinkJob):
            self._at = _Station.UNLINKABLE
        else:
            self._release_held()
            self._at = _Station.READY
            self.cancel()

    def _release_held(self) -> None:
        for held in self._held:
            self._files.release(held)
        self._held = []

    # -- the end

    def cancel(self) -> None:
        """Drop a plan that has not begun. The next commit removes its intent."""
        if self._at in (_Station.PLANNED, _Station.READY) and self._job is not None:
            for file in self._job.files:
                self._summary.unlock(file)
            self._at, self._job = _Station.NONE, None

    def unlink(self) -> None:
        """Delete the files that the index no longer names, if the job has come that far. Waits for the disk."""
        if self._at is _Station.UNLINKABLE:
            job = self.take()
            assert isinstance(job, UnlinkJob)
            job.run()
            self.finish(job)
