"""Rows of listings: the exchanges, bindings and queues of the routing table as rabbitmqctl's info items."""

from __future__ import annotations

from typing import Any

from ...definitions.definitions import Definitions
from ...definitions.policies import NOTHING, Kind, queue_kind
from ...routing.rows import Binding, ExchangeRow, QueueRow

#: One row of a listing: rabbitmqctl's info items, by name.
InfoItems = dict[str, Any]


def policy_items(definitions: Definitions, kind: Kind, vhost: str, name: str) -> InfoItems:
    """The names of the policies that apply to a queue or an exchange, and what they define together."""
    policies = definitions.policies_of(vhost)
    found = NOTHING if policies is None else policies.effective(kind, name)
    return {
        "policy": found.policy or "",
        "operator_policy": found.operator_policy or "",
        "effective_policy_definition": dict(found.definition),
    }


def exchange_items(row: ExchangeRow, definitions: Definitions) -> InfoItems:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": row.arguments,
        **policy_items(definitions, "exchanges", row.vhost, row.name),
    }


def binding_items(vhost: str, binding: Binding) -> InfoItems:
    return {
        "vhost": vhost,
        "source_name": binding.source,
        "source_kind": "exchange",
        "destination_name": binding.destination,
        "destination_kind": binding.kind,
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
    }


def queue_items(row: QueueRow, definitions: Definitions) -> InfoItems:
    """The items that need no answer from the queue's process. A queue that does not run has no others."""
    return {
        "vhost": row.vhost,
        "name": row.name,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "arguments": row.arguments,
        "type": row.type,
        "queue_mode": None,
        **policy_items(definitions, queue_kind(row.type), row.vhost, row.name),
        "state": row.state,
    }
