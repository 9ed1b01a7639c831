"""Operations that pace one queue: each is a policy for this queue alone (QP-109)."""

from __future__ import annotations

import re

from .....definitions.json_text import json_text, parse_json
from .....definitions.policies import Kind, VhostPolicies, queue_kind
from .....definitions.policy_keys import checked_policy
from .....definitions.records import Policy
from ....metadata.state.commands import PutRecords, RemoveRecords
from ..registry import OperationError, Operator, check_vhost, operation
from .changing import change, refusals

#: The priority of such a policy, so that it applies before the policies for many queues.
PRIORITY = 1000


def pace_policy(queue: str) -> str:
    """The name of the policy that paces this queue."""
    return f"pace.{queue}"


@operation()
async def set_pace(
    operator: Operator,
    *,
    queue: str,
    rate: float,
    period_ms: int = 1000,
    max_wait_ms: int | None = None,
    overflow: str | None = None,
    warm_up_ms: int | None = None,
    cost: str | None = None,
    group: str | None = None,
    vhost: str = "/",
) -> str | None:
    """Have a queue deliver this many messages, or KiB of them, in each period.

    Only one policy applies to a queue, so the new one also takes over what the policy that applied until now defines.
    Answered with the name of that policy.
    """
    check_vhost(operator, vhost)
    given = {
        "pace-rate": int(rate) if rate == int(rate) else rate,
        "pace-period-ms": period_ms,
        "pace-max-wait-ms": max_wait_ms,
        "pace-overflow": overflow,
        "pace-warm-up-ms": warm_up_ms,
        "pace-cost": cost,
        "pace-group": group,
    }
    other = _other_policy(operator, vhost, queue)
    definition: dict[str, object] = {} if other is None else parse_json(other.definition)
    definition = {key: value for key, value in definition.items() if not key.startswith("pace-")}
    definition |= {key: value for key, value in given.items() if value is not None}
    with refusals():
        record = checked_policy(
            vhost, pace_policy(queue), f"^{re.escape(queue)}$", json_text(definition), "queues", PRIORITY, False
        )
    await change(operator, PutRecords((record,)))
    return None if other is None else other.name


@operation()
async def clear_pace(operator: Operator, *, queue: str, vhost: str = "/") -> None:
    """Remove what `set_pace` has set for a queue."""
    check_vhost(operator, vhost)
    if not await change(operator, RemoveRecords((("policies", (vhost, "user", pace_policy(queue))),))):
        raise OperationError("unavailable", f"no pace is set for queue '{queue}' in vhost '{vhost}'")


def _other_policy(operator: Operator, vhost: str, queue: str) -> Policy | None:
    """The policy that applies to the queue if its pace is left out of account."""
    row = operator.context.routing.queue(vhost, queue)
    kind: Kind = queue_kind("classic" if row is None else row.type)
    policies = operator.context.definitions.policies
    own = (vhost, "user", pace_policy(queue))
    others = VhostPolicies(one for key, one in policies.items() if one.vhost == vhost and key != own)
    name = others.effective(kind, queue).policy
    return None if name is None else policies[vhost, "user", name]
