"""The policy definition that applies to a replica's queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..definitions.policies import NO_DEFINITION, queue_kind

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica


def policy_of(replica: Replica) -> Mapping[str, Any]:
    """The definition of the policies that are in force now for the queue of this replica, by their keys."""
    row = replica.row
    policies = replica.context.definitions.policies_of(row.vhost)
    if policies is None:
        return NO_DEFINITION
    return policies.effective(queue_kind(row.type), row.shard_of or row.name).definition
