"""The consuming side of a simulated client's channel: consumers, deliveries, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.properties import decode_properties
from ..model import book
from ..model.book import Broken, Copy
from ..model.queue_book import QueueBook
from ..plan import Action
from .kinds import GRAVES
from .peer import SimContent

if TYPE_CHECKING:
    from .channel import SimChannel


@dataclass(slots=True, eq=False)
class SimConsumer:
    """`since` is when it was asked for; a basic.get is one too, without a tag."""

    channel: SimChannel
    tag: str
    queue: QueueBook
    no_ack: bool
    prefetch: int
    since: float
    crashes: int  # of the queue when it began
    deleted: int
    unacked: int = 0
    has_left: bool = False

    def __str__(self) -> str:
        return f"{self.channel}'s {self.tag}"

    @property
    def is_stale(self) -> bool:
        """The queue has been deleted since it began: what comes may be of before."""
        return self.deleted != self.queue.deleted


@dataclass(slots=True, eq=False)
class SimDelivery:
    copy: Copy
    consumer: SimConsumer | None


Held = list[tuple[int, SimDelivery, str]]


class Consuming:
    def __init__(self, channel: SimChannel) -> None:
        self.channel = channel
        self.schedule = channel.schedule
        self.consumers: dict[str, SimConsumer] = {}
        self.unacked: dict[int, SimDelivery] = {}  # by delivery tag
        self._touched: dict[QueueBook, bool] = {}  # consumed or got from, and whether ever without acknowledgement
        self._limit = 0
        self._consumed = 0
        self._is_recovering = False
        self._newest: dict[Any, int] = {}
        self._held_settled: Held = []  # by a transaction, until its commit

    # -- consumers ---------------------------------------------------------------------------------

    def do_consume(self, action: Action) -> None:
        channel, queue = self.channel, self.schedule.queues[action.text("queue")]
        prefetch, no_ack = action.number("prefetch"), bool(action.number("no_ack"))
        self._consumed += 1
        tag = f"c{self._consumed}"
        if self._limit:
            prefetch = 0

        def consume(method: Any, content: SimContent | None) -> None:
            consumer = self.consumers[tag] = SimConsumer(
                channel, tag, queue, no_ack, prefetch, self.schedule.world.time, queue.crashes, queue.deleted
            )
            self._touched[queue] = self._touched.get(queue, False) or no_ack
            queue.had_consumer = True
            channel.tell(
                f"consumes from {queue.kind.name} as {tag}{' without acknowledgement' if no_ack else ''}{f', prefetch {prefetch}' if prefetch else ''}"
            )
            channel.ask(
                methods.BasicConsume(queue=queue.kind.name, consumer_tag=tag, no_ack=no_ack),
                methods.BasicConsumeOk,
                lambda *answer: self._consumes(consumer),
                queue,
            )

        if self._limit:
            consume(None, None)
        else:
            channel.ask(methods.BasicQos(prefetch_count=prefetch), methods.BasicQosOk, consume)

    def _consumes(self, consumer: SimConsumer) -> None:
        if not self.channel.is_leaving and consumer.tag in self.consumers:
            consumer.queue.consumers.append(consumer)

    def do_qos(self, action: Action) -> None:
        """A limit for the whole channel, before it has consumers: what it means for those that are there is not this model's matter."""
        limit = action.number("limit")
        if self.consumers or self.unacked or not limit:
            return
        self._limit = limit
        self.channel.tell(f"wants {limit} messages at most")
        self.channel.ask(methods.BasicQos(prefetch_count=limit, global_=True), methods.BasicQosOk, lambda *answer: None)

    def do_cancel(self, action: Action) -> None:
        tags = list(self.consumers)
        if tags:
            tag = tags[action.number("which") % len(tags)]
            self.channel.tell(f"cancels {tag}")
            self.consumers[tag].queue.leaves(self.consumers[tag])
            self.channel.ask(methods.BasicCancel(tag), methods.BasicCancelOk, lambda *answer: self.cancelled(tag))

    def cancelled(self, tag: str) -> None:
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.leaves(consumer)

    def do_get(self, action: Action) -> None:
        channel, queue = self.channel, self.schedule.queues[action.text("queue")]
        no_ack = bool(action.number("no_ack"))
        self._touched[queue] = self._touched.get(queue, False) or no_ack
        consumer = SimConsumer(channel, "", queue, no_ack, 0, self.schedule.world.time, queue.crashes, queue.deleted)

        def got(method: Any, content: SimContent | None) -> None:
            if type(method) is methods.BasicGetOk:
                assert content is not None
                self._delivered(method, content, consumer)
            else:
                channel.tell(f"gets nothing from {queue.kind.name}")

        channel.ask(
            methods.BasicGet(queue=queue.kind.name, no_ack=no_ack),
            (methods.BasicGetOk, methods.BasicGetEmpty),
            got,
            queue,
        )

    # -- deliveries --------------------------------------------------------------------------------

    def on_deliver(self, method: Any, content: SimContent) -> None:
        consumer = self.consumers.get(method.consumer_tag)
        if consumer is None:
            raise Broken(f"{self.channel} got a delivery for consumer {method.consumer_tag}, which it does not have")
        self._delivered(method, content, consumer)

    def _delivered(self, method: Any, content: SimContent, consumer: SimConsumer) -> None:
        channel, queue = self.channel, consumer.queue
        number = self.schedule.number_in(content.body)
        death = _last_death(content.props) if queue.kind.name == GRAVES else None
        channel.tell(
            f"gets message {number} from {queue.kind.name}{f', dead from {death[0]} ({death[1]})' if death else ''}"
            f"{' (redelivered)' if method.redelivered else ''}{f' as {consumer.tag}' if consumer.tag else ''}"
        )
        is_doubtful = channel.is_leaving or self._is_recovering or consumer.is_stale
        copy = queue.copy_of(number) if death is None else queue.dead(number, *death)
        # A channel that the broker has closed, and that has not heard of it, sees old deliveries after they were given to others.
        is_doubtful |= channel.may_be_closed and (copy.seen > 0 or copy.fate not in (book.SENT, book.THERE, book.LOOSE))
        queue.delivered(channel, copy, method.redelivered, consumer, is_doubtful, self._newest)
        self.schedule.check_body(copy.message, content.body)
        if consumer.no_ack:
            return
        self.unacked[method.delivery_tag] = SimDelivery(copy, consumer if consumer.tag else None)
        if not consumer.tag:
            return
        consumer.unacked += 1
        if not is_doubtful:
            self._check_limits(consumer)

    def _check_limits(self, consumer: SimConsumer) -> None:
        if consumer.prefetch and consumer.unacked > consumer.prefetch * (1 + consumer.queue.crashes - consumer.crashes):
            raise Broken(
                f"{self.channel} has {consumer.unacked} unacknowledged messages of {consumer.tag}, whose prefetch is {consumer.prefetch}"
            )
        counted = sum(delivery.consumer is not None for delivery in self.unacked.values())
        if self._limit and counted > self._limit:
            raise Broken(
                f"{self.channel} has {counted} unacknowledged messages, though it wanted {self._limit} at most"
            )

    # -- settling ----------------------------------------------------------------------------------

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
        how = action.text("how") or "ack"
        what = {"ack": "acknowledges", "requeue": "requeues", "reject": "rejects"}[how]
        self.channel.tell(f"{what} {', '.join(f'message {self.unacked[one].copy.message.number}' for one in chosen)}")
        for one in chosen:
            delivery = self.unacked.pop(one)
            if self.channel.is_transactional:
                self._held_settled.append((one, delivery, how))
            else:
                self._settled(delivery, how)
        for one in [tag] if multiple else chosen:
            self.channel.send(
                methods.BasicAck(one, multiple) if how == "ack" else methods.BasicNack(one, multiple, how == "requeue")
            )

    def _settled(self, delivery: SimDelivery, how: str) -> None:
        if delivery.consumer is not None:
            delivery.consumer.unacked -= 1
        copy, channel = delivery.copy, self.channel
        if how == "requeue":
            book.given_back([copy], channel)
            return
        is_mine = copy.fate == book.HELD and copy.holder is channel
        grave = copy.queue.rejects(copy) if how == "reject" else None
        if is_mine:
            channel.settling(copy)
            if grave is not None:
                channel.published([grave])
            return
        if grave is not None:
            grave.loosen()  # it may be nobody's business any more
        if copy.fate in (book.SENT, book.THERE):
            copy.fate = book.LOOSE  # it was delivered while nobody knew whether the channel was there; it was, perhaps

    def take_held_settled(self) -> Held:
        held, self._held_settled = self._held_settled, []
        return held

    def settle_held(self, held: Held) -> None:
        for _, delivery, how in held:
            self._settled(delivery, how)

    def put_back(self) -> None:
        """The transaction is rolled back."""
        for tag, delivery, _ in self.take_held_settled():
            self.unacked[tag] = delivery
        self.unacked = dict(sorted(self.unacked.items()))

    def do_recover(self, action: Action) -> None:
        self.channel.tell("wants its unacknowledged messages again")
        self._is_recovering = True
        for queue in self._touched:
            queue.shake()
        self._give_back()

        def recovered(method: Any, content: SimContent | None) -> None:
            self._is_recovering = False
            self._give_back()
            self.unacked.clear()
            for consumer in self.consumers.values():
                # What its transaction holds back still counts.
                consumer.unacked = sum(delivery.consumer is consumer for _, delivery, _ in self._held_settled)

        self.channel.ask(methods.BasicRecover(True), methods.BasicRecoverOk, recovered)

    def _give_back(self) -> None:
        book.given_back([delivery.copy for delivery in self.unacked.values()], self.channel)

    # -- the end -----------------------------------------------------------------------------------

    def shake(self) -> None:
        """Deliveries may be on their way that this channel will never see."""
        for queue, without_ack in self._touched.items():
            queue.shake(is_leaking=without_ack)

    def takes_risk(self) -> None:
        """The broker may close the channel, and others see what that means before this end hears of it."""
        self.shake()
        for consumer in self.consumers.values():
            consumer.queue.may_vanish()

    def abandon(self) -> None:
        """The channel leaves: it gives back what it holds, and its consumers go."""
        self.shake()
        self._give_back()
        book.given_back([delivery.copy for _, delivery, _ in self._held_settled], self.channel)
        for consumer in self.consumers.values():
            consumer.queue.leaves(consumer)


def _last_death(props: bytes) -> tuple[str, str] | None:
    """Where and of what a message died last; None if it has not."""
    headers = decode_properties(props).headers
    deaths = headers.get("x-death") if headers is not None else None
    if deaths is None:
        return None
    death = deaths[1][0][1]
    return death.get("queue")[1].decode(), death.get("reason")[1].decode()
