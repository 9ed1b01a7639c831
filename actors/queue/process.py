"""`Queue`: the process of one queue (amqp-broker sections 9, 11 and 12; queue-and-store section 3.3).

The process owns AMQP's semantics, and its backing queue owns the messages. Each part of the process has a state of its
own and is given the few other parts that it needs:

    PublishDelay, Intake         publishes: whether they wait, and then where each run goes
    PublisherConfirms            the confirms and refusals that channels get for their publishes
    Consumers, Dispatch          who gets the next message, and its delivery
    RangeReaders                 consumers that read by number and take nothing
    MessageExpiry, LengthLimit   messages that leave at the head because of their age, or because there are too many
    Rejections, DeadLetterer     messages that consumers reject, and the dead letters of all that die
    QueueExpiry                  the end of a queue that is not used
    Durability                   journal, message stores and segments, on a node with a data directory

This file has the queue's life, its channels, and the handlers of all messages. A message is handled at once, but
deliveries, confirms and refusals are gathered and sent at the end of the turn, in `after_batch`.

The way of a publish: an empty queue hands it straight to a consumer that can take it, so that it never enters the
backing queue's lists. Otherwise it is stored, the length limits are applied, and `after_batch` delivers from the head
while a consumer can take a message.

Limits: sockets, delivery tags and channel numbers are matters of the channel; names, bindings and permissions are
matters of Metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from ...amqp.constants import ACCESS_REFUSED, PRECONDITION_FAILED
from ...amqp.errors import AmqpError
from ...amqp.fields import Table
from ...routing.arguments import QueueSettings, queue_settings
from ...routing.decorators import QueueDecorator, notify
from ...routing.phrases import no_queue, queue_phrase
from ...routing.range_read_arguments import range_read_arguments
from ...routing.rows import QueueRow
from ...runtime.credit import CreditFlow
from ...runtime.errors import ProcessDown
from ...runtime.exit_reason import ExitKind, ExitReason
from ...runtime.process import Process
from ...seams import seam
from ...store.messages.message import Delivery
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.memory_queue import MemoryQueue
from ...store.queue.priority_queue import PriorityQueue
from ..channel.contract import to_channel
from ..disk.errors import BatchLost
from ..metadata.contract import to_metadata
from ..node.context import NodeContext
from .consumers import ChannelRecord, Consumer, Consumers
from .contract import QueueRecovery, ToQueue, VhostStorage
from .dead_letterer import DeadLetterer, Rejections
from .dispatch import Dispatch
from .durability import Durability
from .intake import Intake, PublishDelay
from .length_limit import LengthLimit
from .listing import queue_items
from .message_expiry import MessageExpiry
from .publisher_confirms import PublisherConfirms
from .queue_expiry import QueueExpiry
from .range_readers import RangeReaders

if TYPE_CHECKING:
    from ...runtime.contract import Address, Sender
    from ..channel.contract import Outcome, ToChannel
    from ..metadata.info_items import InfoItems
    from .contract import AtMostOnceEntry, NeededBodies, PublishEntry, Terms


class Queue(Process):
    """The process of one queue; `ToQueue` lists the messages that it receives."""

    __slots__ = (
        "backing",
        "channels",
        "confirms",
        "consumers",
        "context",
        "credit",
        "dead_letterer",
        "decorators",
        "dispatch",
        "durability",
        "had_consumer",
        "intake",
        "is_ending",
        "is_held",
        "is_open",
        "length_limit",
        "message_expiry",
        "publish_delay",
        "queue_expiry",
        "queue_id",
        "queue_mode",
        "range_readers",
        "rejections",
        "row",
        "settings",
    )

    contract = ToQueue
    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, ChannelRecord] = {}
        self.had_consumer = False
        self.decorators: tuple[QueueDecorator, ...] = ()
        #: None on a node that keeps everything in memory.
        self.durability: Durability | None = None
        #: From the end of the recovery to the beginning of the deletion.
        self.is_open = False
        #: The queue is being deleted, or ends by itself: it refuses consumers and gets.
        self.is_ending = False
        #: The node stops: no message leaves a queue with a disk any more.
        self.is_held = False

    # -- life ---------------------------------------------------------------------------------------

    async def on_start(
        self,
        sender: Sender,
        context: NodeContext,
        row: QueueRow,
        storage: VhostStorage | None = None,
        recovery: QueueRecovery | None = None,
    ) -> Literal[True] | NeededBodies:
        self.context = context
        self.row = row
        self.queue_id = row.queue_id
        self.settings: QueueSettings = queue_settings(row.arguments)
        self.queue_mode: str = self.settings.queue_mode
        self.consumers = Consumers(self.settings.single_active_consumer)
        self.dead_letterer = DeadLetterer(self, context.routing, row, self.settings)
        self.credit = CreditFlow(
            context.settings.credit_flow_default_credit,
            self._grant_credit,
            clock=self.now,
            hold=context.settings.flow_hold_queue / 1000,
        )
        if storage is None:
            self._open(_memory_queue(self.settings, self.now))
            return True
        self.durability = Durability(
            self, context, row, self.settings, self.credit, storage, self._head_loaded, lambda: self.is_open
        )
        if recovery is not None:
            return await self.durability.scan(recovery)
        self._open(self.durability.open_new())
        return True

    async def on_open(self, sender: Sender, needed: NeededBodies) -> int:
        self._open(await self._disk.open_recovered(needed))
        return len(self.backing)

    def _open(self, backing: BackingQueue) -> None:
        self.backing = backing
        self.length_limit = LengthLimit(self.settings, backing, self.dead_letterer, self.prepare)
        self.message_expiry = MessageExpiry(
            self, self.settings, backing, self.dead_letterer, self.prepare, self._expire_later
        )
        self.queue_expiry = QueueExpiry(self, self.settings.expires, lambda: self.is_in_use)
        self.dispatch = Dispatch(self, self.queue_id, backing, self.consumers, self.message_expiry, self.prepare)
        self.confirms = PublisherConfirms(self, self.queue_id, self.channels)
        self.intake = Intake(
            self.settings,
            self.row.durable,
            backing,
            self.consumers,
            self.dispatch,
            self.message_expiry,
            self.length_limit,
            self.dead_letterer,
            self.confirms,
        )
        self.publish_delay = PublishDelay(self, backing, self.dispatch)
        self.rejections = Rejections(
            self, backing, self.dead_letterer, None if self.durability is None else self.durability.loader
        )
        self.range_readers = RangeReaders(
            self,
            self.row,
            self.channels,
            backing,
            self.consumers,
            self.dispatch,
            self.queue_expiry,
            self.durability,
            lambda: self.is_ending,
        )
        self.queue_expiry.restart()
        self.is_open = True
        if self.durability is not None and self.durability.may_expire:
            self.message_expiry.is_needed = self.message_expiry.is_uneven = True
        if self.row.vhost not in self.context.routing.recovering:
            self._release_messages()
        self.decorators = self.context.extensions.queue_decorators
        for decorator in self.decorators:
            notify(decorator.started, self.row)

    def on_recovered(self, sender: Sender) -> None:
        if self.is_open:
            self._release_messages()

    def _release_messages(self) -> None:
        """From now on messages may leave: the exchanges and queues that their dead letters may go to are recovered."""
        if not self.backing.is_empty():
            self.dispatch.is_due = True
            if self.length_limit.drops_head:
                self.length_limit.drop_overflow()

    def on_set_queue_mode(self, sender: Sender, mode: str) -> None:
        self.queue_mode = mode
        self.backing.set_queue_mode(mode)
        self.prepare()

    def on_hold(self, sender: Sender) -> bool | None:
        self.is_held = True
        if not (self.is_open or self.is_ending):
            return True  # the queue is still starting, so nothing has been rejected
        self.rejections.answer_when_done(sender)
        return None

    async def on_terminate(self, sender: Sender) -> Terms | None:
        terms = await self.durability.terminate() if self.durability is not None and self.is_open else None
        # A fault, not an orderly end: publishes that arrive from now on are lost, and at an orderly end channels would
        # confirm them.
        self.stop(ExitReason(ExitKind.EXIT, "its node stops"))
        return terms

    def on_exit(self) -> None:
        for decorator in self.decorators:
            notify(decorator.stopped, self.row)

    # -- the end of a turn --------------------------------------------------------------------------

    def after_batch(self) -> None:
        """Do and send what the messages of this turn have made due, in this order:

        1. accept the publishes that arrived: refuse them, hand them to consumers, or store them
        2. deliver ready messages, if the turn may have made a delivery possible
        3. accept publishes that waited for deliveries, as far as they need not wait any longer, and deliver again
        4. let readers read what is new
        5. send the deliveries, then confirms; both follow everything that was decided in the steps before
        6. set the timer for the new head, and send journal and stores what was written

        While the queue is held it stores publishes, which its next start will find, and lets nothing leave. A queue in
        memory is lost when its node stops, so `hold` changes nothing for it.
        """
        if not self.is_open or self.row.vhost in self.context.routing.recovering:
            return
        dispatch, delay, durability = self.dispatch, self.publish_delay, self.durability
        if self.intake.arrivals:
            self._accept_arrivals()
        if self.is_held and durability is not None:
            durability.after_batch()
            return
        if dispatch.is_due:
            dispatch.deliver()
        while delay.delayed or delay.timer is not None:
            publish = delay.take_next()
            if publish is None:
                break
            self._take(*publish)
            self._accept_arrivals()
            dispatch.deliver()
        if self.range_readers.readers:
            self.range_readers.deliver()
        if dispatch.outbox:
            dispatch.send()
        self.confirms.send(self.backing.drain_confirmed())
        if self.message_expiry.is_needed:
            self.message_expiry.set_timer()
        if durability is not None:
            durability.after_batch()

    def on_timer(self, payload: str) -> None:
        if payload == "delay":
            self.publish_delay.timer_fired()
            self._take_delayed()
        elif payload == "expiry":
            self.message_expiry.timer_fired()
            self.dispatch.is_due = True
        elif payload == "report":
            self._disk.report()
        elif payload == "queue_expiry" and not self.is_ending and self.queue_expiry.timer_fired():
            self.spawn(self._end_by_itself("expired"))

    def _expire_later(self) -> None:
        self.dispatch.is_due = True
        self.request_turn()

    # -- channels -----------------------------------------------------------------------------------

    def _record(self, channel_id: str, address: Address[ToChannel]) -> ChannelRecord:
        """The record of the channel. A new one is monitored."""
        record = self.channels.get(channel_id)
        if record is None:
            record = self.channels[channel_id] = ChannelRecord(channel_id, address)
            self.monitor(address, channel_id)
        return record

    def _grant_credit(self, channel_id: str, amount: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.send(record.address, to_channel.bump(self.queue_id, amount))

    def on_bump(self, sender: Sender, peer: str, amount: int) -> None:
        was_blocked = self.credit.blocked
        self.credit.bump(peer, amount)
        if was_blocked and not self.credit.blocked:
            self.backing.resume()

    def on_sent(self, sender: Sender, channel_id: str, count: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            record.unsent -= count
            self.publish_delay.count_written(count)
            if self.consumers.resume(record):
                self.dispatch.is_due = True

    def on_limiter_changed(self, sender: Sender, channel_id: str, is_limited: bool) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.dispatch.set_limited(record, is_limited)

    def on_limiter_grant(self, sender: Sender, channel_id: str, count: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None and record.is_limited:
            self.dispatch.add_grant(record, count)
            self.range_readers.use_grant(record)
            self.dispatch.use_or_return_grant(record)

    def on_channel_closing(self, sender: Sender, channel_id: str) -> bool:
        self._take_delayed()
        self.forget_channel(channel_id)
        self.demonitor(channel_id)
        return True

    def on_down(self, name: str, reason: ExitReason) -> None:
        """A channel has ended without `channel_closing`; `name` is its id."""
        self._take_delayed()
        self.forget_channel(name)

    def forget_channel(self, channel_id: str) -> None:
        """Remove a channel that ends, with its consumers, and requeue its unacknowledged messages."""
        record = self.channels.pop(channel_id, None)
        self.credit.peer_down(channel_id)
        if record is None:
            return
        gone = [consumer for consumer in self.consumers if consumer.channel is record]
        for consumer in gone:
            self.consumers.remove(consumer)
        self.range_readers.forget_channel(record)
        self.dispatch.forget_channel(record)
        returned = self._given_back_by(record)
        if returned:
            self.backing.requeue(returned)
            if self.length_limit.drops_head:
                self.length_limit.drop_overflow()  # AB-102
        self.dispatch.is_due = True
        if gone:
            self._notify_consumers_changed()
        self._consumers_left_with_channel()

    @seam("which messages are requeued when a channel ends")
    def _given_back_by(self, record: ChannelRecord) -> list[int]:
        """The numbers of the messages that are requeued when this channel ends."""
        return list(record.pending)

    @seam("whether a queue may end with the channel of its last consumer")
    def _consumers_left_with_channel(self) -> None:
        self._consumer_left()

    # -- publishing ---------------------------------------------------------------------------------

    def on_publish(self, sender: Address[ToChannel], channel_id: str, entries: list[PublishEntry]) -> None:
        if self.publish_delay.must_wait():
            self.publish_delay.add((sender, channel_id, entries))
        else:
            self._take(sender, channel_id, entries)

    def on_publish_at_most_once(self, sender: Sender, entries: list[AtMostOnceEntry]) -> None:
        self.intake.add_at_most_once(entries)

    def _take(self, sender: Address[ToChannel], channel_id: str, entries: list[PublishEntry]) -> None:
        """Count a publish in the credit of its channel, and keep its runs until they are accepted."""
        record = self.channels.get(channel_id) or self._record(channel_id, sender)
        count = sum([len(entry[1]) for entry in entries])
        self.credit.take(channel_id, count)
        if self.dispatch.awaits_write:
            self.publish_delay.allowance -= count
        self.intake.add(record, entries)

    def _take_delayed(self) -> None:
        """Accept everything that was published before this: a message that asks the queue something must see it."""
        delayed = self.publish_delay.delayed
        while delayed:
            self._take(*delayed.popleft())
        self._accept_arrivals()

    def _catch_up(self) -> None:
        """Accept what was published and deliver what has become deliverable before this message, as if every message
        had a turn of its own: an ack in front of basic.cancel lets the consumer have one more message.
        """
        self._take_delayed()
        if self.dispatch.is_due and self._may_deliver:
            self.dispatch.deliver()

    @property
    def _may_deliver(self) -> bool:
        is_held = self.is_held and self.durability is not None
        return self.is_open and not is_held and self.row.vhost not in self.context.routing.recovering

    def _accept_arrivals(self) -> None:
        if not self.is_open:
            return  # the queue is being deleted, and nobody would remove what it wrote now
        if self.durability is not None:
            self.durability.start_reporting()
        self.intake.accept_arrivals()

    # -- consuming ----------------------------------------------------------------------------------

    async def on_consume(
        self,
        sender: Sender,
        channel_id: str,
        address: Address[ToChannel],
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        is_limited: bool,
        priority: int,
        arguments: Table,
        user: str,
    ) -> bool:
        self._check_not_ending()
        wanted_range = range_read_arguments(arguments) if arguments else None
        if wanted_range is None and (
            self.settings.single_active_consumer
            and exclusive
            or self.consumers.has_exclusive()
            or exclusive
            and len(self.consumers)
        ):
            raise AmqpError(ACCESS_REFUSED, f"{queue_phrase(self.row.vhost, self.row.name)} in exclusive use")
        record = self._record(channel_id, address)
        record.is_limited = is_limited
        consumer = Consumer(record, tag, no_ack, exclusive, prefetch, priority, arguments, user)
        if wanted_range is not None:
            return await self.range_readers.begin(consumer, wanted_range)
        self.consumers.add(consumer)
        self.had_consumer = True
        self._notify_consumers_changed()
        self.queue_expiry.suspend()
        self.dispatch.is_due = True
        return True

    def on_cancel(self, sender: Sender, channel_id: str, tag: str) -> bool:
        consumer = self.consumers.find(channel_id, tag)
        if consumer is None:
            self.range_readers.cancel(channel_id, tag)
            return True
        self._catch_up()
        self.dispatch.send()  # cancel-ok follows every delivery already sent
        self.consumers.remove(consumer)
        if not consumer.channel.consumers:
            self.dispatch.return_grant(consumer.channel)
        self.dispatch.is_due = True
        self._notify_consumers_changed()
        self._consumer_left()
        return True

    @property
    def is_in_use(self) -> bool:
        """A consumer or a reader keeps the queue from expiring (AB-93)."""
        return bool(len(self.consumers) or self.range_readers.readers)

    def _notify_consumers_changed(self) -> None:
        if self.decorators:
            consumers = self.on_consumers_info(None)
            for decorator in self.decorators:
                notify(decorator.consumers_changed, self.row, consumers)

    def _consumer_left(self) -> None:
        if len(self.consumers) or not self.had_consumer:
            return
        self.queue_expiry.restart()
        if self.row.auto_delete and not self.is_ending:
            self.spawn(self._end_by_itself("auto-delete"))

    async def on_get(
        self, sender: Sender, channel_id: str, address: Address[ToChannel], no_ack: bool
    ) -> tuple[Delivery | None, int]:
        self._check_not_ending()
        self.queue_expiry.restart()
        while True:
            if self.message_expiry.is_needed:
                self.message_expiry.expire()
            self.dispatch.send()  # the answer follows every delivery made before it
            found = self.backing.fetch(1, not no_ack)
            if found:
                delivery = found[0]
                if not no_ack:
                    self._record(channel_id, address).pending[delivery.tags[0]] = None
                return delivery, len(self.backing)
            if self.durability is None or not len(self.backing):
                return None, 0
            # The head must be read from the disk first; it may have expired when it is read.
            await self.durability.loader.available()

    def on_settle(self, sender: Sender, channel_id: str, outcome: Outcome, pieces: list[Sequence[int]]) -> None:
        record = self.channels.get(channel_id)
        if record is None:
            return
        for tags in pieces:
            if tags[0] < 0:
                self.range_readers.settle(tags)
                continue
            tags = record.take_pending(tags)
            if outcome == "ack":
                self.backing.ack(tags)
            elif outcome == "requeue":
                self.backing.requeue(tags)
            else:
                self.rejections.reject(tags)
        if outcome == "requeue" and self.length_limit.drops_head:
            self.length_limit.drop_overflow()  # AB-102
        if self.consumers.resume(record) or outcome == "requeue":
            self.dispatch.is_due = True

    # -- the disk -----------------------------------------------------------------------------------

    @property
    def _disk(self) -> Durability:
        assert self.durability is not None, "only a queue with a disk receives these messages"
        return self.durability

    def prepare(self) -> None:
        """Have more of the head read from the disk; `_head_loaded` is called then."""
        if self.durability is not None:
            self.durability.loader.prepare()

    def _head_loaded(self) -> None:
        self.dispatch.is_due = True
        if self.length_limit.drops_head:
            self.length_limit.drop_overflow()

    def on_batch_lost(self, sender: Sender, by: str) -> None:
        phrase = queue_phrase(self.row.vhost, self.row.name)
        raise BatchLost(f"the {by} missed records of {phrase}, which starts again from what is on the disk")

    def on_durable(self, sender: Sender, position: int) -> None:
        self._disk.journal_synced(position)

    def on_stored(self, sender: Sender, kind: str, ids: list[bytes]) -> None:
        self._disk.bodies_stored(ids)

    async def on_flush_synced(self, sender: Sender) -> bool:
        return await self._disk.flusher.flush_synced()

    def on_ram_duration_target(self, sender: Sender, seconds: float) -> None:
        self._disk.set_target(seconds)
        # The queue reports until the target is lifted: each report applies the target to what came in since.
        self._disk.start_reporting()

    # -- the queue as a whole -----------------------------------------------------------------------

    def on_counts(self, sender: Sender) -> tuple[int, int]:
        self._take_delayed()
        self.queue_expiry.restart()
        return len(self.backing), len(self.consumers)

    async def on_purge(self, sender: Sender) -> int:
        self._catch_up()
        count = self.backing.purge()
        if self.durability is not None and count:
            await self.durability.synced()
        return count

    def on_info(self, sender: Sender) -> InfoItems:
        return queue_items(
            self.row,
            self.queue_mode,
            self.backing,
            self.channels.values(),
            self.consumers,
            self.range_readers,
            self.dead_letterer,
            self.credit.in_flow(),
        )

    def on_consumers_info(self, sender: Sender | None) -> list[InfoItems]:
        return self.consumers.info(self.row.name, self.row.vhost) + self.range_readers.info()

    # -- the end ------------------------------------------------------------------------------------

    def _check_not_ending(self) -> None:
        self._catch_up()
        if self.is_ending:
            raise no_queue(self.row.vhost, self.row.name)

    def on_delete(self, sender: Sender, if_unused: bool, if_empty: bool) -> Coroutine[Any, Any, int] | None:
        # A queue that ends anyway does not answer: at its end the asker gets ProcessDown.
        return None if self.is_ending else self._delete_if(if_unused, if_empty)

    async def _delete_if(self, if_unused: bool, if_empty: bool) -> int:
        self._catch_up()
        phrase = queue_phrase(self.row.vhost, self.row.name)
        if if_empty and len(self.backing):
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} not empty")
        if if_unused and len(self.consumers):
            raise AmqpError(PRECONDITION_FAILED, f"{phrase} in use")
        count = len(self.backing)
        await self._delete("deleted")
        return count

    async def _end_by_itself(self, reason: str) -> None:
        """End without being asked. Metadata removes the queue from the routing table first, so that no publish is
        routed to a process that has ended.
        """
        if self.is_ending:
            return
        self.is_ending = True
        await self.ask(self.context.metadata, to_metadata.queue_gone(self.row.vhost, self.row.name, self.queue_id))
        await self._delete(reason)

    async def _delete(self, reason: str) -> None:
        self.is_ending = True
        self.is_open = False
        self.backing.delete_and_terminate()
        if self.durability is not None:
            if self.row.durable:
                await self._remove_row()
            await self.durability.delete()
        # Channels monitor the queue: at this end they cancel their consumers and confirm what is unconfirmed (AB-86).
        self.stop(reason)

    async def _remove_row(self) -> None:
        """Return when the disk has no row of this queue. Its files are removed only after that, so that a crash leaves
        either the whole queue, or files without a queue, which the next start removes (C-16, C-17).
        """
        metadata = self.context.metadata
        # A full disk refuses this commit. The deletion goes on, since it may free space, and Metadata reports the error
        # to the client that asked for it.
        with suppress(AmqpError, ProcessDown):
            await self.ask(metadata, to_metadata.queue_gone(self.row.vhost, self.row.name, self.queue_id))
            await self.ask(metadata, to_metadata.write(()))


def _memory_queue(settings: QueueSettings, clock: Callable[[], float]) -> BackingQueue:
    """A new backing queue that keeps everything in memory; `clock` gives monotonic seconds."""
    backing: BackingQueue
    if settings.max_priority is not None:
        backing = PriorityQueue(settings.max_priority, lambda level: MemoryQueue(clock))
    else:
        backing = MemoryQueue(clock)
    backing.set_queue_mode(settings.queue_mode)
    return backing
