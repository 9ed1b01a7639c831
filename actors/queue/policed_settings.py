"""The settings of a queue: its arguments, and the policies that apply to it."""

from __future__ import annotations

from ...definitions.definitions import Definitions
from ...definitions.policies import queue_kind
from ...routing.arguments import QueueSettings, queue_settings
from ...routing.rows import QueueRow


def policed_settings(row: QueueRow, definitions: Definitions) -> QueueSettings:
    policies = definitions.policies_of(row.vhost)
    if policies is None:
        return queue_settings(row.arguments)
    return queue_settings(row.arguments, policies.effective(queue_kind(row.type), row.name).definition)
