"""Exchanges: the checks of exchange.declare and exchange.delete in their order (AB-65, AB-66)."""

from __future__ import annotations

from dataclasses import replace

from ....amqp.constants import PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....routing.arguments.equivalence import check_exchange_equivalence
from ....routing.arguments.exchange_arguments import alternate_exchange, check_exchange_arguments
from ....routing.changes import Change
from ....routing.exchanges.exchange_types import check_exchange_type
from ....routing.phrases import (
    check_not_default_exchange,
    check_not_reserved,
    check_not_system_exchange,
    exchange_phrase,
)
from ....routing.rows import ExchangeRow
from ....routing.vhost_rows import VhostRows
from .commands import DeclareExchange, DeleteExchange


def new_exchange(rows: VhostRows, command: DeclareExchange) -> ExchangeRow | None:
    """The row to add; None if an equivalent exchange exists. Raises AmqpError."""
    wanted = command.row
    vhost, name = wanted.vhost, wanted.name
    check_exchange_type(wanted.type)
    check_not_default_exchange(name)
    row = rows.exchanges.get(name)
    if row is not None:
        old, new = [
            (item.type, item.durable, item.auto_delete, item.internal, item.arguments) for item in (row, wanted)
        ]
        check_exchange_equivalence(vhost, name, old, new)
        return None
    if not command.is_system:
        check_not_reserved("exchange", name)
    check_exchange_arguments(vhost, name, wanted.arguments)
    return replace(wanted, alternate=alternate_exchange(wanted.arguments), creator=command.by)


def delete_exchange(rows: VhostRows, command: DeleteExchange) -> list[Change]:
    name = command.name
    check_not_default_exchange(name)
    check_not_system_exchange(command.vhost, name)
    if name not in rows.exchanges:
        return []
    if command.if_unused and rows.is_source(name):
        raise AmqpError(PRECONDITION_FAILED, f"{exchange_phrase(command.vhost, name)} in use")
    return rows.remove_exchange(name)
