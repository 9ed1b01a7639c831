"""`Flusher`: runs a queue's jobs on its segments, which wait for the disk, in another thread.

There are two kinds of job, and one job runs at a time:

flush      writes to segments what only the journal has, or removes segment files that have become empty
release    finds out which bodies in the message stores a purge, or the end of the queue, no longer needs

A flush that the disk refuses is repeated until the disk accepts it. A release that fails is given up: its bodies stay
in the store until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ....runtime.process import Process
from ....runtime.signal import Signal
from ....seams import seam
from ....store.deduplication.digest_log import EVERYTHING, DigestLog
from ....store.deduplication.ids_file import delete_ids
from ....store.index.segment_jobs import FlushJob
from ....store.queue.variable.disk_queue import DiskQueue
from ...disk.disk_retry import DiskRetry
from ..replica.stage import Stage

if TYPE_CHECKING:
    from ....runtime.contract import Address
    from ....store.disk.disk import Disk
    from ...contracts.resources import ToAlarms

log = logging.getLogger("warren.queue")

#: Parts beyond those that a flush has at its beginning, after which it writes all the rest, so that it ends even if
#: paging is quicker than the disk.
MORE_PARTS = 64


class Flusher:
    """The jobs of the queue that the log calls `phrase` on its segments.

    `levels` are the queue's disk sides by priority; levels that are added later are flushed as well. A refused flush is
    not repeated once the queue is being deleted (`stage`). `digest_log` has what the queue remembers of publishes; it
    is None while the queue does not.
    """

    __slots__ = (
        "_alarms",
        "_became_quiet",
        "_disk_retry",
        "_is_stopping",
        "_levels",
        "_phrase",
        "_process",
        "_stage",
        "digest_log",
        "is_busy",
    )

    def __init__(
        self,
        process: Process,
        phrase: str,
        alarms: Address[ToAlarms],
        levels: Mapping[int, DiskQueue],
        stage: Stage,
        digest_log: DigestLog | None,
    ) -> None:
        self._process = process
        self._levels = levels
        self._stage = stage
        self.digest_log = digest_log
        self._phrase = phrase
        self._alarms = alarms
        #: None before the first job, because idle queues have none.
        self._disk_retry: DiskRetry | None = None
        self._is_stopping = False
        self._became_quiet = Signal(process)
        #: A job is running, or must not begin. Whoever sets this calls `done` afterwards.
        self.is_busy = False

    def begin(self) -> None:
        """Begin the jobs that the levels ask for."""
        self.is_busy = True
        self._process.spawn(self._run_due())

    async def _run_due(self) -> None:
        for level in list(self._levels.values()):
            if level.segment_writer.needs_flush:
                await self._flush(level)
            else:
                await self._release(level)
                await self._write(level, level.segment_writer.take_removal())
        self.done()

    @seam("when the journal may delete what a queue has written")
    async def flush_synced(self) -> bool:
        """Write everything that only the journal has to segments, and sync them."""
        await self.quiet()
        self.is_busy = True
        for level in list(self._levels.values()):
            await self._flush(level, is_synced=True)
        digest_log = self.digest_log
        if digest_log is not None:
            # The digests are taken only now, when the messages are in the segments or gone: a digest must not be on the
            # disk without its message.
            synced = digest_log.synced
            while (digests := digest_log.take_flush(synced)) is not None and await self._is_run(digests.run):
                digest_log.flushed(digests)
        self.done()
        return True

    async def delete_digests(self, disk: Disk, directory: str) -> None:
        """Delete what the disk has of a window that has ended, unless another one has begun meanwhile."""
        await self.quiet()
        if self.digest_log is None:
            self.is_busy = True
            await self._is_run(lambda: delete_ids(disk, directory))
            self.done()

    async def release(self) -> None:
        """Run all releases that wait."""
        if any(level.segment_writer.take_release() is not None for level in self._levels.values()):
            await self.quiet()
            self.is_busy = True
            for level in self._levels.values():
                await self._release(level)
            self.done()

    async def _release(self, level: DiskQueue) -> None:
        while (job := level.segment_writer.take_release()) is not None:
            try:
                await self._process.run_blocking(job.run)
            except OSError as error:
                log.warning(
                    "%s: bodies of purged messages stay in the message store until the next start, because the index "
                    "that names them cannot be read: %s",
                    self._phrase,
                    error,
                )
                job.is_damaged = True
            level.segment_writer.released(job)

    async def _flush(self, level: DiskQueue, is_synced: bool = False) -> None:
        """Write what only the journal has to segments as soon as the disk has room for it.

        The job is taken only then: what consumers acknowledge meanwhile need not be written any more, so the wait ends
        when they have made room, or when nothing is left.
        """
        writer = level.segment_writer
        is_whole = is_synced or writer.needs_sync
        for _ in range(writer.parts + MORE_PARTS):
            if not writer.parts:
                break
            if not await self._may_flush(level):
                return
            part = writer.take_part()
            if part is None:
                break
            if not await self._write(level, part) or not is_whole:
                return  # the rest is still due, and follows when others who wait for a job have had theirs
        if await self._may_flush(level):
            await self._write(level, writer.take_flush(is_synced))

    async def _may_flush(self, level: DiskQueue) -> bool:
        """Wait until the disk has room, and run the releases. False if the queue is deleted meanwhile."""
        writer = level.segment_writer
        if writer.may_lack_room and not await self._is_run(writer.check_room):
            return False
        # The releases run after the wait, because a purge may have asked for one meanwhile, and before the flush,
        # because they read what the flush may remove.
        await self._release(level)
        return True

    async def _write(self, level: DiskQueue, job: FlushJob | None) -> bool:
        """Run a job, if there is one. False if the queue is deleted meanwhile."""
        if job is not None:
            if not await self._is_run(job.run):
                return False
            level.segment_writer.flushed(job)
        return True

    async def _is_run(self, work: Callable[[], None]) -> bool:
        """Repeat `work` until the disk accepts it. False if the queue is deleted meanwhile, perhaps to make room."""
        if self._disk_retry is None:
            self._disk_retry = DiskRetry(self._process, f"the index of {self._phrase}", self._alarms)
        try:
            await self._disk_retry.run(work, is_given_up=lambda: self._is_stopping or not self._stage.is_open)
        except OSError:
            if self._is_stopping:
                # A node that stops does not wait for room on the disk: the next start finds in the journal what this
                # flush did not write.
                raise
            return False
        return True

    # -- waiting ------------------------------------------------------------------------------------

    def done(self) -> None:
        """Note that no job runs any more."""
        self.is_busy = False
        self._became_quiet.wake_all()

    async def quiet(self) -> None:
        """Return when no job runs."""
        await self._became_quiet.wait_for(lambda: not self.is_busy)

    # -- the end ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Return when no job runs. From now on a flush that the disk refuses is not repeated."""
        self._is_stopping = True
        await self.quiet()

    async def flush_last(self) -> None:
        """Write everything that only the journal has to segments, and sync them; after `stop`.

        `is_busy` stays set, so that no other flush begins afterwards: the last publishes may ask for one, and so may
        the journal.
        """
        self.is_busy = True
        for level in list(self._levels.values()):
            await self._release(level)
            writer = level.segment_writer
            for left in range(writer.parts, -1, -1):
                job = writer.take_part() if left else writer.take_last_flush()
                if job is not None:
                    await self._process.run_blocking(job.run)
                    writer.flushed(job)
        if self.digest_log is not None:
            # No digest is on the disk before its message, because the last flush of the segments has ended.
            while (digests := self.digest_log.take_flush(EVERYTHING)) is not None:
                await self._process.run_blocking(digests.run)
                self.digest_log.flushed(digests)
