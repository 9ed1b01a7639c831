"""Bindings of queues and exchanges to exchanges: made and taken away (AB-73)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...routing import phrases as resources
from ...routing.exchange_types import Binding, check_binding
from .queues import check_owner
from .row_encoding import binding_change, removal

if TYPE_CHECKING:
    from .process import Metadata


class Bindings:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def bind(self, vhost: str, binding: Binding, connection_id: str) -> None:
        routing, durable = self._metadata.routing, self._metadata.durable
        is_durable = self._check(vhost, binding, connection_id)
        if is_durable and durable.is_kept and not routing.has_binding(vhost, binding):
            change = binding_change(vhost, binding)
            await durable.write(change)
            is_durable = False
            try:
                # What it binds may have gone meanwhile, or have passed its name on.
                is_durable = self._check(vhost, binding, connection_id)
            finally:
                if not is_durable:
                    durable.note(removal(change))
        routing.add_binding(vhost, binding)

    def _check(self, vhost: str, binding: Binding, connection_id: str) -> bool:
        """Raises AmqpError if the binding may not be; else whether it is durable (AB-73)."""
        self._metadata.vhosts.check(vhost)
        _check_names(binding)
        routing = self._metadata.routing
        source_row = routing.exchange(vhost, binding.source)
        if source_row is None:
            raise resources.no_exchange(vhost, binding.source)
        if binding.kind == "exchange":
            exchange_row = routing.exchange(vhost, binding.destination)
            if exchange_row is None:
                raise resources.no_exchange(vhost, binding.destination)
            check_binding(source_row.type, binding.arguments)
            return source_row.durable and exchange_row.durable
        queue_row = routing.queue(vhost, binding.destination)
        if queue_row is None:
            raise resources.no_queue(vhost, binding.destination)
        check_binding(source_row.type, binding.arguments)
        check_owner(queue_row, connection_id)
        return source_row.durable and queue_row.durable

    async def unbind(self, vhost: str, binding: Binding, connection_id: str) -> None:
        routing, durable = self._metadata.routing, self._metadata.durable
        _check_names(binding)
        if not routing.has_binding(vhost, binding):
            if durable.is_kept:
                await durable.settled(binding_change(vhost, binding))
            return
        if binding.kind == "queue":
            queue_row = routing.queue(vhost, binding.destination)
            assert queue_row is not None
            check_owner(queue_row, connection_id)
        await durable.written_off(vhost, routing.remove_binding(vhost, binding))


def _check_names(binding: Binding) -> None:
    names = (binding.destination, binding.source) if binding.kind == "exchange" else (binding.source,)
    resources.check_not_default_exchange(*names)
