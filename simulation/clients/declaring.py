"""How a client's channel declares, binds, unbinds, purges and deletes queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.fields import table_from
from ...amqp.method import Method
from ..model.queue_model import QueueModel
from ..queue_kinds import EXCHANGE
from .peer import SimContent

if TYPE_CHECKING:
    from .channel import SimChannel


def declare(channel: SimChannel, queue: QueueModel) -> None:
    """Declare the queue with the flags and arguments of its kind."""
    kind, delete_count, owner = queue.kind, queue.delete_count, channel.client.connection

    def on_declare_ok(method: Method, content: SimContent | None) -> None:
        channel.declared.add(kind.name)
        channel.may_be_locked_out = False
        queue.on_declare_ok(delete_count, channel.is_leaving, owner)

    # Until the answer arrives, the connection that has the queue may lose it, and another may get it.
    channel.may_be_locked_out = kind.exclusive and not (queue.exists and queue.owner is owner)
    queue.on_declare()
    declaration = methods.QueueDeclare(
        queue=kind.name,
        durable=kind.durable,
        exclusive=kind.exclusive,
        auto_delete=kind.auto_delete,
        arguments=table_from(kind.arguments),
    )
    channel.request(declaration, methods.QueueDeclareOk, on_declare_ok, queue, channel.may_be_locked_out)


def _purge(channel: SimChannel, queue: QueueModel) -> None:
    if queue.may_be_used_by(channel.client.connection):
        channel.tell(f"purges {queue.kind.name}")
        queue.on_purge(channel)
        channel.request(
            methods.QueuePurge(queue=queue.kind.name),
            methods.QueuePurgeOk,
            lambda method, content: queue.on_purge_ok(channel),
            queue,
        )


def _delete(channel: SimChannel, queue: QueueModel) -> None:
    if not queue.may_be_used_by(channel.client.connection):
        return
    channel.tell(f"deletes {queue.kind.name}")
    deleted = queue.on_delete()

    def on_delete_ok(method: Method, content: SimContent | None) -> None:
        channel.tell(f"receives delete-ok for {queue.kind.name}")
        channel.schedule.forget_declared(queue.kind.name)
        queue.on_delete_ok(deleted)

    channel.request(methods.QueueDelete(queue=queue.kind.name), methods.QueueDeleteOk, on_delete_ok, queue)


def _bind(channel: SimChannel, queue: QueueModel) -> None:
    """Declare the exchange and bind the queue to it."""
    delete_count, unbind_count = queue.delete_count, queue.unbind_count

    def on_bind_ok(method: Method, content: SimContent | None) -> None:
        queue.binds_in_flight -= 1
        # A queue that may be gone may have taken the binding with it.
        if (
            queue.exists
            and queue.delete_count == delete_count
            and queue.unbind_count == unbind_count
            and not queue.unbinding
            and not channel.is_leaving
        ):
            queue.is_bound = True
            channel.tell(f"receives bind-ok for {queue.kind.name}")

    def bind(method: Method, content: SimContent | None) -> None:
        channel.schedule.has_exchange = True
        channel.tell(f"binds {queue.kind.name} to {EXCHANGE}")
        if queue.is_bound is False:
            queue.is_bound = None
        queue.binds_in_flight += 1  # if the channel ends before the answer, the bind stays in flight for ever
        channel.request(
            methods.QueueBind(queue=queue.kind.name, exchange=EXCHANGE, routing_key=_binding_key(channel)),
            methods.QueueBindOk,
            on_bind_ok,
            queue,
        )

    channel.request(
        methods.ExchangeDeclare(exchange=EXCHANGE, type=_exchange_type(channel), durable=True),
        methods.ExchangeDeclareOk,
        bind,
    )


def _unbind(channel: SimChannel, queue: QueueModel) -> None:
    if queue.is_bound is not True or queue.kind.exclusive and queue.owner is not channel.client.connection:
        return
    channel.tell(f"unbinds {queue.kind.name}")
    queue.on_unbind(channel)
    channel.request(
        methods.QueueUnbind(queue=queue.kind.name, exchange=EXCHANGE, routing_key=_binding_key(channel)),
        methods.QueueUnbindOk,
        lambda method, content: queue.unbinding.discard(channel),
        queue,
    )


def _exchange_type(channel: SimChannel) -> str:
    """A topic exchange takes any routing key, so that messages can differ in theirs and reach every bound queue."""
    return "topic" if channel.schedule.plan.has_differing_messages else "fanout"


def _binding_key(channel: SimChannel) -> str:
    return "#" if channel.schedule.plan.has_differing_messages else ""


#: The actions of a plan that this module does.
ACTIONS: dict[str, Callable[[SimChannel, QueueModel], None]] = {
    "purge": _purge,
    "delete": _delete,
    "bind": _bind,
    "unbind": _unbind,
}
