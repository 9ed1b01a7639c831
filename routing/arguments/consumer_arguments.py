"""The arguments of consumers: their checks, and what they mean."""

from __future__ import annotations

from ...amqp.constants import PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ..phrases import queue_phrase, value_text
from ..queue_types import CONSUMER_TIMEOUT, MAX_UNACKED_BYTES, MAX_UNACKED_SPAN, QUEUE_TYPES, STREAM
from ..rows import QueueRow
from .checks import (
    INTEGER_LETTERS,
    Check,
    check_any_integer,
    check_bool,
    check_not_negative,
    check_text,
    foreign,
    invalid,
)
from .range_read_arguments import (
    ACK_TO,
    BLOCKS,
    BOUNDS,
    HEADERS_ONLY,
    LENIENT,
    QUEUE_ID,
    READ_FROM,
    READ_TO,
    check_blocks,
    check_read_from,
    check_read_to,
    misplaced_argument,
    range_read_arguments,
)
from .stream_arguments import STREAM_OFFSET, check_stream_offset

_CONSUMER_CHECKS: tuple[tuple[str, Check], ...] = (
    ("x-priority", check_any_integer),
    ("x-cancel-on-ha-failover", check_bool),
    ("x-consumer-group", check_text),
    (CONSUMER_TIMEOUT, check_not_negative),
    (MAX_UNACKED_BYTES, check_not_negative),
    (MAX_UNACKED_SPAN, check_not_negative),
    (STREAM_OFFSET, check_stream_offset),
    (ACK_TO, check_not_negative),
    (BOUNDS, check_bool),
    (READ_FROM, check_read_from),
    (READ_TO, check_read_to),
    (BLOCKS, check_blocks),
    (HEADERS_ONLY, check_bool),
    (LENIENT, check_bool),
    (QUEUE_ID, check_text),
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
                raise invalid(key, phrase, reason)
    for key, _, _ in arguments:
        if key in declared.foreign_consumer_arguments:
            raise foreign(key, phrase, declared.module)
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
    """The arguments, with `x-max-unacked-bytes` lowered to `limit` if they allow more; a `limit` of 0 is none.

    A value of another type than an integer stays, for `check_consumer_arguments` to refuse.
    """
    found = arguments.get(MAX_UNACKED_BYTES) if limit else None
    if not limit or found is not None and (found[0] not in INTEGER_LETTERS or 0 != found[1] <= limit):
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
