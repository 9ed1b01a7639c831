"""How a queue ends for good: deleted by a client, or of itself (auto-delete, `x-expires`). A node that stops ends its queues in another way, and keeps them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...routing.phrases import queue_phrase
from ...runtime.errors import ProcessDown

if TYPE_CHECKING:
    from .process import Queue


class Ending:
    """`has_begun`: nothing may be asked of the queue any more."""

    __slots__ = ("has_begun", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.has_begun = False

    async def delete_if(self, if_unused: bool, if_empty: bool) -> int:
        """Deletes the queue; returns how many messages were ready. Raises AmqpError 406 where a condition forbids it."""
        queue = self.queue
        queue.intake.take_delayed()
        resource = queue_phrase(queue.row.vhost, queue.row.name)
        if if_empty and len(queue.backing):
            raise AmqpError(PRECONDITION_FAILED, f"{resource} not empty")
        if if_unused and len(queue.consumers):
            raise AmqpError(PRECONDITION_FAILED, f"{resource} in use")
        count = len(queue.backing)
        await self._delete("deleted")
        return count

    async def leave(self, reason: str) -> None:
        """The queue's own end: out of the routing table first, so that nothing is routed to a process that is gone."""
        if self.has_begun:
            return
        self.has_begun = True
        queue = self.queue
        await queue.ask(queue.context.metadata, ("queue_gone", queue.row.vhost, queue.row.name, queue.queue_id))
        await self._delete(reason)

    async def _delete(self, reason: str) -> None:
        queue = self.queue
        self.has_begun = True
        queue.is_open = False
        queue.backing.delete_and_terminate()
        if queue.durability is not None:
            if queue.row.durable:
                await self._leave_metadata()
            await queue.durability.delete()
        # Channels hear of it through their monitors: they cancel their consumers and take what is unconfirmed as confirmed (AB-86).
        queue.stop(reason)

    async def _leave_metadata(self) -> None:
        """Return when the disk knows of no such queue: a crash leaves all of it, or files that belong to nobody, and no part (C-16, C-17)."""
        queue = self.queue
        metadata = queue.context.metadata
        # A full disk does not take it; deleting the messages may make room, and Metadata tells who asked.
        with suppress(AmqpError, ProcessDown):
            await queue.ask(metadata, ("queue_gone", queue.row.vhost, queue.row.name, queue.queue_id))
            await queue.ask(metadata, ("write", ()))
