"""Exchanges: declared and deleted (AB-65, AB-66)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...amqp.constants import ACCESS_REFUSED, COMMAND_INVALID, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...routing import phrases as resources
from ...routing.arguments import alternate_exchange, check_exchange_arguments, check_exchange_equivalence
from ...routing.exchange_types import EXCHANGE_TYPES
from ...routing.rows import ExchangeRow
from ...store.data_dir.metadata_store import Change
from .row_encoding import exchange_change, removal

if TYPE_CHECKING:
    from .process import Metadata


class Exchanges:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def declare(self, wanted: ExchangeRow) -> None:
        metadata = self._metadata
        vhost, name = wanted.vhost, wanted.name
        metadata.vhosts.check(vhost)
        if wanted.type not in EXCHANGE_TYPES:
            raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{wanted.type}'")
        resources.check_not_default_exchange(name)
        row = metadata.routing.exchange(vhost, name)
        if row is not None:
            old, new = [
                (item.type, item.durable, item.auto_delete, item.internal, item.arguments) for item in (row, wanted)
            ]
            check_exchange_equivalence(vhost, name, old, new)
            return
        resources.check_not_reserved("exchange", name)
        check_exchange_arguments(vhost, name, wanted.arguments)
        row = replace(wanted, alternate=alternate_exchange(wanted.arguments))
        if row.durable and metadata.durable.is_kept:
            change = exchange_change(row)
            await metadata.durable.write(change)
            if not metadata.routing.has_vhost(vhost):
                metadata.durable.note(removal(change))
        metadata.vhosts.check(vhost)  # it may have been deleted meanwhile
        metadata.routing.put_exchange(row)

    async def delete(self, vhost: str, name: str, if_unused: bool) -> None:
        metadata = self._metadata
        metadata.vhosts.check(vhost)
        resources.check_not_default_exchange(name)
        phrase = resources.exchange_phrase(vhost, name)
        if name.startswith("amq."):
            raise AmqpError(ACCESS_REFUSED, f"deletion of system {phrase} not allowed")
        row = metadata.routing.exchange(vhost, name)
        if row is None:
            await metadata.durable.settled(Change("exchanges", (vhost, name), None))
            return
        if if_unused and metadata.routing.is_source(vhost, name):
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        await metadata.durable.written_off(vhost, metadata.routing.remove_exchange(vhost, name), row)
