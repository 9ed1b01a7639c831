"""`ReplicaState`: what a replica of a queue keeps when it gets another role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...runtime.credit import CreditFlow
from ...runtime.turn_work import TurnWork
from ...store.queue.backing_queue import BackingQueue
from ..statistics.counts import MessageCounts
from ..statistics.histograms import NodeHistograms
from .consumers.consumer import ChannelRecord
from .disk.head_read import HeadRead
from .disk.transit import Transit
from .effects import Effects
from .publisher_confirms import PublisherConfirms

if TYPE_CHECKING:
    from .master.deduplication import Deduplication


@dataclass(slots=True)
class ReplicaState:
    """The state that a replica of the queue `row` shares with its role, and the clocks that the role reads."""

    row: QueueRow
    routing: RoutingTable
    backing: BackingQueue
    effects: Effects
    head_read: HeadRead
    confirms: PublisherConfirms
    #: The channels that the replica monitors, by id.
    channels: dict[str, ChannelRecord]
    credit: CreditFlow
    #: What is left of the work of the present turn.
    work: TurnWork
    #: Whether any message in the backing queue may have an expiry.
    may_expire: bool
    #: Seconds of a monotonic clock.
    now: Callable[[], float]
    #: Seconds since the epoch.
    wall_clock: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    #: How many messages the queue has received, delivered, returned and so on, for statistics.
    counts: MessageCounts
    #: How long messages take on this node. The queue adds those that it gives to consumers.
    histograms: NodeHistograms
    #: The dead letters that go by way of the journal; None if the queue is not durable or the node has no disk.
    transit: Transit | None = None
    #: Too few replicas are in sync, so publishes that await a confirm are refused (CL-123).
    is_short: bool = False
    #: What the queue remembers of publishes; None if it keeps messages that are published twice.
    deduplication: Deduplication | None = None
