"""Exchanges, queues and bindings as a channel's methods (AB section 7): checks that need only the routing table are made here, the rest is Metadata's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.errors import AmqpError
from ...routing.phrases import check_not_default_exchange, no_exchange, no_queue, without_cr_lf
from ...routing.rows import QueueRow
from ...runtime.errors import ProcessDown
from .direct_reply import REPLY_TO, REPLY_TO_PREFIX, parse_reply_key

if TYPE_CHECKING:
    from .process import Channel


async def exchange_declare(channel: "Channel", method: methods.ExchangeDeclare) -> None:
    name = without_cr_lf(method.exchange)
    if method.passive:
        check_not_default_exchange(name)
        if channel.routing.exchange(channel.vhost, name) is None:
            raise no_exchange(channel.vhost, name)
    else:
        await _ask_metadata(
            channel,
            "declare_exchange",
            name,
            method.type,
            method.durable,
            method.auto_delete,
            method.internal,
            method.arguments,
        )
    if not method.nowait:
        channel.reply_with(methods.ExchangeDeclareOk())


async def exchange_delete(channel: "Channel", method: methods.ExchangeDelete) -> None:
    await _ask_metadata(channel, "delete_exchange", without_cr_lf(method.exchange), method.if_unused)
    if not method.nowait:
        channel.reply_with(methods.ExchangeDeleteOk())


async def exchange_bind(channel: "Channel", method: methods.ExchangeBind) -> None:
    await _bind(
        channel,
        "bind",
        "exchange",
        without_cr_lf(method.destination),
        without_cr_lf(method.source),
        method.routing_key,
        method.arguments,
    )
    if not method.nowait:
        channel.reply_with(methods.ExchangeBindOk())


async def exchange_unbind(channel: "Channel", method: methods.ExchangeUnbind) -> None:
    await _bind(
        channel,
        "unbind",
        "exchange",
        without_cr_lf(method.destination),
        without_cr_lf(method.source),
        method.routing_key,
        method.arguments,
    )
    if not method.nowait:
        channel.reply_with(methods.ExchangeUnbindOk())


async def queue_bind(channel: "Channel", method: methods.QueueBind) -> None:
    queue, key = _queue_and_key(channel, method)
    await _bind(channel, "bind", "queue", queue, without_cr_lf(method.exchange), key, method.arguments)
    if not method.nowait:
        channel.reply_with(methods.QueueBindOk())


async def queue_unbind(channel: "Channel", method: methods.QueueUnbind) -> None:
    queue, key = _queue_and_key(channel, method)
    await _bind(channel, "unbind", "queue", queue, without_cr_lf(method.exchange), key, method.arguments)
    channel.reply_with(methods.QueueUnbindOk())


def _queue_and_key(channel: "Channel", method: Any) -> tuple[str, str]:
    """An empty key becomes the last declared queue only where the queue name was empty too (AB-62)."""
    if method.queue:
        return without_cr_lf(method.queue), method.routing_key
    queue = channel.last_queue_or("")
    return queue, method.routing_key or queue


async def _bind(
    channel: "Channel", verb: str, kind: str, destination: str, source: str, routing_key: str, arguments: Any
) -> None:
    await _ask_metadata(channel, verb, kind, destination, source, routing_key, arguments, channel.connection_id)


async def queue_declare(channel: "Channel", method: methods.QueueDeclare) -> None:
    name = without_cr_lf(method.queue)
    if name == REPLY_TO or name.startswith(REPLY_TO_PREFIX):
        await _declare_reply_queue(channel, method, name)
        return
    if method.passive:
        row = channel.queue_row(name)
        channel.check_owner(row)
        counts = None if method.nowait else await channel.ask_queue(row, ("counts",))
    else:
        row, counts = await _declared(channel, method, name)
    channel.last_queue = row.name
    if counts is not None:
        channel.reply_with(methods.QueueDeclareOk(row.name, *counts))


async def _declared(
    channel: "Channel", method: methods.QueueDeclare, name: str
) -> tuple[QueueRow, tuple[int, int] | None]:
    """The queue, and how many messages are ready and consumers there, unless nobody waits for it."""
    while True:
        row, _ = await _ask_metadata(
            channel,
            "declare_queue",
            name,
            method.durable and not method.exclusive,
            channel.connection_id if method.exclusive else None,
            method.auto_delete,
            method.arguments,
            channel.connection_id,
        )
        if method.nowait:
            return row, None
        try:
            return row, await channel.ask_queue(row, ("counts",))
        except AmqpError:
            if channel.is_routed_to(row):
                raise
            # It was there and is deleted by now: declared again, it is another one, as for RabbitMQ.


async def _declare_reply_queue(channel: "Channel", method: methods.QueueDeclare, name: str) -> None:
    """AB-143: such a name is declared to learn whether its consumer lives."""
    if name != REPLY_TO and not await _has_reply_consumer(channel, *parse_reply_key(name)):
        raise no_queue(channel.vhost, name)
    channel.last_queue = name
    if not method.nowait:
        channel.reply_with(methods.QueueDeclareOk(name, 0, 1))


async def _has_reply_consumer(channel: "Channel", channel_id: str, key: str) -> bool:
    address = channel.routing.reply_channel(channel_id)
    if address is None:
        return False
    try:
        found: bool = await channel.ask(address, ("has_reply_key", key))
        return found
    except ProcessDown:
        return False


async def queue_purge(channel: "Channel", method: methods.QueuePurge) -> None:
    row = channel.queue_row(channel.last_queue_or(method.queue))
    channel.check_owner(row)
    count = await channel.ask_queue(row, ("purge",))
    if not method.nowait:
        channel.reply_with(methods.QueuePurgeOk(count))


async def queue_delete(channel: "Channel", method: methods.QueueDelete) -> None:
    name = without_cr_lf(channel.last_queue_or(method.queue))
    count = await _ask_metadata(channel, "delete_queue", name, method.if_unused, method.if_empty, channel.connection_id)
    if not method.nowait:
        channel.reply_with(methods.QueueDeleteOk(count))


async def _ask_metadata(channel: "Channel", verb: str, *fields: Any) -> Any:
    channel.flush_to_queues()
    return await channel.ask(channel.metadata, (verb, channel.vhost, *fields))


HANDLERS: dict[type, Callable[["Channel", Any], Awaitable[None]]] = {
    methods.ExchangeDeclare: exchange_declare,
    methods.ExchangeDelete: exchange_delete,
    methods.ExchangeBind: exchange_bind,
    methods.ExchangeUnbind: exchange_unbind,
    methods.QueueDeclare: queue_declare,
    methods.QueueBind: queue_bind,
    methods.QueueUnbind: queue_unbind,
    methods.QueuePurge: queue_purge,
    methods.QueueDelete: queue_delete,
}
