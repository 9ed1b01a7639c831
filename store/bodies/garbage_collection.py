"""How far a message store is with the files whose garbage it gives back: the stations of `combine`, gone through from here.

    job = garbage.take();   job.run();   garbage.finish(job), or after an OSError garbage.fail(job)

One job at a time. Two stations last until an index commit has seen them: `wants_sync` asks for one, `sync_taken` and `synced` tell of it.
"""

from __future__ import annotations

import enum

from ..disk.disk import Disk
from .combine import CombineJob, DeleteJob, Move, UnlinkJob
from .file_summary import FileSummary
from .lease import Lease
from .location_index import LocationIndex
from .open_files import OpenFile, OpenFiles

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
    """See the module. `index`, `summary` and `files` are the store's, `directory` that of its files on `disk`."""

    __slots__ = ("_at", "_at_in_sync", "_directory", "_disk", "_files", "_held", "_index", "_job", "_lease", "_summary")

    def __init__(
        self, disk: Disk, directory: str, lease: Lease, index: LocationIndex, summary: FileSummary, files: OpenFiles
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._lease = lease
        self._index = index
        self._summary = summary
        self._files = files
        self._at = _Station.NONE
        self._at_in_sync = _Station.NONE  # the station that the commit under way will have seen
        self._job: GcJob | None = None
        self._held: list[OpenFile] = []  # files that are being combined

    # -- commits of the index

    @property
    def wants_sync(self) -> bool:
        """It goes on after the next commit."""
        return self._at in (_Station.PLANNED, _Station.APPLIED)

    def sync_taken(self) -> list[tuple[int, ...]]:
        """A commit will have what is known now. Returns the intents to go with it: groups of files that a crash would leave in a state that the index does not tell."""
        self._at_in_sync = self._at
        if self._at in (_Station.PLANNED, _Station.READY, _Station.RUNNING) and isinstance(
            self._job, CombineJob | DeleteJob
        ):
            return [self._job.files]
        return []

    def synced(self) -> None:
        """That commit is durable."""
        if self._at is self._at_in_sync:
            self._at = {_Station.PLANNED: _Station.READY, _Station.APPLIED: _Station.UNLINKABLE}.get(self._at, self._at)

    # -- jobs

    @property
    def is_running(self) -> bool:
        return self._at is _Station.RUNNING

    def take(self) -> GcJob | None:
        """The next piece of work against garbage; None if there is none, or it waits for a sync (which is urgent then)."""
        if self._at is _Station.NONE:
            self._plan()
        if self._at is _Station.UNLINKABLE and self._job is not None:
            unlinked = self._job.files[1:] if isinstance(self._job, CombineJob) else self._job.files
            self._job = UnlinkJob(self._lease, self._disk, self._directory, unlinked)
        elif self._at is not _Station.READY:
            return None
        elif isinstance(self._job, CombineJob):
            # The job may replace a file before the index says so: until then messages are read from what is open now.
            self._held = [self._files.hold(file) for file in self._job.files]
        self._at = _Station.RUNNING
        return self._job

    def _plan(self) -> None:
        emptied = self._summary.take_emptied()
        if emptied:
            self._job = DeleteJob(self._lease, self._index, emptied)
        else:
            pair = self._summary.combinable()
            if pair is None:
                return
            self._job = CombineJob(self._lease, self._disk, self._directory, self._index, *pair)
        for file in self._job.files:
            self._summary.rows[file].locked = True
        self._at = _Station.PLANNED

    def finish(self, job: GcJob) -> list[bytes]:
        """The job was run: messages are where it put them. Returns the ids of those it found damaged, which are gone."""
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
                assert not self._summary.rows[file].valid_total_size, (
                    "something in a file that is to be deleted is wanted"
                )
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
                assert move.located.message_id in damaged, "a wanted message was not copied"
                gone.append(move.located.message_id)
                lost += wanted
            else:
                valid += wanted
        assert valid + lost == rows[older].valid_total_size + rows[younger].valid_total_size, (
            "a wanted message has no new place"
        )
        self._summary.resize(older, valid, job.file_size)
        self._summary.remove(younger)
        self._summary.unlock(older)
        return gone

    def _apply(self, move: Move, file: int | None) -> int:
        """Locate a message anew, or drop it, if it still is where the job found it; returns how many wanted bytes that concerns."""
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
        """`job.run` raised OSError: leave the files as they are. The same files may be tried again."""
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
        """Forget a plan; its intent goes with the next commit."""
        if self._at in (_Station.PLANNED, _Station.READY) and self._job is not None:
            for file in self._job.files:
                self._summary.unlock(file)
            self._at, self._job = _Station.NONE, None

    def unlink(self) -> None:
        """Delete, here and now, the file that nothing leads to any more, if there is one."""
        if self._at is _Station.UNLINKABLE:
            job = self.take()
            assert isinstance(job, UnlinkJob)
            job.run()
            self.finish(job)
