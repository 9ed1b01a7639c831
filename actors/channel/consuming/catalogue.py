"""`Catalogue`: the info items of many queues that a reader by number needs, in one message (SP-20, SP-21).

A client consumes from the reserved queue `amq.warren.catalogue`, which is in no routing table. It gets one delivery, a
JSON array with a row for each queue, and the consumer is cancelled. The rows of queues that the user may not read, or
that do not run, are left out.

Asked for exchanges, it has a row for each exchange to which the user may publish. The row has `dedup`, how many
messages each queue behind the exchange remembers at least of what comes through it, and the `queue` that remembers the
fewest, if the user may read it. Metadata finds that out.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ....amqp import methods
from ....amqp.constants import PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....amqp.fields import table_to_dict
from ....amqp.frames import build_content, method_frame
from ....amqp.method import Method
from ....amqp.properties import Properties, encode_properties
from ....definitions.access import Kind, Right
from ....routing.arguments.catalogue_arguments import CATALOGUE, CatalogueRequest, catalogue_arguments
from ....routing.glob import matches_glob
from ....routing.rows import QueueRow
from ....runtime.process import Process
from ...context.node_context import NodeContext
from ...contracts.channel import ChannelConfig
from ...contracts.info_items import InfoItems
from ...contracts.metadata import to_metadata
from ...contracts.queue import to_queue
from ..client_output import ClientOutput
from ..queue_links import QueueLinks
from .endpoints import Endpoints

#: The most rows that one answer has.
MOST_ROWS = 10_000
#: The most exchanges that a client may ask about at a time: each has Metadata look at all queues behind it.
MOST_EXCHANGES = 16
#: Queues that the channel examines in one turn.
QUEUES_AT_A_TIME = 1_000

_PROPERTIES = encode_properties(Properties(content_type="application/json"))


class Catalogue:
    """The catalogue for one channel. `put_unasked` sends a method that the client did not ask for."""

    __slots__ = ("_config", "_context", "_output", "_process", "_put_unasked", "_queues")

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        config: ChannelConfig,
        output: ClientOutput,
        queues: QueueLinks,
        put_unasked: Callable[[Method], None],
    ) -> None:
        self._process = process
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues
        self._put_unasked = put_unasked

    async def consume(self, method: methods.BasicConsume, tag: str, delivery_tag: int) -> None:
        """Handle basic.consume from the catalogue; the delivery has this tag and needs no acknowledgement."""
        if not method.no_ack:
            raise AmqpError(PRECONDITION_FAILED, f"a consumer of queue '{CATALOGUE}' cannot acknowledge: set no-ack")
        request = catalogue_arguments(method.arguments)
        if request.exchanges is None:
            found = await self._queue_rows(request)
        else:
            found = await self._exchange_rows(sorted(request.exchanges))
        body = json.dumps(found, separators=(",", ":"), default=_as_text).encode()
        if not method.nowait:
            self._output.put_method(methods.BasicConsumeOk(tag))
        number = self._output.number
        self._output.frames.append(method_frame(number, methods.BasicDeliver(tag, delivery_tag, False, "", CATALOGUE)))
        self._output.put_content(build_content(number, _PROPERTIES, body, self._output.frame_max))
        if self._config.has_cancel_notify:
            self._put_unasked(methods.BasicCancel(tag, True))

    async def _queue_rows(self, request: CatalogueRequest) -> list[InfoItems]:
        rows = await self._wanted(request)
        if len(rows) > MOST_ROWS:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"queue '{CATALOGUE}' has {len(rows)} rows for these arguments, and answers at most {MOST_ROWS}; "
                "ask with a narrower pattern",
            )
        self._queues.flush()  # the queues then count in their rows what the client has published before
        nodes = dict.fromkeys(node for row in rows for node in _in_sync(row))
        endpoints = Endpoints(self._process, self._context, self._config, nodes)
        answers = await self._process.ask_each((row.address, to_queue.reading_info()) for row in rows)
        await endpoints.answered()
        return [self._row(row, answer, endpoints) for row, answer in zip(rows, answers) if isinstance(answer, dict)]

    async def _exchange_rows(self, names: list[str]) -> list[InfoItems]:
        if len(names) > MOST_EXCHANGES:
            raise AmqpError(
                PRECONDITION_FAILED, f"queue '{CATALOGUE}' answers for at most {MOST_EXCHANGES} exchanges at a time"
            )
        vhost = self._config.vhost
        found: list[InfoItems] = []
        for name in names:
            if (
                name
                and self._context.routing.exchange(vhost, name) is not None
                and self._may("write", "exchange", name)
            ):
                window, queue = await self._process.ask(self._context.metadata, to_metadata.window_behind(vhost, name))
                shown = queue if queue is not None and self._may("read", "queue", queue) else None
                found.append({"name": name, "dedup": window, "queue": shown})
        return found

    async def _wanted(self, request: CatalogueRequest) -> list[QueueRow]:
        """The rows of the queues that are asked for, that run, and that the user may read, sorted by name.

        A sharded queue stands for its shards, because it has no messages of its own.
        """
        names, pattern = request.queues, request.pattern
        routing, vhost = self._context.routing, self._config.vhost
        found = []
        for at, row in enumerate(routing.queues(vhost), 1):
            if at % QUEUES_AT_A_TIME == 0:
                await self._process.next_turn()
            name = row.shard_of or row.name
            fits = row.name in names or name in names if pattern is None else matches_glob(pattern, name)
            if fits and not row.shards and row.state == "running" and self._may_read(row, name):
                found.append(row)
        return sorted(found, key=lambda row: row.name)

    def _may_read(self, row: QueueRow, name: str) -> bool:
        is_mine = row.exclusive_owner in (None, self._config.connection_id)
        return is_mine and self._may("read", "queue", name)

    def _may(self, right: Right, kind: Kind, name: str) -> bool:
        try:
            self._config.access.check(right, kind, name)
        except AmqpError:
            return False
        return True

    def _row(self, row: QueueRow, answer: InfoItems, endpoints: Endpoints) -> InfoItems:
        in_sync = _in_sync(row)
        return {
            "name": row.name,
            "id": row.queue_id,
            **answer,
            "durable": row.durable,
            "arguments": table_to_dict(row.arguments),
            "shard_of": row.shard_of,
            "node": row.node,
            # The client reaches its own node as it has connected, which may be through a port mapping.
            "here": row.node == self._context.node_name,
            "endpoints": endpoints.of(in_sync),
            "in_sync": in_sync,
        }


def _in_sync(row: QueueRow) -> list[str]:
    """The nodes of the replicas that have all messages of a queue; the first one has the master."""
    return [row.node] if row.group is None else [member.node for member in row.group.ring]


def _as_text(value: object) -> str:
    """The text for a value that JSON has no type for, such as a time in the arguments of a queue."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
