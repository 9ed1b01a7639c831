"""Sharded queues: one logical queue whose messages are in several queues, its shards (flow-control section 13).

The logical queue `q` has a row and a process, as any other queue has. Clients bind, declare and delete it, and its
process has the consumers, so it decides about exclusive consumers, auto-delete and queue expiry. It has no message. The
messages are in the queues `q_0`, `q_1` and so on, whose rows name it in `shard_of`. Every process that sends messages
to the logical queue replaces its row by that of a shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ..amqp.constants import RESOURCE_LOCKED
from ..amqp.errors import AmqpError
from ..amqp.fields import Table
from .arguments.queue_settings import QueueSettings
from .arguments.shard_arguments import SHARD_COUNTS, SHARD_POLICY
from .phrases import queue_phrase
from .rows import QueueRow
from .table import RoutingTable

ShardPolicy = Literal["sequence", "random"]


def shard_count(arguments: Table) -> int:
    """The number of shards in the arguments of a valid declaration (`check_queue_declaration`); 0 if not sharded."""
    for key in SHARD_COUNTS:
        found = arguments.get(key)
        if found is not None:
            return found[1] if found[0] != "t" and isinstance(found[1], int) and found[1] > 1 else 0
    return 0


def shard_policy(row: QueueRow) -> ShardPolicy:
    """How a publisher chooses a shard of this logical queue."""
    found = row.arguments.get(SHARD_POLICY)
    return "random" if found is not None and found[1] == b"random" else "sequence"


def shard_name(queue: str, index: int) -> str:
    return f"{queue}_{index}"


def new_shards(row: QueueRow, ids: Sequence[str]) -> tuple[QueueRow, ...]:
    """The rows of the shards of a new logical queue, which get these queue ids.

    A shard never ends by itself, because the logical queue ends with all its shards.
    """
    return tuple(
        replace(row, name=shard_name(row.name, index), queue_id=each, auto_delete=False, shards=0, shard_of=row.name)
        for index, each in enumerate(ids)
    )


def shards_of(routing: RoutingTable, row: QueueRow) -> tuple[QueueRow, ...]:
    """The shards of a logical queue, in order, with the addresses of their processes."""
    found = [routing.queue(row.vhost, shard_name(row.name, index)) for index in range(row.shards)]
    return tuple([each for each in found if each is not None and each.shard_of == row.name])


def with_shards(routing: RoutingTable, vhost: str, rows: tuple[QueueRow, ...], number: int) -> tuple[QueueRow, ...]:
    """The rows with each logical queue replaced by one of its running shards, chosen by `number` modulo their count."""
    if not routing.has_shards(vhost):
        return rows
    found = []
    for row in rows:
        shards = [each for each in shards_of(routing, row) if each.state == "running"] if row.shards else [row]
        if shards:
            found.append(shards[number % len(shards)])
    return tuple(found)


def shard_settings(row: QueueRow, settings: QueueSettings) -> QueueSettings:
    """The settings of a shard, given those of its logical queue: its part of the length limits, and no expiry.

    The first shard has the remainder of a limit. A limit that a policy sets below the number of shards leaves each
    shard 1, because a shard that may hold nothing would lose its share of the messages.
    """
    count = shard_count(row.arguments)
    is_first = row.name == shard_name(row.shard_of or "", 0)

    def part(limit: int | None) -> int | None:
        if not limit:
            return limit
        return max(1, limit // count + (limit % count if is_first else 0))

    return replace(
        settings,
        expires=None,
        max_length=part(settings.max_length),
        max_length_bytes=part(settings.max_length_bytes),
    )


def check_not_shard(row: QueueRow | None) -> None:
    """Raise AmqpError 405 for an operation that is possible only on the logical queue."""
    if row is not None and row.shard_of is not None:
        raise AmqpError(
            RESOURCE_LOCKED,
            f"{queue_phrase(row.vhost, row.name)} is a shard of queue '{row.shard_of}'. "
            f"Declare, bind, publish to or delete queue '{row.shard_of}' instead.",
        )
