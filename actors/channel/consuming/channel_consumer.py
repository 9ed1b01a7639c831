"""`ChannelConsumer`: what a channel keeps about one consumer of its client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ....amqp.fields import Table
from ....routing.arguments.range_read_arguments import block_size
from ....routing.rows import QueueRow
from ....runtime.contract import Address
from ....runtime.credit import ACROSS_LINKS
from ....runtime.system.address import is_elsewhere
from ....store.messages.message import Origin
from ...contracts.channel import DeliveryRun, ToChannel
from ...contracts.queue import ToQueue

#: After how many deliveries on the socket a channel sends a queue a notice (FC-32). Each notice is a turn of the queue.
NOTICE_STEP = 50

#: The same while the contents are small, so that the queue spends fewer turns on notices.
NOTICE_STEP_SMALL = 150

#: The same for a queue on another node, to which each notice travels in a frame of the link.
NOTICE_STEP_ACROSS_LINKS = NOTICE_STEP * ACROSS_LINKS


class DeliveryHead(NamedTuple):
    """The bytes of a basic.deliver frame before and after the delivery tag, and the origin that they were made for.

    `ChannelConsumer.heads` finds a head by the `id()` of its origin. The reference to the origin keeps Python from
    giving that id to another object.
    """

    start: bytes
    end: bytes
    origin: Origin


@dataclass(slots=True)
class ChannelConsumer:
    """A consumer, with its place in the channel."""

    tag: str
    queue_id: str
    row: QueueRow
    no_ack: bool
    exclusive: bool
    prefetch: int
    arguments: Table
    #: The connection reports deliveries that it has written to the socket to the queue in steps of this many.
    notice_step: int
    #: `starting` until consume-ok, `ending` from basic.cancel on.
    stage: Literal["starting", "running", "ending"] = "starting"
    #: How often its queue was restarted. An attempt to register the consumer again ends when this has changed, because
    #: a later attempt has begun.
    life: int = 0
    #: The heads of its deliveries, by the `id()` of their origin: comparing exchange and routing key takes longer.
    heads: dict[int, DeliveryHead] = field(default_factory=dict)
    #: The same for redeliveries.
    redelivered_heads: dict[int, DeliveryHead] = field(default_factory=dict)
    #: The consumer of a sharded queue has a part for each shard, by the shard's queue id. The parts have its tag.
    parts: dict[str, ChannelConsumer] | None = None
    #: Deliveries of shards that arrived before consume-ok, as the arguments of `deliver`: the client must receive
    #: consume-ok first.
    early: list[tuple[Address[ToQueue], str, str, list[DeliveryRun]]] = field(default_factory=list)
    #: Whether the broker is to cancel it behind consume-ok, because it has lost a queue before.
    is_lost: bool = False

    @property
    def is_registered(self) -> bool:
        """Whether its queue has it. The consumer of a sharded queue is still starting then: the shards follow."""
        return self.stage == "running" or (self.stage == "starting" and self.parts is not None)

    @property
    def is_bounded(self) -> bool:
        """Whether it has a prefetch of its own."""
        return self.prefetch > 0 and not self.no_ack

    @property
    def is_far(self) -> bool:
        """Whether its queue is on another node, and it reads no blocks."""
        return self.notice_step == NOTICE_STEP_ACROSS_LINKS


def notice_step(row: QueueRow, arguments: Table, channel: Address[ToChannel]) -> int:
    """The `notice_step` of a consumer with these arguments."""
    if block_size(arguments):
        return 1  # the queue keeps two blocks in flight, and goes on when one is written
    return NOTICE_STEP_ACROSS_LINKS if is_elsewhere(row.address, channel) else NOTICE_STEP
