"""The settings of a queue: its arguments, and the policies that apply to it."""

from __future__ import annotations

from dataclasses import replace

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...definitions.definitions import Definitions
from ...definitions.features import MIRRORED_DEDUPLICATION
from ...definitions.policies import queue_kind
from ...routing.arguments.queue_settings import QueueSettings, queue_settings
from ...routing.queue_types import DEDUPLICATE
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
    if settings.deduplicate is not None and not _may_deduplicate(row, definitions):
        settings = replace(settings, deduplicate=None)
    return settings if row.shard_of is None else shard_settings(row, settings)


def _may_deduplicate(row: QueueRow, definitions: Definitions) -> bool:
    """Whether a policy may have the queue deduplicate: not a logical queue, which has no message, and a mirrored queue
    only if all nodes know the instructions for it.
    """
    return not row.shards and (row.group is None or (MIRRORED_DEDUPLICATION,) in definitions.features)


def deduplicates(row: QueueRow, definitions: Definitions) -> bool:
    """Whether the queue deduplicates, by an argument or by a policy."""
    if row.arguments.get(DEDUPLICATE) is not None:
        return True
    policies = definitions.policies_of(row.vhost)
    if policies is None or not policies.defines("classic", "deduplicate"):
        return False
    return policed_settings(row, definitions).deduplicate is not None


def check_changes(before: QueueSettings, after: QueueSettings, phrase: str) -> None:
    """Raise AmqpError 406 if a queue, which `phrase` names, cannot have these settings from now on."""
    if (after.max_priority, after.single_active_consumer) != (before.max_priority, before.single_active_consumer):
        raise AmqpError(
            PRECONDITION_FAILED,
            f"priorities and the single active consumer of {phrase} cannot be changed: they are fixed when a queue is "
            "declared",
        )
