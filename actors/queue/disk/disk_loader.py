"""`DiskLoader`: reads what a queue needs from the disk before it needs it.

Segments are read in another thread, bodies by the message stores. The core of the queue asks for a read with a `Job` in
its `Effects`, and goes on when the replica calls the job's `finish`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ....runtime.process import Process
from ....store.index.segment_jobs import SegmentReadJob
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.variable.placement import BodyIds
from ....store.queue.variable.read_ahead import ReadAheadJob
from ...contracts.disk import to_message_store

if TYPE_CHECKING:
    from ...contracts.queue import VhostStorage

#: A body for each id that a store was asked for, None if the store does not have it any more.
Bodies = list[bytes | None]


class DiskLoader:
    """The reads of one queue.

    `flush` sends the stores what has gathered for them, because they may be asked for a body that was just written.
    `messages` counts the bodies that were read since the queue's process started.
    """

    __slots__ = ("_flush", "_process", "_storage", "backing", "messages")

    def __init__(
        self, process: Process, backing: BackingQueue, storage: VhostStorage, flush: Callable[[], None]
    ) -> None:
        self._process = process
        self.backing = backing
        self._storage = storage
        self._flush = flush
        self.messages = 0

    async def read(self, job: ReadAheadJob) -> None:
        """Run a job of the backing queue, and give it the bodies that it needs from the message stores."""
        persistent, transient = self._ask_stores(job.missing)
        await self._process.run_blocking(job.run)
        if job.read is not None:
            self.messages += job.read.bodies()
        job.reader.prepared(job, await persistent if persistent else [], await transient if transient else [])

    async def pending(self, tags: Sequence[int]) -> None:
        """Return when `pending_messages` of these ack tags finds all bodies in memory."""
        while (job := self.backing.prepare_pending(tags)) is not None:
            await self.read(job)

    async def segments(self, job: SegmentReadJob) -> None:
        """Run a job that reads segments."""
        await self._process.run_blocking(job.run)
        self.messages += job.bodies()

    async def bodies(self, wanted: BodyIds) -> tuple[Bodies, Bodies]:
        """The wanted bodies of the persistent and of the transient store."""
        persistent, transient = self._ask_stores(wanted)
        return await persistent if persistent else [], await transient if transient else []

    def _ask_stores(self, wanted: BodyIds) -> tuple[Awaitable[Bodies] | None, Awaitable[Bodies] | None]:
        """Ask the persistent and the transient store for bodies; None in place of a store from which none is wanted."""
        process, storage = self._process, self._storage
        self._flush()
        self.messages += len(wanted.persistent) + len(wanted.transient)
        return (
            process.ask(storage.persistent, to_message_store.read_many(wanted.persistent))
            if wanted.persistent
            else None,
            process.ask(storage.transient, to_message_store.read_many(wanted.transient)) if wanted.transient else None,
        )


class Job(Protocol):
    """A read that the core of a queue asks for."""

    async def run(self, loader: DiskLoader) -> None:
        """Read what the core needs, by means of `loader`."""

    def finish(self) -> None:
        """Pass on to the core what was read. Called right after `run` has returned, because the next read replaces what
        was read; not called if the role was replaced meanwhile.
        """


class PendingRead:
    """Reads the bodies of pending messages. `finished(tags)` must use them at once: the next read replaces them."""

    __slots__ = ("_finished", "tags")

    def __init__(self, tags: Sequence[int], finished: Callable[[Sequence[int]], None]) -> None:
        self.tags = tags
        self._finished = finished

    async def run(self, loader: DiskLoader) -> None:
        await loader.pending(self.tags)

    def finish(self) -> None:
        self._finished(self.tags)


class SegmentRead:
    """Reads segments for a reader of a range."""

    __slots__ = ("_finished", "_job")

    def __init__(self, job: SegmentReadJob, finished: Callable[[SegmentReadJob], None]) -> None:
        self._job = job
        self._finished = finished

    async def run(self, loader: DiskLoader) -> None:
        await loader.segments(self._job)

    def finish(self) -> None:
        self._finished(self._job)


class BodyRead:
    """Reads the bodies that a batch of a range has in the message stores."""

    __slots__ = ("_bodies", "_finished", "_wanted")

    def __init__(self, wanted: BodyIds, finished: Callable[[Bodies, Bodies], None]) -> None:
        self._wanted = wanted
        self._finished = finished
        self._bodies: tuple[Bodies, Bodies] = ([], [])

    async def run(self, loader: DiskLoader) -> None:
        self._bodies = await loader.bodies(self._wanted)

    def finish(self) -> None:
        self._finished(*self._bodies)
