"""`Removal`: takes a queue that ends out of the metadata, the memory and the disk, in steps."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from ...amqp.errors import AmqpError
from ...routing.rows import QueueRow
from ...runtime.process import Process
from ...runtime.turn_work import STEP, TurnWork
from ...store.queue.backing_queue import BackingQueue, Dispose
from ..context.node_context import NodeContext
from ..contracts.metadata import to_metadata
from .disk.durability import Durability
from .replica.channel_records import ChannelRecords
from .role import Role

#: How many messages a queue that ends may free in a turn for each one that it could settle in a turn.
FREED_AS_ONE = 8


class Removal:
    """The removal of the queue `row`, whose process is `process`; `durability` is None without a disk."""

    __slots__ = ("_channels", "_context", "_durability", "_process", "_row", "_work")

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        row: QueueRow,
        channels: ChannelRecords,
        work: TurnWork,
        durability: Durability | None,
    ) -> None:
        self._process = process
        self._context = context
        self._row = row
        self._channels = channels
        self._work = work
        self._durability = durability

    async def leave_routing(self) -> None:
        """Return when the routing table does not have the queue, so that no publish is routed to it."""
        row = self._row
        await self._process.ask(self._context.metadata, to_metadata.queue_gone(row.vhost, row.name, row.queue_id))

    async def remove(self, backing: BackingQueue, role: Role) -> None:
        """Remove everything that the queue has."""
        role.end()
        dispose = backing.delete_and_terminate()
        await self._remove_row()
        await self._dispose(dispose)
        await self._forget_channels(role)
        if self._durability is not None:
            await self._durability.delete()

    async def _remove_row(self) -> None:
        """Return when no publish is routed to this queue and the disk has no row of it.

        A channel that finds the queue dead while its routing table still has the row takes the queue for crashed, and
        refuses the publish (CL-35). The files are removed only after the row, so that a crash leaves either the whole
        queue, or files without a queue, which the next start removes (C-16, C-17).
        """
        # A full disk refuses this commit. The deletion goes on, since it may free space, and Metadata reports the error
        # to the client that asked for it. But if Metadata ends, and the node with it, ProcessDown ends this queue too:
        # the disk may still have the row, so the next start must find the queue's files.
        with suppress(AmqpError):
            await self.leave_routing()
            if self._durability is not None and self._row.durable:
                await self._process.ask(self._context.metadata, to_metadata.write())

    async def _dispose(self, dispose: Dispose) -> None:
        """Free what the queue has in memory in steps. At the end of the process it would be freed in one turn."""
        most = FREED_AS_ONE * self._work.most
        while dispose(most):
            if self._durability is not None:
                self._durability.send()
            await self._process.next_turn()
        for number, record in enumerate(list(self._channels.by_id.values()), 1):
            while record.pending.take_last(most):
                await self._process.next_turn()
            if number % STEP == 0:
                await self._process.next_turn()

    async def _forget_channels(self, role: Role) -> None:
        """Forget the channels and their consumers in steps. A queue may have 65,535 of them, and to free all of them at
        the end of the process took 300 ms.
        """
        channels, process = self._channels, self._process
        while channels.by_id:
            for channel_id in list(islice(channels.by_id, STEP)):
                record = channels.forget(channel_id)
                assert record is not None
                record.drop_consumers()
                process.demonitor(channel_id)
            await process.next_turn()
        while role.forget_consumers(STEP):
            await process.next_turn()
