"""`ConsumingSide`: the consumers of a simulated client's channel, their deliveries, and how it settles them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...amqp import methods
from ...amqp.fields import table_from
from ...amqp.method import Method
from ...amqp.properties import decode_properties
from ...routing.arguments.range_read_arguments import BLOCK_BYTES_MIN, BLOCKS, READ_FROM, READ_TO
from ..model.copies import Copy, CopyState, PromiseBroken, mark_returned
from ..model.delivery_checks import Newest
from ..model.queue_model import QueueModel
from ..plan import Action
from ..queue_kinds import DEAD_LETTER_QUEUE
from .block_read import BlockRead
from .grouping import group_of, with_group
from .message_properties import check_properties, delivery_count
from .peer import SimContent

if TYPE_CHECKING:
    from .channel import SimChannel

Outcome = Literal["ack", "requeue", "reject"]
_OUTCOMES: dict[str, tuple[Outcome, str]] = {
    "": ("ack", "acknowledges"),
    "ack": ("ack", "acknowledges"),
    "requeue": ("requeue", "requeues"),
    "reject": ("reject", "rejects"),
}


@dataclass(slots=True, eq=False)
class SimConsumer:
    """A consumer. A basic.get is a consumer without a tag."""

    channel: SimChannel
    tag: str
    queue: QueueModel
    no_ack: bool
    prefetch: int
    #: When it was requested, in seconds of the world.
    since: float
    #: `crash_count` of the queue when it was started.
    crash_count: int
    #: `delete_count` of the queue when it was started.
    delete_count: int
    unacked: int = 0
    has_left: bool = False

    def __str__(self) -> str:
        return f"{self.channel}'s {self.tag}"

    @property
    def is_stale(self) -> bool:
        """Whether the queue may have been deleted since it was started, so that its deliveries may be old."""
        return self.delete_count != self.queue.delete_count


@dataclass(slots=True, eq=False)
class SimDelivery:
    """A delivery that is not settled; `consumer` is None for a basic.get."""

    copy: Copy
    consumer: SimConsumer | None


class TxSettlement(NamedTuple):
    """A settlement in a transaction that is not committed yet."""

    tag: int
    delivery: SimDelivery
    outcome: Outcome


class ConsumingSide:
    def __init__(self, channel: SimChannel) -> None:
        self.channel = channel
        self.schedule = channel.schedule
        self.consumers: dict[str, SimConsumer] = {}
        #: By delivery tag.
        self.unacked: dict[int, SimDelivery] = {}
        #: The block reads, by the consumer tag of each reader.
        self.reads: dict[str, BlockRead] = {}
        #: By queue that the channel has consumed or got from: whether it ever did so without acknowledgement.
        self._used_queues: dict[QueueModel, bool] = {}
        #: The prefetch limit of the whole channel, 0 for none.
        self._limit = 0
        self._consumed = 0
        #: Whether a basic.recover is in flight.
        self._is_recovering = False
        #: The newest message received so far, to check the order of later deliveries.
        self._newest: Newest = {}
        #: The same for messages from basic.get, if this channel's other messages of the queue come by way of a group.
        self._newest_got: Newest = {}
        self._tx_settlements: list[TxSettlement] = []

    # -- consumers ---

    def do_consume(self, action: Action) -> None:
        channel, queue = self.channel, self.schedule.queues[action.text("queue")]
        prefetch, no_ack = action.number("prefetch"), bool(action.number("no_ack"))
        self._consumed += 1
        tag = f"c{self._consumed}"
        if self._limit:
            prefetch = 0

        def consume() -> None:
            if queue.kind.is_sharded and any(other.queue is queue for other in self.consumers.values()):
                return  # a channel may have one consumer with a prefetch at a sharded queue
            consumer = self.consumers[tag] = SimConsumer(
                channel, tag, queue, no_ack, prefetch, self.schedule.world.time, queue.crash_count, queue.delete_count
            )
            self._used_queues[queue] = self._used_queues.get(queue, False) or no_ack
            queue.had_consumer = True
            channel.tell(
                f"consumes from {queue.kind.name} as {tag}"
                f"{' without acknowledgement' if no_ack else ''}{f', prefetch {prefetch}' if prefetch else ''}"
            )
            channel.request(
                methods.BasicConsume(queue=group or queue.kind.name, consumer_tag=tag, no_ack=no_ack),
                methods.BasicConsumeOk,
                lambda method, content: self._on_consume_ok(consumer),
                queue,
            )

        group = group_of(channel, queue)
        if self._limit:
            with_group(channel, queue, consume)
        else:
            channel.request(
                methods.BasicQos(prefetch_count=prefetch),
                methods.BasicQosOk,
                lambda method, content: with_group(channel, queue, consume),
            )

    def do_read(self, action: Action) -> None:
        """Read everything in a queue in blocks, and take nothing from it. The story does not mention it."""
        queue = self.schedule.queues[action.text("queue")]
        tag = f"r{len(self.reads) + 1}"
        self.reads[tag] = BlockRead(queue.kind.name)
        arguments = table_from({READ_FROM: "first", READ_TO: "last", BLOCKS: BLOCK_BYTES_MIN})
        self.channel.request(
            methods.BasicConsume(queue=queue.kind.name, consumer_tag=tag, no_ack=True, arguments=arguments),
            methods.BasicConsumeOk,
            lambda method, content: None,
            queue,
        )

    def _on_consume_ok(self, consumer: SimConsumer) -> None:
        if not self.channel.is_leaving and consumer.tag in self.consumers:
            consumer.queue.consumers.append(consumer)

    def do_qos(self, action: Action) -> None:
        """Limit the whole channel.

        Do nothing if the channel has consumers or deliveries, because the model does not predict how a new limit
        affects those.
        """
        limit = action.number("limit")
        if self.consumers or self.unacked or not limit:
            return
        if any(queue.kind.is_quorum for queue in self.schedule.queues.values()):
            return  # it is an error to consume from a quorum queue then
        self._limit = limit
        self.channel.tell(f"limits the channel to {limit} unacknowledged messages")
        self.channel.request(
            methods.BasicQos(prefetch_count=limit, global_=True), methods.BasicQosOk, lambda method, content: None
        )

    def do_cancel(self, action: Action) -> None:
        tags = list(self.consumers)
        if tags:
            tag = tags[action.number("which") % len(tags)]
            self.channel.tell(f"cancels {tag}")
            queue = self.consumers[tag].queue
            queue.on_consumer_leaving(self.consumers[tag])
            if group_of(self.channel, queue):
                queue.add_unseen_deliveries(self.consumers[tag].no_ack)
            self.channel.request(
                methods.BasicCancel(tag), methods.BasicCancelOk, lambda method, content: self.on_cancel(tag)
            )

    def on_cancel(self, tag: str) -> None:
        """The consumer is cancelled, by this client or by the broker."""
        if tag in self.reads:
            self.reads[tag].has_ended = True
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.on_consumer_leaving(consumer)

    def do_get(self, action: Action) -> None:
        channel, queue = self.channel, self.schedule.queues[action.text("queue")]
        no_ack = bool(action.number("no_ack"))
        self._used_queues[queue] = self._used_queues.get(queue, False) or no_ack
        consumer = SimConsumer(
            channel, "", queue, no_ack, 0, self.schedule.world.time, queue.crash_count, queue.delete_count
        )

        def on_answer(method: Method, content: SimContent | None) -> None:
            if isinstance(method, methods.BasicGetOk):
                assert content is not None
                self._receive(method, content, consumer)
            else:
                channel.tell(f"gets nothing from {queue.kind.name}")

        channel.request(
            methods.BasicGet(queue=queue.kind.name, no_ack=no_ack),
            (methods.BasicGetOk, methods.BasicGetEmpty),
            on_answer,
            queue,
        )

    # -- deliveries ---

    def on_deliver(self, method: methods.BasicDeliver, content: SimContent) -> None:
        read = self.reads.get(method.consumer_tag)
        if read is not None:
            read.receive(content.body)
            return
        consumer = self.consumers.get(method.consumer_tag)
        if consumer is None:
            raise PromiseBroken(
                f"{self.channel} received a delivery for consumer {method.consumer_tag}, which it does not have"
            )
        self._receive(method, content, consumer)

    def _receive(
        self, method: methods.BasicDeliver | methods.BasicGetOk, content: SimContent, consumer: SimConsumer
    ) -> None:
        channel, queue = self.channel, consumer.queue
        number = self.schedule.number_in(content.body)
        death = _last_death(content.props) if queue.kind.name == DEAD_LETTER_QUEUE else None
        channel.tell(
            f"receives message {number} from {queue.kind.name}"
            f"{f', dead from {death[0]} ({death[1]})' if death else ''}"
            f"{' (redelivered)' if method.redelivered else ''}{f' as {consumer.tag}' if consumer.tag else ''}"
        )
        may_be_old = channel.is_leaving or self._is_recovering or consumer.is_stale
        copy = queue.copy_of(number) if death is None else queue.dead_letter_copy(number, *death)
        # If the broker has closed the channel and the close has not arrived, the broker may have requeued this delivery
        # already and given it to another channel.
        may_be_old |= channel.may_be_closed and (
            copy.seen > 0 or copy.state not in (CopyState.SENT, CopyState.READY, CopyState.UNCERTAIN)
        )
        returns = delivery_count(content.props) if queue.kind.is_quorum else None
        if returns is not None and not may_be_old:
            queue.checks.check_returns(copy, returns)
        # A basic.get goes to the queue itself, so its message may overtake others that travel by way of the group.
        newest = self._newest if consumer.tag or not group_of(channel, queue) else self._newest_got
        queue.on_delivery(channel, copy, method.redelivered, consumer, may_be_old, newest)
        self.schedule.check_body(copy.message, content.body)
        check_properties(copy.message, method, content.props, death is not None)
        if consumer.no_ack:
            return
        self.unacked[method.delivery_tag] = SimDelivery(copy, consumer if consumer.tag else None)
        if not consumer.tag:
            return
        consumer.unacked += 1
        if not may_be_old:
            self._check_limits(consumer)

    def _check_limits(self, consumer: SimConsumer) -> None:
        # Each process of the queue since the consumer was started may have delivered a whole prefetch.
        processes = 1 + consumer.queue.crash_count - consumer.crash_count
        if consumer.prefetch and consumer.unacked > consumer.prefetch * processes:
            raise PromiseBroken(
                f"{self.channel} has {consumer.unacked} unacknowledged messages of {consumer.tag}, "
                f"whose prefetch is {consumer.prefetch}"
            )
        counted = sum(delivery.consumer is not None for delivery in self.unacked.values())
        if self._limit and counted > self._limit:
            raise PromiseBroken(f"{self.channel} has {counted} unacknowledged messages, but its limit is {self._limit}")

    # -- settling ---

    def do_settle(self, action: Action) -> None:
        tags = list(self.unacked)
        if not tags:
            return
        tag = tags[action.number("which") % len(tags)]
        multiple, all_but = bool(action.number("multiple")), action.number("all_but")
        chosen = [tag]
        if multiple:
            chosen = [other for other in tags if other <= tag]
        elif all_but > 1:
            chosen = [other for at, other in enumerate(tags, action.number("which")) if at % all_but] or [tag]
        outcome, verb = _OUTCOMES[action.text("how")]
        self.channel.tell(f"{verb} {', '.join(f'message {self.unacked[one].copy.message.number}' for one in chosen)}")
        for one in chosen:
            delivery = self.unacked.pop(one)
            if self.channel.is_transactional:
                self._tx_settlements.append(TxSettlement(one, delivery, outcome))
            else:
                self._settle(delivery, outcome)
        for one in [tag] if multiple else chosen:
            self.channel.send(
                methods.BasicAck(one, multiple)
                if outcome == "ack"
                else methods.BasicNack(one, multiple, outcome == "requeue")
            )

    def _settle(self, delivery: SimDelivery, outcome: Outcome) -> None:
        if delivery.consumer is not None:
            delivery.consumer.unacked -= 1
        copy, channel = delivery.copy, self.channel
        if outcome == "requeue":
            mark_returned([copy], channel)
            return
        is_mine = copy.state == CopyState.UNACKED and copy.holder is channel
        dead_letter = copy.queue.deaths.on_reject(copy) if outcome == "reject" else None
        if is_mine:
            channel.start_settling(copy)
            if dead_letter is not None:
                channel.sent([dead_letter])
            return
        if dead_letter is not None:
            dead_letter.make_uncertain()  # the broker ignores the reject if the channel no longer has the delivery
        if copy.state in (CopyState.SENT, CopyState.READY):
            # The delivery arrived when the broker might already have closed the channel. If the channel was still open,
            # this settles the copy; otherwise the broker ignores it.
            copy.state = CopyState.UNCERTAIN

    def take_tx_settlements(self) -> list[TxSettlement]:
        settlements, self._tx_settlements = self._tx_settlements, []
        return settlements

    def settle_tx(self, settlements: list[TxSettlement]) -> None:
        """The transaction is about to be committed."""
        for _, delivery, outcome in settlements:
            self._settle(delivery, outcome)

    def on_rollback_ok(self) -> None:
        """The deliveries that the transaction had settled are unacknowledged again."""
        for tag, delivery, _ in self.take_tx_settlements():
            self.unacked[tag] = delivery
        self.unacked = dict(sorted(self.unacked.items()))

    def do_recover(self, action: Action) -> None:
        self.channel.tell("recovers its unacknowledged messages")
        self._is_recovering = True
        for queue in self._used_queues:
            queue.add_unseen_deliveries()
        self._mark_unacked_returned()

        def on_recover_ok(method: Method, content: SimContent | None) -> None:
            self._is_recovering = False
            self._mark_unacked_returned()
            self.unacked.clear()
            for consumer in self.consumers.values():
                # Deliveries that the transaction has settled still count against the prefetch until it is committed.
                consumer.unacked = sum(delivery.consumer is consumer for _, delivery, _ in self._tx_settlements)

        self.channel.request(methods.BasicRecover(True), methods.BasicRecoverOk, on_recover_ok)

    def _mark_unacked_returned(self) -> None:
        mark_returned([delivery.copy for delivery in self.unacked.values()], self.channel)

    # -- the end ---

    def _add_unseen_deliveries(self) -> None:
        """Deliveries may be in flight that this channel will never receive."""
        for queue, without_ack in self._used_queues.items():
            queue.add_unseen_deliveries(without_ack)

    def on_may_be_closed(self) -> None:
        """The broker may close the channel, and others may see the consequences before the close arrives here."""
        self._add_unseen_deliveries()
        for consumer in self.consumers.values():
            consumer.queue.may_auto_delete()

    def connection_may_end(self) -> None:
        """The broker may requeue what the channel holds and remove its consumers, or nothing may happen."""
        self.on_may_be_closed()
        for delivery in self.unacked.values():
            delivery.copy.make_uncertain()

    def leave(self) -> None:
        """The channel is about to end: the broker requeues what it holds and removes its consumers."""
        self._add_unseen_deliveries()
        self._mark_unacked_returned()
        mark_returned([delivery.copy for _, delivery, _ in self._tx_settlements], self.channel)
        for consumer in self.consumers.values():
            consumer.queue.on_consumer_leaving(consumer)


def _last_death(props: bytes) -> tuple[str, str] | None:
    """In which queue the message died last, and for which reason; None if it is no dead letter."""
    headers = decode_properties(props).headers
    deaths = headers.get("x-death") if headers is not None else None
    if deaths is None:
        return None
    death = deaths[1][0][1]
    return death.get("queue")[1].decode(), death.get("reason")[1].decode()
