"""`Queue`: the process of one queue (AB sections 9, 11 and 12; queue-and-store section 3.3).

It owns AMQP's semantics; its backing queue owns the messages. `Intake` takes publishes in, `Dispatch` gives messages out, `MessageExpiry` and `LengthLimit` take them off the head,
`DeadLetterer` sends the dead on, `Rejection` brings it what was rejected, `Ending` is the end of it all, and this file is the queue's life, its consumers and their settlements.
What arrives in one wake-up is handled message by message, and what must leave (deliveries, confirms, requests to limiters) is gathered and sent in `after_batch`.

The way of a publish: an empty queue with a consumer that can take it hands it over at once (it never enters the backing queue's lists); otherwise it is
enqueued, the length limits and the expiry of the head are applied, and `after_batch` delivers from the head while somebody can take something.

Limits: the queue knows nothing of sockets, delivery tags or channel numbers; those are the channel's. Its name is bound, authorised and listed by Metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from ...amqp.errors import AmqpError
from ...routing.arguments import QueueSettings, queue_settings
from ...routing.decorators import QueueDecorator, notify
from ...routing.phrases import no_queue, queue_phrase
from ...routing.range_read_arguments import range_read_arguments
from ...routing.rows import QueueRow
from ...runtime.credit import CreditFlow
from ...runtime.exit_reason import ExitKind, ExitReason
from ...runtime.process import Process
from ...store.messages.message_ids import StoredSpan
from ...store.queue.backing_queue import BackingQueue
from ..disk.errors import BatchLost
from ..node.context import NodeContext
from .backing import open_in_memory
from .consumers import ChannelRecord, Consumer, Consumers
from .dead_letterer import DeadLetterer
from .dispatch import Dispatch
from .durability import Durability, Recovery, VhostStorage
from .ending import Ending
from .expiry import MessageExpiry, QueueExpiry
from .intake import Intake
from .limits import LengthLimit
from .listing import consumer_items, queue_items
from .range_readers import RangeReaders
from .rejection import Rejection

NOT_PENDING = object()


class Queue(Process):
    __slots__ = (
        "backing",
        "channels",
        "consumers",
        "context",
        "credit",
        "dead_letterer",
        "decorators",
        "dispatch",
        "durability",
        "ending",
        "message_expiry",
        "had_consumer",
        "has_work",
        "intake",
        "is_held",
        "is_open",
        "queue_expiry",
        "length_limit",
        "queue_id",
        "queue_mode",
        "range_readers",
        "rejection",
        "row",
        "settings",
    )

    reply_errors = (AmqpError,)

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, ChannelRecord] = {}
        self.has_work = False  # a delivery may be possible
        self.had_consumer = False
        self.ending = Ending(self)
        self.rejection = Rejection(self)
        self.decorators: tuple[QueueDecorator, ...] = ()
        self.durability: Durability | None = None  # on a node with a data directory
        self.is_open = False
        self.is_held = False  # the node stops: nothing leaves any more

    def on_start(
        self,
        sender: Any,
        context: NodeContext,
        row: QueueRow,
        storage: VhostStorage | None = None,
        recovery: Recovery | None = None,
    ) -> Any:
        """Answered True; with a `recovery` by which persistent bodies are wanted, number -> `StoredSpan`s, and then it wants to hear `open` before all else."""
        self.context = context
        self.row = row
        self.queue_id = row.queue_id
        self.settings: QueueSettings = queue_settings(row.arguments)
        self.queue_mode: str = self.settings.queue_mode
        self.consumers = Consumers(self.settings.single_active_consumer)
        self.dead_letterer = DeadLetterer(self, context.routing, row, self.settings)
        self.credit = CreditFlow(
            context.settings.credit_flow_default_credit,
            self._grant,
            clock=self.now,
            hold=context.settings.flow_hold_queue / 1000,
        )
        if storage is None:
            self._open(open_in_memory(self.settings, self.now))
            return True
        self.durability = Durability(self, storage)
        if recovery is not None:
            return self.durability.scan(recovery)
        self._open(self.durability.open_new())
        return True

    async def on_open(self, sender: Any, wanted: dict[int, list[StoredSpan]]) -> int:
        """The persistent store runs: go on recovering with what `start` was answered. Answered with the messages there are."""
        self._open(await self._disk.open_recovered(wanted))
        return len(self.backing)

    def _open(self, backing: BackingQueue) -> None:
        self.backing = backing
        self.length_limit = LengthLimit(self)
        self.message_expiry = MessageExpiry(self)
        self.queue_expiry = QueueExpiry(self)
        self.dispatch = Dispatch(self)
        self.intake = Intake(self)
        self.range_readers = RangeReaders(self)
        self.queue_expiry.restart()
        self.is_open = True
        if self.durability is not None and self.durability.may_expire:
            self.message_expiry.is_needed = self.message_expiry.is_uneven = True
        if self.row.vhost not in self.context.routing.recovering:
            self.on_recovered(None)
        self.decorators = self.context.extensions.queue_decorators
        for decorator in self.decorators:
            notify(decorator.started, self.row)

    def on_recovered(self, sender: Any) -> None:
        """Exchanges, queues and bindings are all there: only now may messages leave by themselves, for they may become dead letters (queue-and-store section 10.1)."""
        if self.is_open and not self.backing.is_empty():
            self.has_work = True
            if self.length_limit.drops_head:
                self.length_limit.drop_overflow()

    def on_exit(self) -> None:
        for decorator in self.decorators:
            notify(decorator.stopped, self.row)

    # -- channels -----------------------------------------------------------------------------------------------------------------------------

    def channel(self, channel_id: str, address: Any) -> ChannelRecord:
        record = self.channels.get(channel_id)
        if record is None:
            record = self.channels[channel_id] = ChannelRecord(channel_id, address)
            self.monitor(address, channel_id)
        return record

    def _grant(self, channel_id: str, amount: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.send(record.address, ("bump", self.queue_id, amount))

    def on_bump(self, sender: Any, peer: str, amount: int) -> None:
        was_blocked = self.credit.blocked
        self.credit.bump(peer, amount)
        if was_blocked and not self.credit.blocked:
            self.backing.resume()

    def on_sent(self, sender: Any, channel_id: str, count: int) -> None:
        """The connection wrote `count` of this channel's deliveries to its socket (FC-32)."""
        record = self.channels.get(channel_id)
        if record is not None:
            record.unsent -= count
            self.intake.delivered(count)
            if self.consumers.resume(record):
                self.has_work = True

    def on_channel_closing(self, sender: Any, channel_id: str) -> bool:
        """The channel ends in order: when it has the answer its messages are back in the queue (AB-53)."""
        self.intake.take_delayed()
        self.forget_channel(channel_id)
        self.demonitor(channel_id)
        return True

    def on_down(self, channel_id: str, reason: ExitReason) -> None:
        self.intake.take_delayed()
        self.forget_channel(channel_id)

    def forget_channel(self, channel_id: str) -> None:
        record = self.channels.pop(channel_id, None)
        self.credit.peer_down(channel_id)
        self.intake.forget_channel(channel_id)
        if record is None:
            return
        gone = [consumer for consumer in self.consumers if consumer.channel is record]
        for consumer in gone:
            self.consumers.remove(consumer)
        self.range_readers.forget_channel(record)
        self.dispatch.forget_channel(record)
        if record.pending:
            self.backing.requeue(list(record.pending))
            if self.length_limit.drops_head:
                self.length_limit.drop_overflow()  # AB-102
        self.has_work = True
        if gone:
            self._tell_consumers()
        self._consumer_left()

    # -- messages -----------------------------------------------------------------------------------------------------------------------------

    def on_publish(self, sender: Any, channel_id: str, entries: list[tuple]) -> None:
        """Entries `(origin, contents, body_bytes, first_confirm, shared)`, one credit per content."""
        self.intake.publish(sender, channel_id, entries)

    def on_publish_at_most_once(self, sender: Any, entries: list[tuple]) -> None:
        """Dead letters of another queue, or of this one (AB-147), and traces (AB-81): entries `(origin, contents, body_bytes, shared)`, neither credited nor confirmed."""
        self.intake.publish_at_most_once(entries)

    def on_limiter_changed(self, sender: Any, channel_id: str, is_limited: bool) -> None:
        """The channel has a channel-wide prefetch from now on, or none any more."""
        record = self.channels.get(channel_id)
        if record is not None:
            self.dispatch.set_limited(record, is_limited)

    def on_limiter_grant(self, sender: Any, channel_id: str, count: int) -> None:
        record = self.channels.get(channel_id)
        if record is not None:
            self.dispatch.add_grant(record, count)

    def on_expire_more(self, sender: Any) -> None:
        self.has_work = True

    def on_timer(self, payload: str) -> None:
        if payload == "delay":
            self.intake.delay_is_over()
        elif payload == "expiry":
            self.message_expiry.timer_fired()
            self.has_work = True
        elif payload == "report":
            self._disk.report()
        elif payload == "queue_expiry" and not self.ending.has_begun and self.queue_expiry.timer_fired():
            self.spawn(self.ending.leave("expired"))

    # -- the disk -----------------------------------------------------------------------------------------------------------------------------

    @property
    def _disk(self) -> Durability:
        assert self.durability is not None, "only a queue with a disk is told of it"
        return self.durability

    def prepare(self) -> None:
        """Have more of the head read from the disk; there is work again when it was."""
        if self.durability is not None:
            self.durability.loader.prepare()

    def on_batch_lost(self, sender: Any, by: str) -> None:
        raise BatchLost(f"{by} did not get what {queue_phrase(self.row.vhost, self.row.name)} sent it")

    def on_durable(self, sender: Any, position: int) -> None:
        """The journal has synced what this queue wrote up to there."""
        self._disk.durable(position)

    def on_stored(self, sender: Any, kind: str, ids: list[bytes]) -> None:
        """A message store has these bodies on disk, or need not write them any more."""
        self._disk.stored(ids)

    async def on_flush_synced(self, sender: Any) -> bool:
        """For the journal: have everything in segments, and these synced."""
        return await self._disk.flusher.flush_synced()

    def on_synced(self, sender: Any, position: int) -> None:
        self._disk.wait_synced(sender, position)

    def on_loaded(self, sender: Any) -> None:
        self._disk.loader.wait_done(sender)

    def on_flushed(self, sender: Any) -> None:
        self._disk.flusher.wait_done(sender)

    def on_go_on_paging(self, sender: Any) -> None:
        self._disk.go_on_paging()

    def on_ram_duration_target(self, sender: Any, seconds: float) -> None:
        """The memory monitor wants less in memory, or allows more."""
        self._disk.set_target(seconds)
        self._disk.grew()  # until more is allowed again, it reports

    def on_next_turn(self, sender: Any) -> bool:
        """To itself, for what goes on when others have had their turn."""
        return True

    def on_set_queue_mode(self, sender: Any, mode: str) -> None:
        """`default` or `lazy`, from now on; a queue with a backlog gets there in steps."""
        self.queue_mode = mode
        self.backing.set_queue_mode(mode)
        self.prepare()

    def on_hold(self, sender: Any) -> None:
        """The node stops: nothing leaves by itself any more. Answered True when all dead letters are on their way; only then may the queues they go to be told to end."""
        self.is_held = True
        self.rejection.answer_when_done(sender)

    async def on_terminate(self, sender: Any) -> dict[str, Any] | None:
        """The node stops: keep everything, answer with the terms for its next start, and end. One that is still starting has none."""
        terms = await self.durability.terminate() if self.durability is not None and self.is_open else None
        # No ordinary end: what is published to it from now on is lost, and a channel must not take it for confirmed.
        self.stop(ExitReason(ExitKind.EXIT, "its node stops"))
        return terms

    def after_batch(self) -> None:
        if not self.is_open or self.row.vhost in self.context.routing.recovering:
            return
        intake, dispatch = self.intake, self.dispatch
        if intake.arrivals:
            intake.absorb()
        if self.is_held and self.durability is not None:
            self.durability.after_batch()
            return
        if self.has_work:
            self.has_work = False
            dispatch.deliver()
        while intake.delayed or intake.delay_timer is not None:
            if not intake.take_next():
                break
            self.has_work = False
            dispatch.deliver()
        if self.range_readers.readers:
            self.range_readers.deliver()
        if dispatch.outbox:
            dispatch.send()
        intake.tell_publishers()
        if self.message_expiry.is_needed:
            self.message_expiry.set_timer()
        if self.durability is not None:
            self.durability.after_batch()

    # -- consuming ----------------------------------------------------------------------------------------------------------------------------

    def on_consume(
        self,
        sender: Any,
        channel_id: str,
        address: Any,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        is_limited: bool,
        priority: int,
        arguments: Any,
        user: str,
    ) -> Any:
        """Registers a consumer; the answer reaches the channel before the first delivery (AB-119)."""
        self._check_alive()
        row = self.row
        reading = range_read_arguments(arguments) if arguments else None
        if reading is not None:
            record = self.channel(channel_id, address)
            record.is_limited = is_limited
            return self.range_readers.begin(
                Consumer(record, tag, no_ack, exclusive, prefetch, priority, arguments, user), reading
            )
        if (
            self.settings.single_active_consumer
            and exclusive
            or self.consumers.has_exclusive()
            or exclusive
            and len(self.consumers)
        ):
            raise AmqpError(403, f"{queue_phrase(row.vhost, row.name)} in exclusive use")
        record = self.channel(channel_id, address)
        record.is_limited = is_limited
        self.consumers.add(Consumer(record, tag, no_ack, exclusive, prefetch, priority, arguments, user))
        self.had_consumer = True
        self._tell_consumers()
        self.queue_expiry.suspend()
        self.has_work = True
        return True

    def on_cancel(self, sender: Any, channel_id: str, tag: str) -> bool:
        consumer = self.consumers.find(channel_id, tag)
        if consumer is not None:
            self.dispatch.send()  # cancel-ok follows every delivery already sent
            self.consumers.remove(consumer)
            if not consumer.channel.consumers:
                self.dispatch.return_grant(consumer.channel)
            self.has_work = True
            self._tell_consumers()
            self._consumer_left()
        else:
            self.range_readers.cancel(channel_id, tag)
        return True

    @property
    def is_in_use(self) -> bool:
        return bool(len(self.consumers) or self.range_readers.readers)

    def _tell_consumers(self) -> None:
        if self.decorators:
            consumers = self.on_consumers_info(None)
            for decorator in self.decorators:
                notify(decorator.consumers_changed, self.row, consumers)

    def _consumer_left(self) -> None:
        if len(self.consumers) or not self.had_consumer:
            return
        self.queue_expiry.restart()
        if self.row.auto_delete and not self.ending.has_begun:
            self.spawn(self.ending.leave("auto-delete"))

    def on_get(self, sender: Any, channel_id: str, address: Any, no_ack: bool) -> Any:
        """`(delivery or None, ready messages left)`."""
        self._check_alive()
        self.queue_expiry.restart()
        answer = self._get(channel_id, address, no_ack)
        return self._get_from_disk(channel_id, address, no_ack) if answer is None else answer

    async def _get_from_disk(self, channel_id: str, address: Any, no_ack: bool) -> tuple:
        answer = None
        while answer is None:
            await self._disk.loader.available()
            answer = self._get(channel_id, address, no_ack)
        return answer

    def _get(self, channel_id: str, address: Any, no_ack: bool) -> tuple | None:
        """None: the head has to be read from the disk first, perhaps only once those before it have expired."""
        if self.message_expiry.is_needed:
            self.message_expiry.expire()
        self.dispatch.send()  # the answer follows every delivery made before it
        deliveries = self.backing.fetch(1, not no_ack)
        if not deliveries:
            return None if self.durability is not None and len(self.backing) else (None, 0)
        delivery = deliveries[0]
        if not no_ack:
            self.channel(channel_id, address).pending[delivery.tags[0]] = None
        return tuple(delivery), len(self.backing)

    def on_settle(self, sender: Any, channel_id: str, outcome: str, pieces: list[Sequence[int]]) -> None:
        """`pieces` are sequences of ack tags; outcome `ack`, `requeue` or `reject`."""
        record = self.channels.get(channel_id)
        if record is None:
            return
        pop = record.pending.pop
        for tags in pieces:
            if tags[0] < 0:
                self.range_readers.settled(tags)
                continue
            owners: list[Any] = list(map(pop, tags, repeat(NOT_PENDING)))
            first = owners[0]
            if first is NOT_PENDING or owners.count(first) != len(owners):
                tags = [tag for tag, owner in zip(tags, owners) if owner is not NOT_PENDING]
                for owner in owners:
                    if owner is not None and owner is not NOT_PENDING:
                        owner.unacked -= 1
            elif first is not None:
                first.unacked -= len(owners)
            if outcome == "ack":
                self.backing.ack(tags)
            elif outcome == "requeue":
                self.backing.requeue(tags)
            else:
                self.rejection.reject(tags)
        if outcome == "requeue" and self.length_limit.drops_head:
            self.length_limit.drop_overflow()  # AB-102
        if self.consumers.resume(record) or outcome == "requeue":
            self.has_work = True

    # -- the queue itself ---------------------------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        self.intake.take_delayed()
        if self.ending.has_begun:
            raise no_queue(self.row.vhost, self.row.name)

    def on_counts(self, sender: Any) -> tuple[int, int]:
        """Ready messages and consumers, for a declare: a use of the queue (AB-93)."""
        self.intake.take_delayed()
        self.queue_expiry.restart()
        return len(self.backing), len(self.consumers)

    async def on_purge(self, sender: Any) -> int:
        """Answered when nothing of what is purged can come back (C-16)."""
        self.intake.take_delayed()
        count = self.backing.purge()
        if self.durability is not None and count:
            await self.durability.synced()
        return count

    def on_delete(self, sender: Any, if_unused: bool, if_empty: bool) -> Any:
        """Ends the queue unless the conditions forbid it; Metadata takes it out of the routing table. One that is ending answers by its end."""
        return None if self.ending.has_begun else self.ending.delete_if(if_unused, if_empty)

    def on_info(self, sender: Any) -> dict[str, Any]:
        return queue_items(self)

    def on_consumers_info(self, sender: Any) -> list[dict[str, Any]]:
        return consumer_items(self)
