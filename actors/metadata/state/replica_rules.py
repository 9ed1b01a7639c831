"""Which replicas a queue asks for, by its policies, its type and its arguments, and how many must be in sync.

| queue | replicas | in sync for publishes that await a confirm |
|---|---|---|
| classic | as `ha-mode` of its policy says; otherwise one | as many as `ha-min-in-sync` says; otherwise one |
| quorum | as many as `x-quorum-initial-group-size` says; otherwise three | a majority of these |
| stream | as many as `x-initial-cluster-size` says; otherwise one on each node | a majority of these |

Exclusive queues, groups and queues with fair lanes have one replica: a group has no messages of its own, and in fair
lanes the number of a message depends on when it came.
"""

from __future__ import annotations

from typing import NamedTuple

from ....definitions.definitions import Definitions
from ....definitions.features import (
    MIRRORED_DEDUPLICATION,
    MIRRORED_QUEUES,
    REPLICATED_QUORUM_QUEUES,
    REPLICATED_STREAMS,
)
from ....definitions.policies import NO_DEFINITION, Definition, queue_kind
from ....routing.arguments.fair_arguments import FAIR_BY
from ....routing.queue_types import DEDUPLICATE, GROUP, QUORUM, STREAM
from ....routing.rows import QueueRow
from .placement import Mode, policy_mode


class _OfType(NamedTuple):
    """The feature that a type of queues needs for its replicas, the argument that says how many there are, and how many
    there are without it, as in RabbitMQ.
    """

    feature: str
    argument: str
    usual: int


#: A number of replicas above that of any cluster's nodes, so that each node has one.
_EVERYWHERE = 1 << 16

_OF_TYPES = {
    QUORUM.name: _OfType(REPLICATED_QUORUM_QUEUES, "x-quorum-initial-group-size", 3),
    STREAM.name: _OfType(REPLICATED_STREAMS, "x-initial-cluster-size", _EVERYWHERE),
}


def may_mirror(definitions: Definitions) -> bool:
    """Whether the nodes have groups at all: the versions of all of them must have the feature."""
    return (MIRRORED_QUEUES,) in definitions.features and bool(definitions.nodes)


def mode_of(definitions: Definitions, row: QueueRow) -> Mode | None:
    """How this queue shall be mirrored; None if it shall not."""
    own = _OF_TYPES.get(row.type)
    if own is not None:
        is_enabled = (own.feature,) in definitions.features
        return Mode("exactly", _size_of_type(row)) if is_enabled else None
    if row.exclusive_owner is not None or row.type == GROUP.name or row.arguments.get(FAIR_BY) is not None:
        return None
    if row.arguments.get(DEDUPLICATE) is not None and (MIRRORED_DEDUPLICATION,) not in definitions.features:
        return None
    return policy_mode(_policy_of(definitions, row))


def _size_of_type(row: QueueRow) -> int:
    """How many replicas a quorum queue or a stream asks for; 1 for other types, whose replicas a policy decides."""
    own = _OF_TYPES.get(row.type)
    found = None if own is None else row.arguments.get(own.argument)
    return int(found[1]) if found is not None else 1 if own is None else own.usual


def _policy_of(definitions: Definitions, row: QueueRow) -> Definition:
    """What the policies of the queue define."""
    policies = definitions.policies_of(row.vhost)
    name = row.name if row.shard_of is None else row.shard_of
    return NO_DEFINITION if policies is None else policies.effective(queue_kind(row.type), name).definition


def promotes_always(definitions: Definitions, row: QueueRow, is_stopped: bool) -> bool:
    """Whether a learner becomes the master if no member of the ring is left, though messages may be lost (CL-79).

    `is_stopped`: the last members were stopped in order. Then `ha-promote-on-shutdown` decides, unless
    `ha-promote-on-failure` is `when-synced`, as in RabbitMQ.
    """
    policy = _policy_of(definitions, row)
    on_failure = policy.get("ha-promote-on-failure")
    if is_stopped:
        return on_failure != "when-synced" and policy.get("ha-promote-on-shutdown") == "always"
    return bool(on_failure == "always")


def min_in_sync(definitions: Definitions, row: QueueRow) -> int:
    """How many members the ring must have for the queue to take publishes that await a confirm (CL-123).

    For a quorum queue or a stream that is a majority of the nodes that have, or have had, all its messages. So neither
    a node that joins the cluster nor a replica that still copies the queue holds a publisher up.
    """
    floor: int = _policy_of(definitions, row).get("ha-min-in-sync", 1)
    if row.type not in _OF_TYPES or row.group is None:
        return floor
    there = {member.node for member in row.group.ring}
    complete = there | {node for node, _ in row.group.was if definitions.node(node) is not None}
    return min(max(len(there), _size_of_type(row)), len(complete)) // 2 + 1


def is_short(definitions: Definitions, row: QueueRow) -> bool:
    """Whether a queue has too few members in its ring to take publishes that await a confirm (CL-123)."""
    return row.group is not None and len(row.group.ring) < min_in_sync(definitions, row)


def members_of(definitions: Definitions, row: QueueRow) -> tuple[str, ...]:
    """The nodes of a queue that has replicas by its type, the leader first: those that have one, and those that had one
    and are expected to come back.
    """
    if row.group is None:
        return (row.node,)
    there = [member.node for member in row.group.everyone]
    away = [node for node, _ in reversed(row.group.was) if node not in there and definitions.node(node) is not None]
    return tuple([*there, *away][: max(len(there), _size_of_type(row))])
