"""`QueueSettings`: what the arguments of a queue and the policies that apply to it mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from ...amqp.fields import Table
from ...seams import seam
from ..phrases import value_text
from ..queue_types import CLASSIC, CONSUMER_TIMEOUT, DEDUPLICATE, QUORUM, queue_type
from .fair_arguments import DEFAULT_LANES, FAIR_BY
from .stream_arguments import max_age_seconds

#: Ms for which the message index records how a message left its queue: three days.
INDEX_RETENTION = 259_200_000
QueueMode = Literal["default", "lazy"]
QUEUE_MODES: tuple[QueueMode, ...] = get_args(QueueMode)
#: What policies define for a queue to which none applies.
NO_POLICY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The decoded arguments of a queue. None means not given. Times are in ms."""

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Literal["drop-head", "reject-publish", "reject-publish-dlx"] = "drop-head"
    #: '' is the default exchange.
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    queue_mode: QueueMode = "default"
    #: Whether the queue counts deliveries and stores every message as a persistent one, as a quorum queue does.
    is_quorum: bool = False
    #: A quorum queue gives up a message that has been returned to it more often than this.
    delivery_limit: int | None = None
    #: Seconds after which a stream drops a segment.
    max_age: int | None = None
    #: Body bytes from which on a stream begins another segment.
    segment_bytes: int | None = None
    #: The policy's sources for the message index (`definitions.index_sources`), and for how many ms the index records
    #: how messages have left the queue.
    message_index: str | Sequence[str] = "none"
    index_retention: int = INDEX_RETENTION
    #: Messages that a paced queue delivers in `pace_period` ms; None: it delivers as fast as it can.
    pace_rate: float | None = None
    pace_period: int = 1000
    #: The longest planned wait in ms, and what happens to a message that would wait longer.
    pace_max_wait: int = 500
    pace_overflow: Literal["hold", "dead-letter", "nack", "drop"] = "hold"
    #: Deliveries that may go together after a pause.
    pace_burst: int = 1
    #: How many ms a queue that was idle takes to reach its whole rate; 0: it begins with the whole rate.
    pace_warm_up: int = 0
    #: What a message costs: 1, or the size of its body in KiB, rounded up. `pace_rate` counts these.
    pace_cost: Literal["message", "kib"] = "message"
    #: Whether the pace applies to basic.get as well.
    pace_get: bool = False
    #: How long a delivery may stay unacknowledged; 0 is no limit.
    consumer_timeout: int | None = None
    #: Limits of a consumer's unacknowledged messages: their count, the bytes of their bodies, and the distance from the
    #: lowest of their numbers to that of the next message. 0 is no limit.
    consumer_max_unacked: int = 0
    consumer_max_bytes: int = 0
    consumer_max_span: int = 0
    #: What the pace applies to: the queue as a whole, each group of its consumers, or each consumer.
    pace_scope: Literal["queue", "group", "consumer"] = "queue"
    #: Queues with the same name here share one rate; with the pace scope `group`, each group of consumers shares a rate
    #: of its own across these queues. None: the queue shares its rate with no other one.
    pace_group: str | None = None
    #: Whether the length limits of a queue with priorities drop the oldest message of its lowest priority.
    drop_lowest: bool = False
    #: Whether all messages of a run expire at one time, because some replicas may be unable to read other runs.
    has_one_expiry: bool = False
    #: The source of a message's lane in a queue with fair lanes; None: the queue has no lanes.
    fair_by: str | None = None
    fair_lanes: int = DEFAULT_LANES
    #: Messages that a visit to a lane of weight 1 delivers, and the weights of lanes by their value.
    fair_batch: int = 1
    fair_weight: Mapping[str, int] | None = None
    fair_cost: Literal["message", "bytes"] = "message"
    #: Ready messages that each lane may have.
    fair_lane_limit: int | None = None
    #: The deduplication window: how many earlier messages a new one is compared with; None: no deduplication.
    deduplicate: int | None = None
    #: The widest window of the exchanges that lead to the queue and deduplicate. Without `deduplicate` it applies only
    #: to messages that come through one of these exchanges.
    exchange_window: int | None = None

    @property
    def window(self) -> int | None:
        """How many messages the queue remembers, to recognise those that are published again; None: none."""
        return max(self.deduplicate or 0, self.exchange_window or 0) or None

    @property
    def is_one_line(self) -> bool:
        """Whether messages are delivered in the order of their numbers: the queue has neither priorities nor lanes."""
        return self.max_priority is None and self.fair_by is None

    @property
    def paces_queue(self) -> bool:
        """Whether the queue is paced as a whole, by itself or together with others.

        The pace scope `consumer` does not fit a pace group, and no single policy may define both. If a policy and an
        operator policy together do, the queues of the group share one clock.
        """
        is_shared = self.pace_group is not None and self.pace_scope == "consumer"
        return self.pace_rate is not None and (self.pace_scope == "queue" or is_shared)

    @property
    def paces_consumers(self) -> bool:
        """Whether groups of consumers, or single ones, have a pace of their own."""
        return self.pace_rate is not None and not self.paces_queue

    @property
    def rejects_publish(self) -> bool:
        """Whether a full queue refuses the newest message (AB-101)."""
        return self.overflow != "drop-head"

    @property
    def drops_head(self) -> bool:
        """Whether the queue has a limit and drops its oldest message when it is full (AB-100)."""
        limits = (self.max_length, self.max_length_bytes, None if self.fair_by is None else self.fair_lane_limit)
        return self.overflow == "drop-head" and limits != (None, None, None)


