"""Bindings: the checks of queue.bind, exchange.bind and the two unbind methods, in RabbitMQ's order (AB-73)."""

from __future__ import annotations

from ....routing.arguments.group_arguments import check_not_group
from ....routing.changes import Change
from ....routing.exchanges.exchange_types import check_binding
from ....routing.phrases import check_not_default_exchange, no_exchange, no_queue
from ....routing.rows import Binding
from ....routing.shards import check_not_shard
from ....routing.vhost_rows import VhostRows
from .commands import Bind, Unbind
from .queues import check_owner


def new_binding(rows: VhostRows, command: Bind) -> bool | None:
    """Whether the binding to add is durable; None if it exists. Raises AmqpError."""
    vhost, binding = command.vhost, command.binding
    _check_names(binding)
    source = rows.exchanges.get(binding.source)
    if source is None:
        raise no_exchange(vhost, binding.source)
    if binding.kind == "exchange":
        exchange = rows.exchanges.get(binding.destination)
        if exchange is None:
            raise no_exchange(vhost, binding.destination)
        check_binding(source.type, binding.arguments)
        durable = source.durable and exchange.durable
    else:
        queue = rows.queues.get(binding.destination)
        if queue is None:
            raise no_queue(vhost, binding.destination)
        check_binding(source.type, binding.arguments)
        check_owner(queue, command.connection_id)
        check_not_shard(queue)
        check_not_group(queue)
        durable = source.durable and queue.durable
    return durable if rows.binding(binding) is None else None


def unbind(rows: VhostRows, command: Unbind) -> list[Change]:
    return rows.remove_binding(command.binding) if can_unbind(rows, command) else []


def can_unbind(rows: VhostRows, command: Unbind) -> bool:
    """Whether there is such a binding. Raises AmqpError."""
    binding = command.binding
    _check_names(binding)
    if rows.binding(binding) is None:
        return False
    if binding.kind == "queue":
        check_owner(rows.queues[binding.destination], command.connection_id)
    return True


def _check_names(binding: Binding) -> None:
    names = (binding.destination, binding.source) if binding.kind == "exchange" else (binding.source,)
    check_not_default_exchange(*names)
