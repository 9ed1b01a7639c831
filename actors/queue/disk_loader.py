"""What a queue has read from the disk before it needs it: the head, by jobs of its backing queue (`read_ahead`) in another thread, and bodies from the message stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...store.queue.placement import Wanted
from ...store.queue.read_ahead import ReadAheadJob

if TYPE_CHECKING:
    from .durability import VhostStorage
    from .process import Queue


class DiskLoader:
    """See the module. `send` sends the stores what has gathered for them: what they are asked for may just have been written."""

    __slots__ = ("_is_under_way", "_queue", "_send", "_storage", "_waiters")

    def __init__(self, queue: Queue, storage: VhostStorage, send: Callable[[], None]) -> None:
        self._queue = queue
        self._storage = storage
        self._send = send
        self._is_under_way = False
        self._waiters: list[Any] = []

    def prepare(self) -> None:
        """Have more of the head in memory; the queue has work again when it is."""
        if self._is_under_way:
            return
        load = self._queue.backing.prepare()
        if load is None:
            return
        self._is_under_way = True
        self._queue.spawn(self._load(load))

    async def _load(self, load: ReadAheadJob) -> None:
        await self._run(load)
        queue = self._queue
        self._is_under_way = False
        queue.has_work = True
        if queue.length_limit.drops_head:
            queue.length_limit.drop_overflow()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            queue.reply(waiter, None)

    async def _run(self, load: ReadAheadJob) -> None:
        persistent, transient = self._asked(load.wanted)
        await self._queue.run_blocking(load.run)
        load.reader.prepared(load, await persistent if persistent else [], await transient if transient else [])

    async def bodies(self, wanted: Wanted) -> tuple[list[bytes | None], list[bytes | None]]:
        """Those of the persistent and of the transient store; None for one that is not there any more."""
        persistent, transient = self._asked(wanted)
        return await persistent if persistent else [], await transient if transient else []

    def _asked(self, wanted: Wanted) -> tuple[Any, Any]:
        """The answers of the persistent and of the transient store, to be awaited; None of one that is not asked."""
        queue, storage = self._queue, self._storage
        self._send()
        return (
            queue.ask(storage.persistent, ("read_many", wanted.persistent)) if wanted.persistent else None,
            queue.ask(storage.transient, ("read_many", wanted.transient)) if wanted.transient else None,
        )

    async def prepare_pending(self, tags: Sequence[int]) -> None:
        """Return when `ackfold` of these can be called."""
        while (load := self._queue.backing.prepare_pending(tags)) is not None:
            await self._run(load)

    async def available(self) -> None:
        """Return when a message can be taken from the head, or there is none."""
        queue = self._queue
        while len(queue.backing) and not queue.backing.available(1):
            self.prepare()
            if self._is_under_way:
                await queue.ask(queue.myAddress, ("loaded",))

    def wait_done(self, sender: Any) -> None:
        if self._is_under_way:
            self._waiters.append(sender)
        else:
            self._queue.reply(sender, None)
