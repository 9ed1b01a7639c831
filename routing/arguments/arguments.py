"""Arguments of queues, exchanges and consumers: their meaning, and the checks that refuse them.

Only the first fault is reported to the client, so a queue declaration is checked in RabbitMQ's order: the queue type,
then each argument that this type accepts in the order of `QUEUE_CHECKS`, then arguments of other queue types, and last
what the type demands of the queue itself (AB-89 to AB-91).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import TYPE_NAMES, Table
from ...seams import seam
from ..phrases import exchange_phrase, queue_phrase, value_text
from ..queue_types import (
    CLASSIC,
    CONSUMER_TIMEOUT,
    DEDUPLICATE,
    GROUP,
    MAX_UNACKED_BYTES,
    MAX_UNACKED_SPAN,
    QUEUE_TYPES,
    QUORUM,
    STREAM,
    QueueType,
    queue_type,
)
from ..rows import QueueRow
from .group_arguments import MEMBERS, PATTERN, check_has_members, check_members, check_schedule, check_weights
from .range_read_arguments import (
    ACK_TO,
    BLOCK_BYTES_MAX,
    BLOCK_BYTES_MIN,
    BLOCKS,
    BOUNDS,
    HEADERS_ONLY,
    LENIENT,
    QUEUE_ID,
    READ_FROM,
    READ_TO,
    misplaced_argument,
    range_read_arguments,
)
from .stream_arguments import MAX_SEGMENT_BYTES, STREAM_OFFSET, check_max_age, check_stream_offset, max_age_seconds

#: The longest message TTL and queue expiry, in ms: ten years.
MAX_EXPIRY = 315_360_000_000
MAX_PRIORITY = 255
#: Ms for which the message index records how a message left its queue: three days.
INDEX_RETENTION = 259_200_000

MAX_SHARDS = 256

#: The largest deduplication window of a queue, in messages.
MAX_DEDUPLICATE = 10_000_000

#: The argument that gives a queue fair lanes, and how many lanes there can be: a queue has as many levels on the disk.
FAIR_BY = "x-fair-by"
MAX_LANES = 256
#: The sources of a message's lane beside a header. `user` is the property user-id, which the broker verifies.
FAIR_SOURCES = frozenset({"routing-key", "exchange", "user"})

#: The arguments of sharded queues. `x-shards` is a short name of the first.
SHARD_COUNTS = ("x-warren-shards", "x-shards")
#: The argument that decides on which node a new queue has its master.
MASTER_LOCATOR = "x-queue-master-locator"
SHARD_POLICY, SHARD_ORDER = "x-warren-shard-policy", "x-warren-shard-order"

#: The letters of integer types.
INTEGER_LETTERS = frozenset("bBsuIilL")


# -- the meaning of queue arguments ---

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
    #: Length limits of a queue with priorities drop the oldest message of its lowest priority.
    drop_lowest: bool = False
    #: The source of a message's lane in a queue with fair lanes; None: the queue has no lanes.
    fair_by: str | None = None
    fair_lanes: int = MAX_LANES
    #: Messages that a visit to a lane of weight 1 delivers, and the weights of lanes by their value.
    fair_batch: int = 1
    fair_weight: Mapping[str, int] | None = None
    fair_cost: Literal["message", "bytes"] = "message"
    #: Ready messages that each lane may have.
    fair_lane_limit: int | None = None
    #: The deduplication window: how many earlier messages a new one is compared with; None: no deduplication.
    deduplicate: int | None = None

    @property
    def top_level(self) -> int | None:
        """The highest level that the backing queue may have; None if it has no levels."""
        return self.max_priority if self.fair_by is None else self.fair_lanes - 1

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
    """Decode arguments that `check_queue_arguments` has accepted, and merge them with what policies define (AB-158).

    Of two numbers the smaller one counts; otherwise the argument does. `policy_sets_mode` makes the queue mode the
    exception: the policy's counts, if it has one (D-1).
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
        elif isinstance(value, int):
            given[field] = min(value, given[field])
    if "max_priority" in given or queue_type(arguments) != CLASSIC.name:
        given.pop("fair_by", None)  # set by a policy; only classic queues without priorities can have fair lanes
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

#: The fields that a declaration fixes.
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
    "pace-warm-up-ms": "pace_warm_up",
    "pace-get": "pace_get",
    "consumer-max-unacked": "consumer_max_unacked",
    "consumer-max-unacked-bytes": "consumer_max_bytes",
    "consumer-max-span": "consumer_max_span",
}


