"""`Effects`: what the core of a queue has decided in a turn, and its replica has not done yet.

The core of a queue is pure: `Dispatch`, `Intake`, `MessageExpiry` and the other parts of a role change their own state
and the backing queue, and whatever else is to happen they write down here. They hold no process, so they send nothing,
start no timer and read no file. The replica (`replica/role_runner.py`) does what is written down, at the end of its
turn or before it answers somebody, in this order:

1. `messages`, such as dead letters and requests to limiters, and the grants of credit
2. the deliveries in the outbox, so that what a channel receives next follows all deliveries decided before
3. `endings`, messages that must follow the deliveries
4. timers, jobs for the disk, shipments of dead letters and answers to those of others, another turn, the end of the
   queue

One object serves a replica for its whole life, because most turns of most queues have few effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...runtime.contract import Address, C, ProcessMessage, Sender
    from ...store.queue.variable.read_ahead import ReadAheadJob
    from ..contracts.channel import DeliveryRun
    from ..contracts.pace import ClockName, ToPacer
    from .consumers.consumer import ChannelRecord, Consumer
    from .disk.disk_loader import Job
    from .master.dead_letters.shipment import Shipment
    from .message_index.index_feed import IndexFeed

    #: A message and the address of the process that it is for.
    Sent = tuple[Address[Any], ProcessMessage[Any, Any]]

#: The payload of a replica's timer, by which its role recognises the timer.
TimerName = str


class ChannelDeliveries:
    """Deliveries of one turn, by channel, each channel's in the order of the queue.

    AMQP promises that order on each channel, whichever of its consumers gets a message. So only runs that are
    neighbours and go to the same consumer are sent together.
    """

    __slots__ = ("channels",)

    def __init__(self) -> None:
        self.channels: dict[ChannelRecord, list[tuple[Consumer, list[DeliveryRun]]]] = {}

    def put(self, consumer: Consumer, run: DeliveryRun) -> None:
        segments = self.channels.get(consumer.channel)
        if segments is None:
            self.channels[consumer.channel] = [(consumer, [run])]
        elif segments[-1][0] is consumer:
            segments[-1][1].append(run)
        else:
            segments.append((consumer, [run]))

    def put_unacked(self, consumer: Consumer, run: DeliveryRun, tags: Sequence[int]) -> None:
        """Put a run whose messages the consumer has to acknowledge under these tags."""
        consumer.channel.pending.add(tags, consumer)
        if consumer.limit is not None:
            consumer.limit.delivered(tags, run[3])
        self.put(consumer, run)

    def forget_channel(self, channel: ChannelRecord) -> None:
        """Drop the deliveries to a channel that has ended."""
        self.channels.pop(channel, None)


class Effects:
    """The effects of one replica. Parts write with the methods; the replica reads and clears the attributes."""

    __slots__ = (
        "answered",
        "became_quiet",
        "consumers_changed",
        "end_reason",
        "endings",
        "ends_shipping",
        "grants",
        "has_requests",
        "head_read",
        "index",
        "jobs",
        "messages",
        "messages_came",
        "needs_turn",
        "outbox",
        "shipments",
        "timers",
        "to_pacer",
    )

    def __init__(self) -> None:
        self.outbox = ChannelDeliveries()
        #: Messages that are sent before the deliveries.
        self.messages: list[Sent] = []
        #: Messages that are sent after the deliveries.
        self.endings: list[Sent] = []
        #: Credit for channels: the channel's id and the number of messages.
        self.grants: list[tuple[str, int]] = []
        #: Whether messages were published to the queue, so that its memory has to be watched.
        self.messages_came = False
        #: Whether one of the requests below is set. Few turns set any, so in most turns the replica tests this alone.
        self.has_requests = False
        #: Seconds from now after which the role's `timer_fired` is called with the name; None: cancel the timer.
        self.timers: dict[TimerName, float | None] = {}
        #: The job that reads more of the head of the queue, if there is one. `HeadRead` asks for one at a time.
        self.head_read: ReadAheadJob | None = None
        #: Other reads, which wait for the disk. A tuple, because idle queues share the empty one.
        self.jobs: tuple[Job, ...] = ()
        #: Whether the role has more to do after other messages had their turn.
        self.needs_turn = False
        #: Whether the role has no dead letters left to send (`Role.is_quiet`).
        self.became_quiet = False
        #: Whether a consumer came or left.
        self.consumers_changed = False
        #: Collects what this queue reports to the message index. None if the queue is not indexed.
        self.index: IndexFeed | None = None
        #: Messages to the pacers that hold these clocks.
        self.to_pacer: tuple[tuple[ClockName, ProcessMessage[ToPacer, None]], ...] = ()
        #: Dead letters that the replica sends, and reports when they are safe at their targets (`Shipping`).
        self.shipments: tuple[Shipment, ...] = ()
        #: Whether shipments are sent at most once, because the queue ends.
        self.ends_shipping = False
        #: The queues whose dead letters are safe here. They are answered `True`.
        self.answered: tuple[Sender, ...] = ()
        #: Why the queue is to end by itself.
        self.end_reason: str | None = None

    def send(self, address: Address[C], message: ProcessMessage[C, object]) -> None:
        self.messages.append((address, message))

    def send_after_deliveries(self, address: Address[C], message: ProcessMessage[C, object]) -> None:
        self.endings.append((address, message))

    def send_to_pacer(self, clock: ClockName, message: ProcessMessage[ToPacer, None]) -> None:
        self.to_pacer += ((clock, message),)
        self.has_requests = True

    def ship(self, shipment: Shipment) -> None:
        self.shipments += (shipment,)
        self.has_requests = True

    def end_shipping(self) -> None:
        self.ends_shipping = self.has_requests = True

    def answer(self, sender: Sender) -> None:
        self.answered += (sender,)
        self.has_requests = True

    def grant(self, channel_id: str, amount: int) -> None:
        """Grant a channel credit for `amount` more messages. `CreditFlow` calls this."""
        self.grants.append((channel_id, amount))

    def set_timer(self, name: TimerName, seconds: float) -> None:
        """Start the timer of this name; one that runs already is replaced."""
        self.timers[name] = seconds
        self.has_requests = True

    def cancel_timer(self, name: TimerName) -> None:
        self.timers[name] = None
        self.has_requests = True

    def read_head(self, job: ReadAheadJob) -> None:
        self.head_read = job
        self.has_requests = True

    def run(self, job: Job) -> None:
        self.jobs += (job,)
        self.has_requests = True

    def report_quiet(self) -> None:
        """Wake the coroutines that wait until the role is quiet."""
        self.became_quiet = self.has_requests = True

    def need_turn(self) -> None:
        """Give the queue another turn after those of all others, even if no message has come."""
        self.needs_turn = self.has_requests = True

    def change_consumers(self) -> None:
        self.consumers_changed = self.has_requests = True

    def end(self, reason: str) -> None:
        """End the queue by itself, for this reason, without a request to delete it."""
        self.end_reason = reason
        self.has_requests = True
