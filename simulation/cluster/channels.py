"""The channels of a simulated client of a cluster: one publishes, one consumes, and others declare.

Each does its actions in order, the next one when the last one was answered, and reports to the ledger what it sends and
receives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.fields import Table, table_from, table_to_dict
from ...amqp.method import Method
from ...amqp.properties import Properties, decode_properties
from .. import bodies
from ..bodies import Key
from ..clients.peer import SimContent
from ..model.copies import PromiseBroken
from ..plan import Action
from .plan import DEAD_LETTERS, STREAM
from .published import LedgerCopy

if TYPE_CHECKING:
    from .clients import ClusterClient

#: The prefetch of readers of streams, which must have one.
STREAM_PREFETCH = 100

#: The exchange to which all queues are bound.
FANOUT = "all"

#: Called with the answer to a request.
OnAnswer = Callable[[Method], None]


class ClientChannel:
    """A channel, which is opened when the object is made."""

    def __init__(self, client: ClusterClient, number: int) -> None:
        self.client = client
        self.ledger = client.schedule.ledger
        self.number = number
        #: The counts of messages and consumers in the answer to the last passive declare; None until it is answered.
        self.found: tuple[int, int] | None = None
        self._todo: deque[Action] = deque()
        #: The method that is awaited as an answer, and the function to call with it.
        self._expected: tuple[type[Method], OnAnswer] | None = None
        self.request(methods.ChannelOpen(), methods.ChannelOpenOk, lambda method: self.opened())

    def __str__(self) -> str:
        return f"{self.client.name}/{self.number}"

    def tell(self, text: str) -> None:
        self.client.schedule.tell(str(self), text)

    def send(self, method: Method, body: bytes | None = None, properties: Properties | None = None) -> None:
        self.client.send(self.number, method, body, properties)

    def request(self, method: Method, answer: type[Method], on_answer: OnAnswer) -> None:
        """Send a method that is answered. The next action waits for the answer."""
        self._expected = answer, on_answer
        self.send(method)

    def do(self, action: Action) -> None:
        self._todo.append(action)
        self._do_next()

    def _do_next(self) -> None:
        while self._todo and self._expected is None:
            action = self._todo.popleft()
            getattr(self, "do_" + action.what)(action)

    def on_method(self, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.ChannelClose):
            self.tell(f"is closed by {self.client.node}: {method.reply_code} {method.reply_text}")
            self.closed(method)
            self.send(methods.ChannelCloseOk())
            self.ended()
            del self.client.channels[self.number]
        elif self._expected is not None and type(method) is self._expected[0]:
            _, on_answer = self._expected
            self._expected = None
            on_answer(method)
            self._do_next()
        else:
            raise PromiseBroken(f"{self} received {type(method).__name__}, which it had not requested")

    def waits_for(self) -> str:
        return f"{self} waits for {self._expected[0].__name__} from {self.client.node}" if self._expected else ""

    def do_look(self, action: Action) -> None:
        """Declare a queue passively. The queue answers after all deliveries that it has sent to this channel before."""
        queue = action.text("queue") or self.client.declared
        if queue:
            self.found = None
            self.tell(f"looks for {queue} on {self.client.node}")
            self.request(methods.QueueDeclare(queue=queue, passive=True), methods.QueueDeclareOk, self._found)

    def _found(self, method: Method) -> None:
        assert isinstance(method, methods.QueueDeclareOk)
        self.found = method.message_count, method.consumer_count
        self.tell(f"finds {method.message_count} messages and {method.consumer_count} consumers")

    # -- for subclasses ---

    def opened(self) -> None:
        """The channel is open."""

    def closed(self, method: methods.ChannelClose) -> None:
        """The broker has closed the channel. Raises PromiseBroken if it had no reason."""
        self.client.schedule.must_be_disturbed(f"{self} was closed: {method.reply_text}")

    def ended(self) -> None:
        """The channel or its connection has ended."""


class PublishingChannel(ClientChannel):
    """Publishes with confirms."""

    def __init__(self, client: ClusterClient, number: int) -> None:
        self._publisher = client.schedule.ledger.new_publisher()
        self._published = 0
        self._unconfirmed: dict[int, Key] = {}
        super().__init__(client, number)

    def opened(self) -> None:
        self.request(methods.ConfirmSelect(), methods.ConfirmSelectOk, lambda method: None)

    def do_publish(self, action: Action) -> None:
        """Publish `count` messages. Their answers are awaited, and the next action does not wait for them."""
        queue = action.text("queue")
        by_fanout = action.text("by") == "fanout"
        queues = self.client.schedule.plan.queues if by_fanout else (queue,)
        for _ in range(max(1, action.number("count"))):
            self._published += 1
            key = self._unconfirmed[self._published] = Key(self._publisher, self._published)
            self.tell(f"publishes {key} to {'all queues' if by_fanout else queue} through {self.client.node}")
            self.ledger.publishing(key, queues, self.client.node)
            self.send(
                methods.BasicPublish(exchange=FANOUT if by_fanout else "", routing_key="" if by_fanout else queue),
                bodies.body(key, max(bodies.LEAST, action.number("size"))),
                Properties(delivery_mode=2, correlation_id=f"{key.publisher}.{key.number}"),
            )

    def on_method(self, method: Method, content: SimContent | None) -> None:
        if isinstance(method, (methods.BasicAck, methods.BasicNack)):
            is_ack = isinstance(method, methods.BasicAck)
            for number in [
                number
                for number in self._unconfirmed
                if number == method.delivery_tag or method.multiple and number < method.delivery_tag
            ]:
                key = self._unconfirmed.pop(number)
                self.tell(f"receives the {'confirm' if is_ack else 'nack'} of {key}")
                self.ledger.answered(key, is_ack)
                if not is_ack:
                    self.client.schedule.must_be_disturbed(f"{key} was refused")
        else:
            super().on_method(method, content)

    def waits_for(self) -> str:
        if self._unconfirmed:
            keys = ", ".join(map(str, self._unconfirmed.values()))
            return f"{self} waits for {self.client.node} to confirm {keys} (P7)"
        return super().waits_for()

    def ended(self) -> None:
        self.ledger.answer_lost(self._unconfirmed.values())
        self._unconfirmed.clear()


class TransactingChannel(PublishingChannel):
    """Takes messages, publishes others, and commits all that as one transaction."""

    def __init__(self, client: ClusterClient, number: int) -> None:
        self._reader = client.schedule.ledger.reader(f"{client.name} on {client.node}")
        #: The transaction, and how many messages it is still to take.
        self._transaction: Action | None = None
        self._takes = 0
        self._taken: list[LedgerCopy] = []
        super().__init__(client, number)

    def opened(self) -> None:
        self.request(methods.TxSelect(), methods.TxSelectOk, lambda method: None)

    def do_transact(self, action: Action) -> None:
        self._transaction, self._takes = action, action.number("takes")
        self._go_on()

    def _go_on(self) -> None:
        """Take the next message, or publish and commit."""
        action = self._transaction
        assert action is not None
        if self._takes:
            self._takes -= 1
            self.request(methods.BasicGet(queue=action.text("queue")), methods.BasicGetOk, lambda method: None)
            return
        self.do_publish(action)
        for copy in self._taken:
            self._reader.acking(copy)
        self._taken.clear()
        self.tell("commits")
        self.request(methods.TxCommit(), methods.TxCommitOk, self._committed)

    def _committed(self, method: Method) -> None:
        self.tell("receives commit-ok")
        for key in self._unconfirmed.values():
            self.ledger.answered(key, True)
        self._unconfirmed.clear()

    def on_method(self, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.BasicGetEmpty):
            self._takes = 0
            self._go_on()
        elif isinstance(method, methods.BasicGetOk):
            assert content is not None and self._transaction is not None
            queue = self._transaction.text("queue")
            correlation_id = decode_properties(content.props).correlation_id
            copy = self._reader.delivered(queue, content.body, correlation_id, method.redelivered)
            self.tell(f"gets {copy.message.key} of {queue}, and acknowledges it in its transaction")
            self._taken.append(copy)
            self.send(methods.BasicAck(method.delivery_tag))
            self._go_on()
        else:
            super().on_method(method, content)

    def ended(self) -> None:
        super().ended()
        self._reader.ended()


class ConsumingChannel(ClientChannel):
    """Consumes from queues."""

    def __init__(self, client: ClusterClient, number: int) -> None:
        self._reader = client.schedule.ledger.reader(f"{client.name} on {client.node}")
        #: The queue of each consumer tag.
        self._queues: dict[str, str] = {}
        self._tags = 0
        #: The unacknowledged deliveries by delivery tag, each as its queue and its copy.
        self._held: dict[int, tuple[str, LedgerCopy]] = {}
        #: The messages that were read from streams since the last call of `settle_all`.
        self._read: list[LedgerCopy] = []
        self._reads_streams = client.schedule.plan.queue_type == STREAM
        #: The queue that its last basic.get has asked.
        self._polled = ""
        super().__init__(client, number)

    def do_consume(self, action: Action) -> None:
        queue = action.text("queue")
        if queue in self._queues.values():
            return
        self._tags += 1
        tag = f"{self.client.name}-{self._tags}"
        self._queues[tag] = queue
        self.tell(f"consumes from {queue} through {self.client.node}")
        prefetch, arguments = action.number("prefetch"), Table()
        if self._reads_streams:
            prefetch, arguments = prefetch or STREAM_PREFETCH, table_from({"x-stream-offset": "first"})
            self._reader.begins(queue)
        consume = methods.BasicConsume(queue=queue, consumer_tag=tag, arguments=arguments)
        self.request(
            methods.BasicQos(prefetch_count=prefetch),
            methods.BasicQosOk,
            lambda method: self.request(consume, methods.BasicConsumeOk, lambda method: None),
        )

    def do_get(self, action: Action) -> None:
        self._polled = action.text("queue")
        self.request(methods.BasicGet(queue=self._polled), methods.BasicGetOk, lambda method: None)

    def consumes_from(self, queue: str) -> bool:
        return queue in self._queues.values()

    def do_settle(self, action: Action) -> None:
        held = list(self._held)
        if not held:
            return
        tag = held[min(action.number("which"), len(held) - 1)]
        settled = [other for other in held if other <= tag] if action.number("multiple") else [tag]
        how, reader = action.text("how") or "ack", self._reader
        verb, settle = {
            "ack": ("acknowledges", reader.acking),
            "requeue": ("requeues", reader.requeueing),
            "reject": ("rejects", reader.rejecting),
        }[how]
        for each in settled:
            queue, copy = self._held.pop(each)
            self.tell(f"{verb} {copy.message.key} of {queue}")
            settle(copy)
        multiple = bool(action.number("multiple"))
        self.send(
            methods.BasicAck(tag, multiple)
            if how == "ack"
            else methods.BasicNack(tag, multiple, requeue=how == "requeue")
        )

    def settle_all(self) -> list[LedgerCopy]:
        """Acknowledge what is held, and return it; of streams, return what was read since the last call."""
        copies = [copy for _, copy in self._held.values()]
        if self._read:
            copies, self._read = self._read, []
        elif copies:
            self.do_settle(Action(self.client.name, self.number, "settle", {"which": len(copies), "multiple": 1}))
        return copies

    def on_method(self, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.BasicDeliver):
            assert content is not None
            queue = self._queues[method.consumer_tag]
            properties = decode_properties(content.props)
            correlation_id = properties.correlation_id
            if self._reads_streams:
                offset = table_to_dict(properties.headers or Table())["x-stream-offset"]
                self._read.append(self._reader.read(queue, offset, content.body, correlation_id))
                self.tell(f"reads {self._read[-1].message.key} of {queue} at offset {offset}")
                self.send(methods.BasicAck(method.delivery_tag, False))
                return
            if queue == DEAD_LETTERS:
                death = table_to_dict(properties.headers or Table())["x-death"][0]
                copy = self._reader.dead_letter(queue, content.body, correlation_id, death["queue"], death["count"])
            else:
                copy = self._reader.delivered(queue, content.body, correlation_id, method.redelivered)
            self.tell(f"receives {copy.message.key} of {queue}{' (redelivered)' if method.redelivered else ''}")
            self._held[method.delivery_tag] = queue, copy
        elif isinstance(method, (methods.BasicGetOk, methods.BasicGetEmpty)):
            self._got(method, content)
        elif isinstance(method, methods.BasicCancel):
            queue = self._queues.pop(method.consumer_tag)
            self.tell(f"receives the cancel of its consumer of {queue}")
            if not (self._reads_streams and self.client.schedule.faults.has_promoted):
                self.client.schedule.must_be_disturbed(f"the consumer of {queue} was cancelled")
            # The queue's process has gone, or cannot be reached, and takes back what this channel holds.
            for tag in [tag for tag, (name, _) in self._held.items() if name == queue]:
                self._reader.requeueing(self._held.pop(tag)[1])
        else:
            super().on_method(method, content)

    def _got(self, method: methods.BasicGetOk | methods.BasicGetEmpty, content: SimContent | None) -> None:
        """Handle the answer to a basic.get."""
        if isinstance(method, methods.BasicGetOk):
            assert content is not None
            correlation_id = decode_properties(content.props).correlation_id
            copy = self._reader.delivered(self._polled, content.body, correlation_id, method.redelivered)
            self.tell(f"gets {copy.message.key} of {self._polled}{' (redelivered)' if method.redelivered else ''}")
            self._held[method.delivery_tag] = self._polled, copy
        self._expected = None
        self._do_next()

    def ended(self) -> None:
        self._reader.ended()


class ReadingChannel(ClientChannel):
    """Reads queues by number, without consuming. A reading ends with the broker's basic.cancel."""

    def __init__(self, client: ClusterClient, number: int) -> None:
        self._reader = client.schedule.ledger.reader(f"{client.name} on {client.node}")
        self._queue = ""
        #: What its last reading has found.
        self.found_messages: list[LedgerCopy] = []
        super().__init__(client, number)

    def do_read(self, action: Action) -> None:
        self._queue, self.found_messages = action.text("queue"), []
        self._reader.begins(self._queue)
        self.tell(f"reads {self._queue} by number through {self.client.node}")
        arguments = table_from({"x-warren-read-from": "first", "x-warren-read-to": "last", "x-warren-lenient": True})
        self.request(
            methods.BasicConsume(queue=self._queue, consumer_tag="reading", no_ack=True, arguments=arguments),
            methods.BasicConsumeOk,
            lambda method: self._await_end(),
        )

    def _await_end(self) -> None:
        self._expected = methods.BasicCancel, lambda method: self.tell(f"has read {self._queue}")

    def on_method(self, method: Method, content: SimContent | None) -> None:
        if not isinstance(method, methods.BasicDeliver):
            super().on_method(method, content)
            return
        assert content is not None
        properties = decode_properties(content.props)
        number = table_to_dict(properties.headers or Table())["x-warren-seq"]
        copy = self._reader.read(self._queue, number, content.body, properties.correlation_id)
        self.tell(f"reads {copy.message.key} of {self._queue} under number {number}")
        self.found_messages.append(copy)