# -- checks of queue arguments ---


def check_server_named(arguments: Table) -> None:
    """Raise AmqpError 406 if the server cannot name queues of the declared type (AB-82)."""
    declared = QUEUE_TYPES.get(queue_type(arguments), CLASSIC)
    if declared is not CLASSIC:
        raise AmqpError(PRECONDITION_FAILED, f"Cannot declare a server-named queue for type {declared.module}")


def check_queue_declaration(row: QueueRow) -> None:
    """Raise AmqpError 406 if a new queue may not have these arguments or flags (AB-89 to AB-91)."""
    arguments = row.arguments
    if not arguments:
        return
    phrase = queue_phrase(row.vhost, row.name)
    check_dead_letter_exchange(row.vhost, row.name, arguments)
    declared = CLASSIC
    for key, check in QUEUE_CHECKS:
        found = arguments.get(key)
        if found is not None and key in declared.arguments:
            reason = check(found[0], found[1], arguments)
            if reason:
                raise _invalid(key, phrase, reason)
            if key == "x-queue-type":
                declared = QUEUE_TYPES[queue_type(arguments)]
    for key, _, _ in arguments:
        if key in _TYPED_ARGUMENTS and key not in declared.arguments:
            raise _foreign(key, phrase, declared)
    if declared in (QUORUM, STREAM):
        _check_replicated_flags(row, phrase)
    check_has_members(row)
    segment_bytes = arguments.get("x-stream-max-segment-size-bytes")
    if segment_bytes is not None and segment_bytes[1] > MAX_SEGMENT_BYTES:
        raise AmqpError(PRECONDITION_FAILED, "Exceeded max value for x-stream-max-segment-size-bytes")


def _check_replicated_flags(row: QueueRow, phrase: str) -> None:
    # An exclusive queue counts as not durable, so the order decides which text the client gets.
    for is_wrong, text in (
        (row.auto_delete, "auto-delete"),
        (row.exclusive_owner is not None, "exclusive-owner"),
        (not row.durable, "non-durable"),
    ):
        if is_wrong:
            raise AmqpError(PRECONDITION_FAILED, f"invalid property '{text}' for {phrase}")


def check_dead_letter_exchange(vhost: str, name: str, arguments: Table) -> None:
    """Raise AmqpError 406 if the name of the dead-letter exchange is not a string."""
    found = arguments.get("x-dead-letter-exchange")
    if found is not None and found[0] != "S":
        raise _wrong_type(found[0], "x-dead-letter-exchange", queue_phrase(vhost, name))


#: Why an argument is refused, in RabbitMQ's words; empty if it is accepted.
Reason = str
#: Checks one argument, given its letter, its value and all arguments.
Check = Callable[[str, Any, Table], Reason]


def _integer(letter: str, value: Any) -> Reason:
    return "" if letter in INTEGER_LETTERS else f'"expected integer, got {TYPE_NAMES[letter]}"'


def _unacceptable(letter: str) -> Reason:
    return f"{{unacceptable_type,{TYPE_NAMES[letter]}}}"


