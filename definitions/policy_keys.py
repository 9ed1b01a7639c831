"""The keys of policy definitions and the check of each value (AB-160), with RabbitMQ's texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from . import patterns
from .errors import DefinitionError
from .index_sources import is_index_value
from .json_text import erlang_term, json_text, parse_json
from .policies import QUEUES_OF_TYPE
from .records import Policy

APPLY_TO = ("queues", *QUEUES_OF_TYPE, "exchanges", "all")

#: The widest deduplication window of a queue, in messages.
MAX_DEDUPLICATE = 10_000_000

#: How many lanes a queue can have at most.
MAX_LANES = 65_536

#: Characters of the name of a pace group.
MAX_GROUP_NAME = 255

#: Limit of `pace-rate`, in messages or bytes a second; no queue delivers as fast.
MAX_RATE = 1e9

#: Why a value is refused; empty if it is accepted.
Reason = str
Check = Callable[[Any], Reason]


def _number(least: int, what: str) -> Check:
    def check(value: Any) -> Reason:
        return "" if type(value) is int and value >= least else f"{erlang_term(value)} is not a valid {what}"

    return check


def _text(what: str) -> Check:
    return lambda value: "" if isinstance(value, str) else f"{erlang_term(value)} is not a valid {what}"


def _one_of(choices: tuple[object, ...], text: str) -> Check:
    return lambda value: "" if value in choices and type(value) is not bool else text.format(erlang_term(value))


def _boolean(key: str) -> Check:
    return lambda value: "" if type(value) is bool else f"{erlang_term(value)} is not a valid {key} value"


def _ha_mode(value: Any) -> Reason:
    return "" if value in ("all", "exactly", "nodes") else f"{erlang_term(value)} is not a valid ha-mode value"


def _max_age(value: Any) -> Reason:
    is_good = isinstance(value, str) and re.fullmatch("[0-9]+[YMDhms]", value) is not None
    return "" if is_good else f"{erlang_term(value)} is not a valid max age"


def _message_index(value: Any) -> Reason:
    if is_index_value(value):
        return ""
    return (
        f"{erlang_term(value)} is not a valid message-index value; should be 'none', 'id', 'key' or a list of sources, "
        "each a property such as 'correlation-id' or 'header:NAME'"
    )


def _rate(value: Any) -> Reason:
    is_good = type(value) in (int, float) and 0 < value < MAX_RATE
    return "" if is_good else f"{erlang_term(value)} is not a valid pace rate"


def _pace_group(value: Any) -> Reason:
    is_good = isinstance(value, str) and 0 < len(value) <= MAX_GROUP_NAME
    return "" if is_good else f"{erlang_term(value)} is not a valid pace group"


def _fair_by(value: Any) -> Reason:
    if isinstance(value, str) and re.fullmatch("routing-key|exchange|user|header:.+", value, re.DOTALL):
        return ""
    return (
        f"{erlang_term(value)} is not a valid fair-by value; should be 'routing-key', 'exchange', 'user' or "
        "'header:NAME'"
    )


def _fair_lanes(value: Any) -> Reason:
    is_good = type(value) is int and 1 <= value <= MAX_LANES
    return "" if is_good else f"{erlang_term(value)} is not a valid number of lanes; should be from 1 to {MAX_LANES}"


def _fair_weight(value: Any) -> Reason:
    is_good = isinstance(value, dict) and all(type(weight) is int and weight > 0 for weight in value.values())
    return (
        "" if is_good else f"{erlang_term(value)} is not a valid fair weight; should be an object of positive integers"
    )


def _deduplicate(value: Any) -> Reason:
    is_good = type(value) is int and 1 <= value <= MAX_DEDUPLICATE
    return (
        ""
        if is_good
        else f"{erlang_term(value)} is not a valid deduplication window; should be from 1 to {MAX_DEDUPLICATE} messages"
    )


_WHEN_PROMOTED = ("always", "when-synced")

#: The check of each key.
CHECKS: dict[str, Check] = {
    "alternate-exchange": _text("alternate exchange name"),
    "dead-letter-exchange": _text("dead letter exchange name"),
    "dead-letter-routing-key": _text("dead letter routing key"),
    "dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), "{} is not a valid dead letter strategy"),
    "message-ttl": _number(0, "message TTL"),
    "expires": _number(1, "queue expiry"),
    "max-length": _number(0, "maximum length"),
    "max-length-bytes": _number(0, "maximum length in bytes"),
    "max-in-memory-length": _number(0, "maximum memory in bytes"),
    "max-in-memory-bytes": _number(0, "maximum memory in bytes"),
    "delivery-limit": _number(0, "delivery limit"),
    "overflow": _one_of(("drop-head", "reject-publish", "reject-publish-dlx"), "{} is not a valid overflow value"),
    "queue-mode": _one_of(("default", "lazy"), "{} is not a valid queue-mode value"),
    "queue-version": _one_of((1, 2), "{} is not a valid queue-version value"),
    "queue-master-locator": _one_of(("min-masters", "client-local", "random"), "{} invalid queue-master-locator value"),
    "queue-leader-locator": _one_of(
        ("client-local", "balanced", "random", "least-leaders"), "{} is not a valid queue leader locator value"
    ),
    "initial-cluster-size": _number(0, "cluster size"),
    "max-age": _max_age,
    "stream-max-segment-size-bytes": _number(0, "segment size"),
    "message-index": _message_index,
    "index-retention-ms": _number(0, "index retention"),
    "consumer-timeout": _number(0, "consumer timeout"),
    "pace-rate": _rate,
    "pace-period-ms": _number(1, "pace period"),
    "pace-max-wait-ms": _number(0, "pace maximum wait"),
    "pace-overflow": _one_of(("hold", "dead-letter", "nack", "drop"), "{} is not a valid pace-overflow value"),
    "pace-burst": _number(1, "pace burst"),
    "pace-warm-up-ms": _number(0, "pace warm-up"),
    "pace-scope": _one_of(("queue", "group", "consumer"), "{} is not a valid pace-scope value"),
    "pace-group": _pace_group,
    "pace-cost": _one_of(("message", "kib"), "{} is not a valid pace-cost value"),
    "pace-get": _boolean("pace-get"),
    "drop-lowest": _boolean("drop-lowest"),
    "fair-by": _fair_by,
    "fair-lanes-max": _fair_lanes,
    "fair-batch": _number(1, "fair batch"),
    "fair-weight": _fair_weight,
    "fair-cost": _one_of(("message", "bytes"), "{} is not a valid fair-cost value"),
    "fair-lane-max-length": _number(1, "maximum length of a lane"),
    "deduplicate": _deduplicate,
    "consumer-max-unacked": _number(0, "maximum of unacknowledged messages"),
    "consumer-max-unacked-bytes": _number(0, "maximum of unacknowledged bytes"),
    "consumer-max-span": _number(0, "maximum span of unacknowledged messages"),
    "ha-mode": _ha_mode,
    "ha-params": lambda value: "",  # Its check depends on `ha-mode`.
    "ha-sync-mode": _one_of(("manual", "automatic"), 'ha-sync-mode must be "manual" or "automatic", got {}'),
    "ha-sync-batch-size": lambda value: (
        ""
        if type(value) is int and value > 0
        else f"ha-sync-batch-size takes an integer greater than 0, {erlang_term(value)} given"
    ),
    "ha-promote-on-shutdown": _one_of(
        _WHEN_PROMOTED, 'ha-promote-on-shutdown must be "always" or "when-synced", got {}'
    ),
    "ha-promote-on-failure": _one_of(_WHEN_PROMOTED, 'ha-promote-on-failure must be "always" or "when-synced", got {}'),
    "ha-min-in-sync": lambda value: (
        ""
        if type(value) is int and value > 0
        else f"ha-min-in-sync takes an integer greater than 0, {erlang_term(value)} given"
    ),
    "ha-ack-timeout": lambda value: (
        ""
        if type(value) is int and 1_000 <= value <= 300_000
        else f"ha-ack-timeout takes milliseconds from 1000 to 300000, {erlang_term(value)} given"
    ),
}

#: The keys that an operator policy may have (AB-157): those of RabbitMQ, those of pacing (QP-101), and
#: that of deduplication (SP-30).
OPERATOR_KEYS = frozenset(
    {
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
    }
    | {"pace-rate", "pace-period-ms", "pace-max-wait-ms", "pace-overflow", "pace-burst", "pace-scope", "pace-group"}
    | {"pace-warm-up-ms", "pace-cost", "pace-get"}
    | {"deduplicate"}
)


def checked_policy(
    vhost: str, name: str, pattern: str, definition: str, apply_to: str, priority: int, is_operator: bool
) -> Policy:
    """The policy, whose definition is a JSON object as text. Raises DefinitionError."""
    given = parse_json(definition)
    reason = _pattern_fault(pattern) or _definition_fault(given, is_operator) or _apply_to_fault(apply_to)
    if reason:
        raise DefinitionError("unavailable", f"Validation failed\n\n{reason}\n")
    if is_operator and apply_to not in QUEUES_OF_TYPE:
        apply_to = "queues"
    return Policy(vhost, name, pattern, json_text(given), apply_to, priority, is_operator)


def _pattern_fault(pattern: str) -> Reason:
    fault = patterns.fault(pattern)
    return f"pattern should be regular expression but is invalid: {fault}" if fault else ""


def _apply_to_fault(apply_to: str) -> Reason:
    if apply_to in APPLY_TO:
        return ""
    # RabbitMQ 3.10's text. The types of queues are values since 3.12.
    close = difflib.get_close_matches(apply_to, APPLY_TO, 1)
    hint = f". Did you mean '{close[0]}'?" if close else ""
    return f"apply-to '{apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'{hint}"


def _definition_fault(given: Any, is_operator: bool) -> Reason:
    if not isinstance(given, dict):
        return f"definition should be a JSON object, actually was {erlang_term(given)}"
    if not given:
        return "no policy provided"
    known = OPERATOR_KEYS if is_operator else CHECKS.keys()
    unknown = [key for key in given if key not in known]
    if unknown:
        return _unknown_text(given, unknown, known)
    for key, value in given.items():
        reason = CHECKS[key](value)
        if reason:
            return reason
    return _mirroring_fault(given) or _fair_fault(given) or _pace_fault(given)


def _unknown_text(given: Mapping[str, Any], unknown: list[str], known: Any) -> Reason:
    terms = ",".join(f"{{{erlang_term(key)},{erlang_term(given[key])}}}" for key in unknown)
    close = difflib.get_close_matches(unknown[0], known, 1)
    hint = f". Did you mean '{close[0]}'?" if close else ""
    return f"[{terms}] are not recognised policy settings{hint}"


def _mirroring_fault(given: Mapping[str, Any]) -> Reason:
    mode, params = given.get("ha-mode"), given.get("ha-params")
    shown = "none" if params is None else erlang_term(params)
    if mode is None:
        if any(key.startswith("ha-") for key in given):
            return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    elif mode == "all" and params is not None:
        return 'ha-mode="all" does not take parameters'
    elif mode == "exactly" and not (type(params) is int and params > 0):
        return f'ha-mode="exactly" takes an integer, {shown} given'
    elif mode == "nodes":
        return _nodes_fault(params, shown) or _floor_fault(given)
    return _floor_fault(given)


def _fair_fault(given: Mapping[str, Any]) -> Reason:
    if "fair-by" in given and "ha-mode" in given:
        return "fair-by and ha-mode cannot be used together: a queue with fair lanes is not mirrored"
    return ""


def _pace_fault(given: Mapping[str, Any]) -> Reason:
    if "pace-group" in given and given.get("pace-scope") == "consumer":
        return "pace-group and the pace-scope consumer cannot be used together: a consumer is one of a single queue"
    return ""


def _nodes_fault(params: Any, shown: str) -> Reason:
    if not isinstance(params, list):
        return f'ha-mode="nodes" takes a list, {shown} given'
    others = [each for each in params if not isinstance(each, str)]
    if others:
        return f'ha-mode="nodes" takes a list of strings, {erlang_term(others)} was not a string'
    return "" if params else 'ha-mode="nodes" list must be non-empty'


def _floor_fault(given: Mapping[str, Any]) -> Reason:
    """The error if a queue with this policy has fewer replicas than `ha-min-in-sync` asks for (CL-123); else empty."""
    floor, mode, params = given.get("ha-min-in-sync", 1), given.get("ha-mode"), given.get("ha-params")
    most = params if mode == "exactly" else len(set(params)) if mode == "nodes" and params is not None else None
    if most is None or floor <= most:
        return ""
    return f"ha-min-in-sync is {floor}, and a queue with this policy has at most {most} replicas"
