"""`Declares`: the methods of a channel on exchanges, queues and bindings (amqp-broker section 7).

Checks that need only the routing table, and those of the user's rights, are made here. Metadata makes the others, and
the change itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from ...amqp import methods
from ...amqp.constants import CONNECTION_FORCED, RESOURCE_LOCKED
from ...amqp.errors import AmqpError
from ...amqp.fields import INDEXED_FROM, Table
from ...amqp.parser.events import METHOD
from ...definitions.access import Kind
from ...routing.arguments.exchange_arguments import alternate_exchange, check_exchange_arguments
from ...routing.arguments.queue_arguments import check_dead_letter_exchange
from ...routing.exchanges.exchange_types import check_exchange_type
from ...routing.phrases import (
    check_not_default_exchange,
    check_not_reserved,
    check_not_system_exchange,
    generated_name,
    no_exchange,
    no_queue,
    value_text,
    without_cr_lf,
)
from ...routing.queue_types import GROUP
from ...routing.rows import QueueRow
from ...routing.shards import check_not_shard
from ...runtime.contract import ProcessMessage
from ...runtime.errors import ProcessDown
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..contracts.channel import ChannelConfig, to_channel
from ..contracts.metadata import ToMetadata, to_metadata
from .client_output import ClientOutput
from .direct_reply import REPLY_TO, REPLY_TO_PREFIX, ReplyConsumer, parse_reply_key
from .queue_links import QueueLinks

if TYPE_CHECKING:
    from ...amqp.parser.events import Event

#: Queues that one request declares at most: Metadata checks each in 30 µs.
DECLARED_TOGETHER = 32

Answer = TypeVar("Answer")


class Declares:
    __slots__ = ("_backlog", "_config", "_context", "_output", "_process", "_queues", "_replies")

    def __init__(
        self,
        process: Process,
        context: NodeContext,
        config: ChannelConfig,
        output: ClientOutput,
        queues: QueueLinks,
        replies: ReplyConsumer,
        backlog: deque[Event],
    ) -> None:
        """`backlog` has the events that the client has sent behind the present one; it is always empty on a channel
        with interceptors, which get each method by itself.
        """
        self._replies = replies
        self._backlog = backlog
        self._process = process
        self._context = context
        self._config = config
        self._output = output
        self._queues = queues

    async def _ask_metadata(self, message: ProcessMessage[ToMetadata, Answer]) -> Answer:
        self._queues.flush()
        try:
            return await self._process.ask(self._context.metadata, message)
        except ProcessDown:  # the node stops, and Metadata has ended before the connections
            raise AmqpError(CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'") from None

    # -- exchanges ---

    async def exchange_declare(self, method: methods.ExchangeDeclare) -> None:
        vhost, name = self._config.vhost, without_cr_lf(method.exchange)
        if method.passive:
            check_not_default_exchange(name)
            if self._context.routing.exchange(vhost, name) is None:
                raise no_exchange(vhost, name)
        else:
            self._check_declare_exchange(method, name)
            await self._ask_metadata(
                to_metadata.declare_exchange(
                    vhost,
                    name,
                    method.type,
                    method.durable,
                    method.auto_delete,
                    method.internal,
                    method.arguments,
                    self._config.user,
                )
            )
        if not method.nowait:
            self._output.put_method(methods.ExchangeDeclareOk())

    def _check_declare_exchange(self, method: methods.ExchangeDeclare, name: str) -> None:
        """Check the user's rights. Checks of Metadata that come before them are repeated here, so that of several
        errors the client gets the same one as from RabbitMQ (AB-161).
        """
        vhost, access = self._config.vhost, self._config.access
        check_exchange_type(method.type)
        check_not_default_exchange(name)
        access.check("configure", "exchange", name)
        if method.arguments.get("alternate-exchange") and self._context.routing.exchange(vhost, name) is None:
            check_not_reserved("exchange", name)
            check_exchange_arguments(vhost, name, method.arguments)
            access.check("read", "exchange", name)
            access.check("write", "exchange", alternate_exchange(method.arguments) or "")

    async def exchange_delete(self, method: methods.ExchangeDelete) -> None:
        name = without_cr_lf(method.exchange)
        check_not_default_exchange(name)
        check_not_system_exchange(self._config.vhost, name)
        self._config.access.check("configure", "exchange", name)
        await self._ask_metadata(
            to_metadata.delete_exchange(self._config.vhost, name, method.if_unused, self._config.user)
        )
        if not method.nowait:
            self._output.put_method(methods.ExchangeDeleteOk())

    # -- bindings ---

    async def exchange_bind(self, method: methods.ExchangeBind) -> None:
        destination, source = without_cr_lf(method.destination), without_cr_lf(method.source)
        await self._bind("exchange", destination, source, method.routing_key, method.arguments)
        if not method.nowait:
            self._output.put_method(methods.ExchangeBindOk())

    async def exchange_unbind(self, method: methods.ExchangeUnbind) -> None:
        destination, source = without_cr_lf(method.destination), without_cr_lf(method.source)
        await self._unbind("exchange", destination, source, method.routing_key, method.arguments)
        if not method.nowait:
            self._output.put_method(methods.ExchangeUnbindOk())

    async def queue_bind(self, method: methods.QueueBind) -> None:
        queue, key = self._queue_and_key(method)
        await self._bind("queue", queue, without_cr_lf(method.exchange), key, method.arguments)
        if not method.nowait:
            self._output.put_method(methods.QueueBindOk())

    async def queue_unbind(self, method: methods.QueueUnbind) -> None:
        queue, key = self._queue_and_key(method)
        await self._unbind("queue", queue, without_cr_lf(method.exchange), key, method.arguments)
        self._output.put_method(methods.QueueUnbindOk())

    def _queue_and_key(self, method: methods.QueueBind | methods.QueueUnbind) -> tuple[str, str]:
        """The queue to bind and the routing key. An empty routing key is replaced by the last declared queue only if
        the queue name is empty too (AB-62).
        """
        if method.queue:
            return without_cr_lf(method.queue), method.routing_key
        queue = self._queues.name_or_last_declared("")
        return queue, method.routing_key or queue

    async def _bind(self, kind: Kind, destination: str, source: str, routing_key: str, arguments: Table) -> None:
        """Bind a `queue` or an `exchange`."""
        vhost, connection_id = self._config.vhost, self._config.connection_id
        self._check_binding(kind, destination, source, routing_key)
        await self._ask_metadata(
            to_metadata.bind(vhost, kind, destination, source, routing_key, arguments, connection_id, self._config.user)
        )

    async def _unbind(self, kind: Kind, destination: str, source: str, routing_key: str, arguments: Table) -> None:
        vhost, connection_id = self._config.vhost, self._config.connection_id
        self._check_binding(kind, destination, source, routing_key)
        await self._ask_metadata(
            to_metadata.unbind(
                vhost, kind, destination, source, routing_key, arguments, connection_id, self._config.user
            )
        )

    def _check_binding(self, kind: Kind, destination: str, source: str, routing_key: str) -> None:
        """Check the rights to bind and to unbind (AB-161, AB-164)."""
        access = self._config.access
        access.check("write", kind, destination)
        check_not_default_exchange(*([destination, source] if kind == "exchange" else [source]))
        access.check("read", "exchange", source)
        row = self._context.routing.exchange(self._config.vhost, source)
        if row is not None and row.type == "topic":
            access.check_topic("read", source, routing_key)

    # -- queues ---

    async def queue_declare(self, method: methods.QueueDeclare) -> None:
        name = without_cr_lf(method.queue)
        if name == REPLY_TO or name.startswith(REPLY_TO_PREFIX):
            await self._declare_reply_queue(method, name)
            return
        if self._backlog and self._may_join(method):
            following = self._following()
            if following and not await self._declare_together(method, following):
                return
        while True:
            try:
                row, counts = await self._find_or_declare(method, name)
                break
            except AmqpError as error:
                # A client that lost its connection may declare its exclusive queue again from a new one, while the old
                # connection is still ending.
                if error.code != RESOURCE_LOCKED or not await self._ask_metadata(
                    to_metadata.await_owner_end(self._config.vhost, name)
                ):
                    raise
        self._declared(method, row, counts)

    def _declared(self, method: methods.QueueDeclare, row: QueueRow, counts: tuple[int, int] | None) -> None:
        self._context.counts.queue_declared += not method.passive
        self._queues.last_declared = row.name
        if counts is not None:
            self._output.put_method(methods.QueueDeclareOk(row.name, *counts))

    # Clients declare many queues without waiting for each answer, or with nowait. One by one, each durable queue would
    # wait for a commit of its own, which takes three times as long as everything else.

    def _following(self) -> list[Event]:
        """Take the declares that come next in the backlog and may be made together with the present one."""
        found: list[Event] = []
        backlog = self._backlog
        while backlog and len(found) < DECLARED_TOGETHER - 1:
            event = backlog[0]
            if event[0] != METHOD or type(event[2]) is not methods.QueueDeclare or not self._may_join(event[2]):
                break
            found.append(backlog.popleft())
        return found

    def _may_join(self, method: methods.QueueDeclare) -> bool:
        """Whether this declares a named queue, and the user has the rights."""
        name = without_cr_lf(method.queue)
        if method.passive or not name or name == REPLY_TO or name.startswith(REPLY_TO_PREFIX):
            return False
        if len(method.arguments) > INDEXED_FROM:
            return False  # such a declare takes Metadata milliseconds by itself
        try:
            self._check_declare_queue(method, name)
        except AmqpError:
            return False  # left in the backlog, to be refused after everything before it is done
        return True

    async def _declare_together(self, method: methods.QueueDeclare, following: list[Event]) -> bool:
        """Declare a queue and those that follow, up to the first that is refused. Return whether `method` itself was
        refused.

        The events behind the last declared queue come back to the backlog.
        """
        config = self._config
        declares = [method, *[event[2] for event in following]]
        answers = await self._ask_metadata(
            to_metadata.declare_queues(
                config.vhost,
                [(without_cr_lf(each.queue), *self._kind(each), each.arguments) for each in declares],
                config.connection_id,
                config.user,
            )
        )
        self._backlog.extendleft(reversed(following[max(len(answers) - 1, 0) :]))
        for each, (row, is_new) in zip(declares, answers):
            try:
                counts = await self._counts(each, row, is_new)
            except AmqpError:
                if self._queues.is_routed_to(row):
                    raise
                row, counts = await self._declare(each, row.name)
            self._declared(each, row, counts)
        return not answers

    def _kind(self, method: methods.QueueDeclare) -> tuple[bool, str | None, bool]:
        """Whether the queue is durable, the connection that owns it, and whether it is auto-delete."""
        owner = self._config.connection_id if method.exclusive else None
        return method.durable and not method.exclusive, owner, method.auto_delete

    async def _counts(self, method: methods.QueueDeclare, row: QueueRow, is_new: bool) -> tuple[int, int] | None:
        """The ready messages and the consumers of a declared queue; None if the client sent nowait."""
        if method.nowait:
            return None
        if is_new and row.type != GROUP.name:
            # A new queue is empty, as in RabbitMQ. The members of a new group may have messages.
            return 0, 0
        return await self._queues.counts(row)

    async def _find_or_declare(
        self, method: methods.QueueDeclare, name: str
    ) -> tuple[QueueRow, tuple[int, int] | None]:
        """The queue with its counts of ready messages and consumers; no counts if the client sent nowait."""
        if not method.passive:
            return await self._declare(method, name)
        row = self._queues.row(name)
        return row, None if method.nowait else await self._queues.counts(row)

    async def _declare(self, method: methods.QueueDeclare, name: str) -> tuple[QueueRow, tuple[int, int] | None]:
        config = self._config
        self._check_declare_queue(method, name)
        while True:
            row, is_new = await self._ask_metadata(
                to_metadata.declare_queue(
                    config.vhost, name, *self._kind(method), method.arguments, config.connection_id, config.user
                )
            )
            try:
                return row, await self._counts(method, row, is_new)
            except AmqpError:
                if self._queues.is_routed_to(row):
                    raise
                # The queue was deleted after Metadata answered. Like RabbitMQ, declare it again, as a new queue.

    def _check_declare_queue(self, method: methods.QueueDeclare, name: str) -> None:
        """Check the user's rights; see `_check_declare_exchange` (AB-146, AB-161)."""
        vhost, access = self._config.vhost, self._config.access
        if name:
            check_not_reserved("queue", name)
        # For an empty name Metadata will generate one of this form, and the user needs rights on it as on any other.
        checked = name or generated_name("amq.gen", bytes(16))
        access.check("configure", "queue", checked)
        dead_letter_exchange = method.arguments.get("x-dead-letter-exchange")
        if dead_letter_exchange is not None and self._context.routing.queue(vhost, name) is None:
            check_dead_letter_exchange(vhost, name, method.arguments)
            access.check("read", "queue", checked)
            access.check("write", "exchange", value_text(dead_letter_exchange[1]))

    async def _declare_reply_queue(self, method: methods.QueueDeclare, name: str) -> None:
        """Handle the declaration of a reply consumer's name, by which a client finds out whether that consumer lives
        (AB-143).
        """
        if name != REPLY_TO and not await self._has_reply_consumer(*parse_reply_key(name)):
            raise no_queue(self._config.vhost, name)
        self._queues.last_declared = name
        if not method.nowait:
            self._output.put_method(methods.QueueDeclareOk(name, 0, 1))

    async def _has_reply_consumer(self, system: str, channel_id: str, key: str) -> bool:
        address = self._replies.channel(system, channel_id)
        if address is None:
            return False
        try:
            return await self._process.ask(address, to_channel.has_reply_key(key))
        except ProcessDown:
            return False

    async def queue_purge(self, method: methods.QueuePurge) -> None:
        name = self._queues.name_or_last_declared(method.queue)
        self._config.access.check("read", "queue", self._queues.read_name(name))
        count = await self._queues.purge(self._queues.row(name))
        if not method.nowait:
            self._output.put_method(methods.QueuePurgeOk(count))

    async def queue_delete(self, method: methods.QueueDelete) -> None:
        vhost, connection_id = self._config.vhost, self._config.connection_id
        name = without_cr_lf(self._queues.name_or_last_declared(method.queue))
        self._config.access.check("configure", "queue", self._queues.read_name(name))
        check_not_shard(self._context.routing.queue(vhost, name))
        count = await self._ask_metadata(
            to_metadata.delete_queue(vhost, name, method.if_unused, method.if_empty, connection_id, self._config.user)
        )
        if not method.nowait:
            self._output.put_method(methods.QueueDeleteOk(count))