class DeclaringChannel(ClientChannel):
    """Declares queues, deletes them, and looks for them."""

    def do_declare(self, action: Action) -> None:
        queue, node = action.text("queue") or self.client.next_name(), self.client.node
        self.tell(f"declares {queue} through {node}")
        sent_at = self.ledger.declaring(queue)
        self.client.declared = ""

        def declared(method: Method) -> None:
            self.client.declared = queue
            self.tell(f"receives declare-ok for {queue}")
            self.ledger.declared(queue, node, sent_at)
            self.client.schedule.check_in_force(queue, True)

        kind = self.client.schedule.plan.queue_type
        arguments = {} if kind == "classic" else {"x-queue-type": kind}
        if self.client.schedule.plan.has_dead_letters and queue != DEAD_LETTERS:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD_LETTERS}
        declare = methods.QueueDeclare(queue=queue, durable=True, arguments=table_from(arguments))
        self.request(declare, methods.QueueDeclareOk, declared)

    def do_bind(self, action: Action) -> None:
        queue = action.text("queue")
        self.request(
            methods.ExchangeDeclare(exchange=FANOUT, type="fanout", durable=True),
            methods.ExchangeDeclareOk,
            lambda method: self.request(
                methods.QueueBind(queue=queue, exchange=FANOUT), methods.QueueBindOk, lambda method: None
            ),
        )

    def do_delete(self, action: Action) -> None:
        queue, node = self.client.declared, self.client.node
        if not queue:
            return
        self.client.declared = ""
        self.tell(f"deletes {queue} through {node}")
        sent_at = self.ledger.deleting(queue)

        def deleted(method: Method) -> None:
            self.tell(f"receives delete-ok for {queue}")
            self.client.deleted = queue
            self.ledger.deleted(queue, node, sent_at)
            self.client.schedule.check_in_force(queue, False)

        self.request(methods.QueueDelete(queue=queue), methods.QueueDeleteOk, deleted)

    def closed(self, method: methods.ChannelClose) -> None:
        if method.reply_code != 404 or "no queue" not in method.reply_text:
            super().closed(method)
