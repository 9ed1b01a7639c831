"""The queue types: classic and quorum queues, streams (AB-89 to AB-91), and groups (QP-75).

A type decides which arguments a declaration and a consumer may have.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..amqp.fields import Table
from .arguments.range_read_arguments import READER_ARGUMENTS
from .arguments.stream_arguments import STREAM_OFFSET
from .phrases import value_text

#: The argument of queues and of consumers: ms that a delivery may stay unacknowledged. Later versions of RabbitMQ than
#: 3.10 have it too.
CONSUMER_TIMEOUT = "x-consumer-timeout"
#: The argument of queues and of exchanges: how many of its last messages a queue remembers, so that it keeps none of
#: them that is published again (SP-30).
DEDUPLICATE = "x-warren-deduplicate"
#: Arguments of consumers: how many bytes a consumer may hold without having acknowledged them, and how far the next
#: message may be from the first one that it holds.
MAX_UNACKED_BYTES, MAX_UNACKED_SPAN = "x-max-unacked-bytes", "x-max-unacked-span"


@dataclass(frozen=True, slots=True)
class QueueType:
    """One queue type. `module` is its name in RabbitMQ's reply texts."""

    name: str
    module: str
    #: The arguments of declarations that this type accepts. It refuses those that only other types accept, and ignores
    #: those that no type has.
    arguments: frozenset[str] = frozenset()
    #: The arguments of consumers that belong to other types, which it refuses.
    foreign_consumer_arguments: tuple[str, ...] = ()


_COMMON = frozenset(
    {
        "x-queue-type",
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-overflow",
        "x-single-active-consumer",
        CONSUMER_TIMEOUT,
    }
)

CLASSIC = QueueType(
    "classic",
    "rabbit_classic_queue",
    _COMMON
    | {"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"}
    | {"x-warren-shards", "x-shards", "x-warren-shard-policy", "x-warren-shard-order"}
    | {"x-drop-lowest", "x-fair-by", "x-fair-lanes-max", "x-fair-batch", "x-fair-weight", "x-fair-cost"}
    | {"x-fair-lane-max-length", DEDUPLICATE},
    (STREAM_OFFSET,),
)

QUORUM = QueueType(
    "quorum",
    "rabbit_quorum_queue",
    _COMMON
    | {
        "x-dead-letter-strategy",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-queue-leader-locator",
    },
    (STREAM_OFFSET, "x-cancel-on-ha-failover"),
)

STREAM = QueueType(
    "stream",
    "rabbit_stream_queue",
    frozenset(
        {
            "x-queue-type",
            CONSUMER_TIMEOUT,
            "x-max-length-bytes",
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-initial-cluster-size",
            "x-queue-leader-locator",
        }
    ),
    ("x-priority", "x-cancel-on-ha-failover", MAX_UNACKED_BYTES, MAX_UNACKED_SPAN, *READER_ARGUMENTS),
)

#: A view of several queues, which are its members.
GROUP = QueueType(
    "group",
    "warren_group_queue",
    frozenset(
        {
            "x-queue-type",
            "x-expires",
            "x-single-active-consumer",
            CONSUMER_TIMEOUT,
            "x-group-members",
            "x-group-pattern",
            "x-group-schedule",
            "x-group-batch",
            "x-group-weights",
            "x-group-starve-after-ms",
            "x-group-source-header",
        }
    ),
    (STREAM_OFFSET, MAX_UNACKED_BYTES, MAX_UNACKED_SPAN, *READER_ARGUMENTS),
)

QUEUE_TYPES = {queue_type.name: queue_type for queue_type in (CLASSIC, QUORUM, STREAM, GROUP)}

#: The types that a virtual host may have as its default. A group is none of them, because it needs members.
DEFAULT_TYPES = (CLASSIC.name, QUORUM.name, STREAM.name)


def queue_type(arguments: Table) -> str:
    """The name of the queue type that a declaration asks for."""
    found = arguments.get("x-queue-type")
    return value_text(found[1]) if found is not None else CLASSIC.name


def with_default_type(arguments: Table, default: str, is_permanent: bool, existing: Table | None) -> Table:
    """The arguments of a declaration, with the default type of its virtual host if they have no type (AB-91).

    is_permanent   whether the declaration is durable, not exclusive and not auto-delete; others can be classic only
    existing       the arguments of the queue that has the name already; None if there is none. If that queue was
                   declared without a type, before the virtual host had a default, a client may go on to declare it so.
    """
    if default not in DEFAULT_TYPES or arguments.get("x-queue-type") is not None:
        return arguments
    if not is_permanent and default != CLASSIC.name:
        return arguments
    if existing is not None and existing.get("x-queue-type") is None:
        return arguments
    return Table((*arguments, ("x-queue-type", "S", default.encode())))