def _check_expires(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or ("{value_zero,0}" if value == 0 else _in_time(value))


def _check_message_ttl(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or _in_time(value)


def _in_time(value: int) -> Reason:
    if value < 0:
        return f"{{value_negative,{value}}}"
    return f"{{value_too_large,{value}}}" if value > MAX_EXPIRY else ""


def _check_dead_letter_routing_key(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if arguments.get("x-dead-letter-exchange") is not None else "routing_key_but_no_dlx_defined"


def _check_not_negative(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or (f"{{value_negative,{value}}}" if value < 0 else "")


def _check_max_priority(letter: str, value: Any, arguments: Table) -> Reason:
    reason = _check_not_negative(letter, value, arguments)
    return reason or (f"{{max_value_exceeded,{value}}}" if value > MAX_PRIORITY else "")


def _check_overflow(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value in (b"drop-head", b"reject-publish", b"reject-publish-dlx") else "invalid_overflow"


def _check_queue_mode(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value in (b"default", b"lazy") else f"\"unsupported queue mode '{value_text(value)}'\""


def _check_queue_version(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or ("" if value in (1, 2) else f"\"unsupported queue version '{value}'\"")


def _check_bool(letter: str, value: Any, arguments: Table) -> Reason:
    return "" if letter == "t" else _unacceptable(letter)


def _check_text(letter: str, value: Any, arguments: Table) -> Reason:
    return "" if letter == "S" else _unacceptable(letter)


def _check_queue_type(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value_text(value) in QUEUE_TYPES else f"\"unsupported queue type '{value_text(value)}'\""


def _check_consumer_priority(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value)


def _check_read_from(letter: str, value: Any, arguments: Table) -> Reason:
    return (
        ""
        if letter in INTEGER_LETTERS or value in (b"first", b"next")
        else f"\"expected a number, 'first' or 'next', got {_shown(letter, value)}\""
    )


def _check_read_to(letter: str, value: Any, arguments: Table) -> Reason:
    if letter in INTEGER_LETTERS:
        return _check_not_negative(letter, value, arguments)
    return "" if value == b"last" else f"\"expected a number or 'last', got {_shown(letter, value)}\""


def _check_blocks(letter: str, value: Any, arguments: Table) -> Reason:
    if letter == "t" and value or letter in INTEGER_LETTERS and BLOCK_BYTES_MIN <= value <= BLOCK_BYTES_MAX:
        return ""
    shown = str(value) if letter in INTEGER_LETTERS else "false" if letter == "t" else _shown(letter, value)
    return f'"expected true or a number of bytes from {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX}, got {shown}"'


def _shown(letter: str, value: Any) -> str:
    return f"'{value_text(value)}'" if letter == "S" else TYPE_NAMES[letter]


def _check_dead_letter_strategy(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    return "" if value in (b"at-most-once", b"at-least-once") else "invalid_dlx_strategy"


def _check_group_size(letter: str, value: Any, arguments: Table) -> Reason:
    return _check_not_negative(letter, value, arguments) or ("{value_zero,0}" if value == 0 else "")


def _check_delivery_limit(letter: str, value: Any, arguments: Table) -> Reason:
    """RabbitMQ accepts a text here, and then has no limit."""
    return _integer(letter, value)


def _check_max_age(letter: str, value: Any, arguments: Table) -> Reason:
    return _unacceptable(letter) if letter != "S" else check_max_age(value_text(value))


def _check_stream_offset(letter: str, value: Any, arguments: Table) -> Reason:
    return check_stream_offset(letter, value)


def _check_leader_locator(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    is_known = value in (b"client-local", b"balanced", b"random", b"least-leaders")
    return "" if is_known else "invalid_queue_locator_arg"


def _check_fair_by(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    text = value_text(value)
    if text not in FAIR_SOURCES and not (text.startswith("header:") and len(text) > len("header:")):
        return f"\"expected 'routing-key', 'exchange', 'user' or 'header:NAME', got '{text}'\""
    if arguments.get("x-max-priority") is not None:
        return "\"a queue has either priorities or fair lanes; leave out 'x-max-priority' or 'x-fair-by'\""
    return ""


def _check_lanes(letter: str, value: Any, arguments: Table) -> Reason:
    is_good = letter in INTEGER_LETTERS and 1 <= value <= MAX_LANES
    return _integer(letter, value) or ("" if is_good else f'"expected a number from 1 to {MAX_LANES}, got {value}"')


def _check_positive(letter: str, value: Any, arguments: Table) -> Reason:
    return _integer(letter, value) or ("" if value > 0 else f'"expected a number from 1 on, got {value}"')


def _check_fair_weight(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "F":
        return _unacceptable(letter)
    for lane, weight_letter, weight in value:
        if weight_letter not in INTEGER_LETTERS or weight < 1:
            return f"\"the weight of '{lane}' must be an integer from 1 on\""
    return ""


def _check_fair_cost(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    text = value_text(value)
    return "" if text in ("message", "bytes") else f"\"expected 'message' or 'bytes', got '{text}'\""


def _check_shards(letter: str, value: Any, arguments: Table) -> Reason:
    reason = _integer(letter, value)
    if reason or 0 < value <= 1:
        return reason
    if not 0 < value <= MAX_SHARDS:
        return f'"expected a number from 1 to {MAX_SHARDS}, got {value}"'
    single_active = arguments.get("x-single-active-consumer")
    if single_active is not None and single_active[1]:
        return '"a single active consumer gains nothing from shards; leave out one of the two arguments"'
    for key in ("x-max-length", "x-max-length-bytes"):
        limit = arguments.get(key)
        if limit is not None and limit[0] in INTEGER_LETTERS and 0 < limit[1] < value:
            return f'"each shard needs its part of {key} ({limit[1]}); declare at most {limit[1]} shards"'
    return ""


def _check_shard_policy(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    is_known = value in (b"sequence", b"random")
    return "" if is_known else f"\"expected 'sequence' or 'random', got '{value_text(value)}'\""


def _check_shard_order(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return _unacceptable(letter)
    if value == b"strict":
        return (
            '"the broker keeps the order of each shard only; publish and consume with warren.sharding, which restores '
            'the order of all messages, or leave out the argument"'
        )
    return "" if value == b"relaxed" else f"\"expected 'relaxed', got '{value_text(value)}'\""


def _check_deduplicate(letter: str, value: Any, arguments: Table) -> Reason:
    if letter not in INTEGER_LETTERS or not 1 <= value <= MAX_DEDUPLICATE:
        return _integer(letter, value) or f'"expected a number of messages from 1 to {MAX_DEDUPLICATE}, got {value}"'
    if any(arguments.get(name) is not None for name in SHARD_COUNTS):
        return '"a message that is published again may go to another shard; leave out one of the two arguments"'
    return ""


def _accept(letter: str, value: Any, arguments: Table) -> Reason:
    return ""


#: The arguments of queues in RabbitMQ's order of checking.
QUEUE_CHECKS: tuple[tuple[str, Check], ...] = (
    ("x-queue-type", _check_queue_type),
    ("x-expires", _check_expires),
    ("x-message-ttl", _check_message_ttl),
    ("x-dead-letter-exchange", _accept),  # check_queue_arguments checks its type first, with another text
    ("x-dead-letter-routing-key", _check_dead_letter_routing_key),
    ("x-dead-letter-strategy", _check_dead_letter_strategy),
    ("x-max-length", _check_not_negative),
    ("x-max-length-bytes", _check_not_negative),
    ("x-max-in-memory-length", _check_not_negative),
    ("x-max-in-memory-bytes", _check_not_negative),
    ("x-max-priority", _check_max_priority),
    ("x-drop-lowest", _check_bool),
    ("x-overflow", _check_overflow),
    ("x-queue-mode", _check_queue_mode),
    ("x-queue-version", _check_queue_version),
    ("x-single-active-consumer", _check_bool),
    (MASTER_LOCATOR, _accept),
    ("x-quorum-initial-group-size", _check_group_size),
    ("x-delivery-limit", _check_delivery_limit),
    ("x-max-age", _check_max_age),
    ("x-stream-max-segment-size-bytes", _check_not_negative),
    ("x-initial-cluster-size", _check_group_size),
    (CONSUMER_TIMEOUT, _check_not_negative),
    ("x-queue-leader-locator", _check_leader_locator),
    (FAIR_BY, _check_fair_by),
    ("x-fair-lanes-max", _check_lanes),
    ("x-fair-batch", _check_positive),
    ("x-fair-weight", _check_fair_weight),
    ("x-fair-cost", _check_fair_cost),
    ("x-fair-lane-max-length", _check_positive),
    *[(key, _check_shards) for key in SHARD_COUNTS],
    (SHARD_POLICY, _check_shard_policy),
    (SHARD_ORDER, _check_shard_order),
    (MEMBERS, check_members),
    (PATTERN, _check_text),
    ("x-group-schedule", check_schedule),
    ("x-group-batch", _check_positive),
    ("x-group-weights", check_weights),
    ("x-group-starve-after-ms", _check_not_negative),
    ("x-group-source-header", _check_bool),
    (DEDUPLICATE, _check_deduplicate),
)

#: The arguments that some type accepts, so that the others must refuse them (AB-90).
_TYPED_ARGUMENTS = CLASSIC.arguments | QUORUM.arguments | STREAM.arguments | GROUP.arguments


# -- consumers ---

_CONSUMER_CHECKS: tuple[tuple[str, Check], ...] = (
    ("x-priority", _check_consumer_priority),
    ("x-cancel-on-ha-failover", _check_bool),
    ("x-consumer-group", _check_text),
    (CONSUMER_TIMEOUT, _check_not_negative),
    (MAX_UNACKED_BYTES, _check_not_negative),
    (MAX_UNACKED_SPAN, _check_not_negative),
    (STREAM_OFFSET, _check_stream_offset),
    (ACK_TO, _check_not_negative),
    (BOUNDS, _check_bool),
    (READ_FROM, _check_read_from),
    (READ_TO, _check_read_to),
    (BLOCKS, _check_blocks),
    (HEADERS_ONLY, _check_bool),
    (LENIENT, _check_bool),
    (QUEUE_ID, _check_text),
)


def check_consumer_arguments(row: QueueRow, arguments: Table) -> None:
    """Raise AmqpError 406 if the queue does not accept a consumer with these arguments (AB-118)."""
    if not arguments:
        return
    phrase, declared = queue_phrase(row.vhost, row.name), QUEUE_TYPES[row.type]
    if row.shards and range_read_arguments(arguments) is not None:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"{phrase} is sharded, so its messages have no common numbers; "
            f"read one of its shards instead, such as '{row.name}_0'",
        )
    for key, check in _CONSUMER_CHECKS:
        found = arguments.get(key)
        if found is not None and key not in declared.foreign_consumer_arguments:
            reason = check(found[0], found[1], arguments)
            if reason:
                raise _invalid(key, phrase, reason)
    for key in declared.foreign_consumer_arguments:
        if arguments.get(key) is not None:
            raise _foreign(key, phrase, declared)
    misplaced = misplaced_argument(arguments)
    if misplaced:
        raise AmqpError(PRECONDITION_FAILED, f"invalid arguments of a consumer of {phrase}: {misplaced}")


def consumer_priority(arguments: Table) -> int:
    """`x-priority` of accepted consumer arguments, 0 if absent (AB-122)."""
    found = arguments.get("x-priority")
    return 0 if found is None else found[1]


def consumer_group(arguments: Table) -> str:
    """`x-consumer-group` of accepted consumer arguments; empty if absent."""
    found = arguments.get("x-consumer-group")
    return "" if found is None else value_text(found[1])


def max_unacked_bytes(arguments: Table) -> int:
    """`x-max-unacked-bytes` of accepted consumer arguments; 0 if absent."""
    return _count(arguments, MAX_UNACKED_BYTES)


def with_max_unacked_bytes(arguments: Table, limit: int) -> Table:
    """The arguments of a consumer that may hold no more than `limit` bytes either; 0 is no limit."""
    given = max_unacked_bytes(arguments)
    if not limit or given and given <= limit:
        return arguments
    others = [entry for entry in arguments if entry[0] != MAX_UNACKED_BYTES]
    return Table([*others, (MAX_UNACKED_BYTES, "l", limit)])


def max_unacked_span(arguments: Table) -> int:
    """`x-max-unacked-span` of accepted consumer arguments; 0 if absent."""
    return _count(arguments, MAX_UNACKED_SPAN)


def _count(arguments: Table, key: str) -> int:
    found = arguments.get(key) if arguments else None
    return 0 if found is None else int(found[1])


def consumer_timeout(arguments: Table) -> int | None:
    """`x-consumer-timeout` of accepted arguments, in ms; None if absent."""
    found = arguments.get(CONSUMER_TIMEOUT)
    return None if found is None else found[1]


def cancels_on_failover(row: QueueRow, arguments: Table) -> bool:
    """Whether a consumer with these arguments is cancelled, instead of continued, when its queue restarts (AB-126).

    A consumer that reads a range or a stream is always cancelled, because it would start from its beginning again.
    """
    if row.type == STREAM.name:
        return True
    return arguments.get("x-cancel-on-ha-failover") == ("t", True) or range_read_arguments(arguments) is not None


# -- exchanges ---


def check_exchange_arguments(vhost: str, name: str, arguments: Table) -> None:
    """Raise AmqpError 406 if a new exchange may not have these arguments (amqp-broker section 7, exchange.declare)."""
    found = arguments.get("alternate-exchange")
    if found is not None and found[0] != "S":
        raise _wrong_type(found[0], "alternate-exchange", exchange_phrase(vhost, name))


def alternate_exchange(arguments: Table) -> str | None:
    """The name of the alternate exchange in accepted arguments, or None."""
    found = arguments.get("alternate-exchange")
    return None if found is None else value_text(found[1])


# -- reply texts ---


def _invalid(key: str, phrase: str, reason: Reason) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{key}' for {phrase}: {reason}")


def _foreign(key: str, phrase: str, declared: QueueType) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{key}' for {phrase} of queue type {declared.module}")


def _wrong_type(letter: str, key: str, phrase: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid type '{TYPE_NAMES[letter]}' for arg '{key}' in {phrase}")
