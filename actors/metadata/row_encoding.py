"""Encodes rows of the routing table as rows of the metadata store, and decodes them.

    table       key                                                               fields
    vhosts      (name,)                                                           {}
    exchanges   (vhost, name)                                                     type, auto_delete, internal, arguments
    queues      (vhost, name)                                                     queue_id, auto_delete, type, arguments
    bindings    (vhost, source, kind, destination, routing_key, arguments)        {}

Arguments are an encoded field table with its length, so that every value keeps its type letter (AB-47). Fields that
follow from others are not stored: every stored row is durable, a durable queue has no exclusive owner (AB-83), and the
alternate exchange is among the arguments. Nor are the exchanges that every virtual host has (AB-64).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError, Table, decode_table_at, encode_table
from ...routing.arguments import alternate_exchange
from ...routing.rows import Binding, ExchangeRow, QueueRow
from ...routing.table import DEFAULT_EXCHANGES, Removed, RoutingTable
from ...store.data_dir.metadata_store import Change, Row


def vhost_change(name: str) -> Change:
    return Change("vhosts", (name,), {})


def exchange_change(row: ExchangeRow) -> Change:
    """Raise AmqpError for arguments that have no place in a field table."""
    fields = {
        "type": row.type,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": _encoded(row.arguments),
    }
    return Change("exchanges", (row.vhost, row.name), fields)


def queue_change(row: QueueRow) -> Change:
    """Raise AmqpError for arguments that have no place in a field table."""
    fields = {
        "queue_id": row.queue_id,
        "auto_delete": row.auto_delete,
        "type": row.type,
        "arguments": _encoded(row.arguments),
    }
    return Change("queues", (row.vhost, row.name), fields)


def binding_change(vhost: str, binding: Binding) -> Change:
    """Raise AmqpError for arguments that have no place in a field table."""
    key = (vhost, binding.source, binding.kind, binding.destination, binding.routing_key, _encoded(binding.arguments))
    return Change("bindings", key, {})


def removal(change: Change) -> Change:
    """The change that deletes the row of `change`."""
    return change._replace(fields=None)


def removals(
    routing: RoutingTable, vhost: str, removed: Removed, row: ExchangeRow | QueueRow | None = None
) -> list[Change]:
    """The changes that delete on the disk what was removed from the table: the durable part of `row` and of `removed`.

    `row` is the exchange or queue that was removed, None if it was a binding, and `removed` what went with it.
    """
    rows = [*removed.exchanges] if row is None else [row, *removed.exchanges]
    ends = {("queue" if isinstance(item, QueueRow) else "exchange", item.name): item for item in rows}

    def is_durable(kind: str, name: str) -> bool:
        end = ends.get((kind, name)) or (routing.queue if kind == "queue" else routing.exchange)(vhost, name)
        return end is not None and end.durable

    changes = [
        queue_change(item) if isinstance(item, QueueRow) else exchange_change(item) for item in rows if item.durable
    ]
    changes += [
        binding_change(vhost, binding)
        for binding in removed.bindings
        if is_durable("exchange", binding.source) and is_durable(*binding.target)
    ]
    return [removal(change) for change in changes]


@dataclass(slots=True)
class StoredRows:
    """What a store holds, in the order in which it can be put into a routing table; queues have no address yet."""

    vhosts: list[str] = field(default_factory=list)
    exchanges: list[ExchangeRow] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    bindings: list[tuple[str, Binding]] = field(default_factory=list)
    #: Deletions of rows that belong to nothing any more. They are left when a crash comes between two commits: one that
    #: deleted an exchange or queue, and one that would have deleted a binding to it that was being made.
    stale: list[Change] = field(default_factory=list)


def stored_rows(tables: Mapping[str, Iterable[Row]]) -> StoredRows:
    """Decode the tables that `MetadataStore.load` returns."""
    found = StoredRows(vhosts=sorted(row.key[0] for row in tables["vhosts"]))
    vhosts = set(found.vhosts)
    ends = {(vhost, "exchange", name) for vhost in vhosts for name, _, _ in DEFAULT_EXCHANGES if name}
    for row in tables["exchanges"]:
        exchange = _exchange_row(row)
        if exchange.vhost in vhosts:
            found.exchanges.append(exchange)
            ends.add((exchange.vhost, "exchange", exchange.name))
        else:
            found.stale.append(Change("exchanges", row.key, None))
    for row in tables["queues"]:
        queue = _queue_row(row)
        if queue.vhost in vhosts:
            found.queues.append(queue)
            ends.add((queue.vhost, "queue", queue.name))
        else:
            found.stale.append(Change("queues", row.key, None))
    for row in tables["bindings"]:
        vhost, source, kind, destination, routing_key, arguments = row.key
        if (vhost, "exchange", source) in ends and (vhost, kind, destination) in ends:
            found.bindings.append((vhost, Binding(source, kind, destination, routing_key, _decoded(arguments))))
        else:
            found.stale.append(Change("bindings", row.key, None))
    return found


def _exchange_row(row: Row) -> ExchangeRow:
    (vhost, name), fields = row
    arguments = _decoded(fields["arguments"])
    return ExchangeRow(
        vhost,
        name,
        fields["type"],
        True,
        fields["auto_delete"],
        fields["internal"],
        arguments,
        alternate_exchange(arguments),
    )


def _queue_row(row: Row) -> QueueRow:
    (vhost, name), fields = row
    return QueueRow(
        vhost,
        name,
        None,
        fields["queue_id"],
        True,
        fields["auto_delete"],
        None,
        _decoded(fields["arguments"]),
        fields["type"],
    )


def _encoded(arguments: Table) -> bytes:
    try:
        return encode_table(arguments)
    except FieldError as error:
        raise AmqpError(PRECONDITION_FAILED, f"arguments cannot be stored: {error}") from None


def _decoded(arguments: bytes) -> Table:
    return decode_table_at(arguments, 0)[0]
