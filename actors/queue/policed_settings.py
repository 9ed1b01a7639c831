"""The settings of a queue: its arguments, the policies that apply to it, and the exchanges that lead to it."""

from __future__ import annotations

from dataclasses import replace

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...definitions.definitions import Definitions
from ...definitions.features import EXPIRY_COLUMNS, MIRRORED_DEDUPLICATION
from ...definitions.policies import queue_kind
from ...routing.arguments.queue_settings import QueueSettings, queue_settings
from ...routing.queue_types import CLASSIC, DEDUPLICATE
from ...routing.rows import QueueRow
from ...routing.shards import shard_settings
from ...routing.table import RoutingTable


def policed_settings(
    row: QueueRow, definitions: Definitions, routing: RoutingTable, queue_mode_precedence: str = "argument"
) -> QueueSettings:
    """Merge the arguments in `row` with the policies of its virtual host, and with what exchanges ask for.

    `queue_mode_precedence` is the setting of that name; it matters only to a caller that reads `queue_mode` in the
    result.
    """
    policies = definitions.policies_of(row.vhost)
    name = row.name if row.shard_of is None else row.shard_of
    if policies is None:
        settings = queue_settings(row.arguments)
    else:
        settings = queue_settings(
            row.arguments,
            policies.effective(queue_kind(row.type), name).definition,
            policy_sets_mode=queue_mode_precedence == "policy",
        )
    window = routing.queue_window(row.vhost, name)
    if window is not None and row.type == CLASSIC.name:
        settings = replace(settings, exchange_window=window)
    if settings.window is not None and not _may_deduplicate(row, definitions):
        settings = replace(settings, deduplicate=None, exchange_window=None)
    if row.group is not None and (EXPIRY_COLUMNS,) not in definitions.features:
        settings = replace(settings, has_one_expiry=True)
    return settings if row.shard_of is None else shard_settings(row, settings)


def _may_deduplicate(row: QueueRow, definitions: Definitions) -> bool:
    """Whether a policy or an exchange may have the queue deduplicate. A logical queue never does, because its shards
    do. A mirrored queue does only if all nodes have the instructions with which a master reports the keys to its
    mirrors.
    """
    return not row.shards and (row.group is None or (MIRRORED_DEDUPLICATION,) in definitions.features)


def deduplicates(row: QueueRow, definitions: Definitions, routing: RoutingTable) -> bool:
    """Whether the queue deduplicates, by an argument, by a policy or by an exchange."""
    name = row.name if row.shard_of is None else row.shard_of
    if row.arguments.get(DEDUPLICATE) is not None:
        return True
    policies = definitions.policies_of(row.vhost)
    may_by_policy = policies is not None and policies.defines("classic", "deduplicate")
    if not may_by_policy and routing.queue_window(row.vhost, name) is None:
        return False
    return policed_settings(row, definitions, routing).window is not None


def check_changes(before: QueueSettings, after: QueueSettings, phrase: str) -> None:
    """Raise AmqpError 406 if a queue, which `phrase` names, cannot have these settings from now on."""
    if (after.max_priority, after.single_active_consumer) != (before.max_priority, before.single_active_consumer):
        raise AmqpError(
            PRECONDITION_FAILED,
            f"priorities and the single active consumer of {phrase} cannot be changed: they are fixed when a queue is "
            "declared",
        )
