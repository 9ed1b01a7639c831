"""Encodes rows of the state as rows of the metadata store, and decodes them.

    table       key                                                               fields
    vhosts      (name,)                                                           {}
    exchanges   (vhost, name)                                                     type, auto_delete, internal, arguments
    queues      (vhost, name)                                                     queue_id, auto_delete, type,
                                                                                  arguments, node, replicas
    bindings    (vhost, source, kind, destination, routing_key, arguments)        {}

Arguments are an encoded field table with its length, so that every value keeps its type letter (AB-47). Fields that
follow from others are not stored: the alternate exchange is among the arguments, and a binding is durable if both ends
are. Nor are the exchanges that every virtual host has (AB-64). A row that is not as nearly all rows are has more
fields: `durable` if it is not, and a queue's `exclusive_owner`, `state` and `extra_queue`. No row on a disk has them,
because a durable queue has no exclusive owner (AB-83) and is not running when it is read; a copy of a whole state does.
Rows of older versions lack `node` and `replicas`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import FieldError, Table, decode_table_at, encode_table
from ...routing import changes
from ...routing.arguments import alternate_exchange
from ...routing.rows import Binding, ExchangeRow, QueueRow
from ...routing.vhost_rows import DEFAULT_EXCHANGES
from ...store.data_dir.metadata_store import Change, Row
from .state.commands import Command, DeleteExchange, DeleteQueue, DeleteVhost, Unbind

#: A table and the key of a row in it.
RowKey = tuple[str, tuple[str | bytes, ...]]

#: Fields that a row has only if the value is another one.
_USUAL: dict[str, Any] = {"durable": True, "exclusive_owner": None, "state": "running", "extra_queue": None}


def is_durable(change: changes.Change) -> bool:
    """Whether the row that was added, replaced or removed survives a restart."""
    if isinstance(change, (changes.BindingAdded, changes.BindingRemoved)):
        return change.durable
    return isinstance(change, (changes.VhostAdded, changes.VhostRemoved)) or change.row.durable


def row_change(change: changes.Change) -> Change:
    """The change that puts the row into the store. Raises AmqpError for arguments that are no field table."""
    if isinstance(change, (changes.QueuePut, changes.QueueRemoved)):
        return Change("queues", (change.row.vhost, change.row.name), _queue_fields(change.row))
    if isinstance(change, (changes.BindingAdded, changes.BindingRemoved)):
        return Change("bindings", _binding_key(change.vhost, change.binding), {})
    if isinstance(change, (changes.ExchangePut, changes.ExchangeRemoved)):
        return Change("exchanges", (change.row.vhost, change.row.name), _exchange_fields(change.row))
    return Change("vhosts", (change.vhost,), {})


def removal(change: Change) -> Change:
    """The change that deletes the row of `change`."""
    return change._replace(fields=None)


def named_row(command: Command) -> RowKey | None:
    """The row that the command is to remove; None if it removes no row, or rows that it does not name."""
    if isinstance(command, DeleteQueue):
        return "queues", (command.vhost, command.name)
    if isinstance(command, DeleteExchange):
        return "exchanges", (command.vhost, command.name)
    if isinstance(command, Unbind):
        return "bindings", _binding_key(command.vhost, command.binding)
    return ("vhosts", (command.name,)) if isinstance(command, DeleteVhost) else None


def _exchange_fields(row: ExchangeRow) -> dict[str, Any]:
    fields = {
        "type": row.type,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": _encoded(row.arguments),
    }
    return fields if row.durable else {**fields, "durable": False}


def _queue_fields(row: QueueRow) -> dict[str, Any]:
    fields = {
        "queue_id": row.queue_id,
        "auto_delete": row.auto_delete,
        "type": row.type,
        "arguments": _encoded(row.arguments),
        "node": row.node,
        "replicas": row.replicas,
    }
    for name, usual in _USUAL.items():
        value = getattr(row, name)
        if value != usual:
            fields[name] = value
    return fields


def _binding_key(vhost: str, binding: Binding) -> tuple[str | bytes, ...]:
    arguments = _encoded(binding.arguments)
    return vhost, binding.source, binding.kind, binding.destination, binding.routing_key, arguments


@dataclass(slots=True)
class StoredRows:
    """What a store holds, in the order in which it can be put into a state."""

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
        fields.get("durable", True),
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
        auto_delete=fields["auto_delete"],
        arguments=_decoded(fields["arguments"]),
        type=fields["type"],
        node=fields.get("node", ""),
        replicas=fields.get("replicas", ()),
        **{name: fields.get(name, usual) for name, usual in _USUAL.items()},
    )


def _encoded(arguments: Table) -> bytes:
    try:
        return encode_table(arguments)
    except FieldError as error:
        raise AmqpError(PRECONDITION_FAILED, f"arguments cannot be stored: {error}") from None


def _decoded(arguments: bytes) -> Table:
    return decode_table_at(arguments, 0)[0]
