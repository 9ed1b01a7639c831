"""Policies of a virtual host: which policy and which operator policy apply to a queue or an exchange, and the merged
definition of the two (AB-156, AB-157).

Of the policies whose pattern is found in the name and that apply to the kind of object, the one with the highest
priority applies, and among equal priorities the one whose name sorts first. One of the operator policies, which apply
to queues only, is chosen in the same way. For a key that both define, the smaller of two numbers and the slower of two
rates count, and the operator policy's value otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from . import patterns
from .json_text import parse_json
from .records import Policy

#: What a policy may apply to: exchanges, or queues of one type.
Kind = Literal["exchanges", "classic", "quorum", "stream"]

#: The keys of queues with priorities or fair lanes, and of those that deduplicate. Only classic queues can be such.
_CLASSIC_KEYS = frozenset(
    {"drop-lowest", "fair-by", "fair-lanes-max", "fair-batch", "fair-weight", "fair-cost", "fair-lane-max-length"}
    | {"deduplicate"}
)
_STREAM_KEYS = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
#: The keys of mirrored queues. Quorum queues and streams have replicas without them.
_MIRRORING_KEYS = frozenset(
    {"ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure"}
    | {"ha-min-in-sync", "ha-ack-timeout"}
)
#: The keys that a queue type does not support. A policy with one of them applies to no queue of that type (AB-156).
FOREIGN: dict[Kind, frozenset[str]] = {
    "exchanges": frozenset(),
    "classic": _STREAM_KEYS | {"delivery-limit", "dead-letter-strategy", "queue-leader-locator"},
    "quorum": _STREAM_KEYS | _CLASSIC_KEYS | _MIRRORING_KEYS | {"queue-mode", "queue-version", "queue-master-locator"},
    "stream": _CLASSIC_KEYS
    | _MIRRORING_KEYS
    | frozenset(
        {
            "pace-rate",
            "pace-period-ms",
            "pace-max-wait-ms",
            "pace-overflow",
            "pace-burst",
            "pace-scope",
            "pace-group",
            "pace-warm-up-ms",
            "pace-cost",
            "pace-get",
            "consumer-max-unacked",
            "consumer-max-unacked-bytes",
            "consumer-max-span",
            "expires",
            "message-ttl",
            "dead-letter-exchange",
            "dead-letter-routing-key",
            "dead-letter-strategy",
            "max-length",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "overflow",
            "queue-mode",
            "queue-version",
            "queue-master-locator",
            "delivery-limit",
        }
    ),
}

#: The values of `apply-to` that name the queues of one type, as RabbitMQ has them since 3.12.
QUEUES_OF_TYPE: Mapping[str, Kind] = MappingProxyType(
    {"classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream"}
)

PACE_PERIOD, DEFAULT_PERIOD = "pace-period-ms", 1000
PACE_COST = "pace-cost"
PACE_SCOPE = "pace-scope"

#: For how many objects of a kind in a virtual host the effective policy is remembered.
MATCHES_KEPT = 20_000

#: The number of earlier sets of policies whose results are remembered.
EARLIER_KEPT = 2

#: The keys that a policy defines, and their values.
Definition = Mapping[str, Any]

NO_DEFINITION: Definition = MappingProxyType({})


class Effective(NamedTuple):
    """The policy and the operator policy of one object, by name, and what they define together."""

    policy: str | None
    operator_policy: str | None
    definition: Definition


NOTHING = Effective(None, None, NO_DEFINITION)


class VhostPolicies:
    """The policies of one virtual host. Immutable: after a change of policies there is a new object.

    `before` are the policies before the change, and `changed` those that are new, gone or different, as they were and
    as they are. To find what applies to a name takes a search for each policy, and after a change it is looked up for
    each queue. With 200 policies and 5,000 queues that took 0.6 s. A name in which no changed policy is found keeps
    what applied to it before.
    """

    __slots__ = ("_by_kind", "_combined", "_earlier", "_found", "_read")

    def __init__(
        self, policies: Iterable[Policy], before: VhostPolicies | None = None, changed: Sequence[Policy] = ()
    ) -> None:
        ordered = sorted(policies, key=lambda policy: (-policy.priority, policy.name))
        known: Mapping[int, tuple[Policy, Definition]] = {} if before is None else before._read
        read: list[tuple[Policy, Definition]] = [
            known.get(id(policy)) or (policy, MappingProxyType(parse_json(policy.definition))) for policy in ordered
        ]
        #: The policies and their definitions, by the identity of the policy.
        self._read: dict[int, tuple[Policy, Definition]] = {id(each[0]): each for each in read}
        self._by_kind = {
            kind: [each for each in read if _covers(each[0], kind) and not foreign & each[1].keys()]
            for kind, foreign in FOREIGN.items()
        }
        #: By kind and name. Many names share one `Effective`, and each kind has a dict of its own, because 20,000 keys
        #: that are pairs of kind and name would be as many more objects, which take 7 ms to free.
        self._found: dict[Kind, dict[str, Effective]] = {kind: {} for kind in FOREIGN}
        #: What earlier sets of policies have found, each with the policies that have changed since.
        self._earlier: list[tuple[Mapping[Kind, Mapping[str, Effective]], Sequence[Policy]]] = []
        if before is not None:
            earlier = [(before._found, changed)] + [(found, [*since, *changed]) for found, since in before._earlier]
            # Matching a name against that many changed policies would take as long as matching it against all policies.
            self._earlier = [each for each in earlier[:EARLIER_KEPT] if len(each[1]) < len(read)]
        #: By the names of a policy and an operator policy.
        self._combined: dict[tuple[str | None, str | None], Effective] = {(None, None): NOTHING}

    def defines(self, kind: Kind, key: str) -> bool:
        """Whether any policy for this kind of object defines `key`."""
        return any(key in definition for _, definition in self._by_kind[kind])

    def effective(self, kind: Kind, name: str) -> Effective:
        """The policies that apply to the queue or exchange of this name."""
        of_kind = self._found[kind]
        found = of_kind.get(name)
        if found is None:
            if len(of_kind) >= MATCHES_KEPT:
                of_kind.clear()
            found = of_kind[name] = self._found_earlier(kind, name) or self._find(kind, name)
        return found

    def _found_earlier(self, kind: Kind, name: str) -> Effective | None:
        """What applied to this name before the latest changes; None if it is not known, or may be different now."""
        for results, since in self._earlier:
            found = results[kind].get(name)
            if found is not None:
                is_same = not any(patterns.matches(policy.pattern, name) for policy in since)
                return found if is_same else None
        return None

    def _find(self, kind: Kind, name: str) -> Effective:
        chosen: dict[bool, tuple[Policy, Definition]] = {}
        for policy, definition in self._by_kind[kind]:
            if policy.is_operator not in chosen and patterns.matches(policy.pattern, name):
                chosen[policy.is_operator] = policy, definition
        own, operator = chosen.get(False), chosen.get(True)
        names = None if own is None else own[0].name, None if operator is None else operator[0].name
        found = self._combined.get(names)
        if found is None:
            definition = merged(
                NO_DEFINITION if own is None else own[1], NO_DEFINITION if operator is None else operator[1]
            )
            found = self._combined[names] = Effective(*names, definition)
        return found


def queue_kind(queue_type: str) -> Kind:
    """The kind of a queue of this type."""
    kinds: dict[str, Kind] = {"quorum": "quorum", "stream": "stream"}
    return kinds.get(queue_type, "classic")


def _covers(policy: Policy, kind: Kind) -> bool:
    if kind == "exchanges":
        return policy.apply_to in ("exchanges", "all") and not policy.is_operator
    return policy.apply_to in ("queues", "all") or QUEUES_OF_TYPE.get(policy.apply_to) == kind


def merged(definition: Definition, operator: Definition) -> Definition:
    """The merged definition of a policy and an operator policy."""
    if not operator:
        return definition
    result = {**definition, **operator}
    for key in definition.keys() & operator.keys():
        first, second = definition[key], operator[key]
        if type(first) is int and type(second) is int:
            result[key] = min(first, second)
    if "pace-rate" in operator:
        # A rate means nothing without its period and its cost, so one of the two gives all of them: the slower one
        # (QP-101).
        paced = [each for each in (operator, definition) if "pace-rate" in each]
        slower = min(paced, key=lambda each: each["pace-rate"] / each.get(PACE_PERIOD, DEFAULT_PERIOD))
        result |= {"pace-rate": slower["pace-rate"], PACE_PERIOD: slower.get(PACE_PERIOD, DEFAULT_PERIOD)}
        if PACE_COST in result:
            result[PACE_COST] = slower.get(PACE_COST, "message")
        if PACE_SCOPE in definition:
            # Otherwise an ordinary policy could give each consumer the rate that the operator allows the queue.
            result[PACE_SCOPE] = operator.get(PACE_SCOPE, "queue")
    return MappingProxyType(result)
