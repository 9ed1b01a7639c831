"""The checks of a queue declaration.

Only the first fault is reported to the client, so a declaration is checked in RabbitMQ's order: whether the dead-letter
exchange is a string, the queue type, then each argument that this type accepts in the order of `QUEUE_CHECKS`, then
arguments of other queue types, and last what the type demands of the queue itself (AB-89 to AB-91).
"""

from __future__ import annotations

from typing import Any

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ..phrases import queue_phrase, value_text
from ..queue_types import CLASSIC, CONSUMER_TIMEOUT, DEDUPLICATE, GROUP, QUEUE_TYPES, QUORUM, STREAM, queue_type
from ..rows import QueueRow
from .checks import (
    Check,
    Reason,
    accept,
    check_any_integer,
    check_bool,
    check_integer,
    check_not_negative,
    check_positive,
    check_text,
    check_window,
    foreign,
    invalid,
    unacceptable,
    wrong_type,
)
from .fair_arguments import FAIR_BY, check_fair_by, check_fair_cost, check_fair_weight, check_lanes
from .group_arguments import MEMBERS, PATTERN, check_has_members, check_members, check_schedule, check_weights
from .shard_arguments import (
    SHARD_COUNTS,
    SHARD_ORDER,
    SHARD_POLICY,
    check_shard_order,
    check_shard_policy,
    check_shards,
)
from .stream_arguments import MAX_SEGMENT_BYTES, check_max_age

#: The longest message TTL and queue expiry, in ms: ten years.
MAX_EXPIRY = 315_360_000_000
MAX_PRIORITY = 255
#: The argument that decides on which node a new queue has its master.
MASTER_LOCATOR = "x-queue-master-locator"


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
                raise invalid(key, phrase, reason)
            if key == "x-queue-type":
                declared = QUEUE_TYPES[queue_type(arguments)]
    for key, _, _ in arguments:
        if key in _TYPED_ARGUMENTS and key not in declared.arguments:
            raise foreign(key, phrase, declared.module)
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
        raise wrong_type(found[0], "x-dead-letter-exchange", queue_phrase(vhost, name))


def _check_expires(letter: str, value: Any, arguments: Table) -> Reason:
    return check_integer(letter, value) or ("{value_zero,0}" if value == 0 else _in_time(value))


def _check_message_ttl(letter: str, value: Any, arguments: Table) -> Reason:
    return check_integer(letter, value) or _in_time(value)


def _in_time(value: int) -> Reason:
    if value < 0:
        return f"{{value_negative,{value}}}"
    return f"{{value_too_large,{value}}}" if value > MAX_EXPIRY else ""


def _check_dead_letter_routing_key(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    return "" if arguments.get("x-dead-letter-exchange") is not None else "routing_key_but_no_dlx_defined"


def _check_max_priority(letter: str, value: Any, arguments: Table) -> Reason:
    reason = check_not_negative(letter, value, arguments)
    return reason or (f"{{max_value_exceeded,{value}}}" if value > MAX_PRIORITY else "")


def _check_overflow(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    return "" if value in (b"drop-head", b"reject-publish", b"reject-publish-dlx") else "invalid_overflow"


def _check_queue_mode(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    return "" if value in (b"default", b"lazy") else f"\"unsupported queue mode '{value_text(value)}'\""


def _check_queue_version(letter: str, value: Any, arguments: Table) -> Reason:
    return check_integer(letter, value) or ("" if value in (1, 2) else f"\"unsupported queue version '{value}'\"")


def _check_queue_type(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    return "" if value_text(value) in QUEUE_TYPES else f"\"unsupported queue type '{value_text(value)}'\""


def _check_dead_letter_strategy(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    return "" if value in (b"at-most-once", b"at-least-once") else "invalid_dlx_strategy"


def _check_group_size(letter: str, value: Any, arguments: Table) -> Reason:
    return check_not_negative(letter, value, arguments) or ("{value_zero,0}" if value == 0 else "")


def _check_leader_locator(letter: str, value: Any, arguments: Table) -> Reason:
    if letter != "S":
        return unacceptable(letter)
    is_known = value in (b"client-local", b"balanced", b"random", b"least-leaders")
    return "" if is_known else "invalid_queue_locator_arg"


def _check_deduplicate(letter: str, value: Any, arguments: Table) -> Reason:
    return check_window(letter, value)


#: The arguments of queues in RabbitMQ's order of checking.
QUEUE_CHECKS: tuple[tuple[str, Check], ...] = (
    ("x-queue-type", _check_queue_type),
    ("x-expires", _check_expires),
    ("x-message-ttl", _check_message_ttl),
    ("x-dead-letter-exchange", accept),  # check_queue_declaration checks its type first, with another text
    ("x-dead-letter-routing-key", _check_dead_letter_routing_key),
    ("x-dead-letter-strategy", _check_dead_letter_strategy),
    ("x-max-length", check_not_negative),
    ("x-max-length-bytes", check_not_negative),
    ("x-max-in-memory-length", check_not_negative),
    ("x-max-in-memory-bytes", check_not_negative),
    ("x-max-priority", _check_max_priority),
    ("x-drop-lowest", check_bool),
    ("x-overflow", _check_overflow),
    ("x-queue-mode", _check_queue_mode),
    ("x-queue-version", _check_queue_version),
    ("x-single-active-consumer", check_bool),
    (MASTER_LOCATOR, accept),
    ("x-quorum-initial-group-size", _check_group_size),
    ("x-delivery-limit", check_any_integer),  # RabbitMQ accepts a text here, and then has no limit
    ("x-max-age", check_max_age),
    ("x-stream-max-segment-size-bytes", check_not_negative),
    ("x-initial-cluster-size", _check_group_size),
    (CONSUMER_TIMEOUT, check_not_negative),
    ("x-queue-leader-locator", _check_leader_locator),
    (FAIR_BY, check_fair_by),
    ("x-fair-lanes-max", check_lanes),
    ("x-fair-batch", check_positive),
    ("x-fair-weight", check_fair_weight),
    ("x-fair-cost", check_fair_cost),
    ("x-fair-lane-max-length", check_positive),
    *[(key, check_shards) for key in SHARD_COUNTS],
    (SHARD_POLICY, check_shard_policy),
    (SHARD_ORDER, check_shard_order),
    (MEMBERS, check_members),
    (PATTERN, check_text),
    ("x-group-schedule", check_schedule),
    ("x-group-batch", check_positive),
    ("x-group-weights", check_weights),
    ("x-group-starve-after-ms", check_not_negative),
    ("x-group-source-header", check_bool),
    (DEDUPLICATE, _check_deduplicate),
)
#: The arguments that some type accepts, so that the others must refuse them (AB-90).
_TYPED_ARGUMENTS = CLASSIC.arguments | QUORUM.arguments | STREAM.arguments | GROUP.arguments
