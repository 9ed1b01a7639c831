"""Rows of listings: the exchanges, bindings and queues of the routing table as rabbitmqctl's info items."""

from __future__ import annotations

from collections.abc import Iterable

from ...definitions.definitions import Definitions
from ...definitions.policies import NOTHING, Kind, queue_kind
from ...routing.rows import Binding, ExchangeRow, QueueRow
from ..contracts.info_items import InfoItems
from .state.groups import is_live
from .state.replica_rules import members_of

#: The info items of a logical queue whose values are the sums over its shards.
_MESSAGES = (
    *("messages_ready", "messages_unacknowledged", "messages"),
    *("message_bytes_ready", "message_bytes_unacknowledged", "message_bytes"),
)
_SUMS = (*_MESSAGES, "unsent", "disk_reads", "disk_writes")


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
        "node": row.node,
        "queue_mode": None,
        "shards": row.shards,
        "shard_of": row.shard_of,
        "queue_id": row.queue_id,
        **_replica_items(row),
        **policy_items(definitions, queue_kind(row.type), row.vhost, row.shard_of or row.name),
        "state": row.state,
    }


def _replica_items(row: QueueRow) -> InfoItems:
    """The nodes of the other replicas, of those that have all messages, and of those that the policy wants."""
    group = row.group
    if group is None:
        return {"mirrors": (), "in_sync": (row.node,), "wanted_nodes": ()}
    return {
        "mirrors": tuple(member.node for member in group.everyone[1:]),
        "in_sync": tuple(member.node for member in group.ring),
        "wanted_nodes": group.wanted,
    }


def member_items(row: QueueRow, definitions: Definitions) -> InfoItems:
    """The members of a quorum queue or a stream, as RabbitMQ names them; nothing for any other queue.

    Those that run and have all messages are `online`. Publishes are confirmed only while a majority of the members is
    online.
    """
    if queue_kind(row.type) == "classic":
        return {}
    if row.group is None:
        online = [row.node] if row.state == "running" else []
    else:
        online = [member.node for member in row.group.ring if is_live(definitions, member)]
    return {"leader": row.node, "members": list(members_of(definitions, row)), "online": online}


def with_shard_items(items: InfoItems, of_shards: Iterable[InfoItems]) -> InfoItems:
    """The info items of a logical queue, summed up over its shards where they count something (FC-96)."""
    found = list(of_shards)
    sums = {name: sum([each[name] for each in (items, *found)]) for name in _SUMS}
    # A logical queue has no messages, and so no numbers.
    numbers = dict.fromkeys(("first_number", "next_number", "life", "gaps"))
    states = {each["state"] for each in found}
    state = next((state for state in ("short", "flow") if state in states), items["state"])
    return {**items, **sums, **numbers, "state": state}


def with_member_items(items: InfoItems, of_members: Iterable[InfoItems]) -> InfoItems:
    """The info items of a group, with the sums of its members' messages (QP-76)."""
    found = list(of_members)
    return {**items, **{name: sum([each[name] for each in found]) for name in _MESSAGES}}


#: Virtual host, logical queue, channel and tag of consumers.
ConsumerNames = set[tuple[str, str, str, str]]


def logical_consumers(row: QueueRow, answer: Iterable[InfoItems], seen: ConsumerNames) -> list[InfoItems]:
    """The consumers of a queue; of a shard only those that its logical queue does not have.

    `seen` has the consumers of the logical queues that were asked already, so each must come before its shards.
    """
    if row.shards:
        found = list(answer)
        seen.update((row.vhost, row.name, items["channel"], items["consumer_tag"]) for items in found)
        return found
    if row.shard_of is None:
        return list(answer)
    return [items for items in answer if (row.vhost, row.shard_of, items["channel"], items["consumer_tag"]) not in seen]
