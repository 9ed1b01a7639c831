"""`Listings`: rows of what is in a node, for operators and for the program that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...routing.phrases import no_queue
from ...routing.shards import shards_of
from ..contracts.connection import to_connection
from ..contracts.metadata import to_metadata
from ..contracts.node import NodeError
from ..contracts.queue import to_queue
from ..metadata.info_items import ConsumerNames, logical_consumers, queue_items, with_shard_items
from ..statistics.queue_infos import ask_running, if_answered, queue_infos

if TYPE_CHECKING:
    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from ..context.node_context import NodeContext
    from ..contracts.connection import ToConnection
    from ..contracts.info_items import InfoItems
    from .gate import Gate
    from .vhosts import Vhosts

#: Seconds that a listing waits for a process; one that does not answer is left out.
LIST_TIMEOUT = 5.0

LIST_KINDS = ("bindings", "channels", "connections", "consumers", "exchanges", "queues", "vhosts")


class Listings:
    """Belongs to `process`, the supervisor of the node. It keeps nothing: each listing asks or reads the processes."""

    def __init__(self, process: Process, context: NodeContext, gate: Gate, vhosts: Vhosts) -> None:
        self._process = process
        self._context = context
        self._gate = gate
        self._vhosts = vhosts

    async def of_kind(self, kind: str, vhost: str | None) -> list[InfoItems]:
        """A row for each thing of this kind, in one virtual host or in all. Raises NodeError."""
        if kind not in LIST_KINDS:
            raise NodeError(f"unknown kind '{kind}'; it is one of: {', '.join(LIST_KINDS)}")
        if vhost is not None:
            self._vhosts.check(vhost)
        if kind == "queues":
            return await self._queues(self._queue_rows(vhost))
        if kind == "consumers":
            return await self._consumers(self._queue_rows(vhost))
        if kind in ("connections", "channels"):
            connections = await self._gate.connections()
            rows = await (self._connections if kind == "connections" else self._channels)(connections)
            return [row for row in rows if vhost is None or row["vhost"] == vhost]
        return await self._process.ask(self._context.metadata, to_metadata.list(kind, vhost))

    async def of_queue(self, vhost: str, name: str) -> InfoItems:
        """The row of one queue. Raises NodeError and AmqpError 404."""
        self._vhosts.check(vhost)
        row = self._context.routing.queue(vhost, name)
        found = [] if row is None else await self._queues([row])
        if not found:  # The queue never existed, or was deleted before it answered.
            raise no_queue(vhost, name)
        return found[0]

    def _queue_rows(self, vhost: str | None) -> list[QueueRow]:
        routing = self._context.routing
        vhosts = routing.vhosts() if vhost is None else (vhost,)
        return [row for name in vhosts for row in routing.queues(name)]

    async def _queues(self, rows: list[QueueRow]) -> list[InfoItems]:
        answers = await queue_infos(self._process, self._context, rows, LIST_TIMEOUT)
        for at, row in enumerate(rows):
            items = answers[at]
            if row.shards and items is not None:
                shards = list(shards_of(self._context.routing, row))
                of_shards = await queue_infos(self._process, self._context, shards, LIST_TIMEOUT)
                answers[at] = with_shard_items(items, [each for each in of_shards if each is not None])
        return [items for items in await self._process.in_steps(self._items, zip(rows, answers)) if items is not None]

    def _items(self, asked: tuple[QueueRow, InfoItems | None]) -> InfoItems | None:
        """The row of a queue in a listing, with the answer of its process if there is one; None if it is gone."""
        row, items = asked
        routing, definitions = self._context.routing, self._context.definitions
        if items is not None:
            return {**queue_items(row, definitions), **items}
        return None if routing.queue(row.vhost, row.name) is None else queue_items(row, definitions)

    async def _consumers(self, rows: list[QueueRow]) -> list[InfoItems]:
        rows = sorted(rows, key=lambda row: row.shard_of is not None)
        answers = await ask_running(self._process, rows, to_queue.consumers_info(), LIST_TIMEOUT)
        seen: ConsumerNames = set()
        return [items for row, answer in zip(rows, answers) for items in logical_consumers(row, answer or (), seen)]

    async def _connections(self, connections: list[Address[ToConnection]]) -> list[InfoItems]:
        asks = ((address, to_connection.info()) for address in connections)
        answers = await self._process.ask_each(asks, LIST_TIMEOUT)
        return [items for items in map(if_answered, answers) if items is not None]

    async def _channels(self, connections: list[Address[ToConnection]]) -> list[InfoItems]:
        asks = ((address, to_connection.channels_info()) for address in connections)
        answers = await self._process.ask_each(asks, LIST_TIMEOUT)
        return [items for answer in map(if_answered, answers) for items in answer or ()]
