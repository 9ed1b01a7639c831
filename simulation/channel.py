"""A channel of a simulated client: does its lines of the plan one after the other, waits for answers where AMQP has them, and tells the book what it does and sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..amqp import methods
from ..amqp.fields import table_from
from ..amqp.properties import Properties
from . import book
from .book import Broken, Copy, Message, QueueBook
from .plan import CONFIRMING, TRANSACTIONAL, Action

if TYPE_CHECKING:
    from .client import Client

EXCHANGE = "events"


@dataclass(slots=True, eq=False)
class Consumer:
    tag: str
    queue: QueueBook
    no_ack: bool
    prefetch: int
    crashes: int  # of the queue when it began
    deleted: int
    unacked: int = 0

    @property
    def is_stale(self) -> bool:
        """The queue has been deleted since it began: what comes may be of before."""
        return self.deleted != self.queue.deleted


@dataclass(slots=True, eq=False)
class Delivery:
    copy: Copy
    consumer: Consumer | None


class Channel:
    """`is_leaving`: it was told to end, or will be by a crash; what comes now is not held against anybody."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.schedule = client.schedule
        self.is_open = False
        self.is_leaving = False
        self.todo: deque[Action] = deque()
        self.declared: set[str] = set()
        self.consumers: dict[str, Consumer] = {}
        self.touched: dict[QueueBook, bool] = {}  # consumed or got from, and whether ever without acknowledgement
        self.unacked: dict[int, Delivery] = {}  # by delivery tag
        self.unconfirmed: dict[int, Message] = {}
        self.limit = 0
        self.may_be_closed = False  # by the broker, for a queue may refuse what is being committed
        self._is_recovering = False
        self._published = 0
        self._consumed = 0
        self._newest: dict[Any, int] = {}
        self._unheard: list[Copy] = []  # published since the last method that is answered
        self._unheard_settled: list[Copy] = []
        self._asked: list[tuple[list[Copy], list[Copy]]] = []  # what the answer that is waited for proves
        self._expected: tuple[tuple[type, ...], Callable[[Any, bytes | None], None]] | None = None
        # A transaction, until its commit.
        self._held_back: list[tuple[Message, list[int]]] = []  # for each copy how often its queue had been deleted, -1: it may not be routed at all
        self._held_settled: list[tuple[int, Delivery, str]] = []
        self._ask(methods.ChannelOpen(), methods.ChannelOpenOk, self._opened)

    def __str__(self) -> str:
        return f"{self.client.name}/{self.number}"

    def _tell(self, text: str) -> None:
        self.schedule.tell(str(self), text)

    def _send(self, method: Any, body: bytes | None = None, properties: Properties | None = None) -> None:
        self.client.send(self.number, method, body, properties)

    def _ask(self, method: Any, answers: type | tuple[type, ...], then: Callable[[Any, bytes | None], None]) -> None:
        """Send a method that is answered; nothing else is done until it is."""
        self._asked.append((self._unheard, self._unheard_settled))
        self._unheard, self._unheard_settled = [], []
        self._expected = (answers if isinstance(answers, tuple) else (answers,), then)
        self._send(method)

    def _opened(self, method: Any, body: bytes | None) -> None:
        self.is_open = True
        if self.number == CONFIRMING:
            self._ask(methods.ConfirmSelect(), methods.ConfirmSelectOk, _nothing)
        elif self.number == TRANSACTIONAL:
            self._ask(methods.TxSelect(), methods.TxSelectOk, _nothing)

    # -- doing what the plan says ------------------------------------------------------------------

    def do(self, action: Action) -> None:
        self.todo.append(action)
        self.go_on()

    def go_on(self) -> None:
        while self.todo and self._expected is None and not self.is_leaving:
            action = self.todo[0]
            name = action.text("queue")
            if name and name not in self.declared and action.what not in ("delete", "purge"):
                self._declare(self.schedule.queues[name])
                return
            self.todo.popleft()
            getattr(self, "_do_" + action.what.replace("-", "_"))(action)

    def _declare(self, queue: QueueBook) -> None:
        kind, deleted = queue.kind, queue.deleted

        def done(method: Any, body: bytes | None) -> None:
            queue.declares -= 1
            self.declared.add(kind.name)
            if queue.deletes == 0 and queue.deleted == deleted and not self.is_leaving:
                queue.exists = True
            queue.is_declared_amid |= queue.deletes > 0

        queue.declares += 1  # for ever, if the channel ends before the answer: then nobody knows
        if queue.exists is False:
            queue.exists = None
        self._ask(methods.QueueDeclare(queue=kind.name, durable=kind.durable, arguments=table_from(kind.arguments)), methods.QueueDeclareOk, done)

    def _do_publish(self, action: Action) -> None:
        for _ in range(action.number("count")):
            self._publish(action)

    def _publish(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        self._published += 1
        expiration = action.number("expiration")
        message = self.schedule.new_message(self, self._published, action, expiration > 0)
        by_exchange = action.text("by") == "exchange" and self.schedule.has_exchange
        targets = [(one, one.is_bound) for one in self.schedule.queues.values()] if by_exchange else [(queue, queue.exists)]
        certain = []
        for one, is_routed in targets:
            # Even where there is no way: it may be handled late, when there is one.
            one.published(message, is_routed is True)
            certain.append(one.deleted if is_routed is True else -1)
        if self.number == TRANSACTIONAL:
            for copy in message.copies:
                copy.fate = book.BURIED  # as long as it is not committed
            self._held_back.append((message, certain))
        else:
            self._unheard += message.copies
        if self.number == CONFIRMING:
            self.unconfirmed[self._published] = message
        properties = Properties(delivery_mode=2 if message.persistent else 1, priority=message.priority, expiration=str(expiration) if expiration else None)
        where = EXCHANGE if by_exchange else queue.kind.name
        details = f"{'persistent' if message.persistent else 'transient'}, {message.size} octets" + (f", priority {message.priority}" if queue.kind.has_priorities else "")
        self._tell(f"publishes message {message.number} to {where} ({details}{f', expires in {expiration} ms' if expiration else ''})")
        self._send(methods.BasicPublish(exchange=EXCHANGE if by_exchange else "", routing_key=queue.kind.name), self.schedule.body(message), properties)

    def _do_consume(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        prefetch, no_ack = action.number("prefetch"), bool(action.number("no_ack"))
        self._consumed += 1
        tag = f"c{self._consumed}"
        if self.limit:
            prefetch = 0

        def consume(method: Any, body: bytes | None) -> None:
            self.consumers[tag] = Consumer(tag, queue, no_ack, prefetch, queue.crashes, queue.deleted)
            self.touched[queue] = self.touched.get(queue, False) or no_ack
            self._tell(f"consumes from {queue.kind.name} as {tag}{' without acknowledgement' if no_ack else ''}{f', prefetch {prefetch}' if prefetch else ''}")
            self._ask(methods.BasicConsume(queue=queue.kind.name, consumer_tag=tag, no_ack=no_ack), methods.BasicConsumeOk, _nothing)

        if self.limit:
            consume(None, None)
        else:
            self._ask(methods.BasicQos(prefetch_count=prefetch), methods.BasicQosOk, consume)

    def _do_qos(self, action: Action) -> None:
        """A limit for the whole channel, before it has consumers: what it means for those that are there is not this model's matter."""
        limit = action.number("limit")
        if self.consumers or self.unacked or not limit:
            return
        self.limit = limit
        self._tell(f"wants {limit} messages at most")
        self._ask(methods.BasicQos(prefetch_count=limit, global_=True), methods.BasicQosOk, _nothing)

    def _do_cancel(self, action: Action) -> None:
        tags = list(self.consumers)
        if tags:
            tag = tags[action.number("which") % len(tags)]
            self._tell(f"cancels {tag}")
            self._ask(methods.BasicCancel(tag), methods.BasicCancelOk, lambda method, body: self._cancelled(tag))

    def _cancelled(self, tag: str) -> None:
        self.consumers.pop(tag, None)

    def _do_get(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        no_ack = bool(action.number("no_ack"))
        self.touched[queue] = self.touched.get(queue, False) or no_ack
        consumer = Consumer("", queue, no_ack, 0, queue.crashes, queue.deleted)

        def got(method: Any, body: bytes | None) -> None:
            if type(method) is methods.BasicGetOk:
                assert body is not None
                self._delivered(method, body, consumer, is_got=True)
            else:
                self._tell(f"gets nothing from {queue.kind.name}")

        self._ask(methods.BasicGet(queue=queue.kind.name, no_ack=no_ack), (methods.BasicGetOk, methods.BasicGetEmpty), got)

    def _do_settle(self, action: Action) -> None:
        tags = list(self.unacked)
        if not tags:
            return
        tag = tags[action.number("which") % len(tags)]
        chosen = [other for other in tags if other <= tag] if action.number("multiple") else [tag]
        how = action.text("how") or "ack"
        what = {"ack": "acknowledges", "requeue": "requeues", "reject": "rejects"}[how]
        self._tell(f"{what} {', '.join(f'message {self.unacked[one].copy.message.number}' for one in chosen)}")
        for one in chosen:
            self._settle(one, how)
        multiple = bool(action.number("multiple"))
        self._send(methods.BasicAck(tag, multiple) if how == "ack" else methods.BasicNack(tag, multiple, how == "requeue"))

    def _settle(self, tag: int, how: str) -> None:
        delivery = self.unacked.pop(tag)
        if self.number == TRANSACTIONAL:
            self._held_settled.append((tag, delivery, how))
            return
        self._settled(delivery, how)

    def _settled(self, delivery: Delivery, how: str) -> None:
        if delivery.consumer is not None:
            delivery.consumer.unacked -= 1
        copy = delivery.copy
        if how == "requeue":
            book.given_back([copy], self)
        elif copy.fate == book.HELD and copy.holder is self:
            copy.fate = book.SETTLING
            self._unheard_settled.append(copy)

    def _do_recover(self, action: Action) -> None:
        self._tell("wants its unacknowledged messages again")
        self._is_recovering = True
        for queue in self.touched:
            queue.shake()
        self._give_back()

        def recovered(method: Any, body: bytes | None) -> None:
            self._is_recovering = False
            self._give_back()
            self.unacked.clear()
            for consumer in self.consumers.values():
                # What its transaction holds back still counts.
                consumer.unacked = sum(delivery.consumer is consumer for _, delivery, _ in self._held_settled)

        self._ask(methods.BasicRecover(True), methods.BasicRecoverOk, recovered)

    def _give_back(self) -> None:
        book.given_back([delivery.copy for delivery in self.unacked.values()], self)

    def _do_purge(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        if queue.exists is True:
            self._tell(f"purges {queue.kind.name}")
            queue.loosen()
            self._ask(methods.QueuePurge(queue=queue.kind.name), methods.QueuePurgeOk, lambda method, body: queue.loosen())

    def _do_delete(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        if queue.exists is not True:
            return
        self._tell(f"deletes {queue.kind.name}")
        doomed = queue.delete_begins()

        def deleted(method: Any, body: bytes | None) -> None:
            self._tell(f"hears that {queue.kind.name} is deleted")
            self.schedule.forget_declared(queue.kind.name)
            queue.deleted_ok(doomed)

        self._ask(methods.QueueDelete(queue=queue.kind.name), methods.QueueDeleteOk, deleted)

    def _do_bind(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        deleted, unbinds = queue.deleted, queue.unbinds

        def bound(method: Any, body: bytes | None) -> None:
            if queue.deleted == deleted and queue.unbinds == unbinds and not self.is_leaving:
                queue.is_bound = True
                self._tell(f"hears that {queue.kind.name} is bound")

        def bind(method: Any, body: bytes | None) -> None:
            self.schedule.has_exchange = True
            self._tell(f"binds {queue.kind.name} to {EXCHANGE}")
            if queue.is_bound is False:
                queue.is_bound = None
            self._ask(methods.QueueBind(queue=queue.kind.name, exchange=EXCHANGE), methods.QueueBindOk, bound)

        self._ask(methods.ExchangeDeclare(exchange=EXCHANGE, type="fanout", durable=True), methods.ExchangeDeclareOk, bind)

    def _do_unbind(self, action: Action) -> None:
        queue = self.schedule.queues[action.text("queue")]
        if queue.is_bound is not True:
            return
        self._tell(f"unbinds {queue.kind.name}")
        queue.is_bound = None
        queue.unbinds += 1
        self._ask(methods.QueueUnbind(queue=queue.kind.name, exchange=EXCHANGE), methods.QueueUnbindOk, _nothing)

    # -- transactions ------------------------------------------------------------------------------

    def _do_commit(self, action: Action) -> None:
        published, self._held_back = self._held_back, []
        held_settled, self._held_settled = self._held_settled, []
        self._tell(f"commits {len(published)} messages and {len(held_settled)} acknowledgements")
        for message, certain in published:
            for copy, deleted in zip(message.copies, certain):
                # It goes to the queue that there was when it was published.
                is_certain = copy.queue.exists and copy.queue.deleted == deleted and not (copy.queue.is_leaking or copy.queue.is_troubled)
                copy.fate = book.SENT if is_certain else book.LOOSE
                copy.may_be_redelivered = copy.queue.is_shaken
            self._unheard += message.copies
        for _, delivery, how in held_settled:
            self._settled(delivery, how)
        self.may_be_closed = self.schedule.has_crashed or any(copy.queue.kind.may_refuse for message, _ in published for copy in message.copies)
        if self.may_be_closed:
            self._shake()

        def committed(method: Any, body: bytes | None) -> None:
            self._tell("hears that it is committed")
            self.may_be_closed = False
            for message, _ in published:
                book.confirmed(message)

        self._ask(methods.TxCommit(), methods.TxCommitOk, committed)

    def _do_rollback(self, action: Action) -> None:
        self._tell("rolls back")
        self._held_back = []

        def rolled_back(method: Any, body: bytes | None) -> None:
            for tag, delivery, _ in self._held_settled:
                self.unacked[tag] = delivery
            self._held_settled = []
            self.unacked = dict(sorted(self.unacked.items()))

        self._ask(methods.TxRollback(), methods.TxRollbackOk, rolled_back)

    # -- what the broker says ----------------------------------------------------------------------

    def on_method(self, method: Any, body: bytes | None) -> None:
        kind = type(method)
        if kind is methods.BasicDeliver:
            assert body is not None
            consumer = self.consumers.get(method.consumer_tag)
            if consumer is None:
                raise Broken(f"{self} got a delivery for consumer {method.consumer_tag}, which it does not have")
            self._delivered(method, body, consumer)
        elif kind in (methods.BasicAck, methods.BasicNack):
            self._confirmed(method, kind is methods.BasicAck)
        elif kind is methods.BasicCancel:
            self._tell(f"hears that {method.consumer_tag} is cancelled")
            self._cancelled(method.consumer_tag)
        elif kind is methods.ChannelClose:
            self._closed_by_broker(method)
        elif self._expected is not None and kind in self._expected[0]:
            _, then = self._expected
            self._expected = None
            heard, settled = self._asked.pop()
            book.heard(heard)
            book.settled(settled, self)
            then(method, body)
            self.go_on()
        else:
            raise Broken(f"{self} got {kind.__name__}, which it had not asked for")

    def _delivered(self, method: Any, body: bytes, consumer: Consumer, is_got: bool = False) -> None:
        queue = consumer.queue
        number = self.schedule.number_in(body)
        self._tell(f"gets message {number} from {queue.kind.name}{' (redelivered)' if method.redelivered else ''}{'' if is_got else f' as {consumer.tag}'}")
        is_doubtful = self.is_leaving or self._is_recovering or consumer.is_stale
        copy = queue.delivered(self, number, method.redelivered, consumer.no_ack, is_doubtful, self._newest)
        self.schedule.check_body(copy.message, body)
        if consumer.no_ack:
            return
        self.unacked[method.delivery_tag] = Delivery(copy, None if is_got else consumer)
        if is_got:
            return
        consumer.unacked += 1
        if is_doubtful:
            return
        if consumer.prefetch and consumer.unacked > consumer.prefetch * (1 + queue.crashes - consumer.crashes):
            raise Broken(f"{self} has {consumer.unacked} unacknowledged messages of {consumer.tag}, whose prefetch is {consumer.prefetch}")
        counted = sum(delivery.consumer is not None for delivery in self.unacked.values())
        if self.limit and counted > self.limit:
            raise Broken(f"{self} has {counted} unacknowledged messages, though it wanted {self.limit} at most")

    def _confirmed(self, method: Any, is_ack: bool) -> None:
        numbers = [number for number in self.unconfirmed if number <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        for number in numbers:
            message = self.unconfirmed.pop(number, None)
            if message is None:
                raise Broken(f"{self} got a confirm for its publish {number}, which is confirmed or was never made")
            if is_ack:
                self._tell(f"hears that message {message.number} is confirmed")
                book.confirmed(message)
                continue
            self._tell(f"hears that message {message.number} is refused")
            # Of a queue that is being deleted nobody can say whether it went in good order.
            if not self.schedule.has_crashed and not any(copy.queue.kind.may_refuse or copy.queue.deleted for copy in message.copies):
                raise Broken(f"message {message.number} was refused for no reason")
            book.refused(message)

    # -- the end -----------------------------------------------------------------------------------

    def _do_close_channel(self, action: Action) -> None:
        self._tell("closes the channel")
        self._ask(methods.ChannelClose(200, "done"), methods.ChannelCloseOk, lambda method, body: self.client.channel_gone(self))
        self.leave()

    def leave(self) -> None:
        """It was told to end, or is about to be ended by a crash: what it holds goes back, now or soon."""
        self.is_leaving = True
        self.todo.clear()
        self._abandon()

    def doom(self) -> None:
        """Its process in the broker crashes now; this end has yet to hear of it."""
        for copies in [*(heard for heard, _ in self._asked), self._unheard, *(message.copies for message in self.unconfirmed.values())]:
            for copy in copies:
                if copy.fate == book.SENT:
                    copy.fate = book.LOOSE
        for settled in [*(settled for _, settled in self._asked), self._unheard_settled]:
            book.given_back(settled, self)
        self.leave()

    def waits_for(self) -> str:
        """What is still to come, if anything is."""
        if self._expected is not None:
            return f"{self} waits for {self._expected[0][0].__name__}"
        return f"{self} waits for confirms of {[message.number for message in self.unconfirmed.values()]}" if self.unconfirmed else ""

    def _shake(self) -> None:
        for queue, without_ack in self.touched.items():
            queue.shake(is_leaking=without_ack)

    def _abandon(self) -> None:
        self._shake()
        self._give_back()
        book.given_back([delivery.copy for _, delivery, _ in self._held_settled], self)

    def ended(self, in_order: bool) -> None:
        """Nothing comes any more; `in_order`: the broker has heard all it was sent."""
        self.is_leaving = True
        for heard, settled in [*self._asked, (self._unheard, self._unheard_settled)]:
            if in_order:
                book.heard(heard)
                book.settled(settled, self)
            else:
                for copy in heard:
                    if copy.fate == book.SENT:
                        copy.fate = book.LOOSE
                book.given_back(settled, self)
        self._abandon()

    def _closed_by_broker(self, method: Any) -> None:
        self._tell(f"is closed by the broker: {method.reply_code} {method.reply_text}")
        is_missing = method.reply_code == 404 and any(queue.exists is not True or queue.deleted for queue in self.schedule.queues.values())
        is_refused = method.reply_code == 406 and "partial tx completion" in method.reply_text
        if not (is_missing or is_refused or self.schedule.has_crashed):
            raise Broken(f"{self} was closed for no reason: {method.reply_text}")
        self._send(methods.ChannelCloseOk())
        self.client.channel_gone(self, in_order=False)


def _nothing(method: Any, body: bytes | None) -> None:
    """The answer alone was waited for."""
