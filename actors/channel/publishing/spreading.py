"""`Spreading`: which shards of sharded queues get the publishes of one channel (FC-89, FC-91, FC-98)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32

from ....amqp.deduplication_key import deduplication_key
from ....amqp.frames import content_properties
from ....routing.rows import QueueRow
from ....routing.shards import ShardPolicy, shard_name, shard_policy, shards_of
from ....runtime.credit import CreditFlow
from ....runtime.process import Process
from ...context.node_context import NodeContext
from ...queue.policed_settings import deduplicates

#: How many messages of one run go to the same shard by the policy `random`. A run may have hundreds of messages: with
#: one shard for each run, a client that publishes rarely but in large batches would fill its shards unevenly.
RANDOM_STRETCH = 16

#: For how many sharded queues a channel remembers the next shard at most.
QUEUES_KEPT = 512


class ShardedRow(NamedTuple):
    """A logical queue among the destinations of a message."""

    row: QueueRow
    policy: ShardPolicy
    shards: tuple[QueueRow, ...]
    #: Whether the shards deduplicate. A shard recognises only messages that it has had itself. So a message that is
    #: published again has to reach the shard of the first one: its id decides, and `policy` does not.
    is_by_key: bool


class Spread(NamedTuple):
    """The destinations of messages that go to at least one sharded queue."""

    #: The queues that are not sharded.
    plain: tuple[QueueRow, ...]
    sharded: tuple[ShardedRow, ...]

    @property
    def stretch(self) -> int:
        """How many messages in a row may go to the same shards."""
        may_share = all(each.policy == "random" and not each.is_by_key for each in self.sharded)
        return RANDOM_STRETCH if may_share else 1


class Spreading:
    """The choice of shards for one channel, whose credit with the queues is `credit`."""

    __slots__ = ("_context", "_credit", "_next", "_process", "_random")

    def __init__(self, process: Process, context: NodeContext, credit: CreditFlow) -> None:
        self._process = process
        self._context = context
        self._credit = credit
        #: By id of a logical queue: the number of its next message from this channel.
        self._next: dict[str, int] = {}
        self._random: Random | None = None

    def spread(self, vhost: str, rows: Sequence[QueueRow]) -> Spread | None:
        """The destinations that these rows stand for; None if no queue among them is sharded."""
        routing = self._context.routing
        if not routing.has_shards(vhost):
            return None
        plain = tuple([row for row in rows if not row.shards])
        if len(plain) == len(rows):
            return None
        sharded = []
        for row in rows:
            if row.shards:
                shards = shards_of(routing, row)
                is_by_key = any(deduplicates(each, self._context.definitions, routing) for each in shards[:1])
                sharded.append(ShardedRow(row, shard_policy(row), shards, is_by_key))
        return Spread(plain, tuple(sharded))

    def choose(self, spread: Spread, content: bytes) -> tuple[QueueRow, ...]:
        """The queues that get the next messages, `spread.stretch` at most; `content` is the first of them."""
        return *spread.plain, *[self._shard(each, content) for each in spread.sharded]

    def _shard(self, sharded: ShardedRow, content: bytes) -> QueueRow:
        row, policy, shards, is_by_key = sharded
        if is_by_key:
            key = deduplication_key(content_properties(content))
            if key is not None:
                # The message goes to this shard even if the shard does not run, and is refused then: another shard
                # would not recognise the message when it is published again.
                name = shard_name(row.name, crc32(key) % row.shards)
                return next((shard for shard in shards if shard.name == name), row.at(None))
        count = len(shards)
        if not count:
            return row.at(None)  # without an address the message is refused
        if policy == "random":
            first = self._number_from(count)
        else:
            number = self._next.get(row.queue_id)
            if number is None:
                if len(self._next) >= QUEUES_KEPT:
                    self._next.clear()  # most of this many queues are probably deleted by now
                # Channels begin with different shards, or many short-lived ones would publish to the first one only.
                number = self._number_from(count)
            self._next[row.queue_id] = number + 1
            first = number % count
        prefers_credit = policy == "random" and self._credit.blocked
        shard = shards[first]
        if shard.state == "running" and not prefers_credit:
            return shard
        running = [each for each in (*shards[first:], *shards[:first]) if each.state == "running"]
        if prefers_credit:
            running = [each for each in running if self._credit.credit_from(each.queue_id) > 0] or running
        return running[0] if running else shard

    def _number_from(self, count: int) -> int:
        """A random number below `count`."""
        if self._random is None:
            self._random = Random(self._process.random_bytes(8))
        return self._random.randrange(count)
