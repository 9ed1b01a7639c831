"""Rows of listings: the exchanges, bindings and queues of the routing table as rabbitmqctl's info items."""

from __future__ import annotations

from typing import Any

from ...routing.rows import Binding, ExchangeRow, QueueRow

#: One row of a listing: rabbitmqctl's info items, by name.
InfoItems = dict[str, Any]


def exchange_items(row: ExchangeRow) -> InfoItems:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": row.arguments,
        "policy": "",
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


def queue_items(row: QueueRow) -> InfoItems:
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
        "policy": "",
        "state": row.state,
    }
