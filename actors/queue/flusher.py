"""What a queue writes to its segments, and removes of them: the jobs of its levels that wait for the disk, run in another thread.

One at a time: a **flush** folds what the journal alone has into segments, or removes files that are empty by now; a **release** finds out which bodies a purge has let go.
What the disk refuses is tried again until it takes it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ...store.index.segment_jobs import FlushJob
from ...store.queue.variable_queue import VariableQueue
from ..disk.disk_retry import DiskRetry

if TYPE_CHECKING:
    from .process import Queue

log = logging.getLogger("warren.queue")


class Flusher:
    """See the module. `levels` are the queue's, by priority; it sees those that come later as well."""

    __slots__ = ("_disk_retry", "_is_stopping", "_levels", "_queue", "_waiters", "is_under_way")

    def __init__(self, queue: Queue, levels: dict[int, VariableQueue]) -> None:
        self._queue = queue
        self._levels = levels
        self._disk_retry = DiskRetry(
            queue, f"the index of queue '{queue.row.name}' in vhost '{queue.row.vhost}'", queue.context.alarms
        )
        self._is_stopping = False
        self._waiters: list[Any] = []
        self.is_under_way = False
        """Nothing else may begin; whoever sets it calls `done`."""

    def begin(self) -> None:
        """Do what the levels want done."""
        self.is_under_way = True
        self._queue.spawn(self._flush())

    async def _flush(self) -> None:
        for level in list(self._levels.values()):
            await self._release(level)
            await self._write(
                level, level.folding.take_flush() if level.folding.wants_flush else level.folding.take_removal()
            )
        self.done()

    async def flush_synced(self) -> bool:
        """Have everything in segments, synced."""
        await self.quiet()
        self.is_under_way = True
        for level in list(self._levels.values()):
            await self._release(level)
            await self._write(level, level.folding.take_flush(True))
        self.done()
        return True

    async def release(self) -> None:
        """Let go of all that was purged."""
        if any(level.folding.take_release() is not None for level in self._levels.values()):
            await self.quiet()
            self.is_under_way = True
            for level in self._levels.values():
                await self._release(level)
            self.done()

    async def _release(self, level: VariableQueue) -> None:
        """Let go of the bodies that were purged and are known to segments alone."""
        while (release := level.folding.take_release()) is not None:
            try:
                await self._queue.run_blocking(release.run)
            except OSError as error:
                log.warning(
                    "queue '%s' in vhost '%s': bodies of messages that were purged stay in the message store until the next start: %s",
                    self._queue.row.name,
                    self._queue.row.vhost,
                    error,
                )
                release.is_damaged = True
            level.folding.released(release)

    async def _write(self, level: VariableQueue, flush: FlushJob | None) -> None:
        if flush is None:
            return
        try:
            await self._disk_retry.run(flush.run, is_given_up=lambda: self._is_stopping or not self._queue.is_open)
        except OSError:
            if self._is_stopping:
                raise  # a node that stops does not wait for room: the next start finds in the journal what is not here
            return  # the queue is being deleted, perhaps to make room
        level.folding.flushed(flush)

    # -- waiting ------------------------------------------------------------------------------------------------------------------------------

    def done(self) -> None:
        self.is_under_way = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._queue.reply(waiter, None)

    async def quiet(self) -> None:
        """Return when nothing is under way."""
        while self.is_under_way:
            await self._queue.ask(self._queue.myAddress, ("flushed",))

    def wait_done(self, sender: Any) -> None:
        if self.is_under_way:
            self._waiters.append(sender)
        else:
            self._queue.reply(sender, None)

    # -- the end ------------------------------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Return when nothing is under way; what the disk refuses is not tried again any more."""
        self._is_stopping = True
        await self.quiet()

    async def flush_last(self) -> None:
        """After `stop`: have everything in segments, synced. Nobody folds but this from then on: publishes that came last may want it, and so may the journal."""
        self.is_under_way = True
        for level in list(self._levels.values()):
            await self._release(level)
            flush = level.folding.take_flush(True)
            if flush is not None:
                await self._queue.run_blocking(flush.run)
                level.folding.flushed(flush)
