"""What a simulated client's channel does to queues themselves: declares, binds, purges and deletes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.fields import table_from
from ..model.queue_book import QueueBook
from .peer import SimContent

if TYPE_CHECKING:
    from .channel import SimChannel

EXCHANGE = "events"


def declare(channel: SimChannel, queue: QueueBook) -> None:
    kind, deleted, owner = queue.kind, queue.deleted, channel.client.connection

    def done(method: Any, content: SimContent | None) -> None:
        channel.declared.add(kind.name)
        channel.may_be_locked_out = False
        queue.declare_ok(deleted, channel.is_leaving, owner)

    # Who has it may have gone before this is heard, or be about to come.
    channel.may_be_locked_out = kind.exclusive and not (queue.exists and queue.owner is owner)
    queue.declare_begins()
    wanted = methods.QueueDeclare(
        queue=kind.name,
        durable=kind.durable,
        exclusive=kind.exclusive,
        auto_delete=kind.auto_delete,
        arguments=table_from(kind.arguments),
    )
    channel.ask(wanted, methods.QueueDeclareOk, done, queue, channel.may_be_locked_out)


def _purge(channel: SimChannel, queue: QueueBook) -> None:
    if queue.may_be_used_by(channel.client.connection):
        channel.tell(f"purges {queue.kind.name}")
        queue.purge_begins(channel)
        channel.ask(
            methods.QueuePurge(queue=queue.kind.name),
            methods.QueuePurgeOk,
            lambda method, content: queue.purged(channel),
            queue,
        )


def _delete(channel: SimChannel, queue: QueueBook) -> None:
    if not queue.may_be_used_by(channel.client.connection):
        return
    channel.tell(f"deletes {queue.kind.name}")
    doomed = queue.delete_begins()

    def deleted(method: Any, content: SimContent | None) -> None:
        channel.tell(f"hears that {queue.kind.name} is deleted")
        channel.schedule.forget_declared(queue.kind.name)
        queue.deleted_ok(doomed)

    channel.ask(methods.QueueDelete(queue=queue.kind.name), methods.QueueDeleteOk, deleted, queue)


def _bind(channel: SimChannel, queue: QueueBook) -> None:
    deleted, unbinds = queue.deleted, queue.unbinds

    def bound(method: Any, content: SimContent | None) -> None:
        queue.binds -= 1
        # One that may go takes its binding with it.
        if (
            queue.exists
            and queue.deleted == deleted
            and queue.unbinds == unbinds
            and not queue.unbinders
            and not channel.is_leaving
        ):
            queue.is_bound = True
            channel.tell(f"hears that {queue.kind.name} is bound")

    def bind(method: Any, content: SimContent | None) -> None:
        channel.schedule.has_exchange = True
        channel.tell(f"binds {queue.kind.name} to {EXCHANGE}")
        if queue.is_bound is False:
            queue.is_bound = None
        queue.binds += 1  # for ever, if the channel ends before the answer
        channel.ask(methods.QueueBind(queue=queue.kind.name, exchange=EXCHANGE), methods.QueueBindOk, bound, queue)

    channel.ask(
        methods.ExchangeDeclare(exchange=EXCHANGE, type="fanout", durable=True), methods.ExchangeDeclareOk, bind
    )


def _unbind(channel: SimChannel, queue: QueueBook) -> None:
    if queue.is_bound is not True or queue.kind.exclusive and queue.owner is not channel.client.connection:
        return
    channel.tell(f"unbinds {queue.kind.name}")
    queue.unbind_begins(channel)
    channel.ask(
        methods.QueueUnbind(queue=queue.kind.name, exchange=EXCHANGE),
        methods.QueueUnbindOk,
        lambda method, content: queue.unbinders.discard(channel),
        queue,
    )


ACTIONS: dict[str, Callable[[SimChannel, QueueBook], None]] = {
    "purge": _purge,
    "delete": _delete,
    "bind": _bind,
    "unbind": _unbind,
}
