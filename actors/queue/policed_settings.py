"""The settings of a queue: its arguments, and the policies that apply to it."""

from __future__ import annotations

from ...definitions.definitions import Definitions
from ...definitions.policies import queue_kind
from ...routing.arguments.arguments import QueueSettings, queue_settings
from ...routing.rows import QueueRow
from ...routing.shards import shard_settings


def policed_settings(row: QueueRow, definitions: Definitions, queue_mode_precedence: str = "argument") -> QueueSettings:
    """Merge the arguments in `row` with the policies of its virtual host.

    `queue_mode_precedence` is the setting of that name; it matters only to who reads `queue_mode` in the result.
    """
    policies = definitions.policies_of(row.vhost)
    if policies is None:
        settings = queue_settings(row.arguments)
    else:
        name = row.name if row.shard_of is None else row.shard_of
        settings = queue_settings(
            row.arguments,
            policies.effective(queue_kind(row.type), name).definition,
            policy_sets_mode=queue_mode_precedence == "policy",
        )
    return settings if row.shard_of is None else shard_settings(row, settings)
