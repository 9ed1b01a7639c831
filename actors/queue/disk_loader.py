"""`DiskLoader`: reads what a queue needs from the disk before it needs it.

The head of the queue is read by jobs of its backing queue (`store/queue/read_ahead.py`), one at a time: segments in
another thread, bodies by the message stores.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ...runtime.process import Process
from ...runtime.signal import Signal
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.placement import BodyIds
from ...store.queue.read_ahead import ReadAheadJob
from ..disk.contract import to_message_store

if TYPE_CHECKING:
    from .contract import VhostStorage

    #: A body for each id that a store was asked for, None if the store does not have it any more.
    Bodies = list[bytes | None]


class DiskLoader:
    """The reads of one queue.

    `flush` sends the stores what has gathered for them, because they may be asked for a body that was just written.
    `loaded` is called when more of the head is in memory.
    """

    __slots__ = ("_backing", "_flush", "_has_loaded", "_is_loading", "_loaded", "_process", "_storage")

    def __init__(
        self,
        process: Process,
        backing: BackingQueue,
        storage: VhostStorage,
        flush: Callable[[], None],
        loaded: Callable[[], None],
    ) -> None:
        self._process = process
        self._backing = backing
        self._storage = storage
        self._flush = flush
        self._loaded = loaded
        self._is_loading = False
        #: The read in progress is done.
        self._has_loaded = Signal(process)

    def prepare(self) -> None:
        """Begin to read more of the head, unless a read is in progress or nothing needs to be read."""
        if self._is_loading:
            return
        job = self._backing.prepare()
        if job is None:
            return
        self._is_loading = True
        self._process.spawn(self._load(job))

    async def _load(self, job: ReadAheadJob) -> None:
        await self._run(job)
        self._is_loading = False
        self._loaded()
        self._has_loaded.wake_all()

    async def _run(self, job: ReadAheadJob) -> None:
        persistent, transient = self._ask_stores(job.missing)
        await self._process.run_blocking(job.run)
        job.reader.prepared(job, await persistent if persistent else [], await transient if transient else [])

    async def bodies(self, wanted: BodyIds) -> tuple[Bodies, Bodies]:
        """The wanted bodies of the persistent and of the transient store."""
        persistent, transient = self._ask_stores(wanted)
        return await persistent if persistent else [], await transient if transient else []

    def _ask_stores(self, wanted: BodyIds) -> tuple[Awaitable[Bodies] | None, Awaitable[Bodies] | None]:
        """Ask the persistent and the transient store for bodies; None in place of a store from which none is wanted."""
        process, storage = self._process, self._storage
        self._flush()
        return (
            process.ask(storage.persistent, to_message_store.read_many(wanted.persistent))
            if wanted.persistent
            else None,
            process.ask(storage.transient, to_message_store.read_many(wanted.transient)) if wanted.transient else None,
        )

    async def prepare_pending(self, tags: Sequence[int]) -> None:
        """Return when `pending_messages` of these ack tags finds all bodies in memory."""
        while (job := self._backing.prepare_pending(tags)) is not None:
            await self._run(job)

    async def available(self) -> None:
        """Return when a message can be taken from the head, or the queue is empty."""
        backing = self._backing
        while len(backing) and not backing.available(1):
            self.prepare()
            if self._is_loading:
                await self._has_loaded.wait()
