"""Encodes rows of the state as rows of the metadata store, and decodes them.

    table       key                                                               fields
    vhosts      (name,)                                                           {}
    exchanges   (vhost, name)                                                     type, auto_delete, internal, arguments
    queues      (vhost, name)                                                     queue_id, auto_delete, type,
                                                                                  arguments, node, replicas
    bindings    (vhost, source, kind, destination, routing_key, arguments)        {}

Each other table has the records of one type (`definitions/records.py`): the key is that of the record, and the fields
are all of the record's. A virtual host that was described has the fields of its `VhostProperties`.

Arguments are an encoded field table with its length, so that every value keeps its type letter (AB-47). Fields that
follow from others are not stored: the alternate exchange is among the arguments, and a binding is durable if both ends
are. Nor are the exchanges that every virtual host has (AB-64). Some fields are stored only if their value is not the
usual one (`_USUAL`): `durable`, and a queue's `exclusive_owner`, `state`, `extra_queue`, `generation`, `shards` and
`shard_of`; a mirrored queue also has `group`, with the fields of `MirrorGroup` by name. Of these fields a node that is
alone has only `shards` and `shard_of` on its disk: a durable queue has no exclusive owner (AB-83), it is not running
and has no process when it is read, and no other node has its messages. A copy of a whole state may have all of them.
Rows of older versions lack `node` and `replicas`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from ....amqp.constants import PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....amqp.fields import FieldError, Table, decode_table_at, encode_table
from ....definitions.changes import RecordPut, RecordRemoved
from ....definitions.records import (
    EnabledFeature,
    GlobalParameter,
    Node,
    Parameter,
    Permission,
    Policy,
    Record,
    RecordKey,
    TopicPermission,
    User,
    VhostProperties,
)
from ....routing import changes
from ....routing.arguments.exchange_arguments import alternate_exchange
from ....routing.rows import Binding, ExchangeRow, Member, MirrorGroup, QueueRow
from ....routing.vhost_rows import DEFAULT_EXCHANGES, DEFAULT_NAMES
from ....store.data_dir.metadata_store import Change, Row
from ..state import effects
from ..state.commands import (
    ChangeUser,
    Command,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    EnableFeatures,
    PutRecords,
    RemoveRecords,
    Unbind,
)
from ..state.state import State

#: A table and the key of a row in it.
RowKey = tuple[str, tuple[str | bytes, ...]]

#: The usual values of fields that a row has only with another value.
_USUAL: dict[str, object] = {"durable": True, "exclusive_owner": None, "state": "running", "extra_queue": None}
_USUAL |= {"shards": 0, "shard_of": None, "generation": 0}


#: The changes that delete a row.
REMOVALS = (
    changes.VhostRemoved,
    changes.ExchangeRemoved,
    changes.QueueRemoved,
    changes.BindingRemoved,
    RecordRemoved,
)


def is_durable(change: effects.Change) -> bool:
    """Whether the row or record that was added, replaced or removed survives a restart."""
    if isinstance(change, (RecordPut, RecordRemoved)):
        return True
    if isinstance(change, (changes.BindingAdded, changes.BindingRemoved)):
        return change.durable
    return isinstance(change, (changes.VhostAdded, changes.VhostRemoved)) or change.row.durable


def row_change(change: effects.Change) -> Change:
    """The change that puts the row into the store. Raises AmqpError for arguments that are no field table."""
    if isinstance(change, (RecordPut, RecordRemoved)):
        return _record_change(change.record)
    if isinstance(change, (changes.QueuePut, changes.QueueRemoved)):
        return Change("queues", (change.row.vhost, change.row.name), _queue_fields(change.row))
    if isinstance(change, (changes.BindingAdded, changes.BindingRemoved)):
        return Change("bindings", _binding_key(change.vhost, change.binding), {})
    if isinstance(change, (changes.ExchangePut, changes.ExchangeRemoved)):
        return Change("exchanges", (change.row.vhost, change.row.name), _exchange_fields(change.row))
    return Change("vhosts", (change.vhost,), {})


def stored_change(change: effects.Change) -> Change:
    """The change of the store that corresponds to `change` of the state. Raises AmqpError like `row_change`."""
    stored = row_change(change)
    return removal(stored) if isinstance(change, REMOVALS) else stored


def all_rows(state: State) -> Iterator[Change]:
    """The changes that make an empty store what the state is now, transient rows too.

    The state may change while they are taken, because this copies what it has. That takes 0.2 µs a row; the rows are
    encoded one by one, which takes 20 times as long.
    """
    described = state.definitions.vhosts
    vhosts = [name for name in state.vhosts if (name,) not in described]
    rows = [
        (name, [*rows.exchanges.values()], [*rows.queues.values()], [binding for binding, _ in rows.bindings()])
        for name, rows in state.vhosts.items()
    ]
    return _encoded_rows(vhosts, rows, [*state.definitions.all()])


def _encoded_rows(
    vhosts: list[str],
    rows: list[tuple[str, list[ExchangeRow], list[QueueRow], list[Binding]]],
    records: list[Record],
) -> Iterator[Change]:
    for name in vhosts:
        yield Change("vhosts", (name,), {})
    for name, exchanges, queues, bindings in rows:
        for exchange in exchanges:
            if exchange.name not in DEFAULT_NAMES:
                yield Change("exchanges", (name, exchange.name), _exchange_fields(exchange))
        for queue in queues:
            yield Change("queues", (name, queue.name), _queue_fields(queue))
        for binding in bindings:
            yield Change("bindings", _binding_key(name, binding), {})
    for record in records:
        yield _record_change(record)


def removal(change: Change) -> Change:
    """The change that deletes the row of `change`."""
    return change._replace(fields=None)


def durable_row(state: State, key: RowKey) -> Change:
    """The change that brings this row of the store back to what the state has, after a commit that named it.

    For a queue, an exchange or a binding that is always a deletion, because the state does not have such a row as
    durable. For a record it is the record that the state has, and for a virtual host the row if the state has it.
    """
    table, row_key = key
    records = state.definitions.tables.get(table, {})
    record = records.get(cast(RecordKey, row_key))
    if record is not None:
        return _record_change(record)
    is_vhost = table == "vhosts" and row_key[0] in state.vhosts
    return Change(table, row_key, {} if is_vhost else None)


def named_rows(command: Command) -> Iterable[RowKey]:
    """The rows that the command is to remove, and the records that it is to put, as far as it names them."""
    if isinstance(command, DeleteQueue):
        return [("queues", (command.vhost, command.name))]
    if isinstance(command, DeleteExchange):
        return [("exchanges", (command.vhost, command.name))]
    if isinstance(command, Unbind):
        return [("bindings", _binding_key(command.vhost, command.binding))]
    if isinstance(command, PutRecords):
        return [(record.table, record.key) for record in command.records]
    if isinstance(command, ChangeUser):
        return [("users", (command.name,))]
    if isinstance(command, EnableFeatures):
        return [("features", (name,)) for name in command.names]
    if isinstance(command, RemoveRecords):
        return command.keys
    return [("vhosts", (command.name,))] if isinstance(command, DeleteVhost) else ()


def _record_change(record: Record) -> Change:
    return Change(record.table, record.key, {each.name: getattr(record, each.name) for each in fields(record)})


def _exchange_fields(row: ExchangeRow) -> dict[str, object]:
    stored = {
        "type": row.type,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": _encoded(row.arguments),
    }
    if row.creator:
        stored["creator"] = row.creator
    return stored if row.durable else {**stored, "durable": False}


def _queue_fields(row: QueueRow) -> dict[str, object]:
    stored = {
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
            stored[name] = value
    if row.group is not None:
        stored["group"] = {each.name: getattr(row.group, each.name) for each in fields(row.group)}
    return stored


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
    records: list[Record] = field(default_factory=list)
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
    _find_records(tables, found)
    return found


#: The type of the records of each table.
_RECORD_TYPES: dict[str, type[Record]] = {
    "users": User,
    "permissions": Permission,
    "topic_permissions": TopicPermission,
    "parameters": Parameter,
    "global_parameters": GlobalParameter,
    "policies": Policy,
    "nodes": Node,
    "features": EnabledFeature,
}


def _find_records(tables: Mapping[str, Iterable[Row]], found: StoredRows) -> None:
    vhosts, users = set(found.vhosts), {row.key[0] for row in tables["users"]}
    found.records += [_record(VhostProperties, row) for row in tables["vhosts"] if row.fields]
    for table, record_type in _RECORD_TYPES.items():
        for row in tables[table]:
            record = _record(record_type, row)
            if isinstance(record, (Permission, TopicPermission)):
                is_stale = record.user not in users or record.vhost not in vhosts
            else:
                is_stale = isinstance(record, (Parameter, Policy)) and record.vhost not in vhosts
            if is_stale:
                found.stale.append(Change(table, row.key, None))
            else:
                found.records.append(record)


def _record(record_type: type[Record], row: Row) -> Record:
    record = record_type(**row.fields)
    if record.key != row.key:
        raise ValueError(f"the record {row.key} has the fields of {record.key}")
    return record


def _exchange_row(row: Row) -> ExchangeRow:
    (vhost, name), stored = row
    arguments = _decoded(stored["arguments"])
    return ExchangeRow(
        vhost,
        name,
        stored["type"],
        stored.get("durable", True),
        stored["auto_delete"],
        stored["internal"],
        arguments,
        alternate_exchange(arguments),
        stored.get("creator", ""),
    )


def _queue_row(row: Row) -> QueueRow:
    (vhost, name), stored = row
    group = stored.get("group")
    if group is not None:
        ring, learners = _members(group["ring"]), _members(group["learners"])
        group = MirrorGroup(**{**group, "ring": ring, "learners": learners})
    return QueueRow(
        vhost,
        name,
        None,
        stored["queue_id"],
        auto_delete=stored["auto_delete"],
        arguments=_decoded(stored["arguments"]),
        type=stored["type"],
        node=stored.get("node", ""),
        replicas=stored.get("replicas", ()),
        group=group,
        **{name: stored.get(name, usual) for name, usual in _USUAL.items()},
    )


def _members(stored: Iterable[tuple[str, str, int]]) -> tuple[Member, ...]:
    return tuple(Member(*each) for each in stored)


def _encoded(arguments: Table) -> bytes:
    try:
        return encode_table(arguments)
    except FieldError as error:
        raise AmqpError(PRECONDITION_FAILED, f"arguments cannot be stored: {error}") from None


def _decoded(arguments: bytes) -> Table:
    return decode_table_at(arguments, 0)[0]
