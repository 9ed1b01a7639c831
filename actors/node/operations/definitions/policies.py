"""Operations on policies, parameters and limits of virtual hosts. JSON values are given as text."""

from __future__ import annotations

import json

from .....definitions.definitions import CLUSTER_NAME, Definitions
from .....definitions.errors import DefinitionError
from .....definitions.features import POLICIES_OF_TYPES
from .....definitions.json_text import json_text, parse_json
from .....definitions.limits import VHOST_LIMITS, vhost_limits
from .....definitions.policies import QUEUES_OF_TYPE
from .....definitions.policy_keys import checked_policy
from .....definitions.records import GlobalParameter, Parameter, Policy
from ....metadata.state.commands import PutRecords, RemoveRecords
from ..registry import OperationError, Operator, Rows, check_vhost, operation
from .changing import change, refusals

#: The components that may have parameters. Policies are not among them, because they have operations of their own.
COMPONENTS = frozenset({VHOST_LIMITS[0]})

#: The components of policies and operator policies, which RabbitMQ keeps among the parameters.
POLICY, OPERATOR_POLICY = "policy", "operator_policy"

#: What the records of a table are called in an error.
NOUNS = {"policies": "policy", "parameters": "parameter", "global_parameters": "global parameter"}


# -- policies ---


@operation()
async def set_policy(
    operator: Operator,
    *,
    name: str,
    pattern: str,
    definition: str,
    priority: int = 0,
    apply_to: str = "all",
    vhost: str = "/",
) -> None:
    """Set a policy: what queues and exchanges whose names match the pattern do from now on (CM-123)."""
    await _set(operator, vhost, name, pattern, definition, apply_to, priority, False)


@operation()
async def set_operator_policy(
    operator: Operator,
    *,
    name: str,
    pattern: str,
    definition: str,
    priority: int = 0,
    apply_to: str = "queues",
    vhost: str = "/",
) -> None:
    """Set an operator policy: limits for queues that no policy and no argument can exceed (CM-125)."""
    await _set(operator, vhost, name, pattern, definition, apply_to, priority, True)


async def _set(
    operator: Operator,
    vhost: str,
    name: str,
    pattern: str,
    definition: str,
    apply_to: str,
    priority: int,
    is_operator: bool,
) -> None:
    check_vhost(operator, vhost)
    with refusals():
        record = checked_policy(vhost, name, pattern, definition, apply_to, priority, is_operator)
        check_feature(operator.context.definitions, record)
    await change(operator, PutRecords((record,)))


def check_feature(definitions: Definitions, policy: Policy) -> None:
    """Raise DefinitionError if the policy is for the queues of one type and the cluster may have older nodes."""
    if policy.apply_to in QUEUES_OF_TYPE and definitions.nodes and (POLICIES_OF_TYPES,) not in definitions.features:
        raise DefinitionError(
            "unavailable",
            f"apply-to '{policy.apply_to}' needs the feature flag '{POLICIES_OF_TYPES}': older nodes would apply "
            f"policy '{policy.name}' to all queues. Enable it (enable_feature_flag) when all nodes have this version",
        )


@operation()
async def clear_policy(operator: Operator, *, name: str, vhost: str = "/") -> None:
    """Remove a policy (CM-124)."""
    await _clear(operator, "policies", (vhost, "user", name), vhost)


@operation()
async def clear_operator_policy(operator: Operator, *, name: str, vhost: str = "/") -> None:
    """Remove an operator policy (CM-125)."""
    await _clear(operator, "policies", (vhost, "operator", name), vhost)


@operation()
async def list_policies(operator: Operator, *, vhost: str = "/") -> Rows:
    """The policies of a virtual host (CM-125)."""
    return _policies(operator, vhost, False)


@operation()
async def list_operator_policies(operator: Operator, *, vhost: str = "/") -> Rows:
    """The operator policies of a virtual host (CM-125)."""
    return _policies(operator, vhost, True)


def _policies(operator: Operator, vhost: str, is_operator: bool) -> Rows:
    check_vhost(operator, vhost)
    return [
        {
            "vhost": each.vhost,
            "name": each.name,
            "pattern": each.pattern,
            "apply-to": each.apply_to,
            "definition": each.definition,
            "priority": each.priority,
        }
        for each in operator.context.definitions.policies.values()
        if each.vhost == vhost and each.is_operator == is_operator
    ]


