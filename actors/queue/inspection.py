"""`QueueView`: what a queue's process shows of its bookkeeping, for checks and for operators.

A view reads the process when it is asked, so a process that nobody inspects pays nothing. It is used between two turns,
on the thread of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...runtime.credit import CreditFlow
from ...store.messages.lives import Lives
from ...store.queue.inspection import Counts, check, counts_of, held, parts_in_memory
from ...store.queue.range_read import SupportsRangeRead
from ..contracts.queue import VhostStorage
from .master.master import Master
from .process import Queue

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..contracts.channel import ToChannel
    from ..contracts.queue import ToQueue


class ConsumerCounts(NamedTuple):
    """A consumer's unacknowledged messages: as the consumer counts them, and as its channel has them."""

    tag: str
    counted: int
    held: int


class DiskLinks(NamedTuple):
    """Where a queue keeps its messages. The journal knows the queue by its number, message stores by its client id."""

    storage: VhostStorage
    number: int
    client: str


@dataclass(slots=True)
class QueueView:
    """See the module. Only `is_started` and `is_open` may be read before the queue was given its row."""

    queue: Queue

    @property
    def is_started(self) -> bool:
        """Whether the supervisor's `start` was handled, which gives the queue its row."""
        return hasattr(self.queue, "row")

    @property
    def is_open(self) -> bool:
        return self.queue.stage.is_open

    @property
    def name(self) -> str:
        return self.queue.row.name

    @property
    def queue_id(self) -> str:
        return self.queue.row.queue_id

    @property
    def address(self) -> Address[ToQueue]:
        return self.queue.myAddress

    @property
    def is_routed(self) -> bool:
        """Whether the routing table has this process for the queue's name."""
        queue = self.queue
        row = queue.context.routing.queue(queue.row.vhost, queue.row.name)
        return row is not None and row.queue_id == queue.row.queue_id and row.address == queue.myAddress

    @property
    def credit(self) -> CreditFlow:
        """The queue's credit with its peers: channels by id, the journal and the message stores by name."""
        return self.queue.channels.credit

    def told(self) -> tuple[int, Lives] | None:
        """What readers by number may have seen of a queue on the disk: its next number, and its lives and gaps."""
        backing = self.queue.backing
        if self.disk is None or not self.queue.row.durable or not isinstance(backing, SupportsRangeRead):
            return None
        return backing.kept_numbers().stop, backing.lives

    @property
    def lives(self) -> Lives | None:
        """The lives and gaps of a queue that can be read by number; None for any other."""
        backing = self.queue.backing
        return backing.lives if isinstance(backing, SupportsRangeRead) else None

    # -- channels and consumers ---

    def channels(self) -> Iterator[tuple[str, Address[ToChannel]]]:
        """Id and address of each channel of which the queue has a record."""
        return ((channel_id, record.address) for channel_id, record in self.queue.channels.by_id.items())

    def pending(self, channel_id: str) -> set[int]:
        """The ack tags that this channel may settle."""
        record = self.queue.channels.by_id.get(channel_id)
        return set() if record is None else set(record.pending)

    def consumers(self) -> Iterator[ConsumerCounts]:
        role = self.queue.role
        for consumer in role.consumers if isinstance(role, Master) else ():
            held = sum(owner is consumer for owner in consumer.channel.pending.owners())
            yield ConsumerCounts(consumer.tag, consumer.unacked, held)

    def delayed_publishes(self, channel_id: str) -> int:
        """Messages of this channel that wait because deliveries have priority."""
        role = self.queue.role
        return sum(
            len(entry[1])
            for record, entries in ((role.publish_delay.delayed or ()) if isinstance(role, Master) else ())
            if record.channel_id == channel_id
            for entry in entries
        )

    @property
    def unconfirmed_publishes(self) -> int:
        """Runs whose publishers wait for a confirm."""
        confirms = self.queue.state.confirms
        return len(confirms.recent) + len(confirms.awaiting)

    # -- messages ---

    @property
    def unacked(self) -> int:
        """Messages that were delivered and not settled, as the backing queue counts them."""
        return self.queue.backing.totals().pending

    def counts(self) -> Iterator[tuple[Counts, Counts]]:
        """For each part of the backing queue: its counters, and the same counted anew from its messages."""
        return map(counts_of, parts_in_memory(self.queue.backing))

    def held(self) -> Iterator[tuple[int, int]]:
        """The number and the size of each message of a queue that can be read by number. Waits for the disk."""
        backing = self.queue.backing
        assert isinstance(backing, SupportsRangeRead)
        return held(backing)

    def check_backing(self) -> None:
        """Check QS-1 to QS-10. Raises AssertionError."""
        check(self.queue.backing)

    # -- the disk ---

    @property
    def disk(self) -> DiskLinks | None:
        """The queue's number and client id on the disk; None if it keeps its messages in memory alone."""
        durability = self.queue.durability
        return None if durability is None else DiskLinks(durability.storage, durability.number, durability.client)

    def references(self, is_persistent: bool) -> Iterator[bytes]:
        """The ids of the bodies that the queue has in the persistent or in the transient message store."""
        durability = self.queue.durability
        for level in durability.levels.values() if durability is not None else ():
            for persistent, message_id in level.references():
                if persistent == is_persistent:
                    yield message_id
