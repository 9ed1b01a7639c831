"""The events of the commands that change Metadata's state: queues, exchanges, bindings and definitions.

The names and the fields are those of RabbitMQ's event exchange, with these differences: arguments and values are tables
instead of texts of Erlang terms, an exchange that is deleted sets no parameter `exchange-delete-in-progress`, and a
global parameter that is removed is `parameter.cleared`, not `parameter.set` without a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...definitions.changes import RecordPut, RecordRemoved
from ...definitions.limits import VHOST_LIMITS
from ...definitions.records import GlobalParameter, Parameter, Permission, Policy, Record, TopicPermission, User
from ...routing.changes import (
    BindingAdded,
    BindingRemoved,
    ExchangePut,
    ExchangeRemoved,
    QueuePut,
    QueueRemoved,
    VhostAdded,
    VhostRemoved,
)
from ...routing.rows import ExchangeRow
from ...routing.vhost_rows import default_exchanges
from ..context.events import BROKER, OPERATOR
from ..metadata.info_items import binding_items
from ..metadata.state.commands import Command, CreateVhost, DeclareQueue, DeleteVhost
from ..metadata.state.effects import Change

if TYPE_CHECKING:
    from ..contracts.events import Fields

#: The name and the fields of an event.
Event = tuple[str, "Fields"]


def metadata_events(command: Command, changes: Sequence[Change], node_name: str) -> Iterator[Event]:
    """The events of a command that made these changes, in order."""
    user = OPERATOR if isinstance(command, (CreateVhost, DeleteVhost)) else getattr(command, "by", "") or BROKER
    for change in changes:
        for name, fields in _events(command, change, node_name):
            yield name, {**fields, "user_who_performed_action": user}


def _events(command: Command, change: Change, node_name: str) -> Iterator[Event]:
    if isinstance(change, QueuePut):
        if isinstance(command, DeclareQueue):  # otherwise the queue exists, and has another state
            yield "queue.created", _queue(change, node_name)
    elif isinstance(change, QueueRemoved):
        yield "queue.deleted", {"name": change.row.name, "vhost": change.row.vhost}
    elif isinstance(change, ExchangePut):
        yield "exchange.created", _exchange(change.row)
    elif isinstance(change, ExchangeRemoved):
        yield "exchange.deleted", {"name": change.row.name, "vhost": change.row.vhost}
    elif isinstance(change, BindingAdded):
        yield "binding.created", binding_items(change.vhost, change.binding)
    elif isinstance(change, BindingRemoved):
        yield "binding.deleted", binding_items(change.vhost, change.binding)
    elif isinstance(change, VhostAdded):
        for row in default_exchanges(change.vhost):
            yield "exchange.created", _exchange(row)
        yield "vhost.created", {"name": change.vhost, "tracing": False, "cluster_state": {node_name: "running"}}
    elif isinstance(change, VhostRemoved):
        yield "vhost.deleted", {"name": change.vhost}
    elif isinstance(change, RecordRemoved):
        yield from _removed(change.record)
    elif isinstance(change, RecordPut):
        yield from _put(change.record, change.before)


def _queue(change: QueuePut, node_name: str) -> Fields:
    row = change.row
    return {
        "name": row.name,
        "vhost": row.vhost,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "owner_pid": f"<{node_name}.{row.exclusive_owner}>" if row.exclusive_owner is not None else "",
        "arguments": row.arguments,
    }


def _exchange(row: ExchangeRow) -> Fields:
    return {
        "name": row.name,
        "vhost": row.vhost,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": row.arguments,
    }


# -- definitions ---


def _put(record: Record, before: Record | None) -> Iterator[Event]:
    if isinstance(record, User):
        yield from _user(record, before if isinstance(before, User) else None)
    elif isinstance(record, Permission):
        fields = {"user": record.user, "vhost": record.vhost, "configure": record.configure}
        yield "permission.created", {**fields, "write": record.write, "read": record.read}
    elif isinstance(record, TopicPermission):
        fields = {"user": record.user, "vhost": record.vhost, "exchange": record.exchange}
        yield "topic.permission.created", {**fields, "write": record.write, "read": record.read}
    elif isinstance(record, Policy):
        value = {
            "pattern": record.pattern,
            "definition": json.loads(record.definition),
            "priority": record.priority,
            "apply-to": record.apply_to,
        }
        if record.is_operator:
            parameter = {"vhost": record.vhost, "component": "operator_policy", "name": record.name}
            yield "parameter.set", {**parameter, "value": value}
        yield "policy.set", {"name": record.name, "vhost": record.vhost, **value}
    elif isinstance(record, Parameter):
        value = json.loads(record.value)
        parameter = {"vhost": record.vhost, "component": record.component, "name": record.name}
        yield "parameter.set", {**parameter, "value": value}
        if (record.component, record.name) == VHOST_LIMITS:
            yield "vhost.limits.set", {"name": "limits", "vhost": record.vhost, **value}
    elif isinstance(record, GlobalParameter):
        yield "parameter.set", {"component": "global", "name": record.name, "value": json.loads(record.value)}


def _user(record: User, before: User | None) -> Iterator[Event]:
    name = {"name": record.name}
    if before is None:
        yield "user.created", name
    elif record.password_hash != before.password_hash:
        yield ("user.password.changed" if record.password_hash else "user.password.cleared"), name
    if record.tags != (before.tags if before is not None else ()):
        yield "user.tags.set", {**name, "tags": list(record.tags)}
    if record.limits != (before.limits if before is not None else ()):
        limits = {"name": "limits", "username": record.name}
        if record.limits:
            yield "user.limits.set", {**limits, **dict(record.limits)}
        else:
            yield "user.limits.cleared", limits


def _removed(record: Record) -> Iterator[Event]:
    if isinstance(record, User):
        yield "user.deleted", {"name": record.name}
    elif isinstance(record, Permission):
        yield "permission.deleted", {"user": record.user, "vhost": record.vhost}
    elif isinstance(record, TopicPermission):
        yield "topic.permission.deleted", {"user": record.user, "vhost": record.vhost, "exchange": record.exchange}
    elif isinstance(record, Policy):
        named = {"name": record.name, "vhost": record.vhost}
        if record.is_operator:
            yield "parameter.cleared", {**named, "component": "operator_policy"}
        yield ("operator.policy.cleared" if record.is_operator else "policy.cleared"), named
    elif isinstance(record, Parameter):
        yield "parameter.cleared", {"vhost": record.vhost, "component": record.component, "name": record.name}
        if (record.component, record.name) == VHOST_LIMITS:
            yield "vhost.limits.cleared", {"name": "limits", "vhost": record.vhost}
    elif isinstance(record, GlobalParameter):
        yield "parameter.cleared", {"component": "global", "name": record.name}