def rule_of(policy: Policy) -> dict[str, object]:
    """The policy without its name, as JSON has it."""
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": json.loads(policy.definition),
        "priority": policy.priority,
    }


# -- parameters ---


@operation()
async def set_parameter(operator: Operator, *, component: str, name: str, value: str, vhost: str = "/") -> None:
    """Set a parameter of a component in a virtual host; the value is JSON (CM-120)."""
    check_vhost(operator, vhost)
    if component == POLICY:
        raise OperationError("unavailable", "policies may not be set using this method")
    if component not in COMPONENTS:
        raise OperationError("unavailable", f"Validation failed\n\ncomponent {component} not found\n")
    with refusals():
        given = vhost_limits(value)
    await change(operator, PutRecords((Parameter(vhost, component, name, json_text(given)),)))


@operation()
async def clear_parameter(operator: Operator, *, component: str, name: str, vhost: str = "/") -> None:
    """Remove a parameter (CM-120)."""
    if component == POLICY:
        raise OperationError("unavailable", "policies may not be cleared using this method")
    await _clear(operator, "parameters", (vhost, component, name), vhost)


@operation()
async def list_parameters(operator: Operator, *, vhost: str = "/") -> Rows:
    """The parameters of a virtual host; operator policies are among them, and policies are not (CM-121)."""
    check_vhost(operator, vhost)
    definitions = operator.context.definitions
    return [
        {"component": each.component, "name": each.name, "value": each.value}
        for each in definitions.parameters.values()
        if each.vhost == vhost
    ] + [
        {"component": OPERATOR_POLICY, "name": each.name, "value": json_text(rule_of(each))}
        for each in definitions.policies.values()
        if each.vhost == vhost and each.is_operator
    ]


@operation()
async def set_global_parameter(operator: Operator, *, name: str, value: str) -> None:
    """Set a parameter of the whole cluster; the value is JSON (CM-122)."""
    with refusals():
        given = json_text(parse_json(value))
    await change(operator, PutRecords((GlobalParameter(name, given),)))


@operation()
async def set_cluster_name(operator: Operator, *, name: str) -> None:
    """Name the cluster in the server properties that clients receive, and in `status` (CM-76)."""
    await change(operator, PutRecords((GlobalParameter(CLUSTER_NAME, json_text(name)),)))


@operation()
async def clear_global_parameter(operator: Operator, *, name: str) -> None:
    """Remove a parameter of the whole cluster (CM-122)."""
    await _clear(operator, "global_parameters", (name,))


@operation()
async def list_global_parameters(operator: Operator) -> Rows:
    """The parameters of the whole cluster (CM-122)."""
    found = operator.context.definitions.global_parameters.values()
    return [{"name": each.name, "value": each.value} for each in found]


async def _clear(operator: Operator, table: str, key: tuple[str, ...], vhost: str | None = None) -> None:
    if vhost is not None:
        check_vhost(operator, vhost)
    if not await change(operator, RemoveRecords(((table, key),))):
        where = "" if vhost is None else f" in vhost '{vhost}'"
        kind = "operator policy" if table == "policies" and key[1] == "operator" else NOUNS[table]
        what = f"There is no {kind} '{key[-1]}'{where}."
        raise OperationError("unavailable", "Parameter does not exist", (what,))


# -- limits of virtual hosts ---


@operation()
async def set_vhost_limits(operator: Operator, *, limits: str, vhost: str = "/") -> None:
    """Set limits of a virtual host: a JSON object, which replaces all that it had (CM-111)."""
    await set_parameter(operator, component=VHOST_LIMITS[0], name=VHOST_LIMITS[1], value=limits, vhost=vhost)


@operation()
async def clear_vhost_limits(operator: Operator, *, vhost: str = "/") -> None:
    """Remove all limits of a virtual host (CM-112)."""
    await clear_parameter(operator, component=VHOST_LIMITS[0], name=VHOST_LIMITS[1], vhost=vhost)


@operation()
async def list_vhost_limits(operator: Operator, *, vhost: str | None = None) -> Rows:
    """The limits of one virtual host, or of all that have any, as JSON objects (CM-113)."""
    if vhost is not None:
        check_vhost(operator, vhost)
    return [
        {"vhost": each.vhost, "limits": each.value}
        for each in operator.context.definitions.parameters.values()
        if each.key[1:] == VHOST_LIMITS and vhost in (None, each.vhost)
    ]
