"""`Exchanges`: declares and deletes exchanges (AB-65, AB-66)."""

from __future__ import annotations

from dataclasses import replace

from ...amqp.constants import ACCESS_REFUSED, COMMAND_INVALID, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...routing.arguments import alternate_exchange, check_exchange_arguments
from ...routing.equivalence import check_exchange_equivalence
from ...routing.exchange_types import EXCHANGE_TYPES
from ...routing.phrases import check_not_default_exchange, check_not_reserved, exchange_phrase
from ...routing.rows import ExchangeRow
from ...routing.table import RoutingTable
from ...store.data_dir.metadata_store import Change
from .row_encoding import exchange_change, removal
from .supervisors import QueueSupervisors
from .table_writer import TableWriter


class Exchanges:
    def __init__(self, routing: RoutingTable, writer: TableWriter, supervisors: QueueSupervisors) -> None:
        self._routing = routing
        self._writer = writer
        self._supervisors = supervisors

    async def declare(self, wanted: ExchangeRow) -> None:
        vhost, name = wanted.vhost, wanted.name
        self._supervisors.check_vhost(vhost)
        if wanted.type not in EXCHANGE_TYPES:
            raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{wanted.type}'")
        check_not_default_exchange(name)
        row = self._routing.exchange(vhost, name)
        if row is not None:
            old, new = [
                (item.type, item.durable, item.auto_delete, item.internal, item.arguments) for item in (row, wanted)
            ]
            check_exchange_equivalence(vhost, name, old, new)
            return
        check_not_reserved("exchange", name)
        check_exchange_arguments(vhost, name, wanted.arguments)
        row = replace(wanted, alternate=alternate_exchange(wanted.arguments))
        if row.durable and self._writer.is_durable:
            change = exchange_change(row)
            await self._writer.write(change)
            if not self._routing.has_vhost(vhost):
                self._writer.note(removal(change))
        # The virtual host may have been deleted during the commit.
        self._supervisors.check_vhost(vhost)
        self._routing.put_exchange(row)

    async def delete(self, vhost: str, name: str, if_unused: bool) -> None:
        self._supervisors.check_vhost(vhost)
        check_not_default_exchange(name)
        phrase = exchange_phrase(vhost, name)
        if name.startswith("amq."):
            raise AmqpError(ACCESS_REFUSED, f"deletion of system {phrase} not allowed")
        row = self._routing.exchange(vhost, name)
        if row is None:
            await self._writer.await_pending(Change("exchanges", (vhost, name), None))
            return
        if if_unused and self._routing.is_source(vhost, name):
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        await self._writer.write_removed(self._routing, vhost, self._routing.remove_exchange(vhost, name), row)
