"""`Bindings`: makes and removes bindings of queues and exchanges to exchanges (AB-73)."""

from __future__ import annotations

from ...routing.exchange_types import check_binding
from ...routing.phrases import check_not_default_exchange, no_exchange, no_queue
from ...routing.rows import Binding
from ...routing.table import RoutingTable
from .queues import check_owner
from .row_encoding import binding_change, removal
from .supervisors import QueueSupervisors
from .table_writer import TableWriter


class Bindings:
    def __init__(self, routing: RoutingTable, writer: TableWriter, supervisors: QueueSupervisors) -> None:
        self._routing = routing
        self._writer = writer
        self._supervisors = supervisors

    async def bind(self, vhost: str, binding: Binding, connection_id: str) -> None:
        is_durable = self._check(vhost, binding, connection_id)
        if is_durable and self._writer.is_durable and not self._routing.has_binding(vhost, binding):
            change = binding_change(vhost, binding)
            await self._writer.write(change)
            is_durable = False
            try:
                # During the commit an end may have been deleted, or declared anew and not durable.
                is_durable = self._check(vhost, binding, connection_id)
            finally:
                if not is_durable:
                    self._writer.note(removal(change))
        self._routing.add_binding(vhost, binding)

    def _check(self, vhost: str, binding: Binding, connection_id: str) -> bool:
        """Return whether the binding is durable (AB-73). Raises AmqpError if it cannot be made."""
        self._supervisors.check_vhost(vhost)
        _check_names(binding)
        routing = self._routing
        source_row = routing.exchange(vhost, binding.source)
        if source_row is None:
            raise no_exchange(vhost, binding.source)
        if binding.kind == "exchange":
            exchange_row = routing.exchange(vhost, binding.destination)
            if exchange_row is None:
                raise no_exchange(vhost, binding.destination)
            check_binding(source_row.type, binding.arguments)
            return source_row.durable and exchange_row.durable
        queue_row = routing.queue(vhost, binding.destination)
        if queue_row is None:
            raise no_queue(vhost, binding.destination)
        check_binding(source_row.type, binding.arguments)
        check_owner(queue_row, connection_id)
        return source_row.durable and queue_row.durable

    async def unbind(self, vhost: str, binding: Binding, connection_id: str) -> None:
        _check_names(binding)
        if not self._routing.has_binding(vhost, binding):
            if self._writer.is_durable:
                await self._writer.await_pending(binding_change(vhost, binding))
            return
        if binding.kind == "queue":
            queue_row = self._routing.queue(vhost, binding.destination)
            assert queue_row is not None
            check_owner(queue_row, connection_id)
        await self._writer.write_removed(self._routing, vhost, self._routing.remove_binding(vhost, binding))


def _check_names(binding: Binding) -> None:
    names = (binding.destination, binding.source) if binding.kind == "exchange" else (binding.source,)
    check_not_default_exchange(*names)