#: The settings of nearly all queues, which share them.
_DEFAULTS = QueueSettings()


@seam("whether an argument or a policy decides")
def queue_settings(
    arguments: Table, policy: Mapping[str, Any] = NO_POLICY, *, policy_sets_mode: bool = False
) -> QueueSettings:
    """Decode arguments that `check_queue_declaration` has accepted, and merge them with what policies define (AB-158).

    Of two numbers the smaller one counts; otherwise the argument does. A `consumer_timeout` of 0 is no limit, so the
    other one counts. `policy_sets_mode` makes the queue mode an exception: the policy's counts, if it has one (D-1).
    """
    given: dict[str, Any] = {}
    for name, letter, value in reversed(arguments):  # reversed, so that the first of repeated names counts
        field = _SETTINGS.get(name)
        if field == "max_age":
            given[field] = max_age_seconds(value_text(value))
        elif field == "fair_weight":
            given[field] = {lane: weight for lane, _, weight in reversed(value)}
        elif field is not None:
            given[field] = value.decode("utf-8", "surrogateescape") if letter == "S" else value
    if queue_type(arguments) == QUORUM.name:
        given["is_quorum"] = True
    for key, value in policy.items():
        field = _POLICY_SETTINGS.get(key)
        if field is None:
            continue
        if field == "max_age":
            value = max_age_seconds(value)
            if not value:
                continue  # '0s', which a policy may have and a declaration may not
        if field not in given or (field == "queue_mode" and policy_sets_mode):
            given[field] = value
        elif field == "consumer_timeout":
            given[field] = min(filter(None, (value, given[field])), default=0)  # 0 is no limit (QP-115)
        elif type(value) is int:
            given[field] = min(value, given[field])
    if "max_priority" in given or queue_type(arguments) != CLASSIC.name:
        given.pop("fair_by", None)  # set by a policy; only classic queues without priorities can have fair lanes
    if queue_type(arguments) != CLASSIC.name:
        given.pop("deduplicate", None)  # set by a policy; only classic queues can deduplicate
    return QueueSettings(**given) if given else _DEFAULTS


_SETTINGS = {
    "x-message-ttl": "message_ttl",
    "x-expires": "expires",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
    "x-overflow": "overflow",
    "x-dead-letter-exchange": "dead_letter_exchange",
    "x-dead-letter-routing-key": "dead_letter_routing_key",
    "x-max-priority": "max_priority",
    "x-drop-lowest": "drop_lowest",
    FAIR_BY: "fair_by",
    "x-fair-lanes-max": "fair_lanes",
    "x-fair-batch": "fair_batch",
    "x-fair-weight": "fair_weight",
    "x-fair-cost": "fair_cost",
    "x-fair-lane-max-length": "fair_lane_limit",
    "x-single-active-consumer": "single_active_consumer",
    "x-queue-mode": "queue_mode",
    "x-delivery-limit": "delivery_limit",
    "x-max-age": "max_age",
    "x-stream-max-segment-size-bytes": "segment_bytes",
    CONSUMER_TIMEOUT: "consumer_timeout",
    DEDUPLICATE: "deduplicate",
}
#: The fields that policies cannot set, because the declaration fixes them; and `deduplicate`, whose key in policies is
#: not that of its argument without the `x-`.
_FIXED = frozenset({"max_priority", "single_active_consumer", "deduplicate"})
#: The fields by the keys of policies.
_POLICY_SETTINGS = {name.removeprefix("x-"): field for name, field in _SETTINGS.items() if field not in _FIXED} | {
    "message-index": "message_index",
    "index-retention-ms": "index_retention",
    "pace-rate": "pace_rate",
    "pace-period-ms": "pace_period",
    "pace-max-wait-ms": "pace_max_wait",
    "pace-overflow": "pace_overflow",
    "pace-burst": "pace_burst",
    "pace-scope": "pace_scope",
    "pace-group": "pace_group",
    "pace-warm-up-ms": "pace_warm_up",
    "pace-cost": "pace_cost",
    "pace-get": "pace_get",
    "deduplicate": "deduplicate",
    "consumer-max-unacked": "consumer_max_unacked",
    "consumer-max-unacked-bytes": "consumer_max_bytes",
    "consumer-max-span": "consumer_max_span",
}
