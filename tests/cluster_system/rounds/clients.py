"""Clients of a cluster, each in a thread of its own, which record all their work in the ledger.

A client prefers one node and sometimes takes another. A client whose connection ends connects again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import pika
import pika.exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from warren.amqp import methods as m
from warren.amqp.properties import Properties, encode_properties
from warren.simulation import bodies
from warren.simulation.bodies import Key
from warren.simulation.cluster.ledger import Ledger, Violation
from warren.simulation.cluster.published import LedgerCopy
from warren.tests.behaviour.wire import Channel, Client, Event, Refused

from ..nodes import Nodes

#: The exchange to which declarers bind their queues.
BINDINGS = "ledger.bindings"
#: How many publishes of a channel may be unanswered at once.
WINDOW = 100
#: Seconds in which a healed cluster answers every publish and every method.
ANSWER_SECONDS = 60.0
#: Seconds that a client waits for input that may never come.
QUIET = 0.02
#: Seconds after which a client repeats a request that was refused.
AGAIN = 0.1
#: Seconds that a client waits for an answer before it gives up its connection; a node that is paused never answers.
PATIENCE = 8.0
#: What ends a connection, or keeps it from being made. An AssertionError means that no answer came in time; publishers
#: check separately that the answers which must come do. pika's error for a handshake that takes too long, as with a
#: node that is paused, is none of its AMQPErrors.
TROUBLE = (OSError, Refused, AssertionError, pika.exceptions.AMQPError, AMQPConnectorException)
#: Sizes of bodies: a few bytes, one that is kept in the queue's index, and two that are not, the larger of which comes
#: in several reads.
SIZES = (16, 200, 5_000, 60_000)


class Worker(threading.Thread):
    """A client that works until `is_over` is set. An exception that should not happen goes into the ledger.

    `pause` is the number of seconds between two bursts of a publisher, and between two queues of a declarer.
    """

    def __init__(
        self, name: str, nodes: Nodes, node: str, ledger: Ledger, chooser: random.Random, pause: float
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.nodes = nodes
        self.node = node
        self.ledger = ledger
        self.chooser = chooser
        self.pause = pause
        self.is_over = threading.Event()
        self.is_abandoned = False

    def abandon(self) -> None:
        """End without the last answers, because the round has failed."""
        self.is_abandoned = True
        self.is_over.set()

    def run(self) -> None:
        said = ""
        try:
            while not self.is_over.is_set():
                node = self.node if self.chooser.random() < 0.8 else self.chooser.choice(self.nodes.names)
                try:
                    self.work(node)
                except TROUBLE as error:
                    text = f"{self.name} on {node}: {type(error).__name__} {error}"[:200]
                    if text != said:
                        self.ledger.note(text)
                    said = text
                    self.is_over.wait(AGAIN)
        except BaseException as error:
            self.ledger.failed(self.name, error)

    def work(self, node: str) -> None:
        """Connect to the node and work until the connection ends or the work is over."""
        raise NotImplementedError

    def connect(self, node: str) -> Client:
        return Client(self.nodes[node].url, timeout=PATIENCE)


class Publisher(Worker):
    """Publishes with confirms to queues wherever they are, to one of them or by a fanout exchange to all."""

    def __init__(self, *args: object, queues: Sequence[str], fanout: str) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.queues = queues
        self.fanout = fanout
        self.fanout_share = 0.1

    def work(self, node: str) -> None:
        client = self.connect(node)
        waiting: deque[Key] = deque()
        try:
            channel = client.channel()
            channel.confirm()
            if not self.ledger.promises.orders_all_routes:
                self.fanout_share = self.chooser.choice((0.0, 0.0, 1.0))
            publisher = self.ledger.new_publisher()
            number = 0
            while not self.is_over.is_set():
                with client.in_one_piece():
                    for _ in range(self.chooser.choice((1, 1, 5, 20))):
                        number += 1
                        waiting.append(self.publish(channel, node, Key(publisher, number)))
                client.receive(0)
                self.answers(client, channel, waiting, number)
                # Without a pause, the clients would take the processor time that the nodes need.
                self.is_over.wait(self.pause)
                # Sometimes wait for all answers, so that some publishes have none behind them.
                while len(waiting) > (0 if self.chooser.random() < 0.3 else WINDOW) and not self.is_over.is_set():
                    client.receive(QUIET)
                    self.answers(client, channel, waiting, number)
            self.last_answers(client, channel, node, waiting, number)
        finally:
            self.ledger.answer_lost(waiting)
            client.abort()

    def publish(self, channel: Channel, node: str, key: Key) -> Key:
        if self.chooser.random() < self.fanout_share:
            exchange, routing_key, queues = self.fanout, "", self.queues
        else:
            routing_key = self.chooser.choice(self.queues)
            exchange, queues = "", [routing_key]
        body = bodies.body(key, self.chooser.choice(SIZES))
        self.ledger.publishing(key, queues, node)
        properties = Properties(delivery_mode=2, correlation_id=f"{key.publisher}.{key.number}")
        channel.send(m.BasicPublish(exchange=exchange, routing_key=routing_key), body, encode_properties(properties))
        return key

    def answers(self, client: Client, channel: Channel, waiting: deque[Key], number: int) -> None:
        """Record the acks and nacks that have arrived. `number` is that of the channel's latest publish."""
        for event in arrived(client, channel, m.BasicAck, m.BasicNack):
            method = event.method
            if method.delivery_tag > number:
                raise Violation(f"publish {method.delivery_tag} is answered, but there were only {number} (P7)")
            settled = [
                key
                for key in waiting
                if (key.number <= method.delivery_tag if method.multiple else key.number == method.delivery_tag)
            ]
            if not settled:
                raise Violation(f"publish {method.delivery_tag} is answered a second time (P7)")
            for key in settled:
                self.ledger.answered(key, isinstance(method, m.BasicAck))
                waiting.remove(key)

    def last_answers(self, client: Client, channel: Channel, node: str, waiting: deque[Key], number: int) -> None:
        """Wait for the answer to every publish of this connection: the cluster has healed, so each must
        come now (P7).
        """
        deadline = time.monotonic() + ANSWER_SECONDS
        while waiting and not self.is_abandoned:
            if time.monotonic() > deadline:
                raise self.ledger.unanswered(node, list(waiting), ANSWER_SECONDS)
            client.receive(QUIET)
            self.answers(client, channel, waiting, number)
        # Close the channel and check once more: a wrong second answer to a publish would arrive before close-ok.
        with suppress(OSError, Refused, AssertionError):
            channel.close()
            self.answers(client, channel, waiting, number)


class Consumer(Worker):
    """Consumes from a few queues, each on a channel of its own, and acks, requeues or keeps the messages it
    receives.
    """

    def __init__(self, *args: object, queues: Sequence[str]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.queues = queues

    def work(self, node: str) -> None:
        client = self.connect(node)
        lines: list[Line] = []
        try:
            chosen = self.chooser.sample(self.queues, min(len(self.queues), 3))
            lines = [Line(self, client, node, queue) for queue in chosen]
            until = time.monotonic() + self.chooser.uniform(0.3, 2.0)
            while not self.is_over.is_set() and time.monotonic() < until:
                client.receive(QUIET)
                for line in lines:
                    line.step()
            for line in lines:
                line.channel.close()
            client.close()
        finally:
            for line in lines:
                line.reader.ended()
            client.abort()


class Line:
    """A channel that consumes from one queue, and consumes again later if the queue cannot be used now."""

    def __init__(self, consumer: Consumer, client: Client, node: str, queue: str) -> None:
        self.queue = queue
        self.client = client
        self.chooser = consumer.chooser
        self.reader = consumer.ledger.reader(f"{consumer.name} on {node}")
        self.ledger = consumer.ledger
        self.name = f"{consumer.name} on {node}"
        self.held: dict[int, LedgerCopy] = {}
        self.again_at = 0.0
        self.tag = ""
        self.channel = client.channel()
        self.consume()

    def consume(self) -> None:
        try:
            self.channel.call(m.BasicQos(prefetch_count=self.chooser.choice((1, 20, 100))))
            self.tag = self.channel.consume(self.queue)
        except Refused as refused:
            if refused.is_connection_error:
                raise
            self.ledger.note(f"{self.name}: cannot consume from {self.queue}: {refused}"[:200])
            self.tag = ""
            self.again_at = time.monotonic() + AGAIN
            self.reader.ended()
            self.held.clear()
            self.reader = self.ledger.reader(self.name)
            self.channel = self.client.channel()

    def step(self) -> None:
        if not self.tag and time.monotonic() > self.again_at:
            self.consume()
        for event in arrived(self.client, self.channel, m.BasicDeliver):
            assert event.body is not None and event.properties is not None
            self.held[event.tag] = self.reader.delivered(
                self.queue, event.body, event.properties.correlation_id, event.method.redelivered
            )
        for _ in arrived(self.client, self.channel, m.BasicCancel):
            # The node of the queue is gone, and the queue requeues what this channel has not settled.
            for copy in self.held.values():
                self.reader.requeueing(copy)
            self.held.clear()
            self.tag = ""
            self.again_at = time.monotonic() + AGAIN
        for tag, copy in tuple(self.held.items()):
            choice = self.chooser.random()
            if choice < 0.7:
                del self.held[tag]
                self.reader.acking(copy)
                self.channel.ack(tag)
            elif choice < 0.75:
                del self.held[tag]
                self.reader.requeueing(copy)
                self.channel.nack(tag)
        if self.tag and self.chooser.random() < 0.05:
            # The queue answers a passive declare after it has handled the acks that this channel sent before.
            try:
                self.channel.ready(self.queue)
            except Refused as refused:
                if refused.is_connection_error:
                    raise
                # The node of the queue is gone, and the error has closed the channel.
                self.tag = ""
                self.held.clear()
                self.reader.ended()
                self.reader = self.ledger.reader(self.name)
                self.channel = self.client.channel()
            else:
                self.reader.round_trip()


class PikaConsumer(Worker):
    """Consumes from one queue after the other with the library pika, and acks everything."""

    def __init__(self, *args: object, queues: Sequence[str]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.queues = queues

    def work(self, node: str) -> None:
        parameters = pika.URLParameters(self.nodes[node].url)
        parameters.socket_timeout = parameters.stack_timeout = PATIENCE
        parameters.blocked_connection_timeout = PATIENCE
        parameters.connection_attempts = 1
        # A missed heartbeat is pika's only time limit for an answer.
        parameters.heartbeat = 2
        connection = pika.BlockingConnection(parameters)
        try:
            while not self.is_over.is_set():
                self.consume(connection, node, self.chooser.choice(self.queues))
        finally:
            with suppress(pika.exceptions.AMQPError, OSError):
                connection.close()

    def consume(self, connection: pika.BlockingConnection, node: str, queue: str) -> None:
        reader = self.ledger.reader(f"{self.name} on {node}")
        channel = connection.channel()
        try:
            channel.basic_qos(prefetch_count=50)
            until = time.monotonic() + 0.5
            for method, properties, body in channel.consume(queue, inactivity_timeout=QUIET):
                if method is None:
                    if self.is_over.is_set() or time.monotonic() > until:
                        break
                    continue
                reader.acking(reader.delivered(queue, body, properties.correlation_id, method.redelivered))
                channel.basic_ack(method.delivery_tag)
            channel.cancel()
            channel.close()
        except pika.exceptions.ChannelClosed as closed:
            self.ledger.note(f"{self.name} on {node}: {queue}: {closed}"[:200])
            self.is_over.wait(AGAIN)
        finally:
            reader.ended()


class Declarer(Worker):
    """Declares, binds and deletes queues of its own, and looks for each on another node as soon as it is answered."""

    number = 0

    def work(self, node: str) -> None:
        other = self.chooser.choice(self.nodes.names)
        client, elsewhere = self.connect(node), self.connect(other)
        try:
            channel, looking = client.channel(), Looker(elsewhere, other)
            until = time.monotonic() + self.chooser.uniform(0.3, 2.0)
            while not self.is_over.is_set() and time.monotonic() < until:
                self.number += 1
                queue = f"{self.name}.{self.number}"
                sent_at = self.ledger.declaring(queue)
                channel.queue(queue, durable=True)
                self.ledger.declared(queue, node, sent_at)
                self.look(looking, queue)
                if self.chooser.random() < 0.3:
                    channel.bind(queue, BINDINGS, queue)
                    self.ledger.bound(queue, looking.node, looking.routes(queue))
                if self.chooser.random() < 0.7:
                    sent_at = self.ledger.deleting(queue)
                    channel.delete(queue)
                    self.ledger.deleted(queue, node, sent_at)
                    self.look(looking, queue)
                self.is_over.wait(self.pause)
        finally:
            client.abort()
            elsewhere.abort()

    def look(self, looking: Looker, queue: str) -> None:
        is_there = looking.has(queue)
        if is_there is not None:
            self.ledger.looked_up(queue, looking.node, is_there)


class Looker:
    """Asks one node which queues and bindings there are."""

    def __init__(self, client: Client, node: str) -> None:
        self.node = node
        self._client = client
        self._channel = client.channel()
        self._publishing: Channel | None = None

    def routes(self, queue: str) -> bool:
        """Whether the node routes a message by the queue's binding to `BINDINGS`."""
        if self._publishing is None:
            self._publishing = self._client.channel()
            self._publishing.confirm()
        channel = self._publishing
        channel.publish(b"", queue, BINDINGS, mandatory=True)
        # The message that no queue gets comes back before its confirm.
        answer = channel.wait(m.BasicReturn, m.BasicAck, m.BasicNack)
        if not isinstance(answer.method, m.BasicReturn):
            return True
        channel.wait(m.BasicAck, m.BasicNack)
        return False

    def has(self, queue: str) -> bool | None:
        """Whether the node has the queue; None if it says that it cannot know, because another node is down."""
        try:
            self._channel.ready(queue)
        except Refused as refused:
            if refused.is_connection_error:
                raise
            self._channel = self._client.channel()
            code, text = refused.close.reply_code, refused.close.reply_text
            if code == 404 and text.startswith("NOT_FOUND - no queue"):
                return False
            if code == 404 and " is down or inaccessible" in text:
                return None
            raise
        return True


def arrived(client: Client, channel: Channel, *wanted: type) -> list[Event]:
    """Take out the events of the wanted types that have arrived on the channel. Raises Refused if it was closed."""
    events = client.events[channel.number]
    taken: list[Event] = []
    rest: list[Event] = []
    for event in events:
        if isinstance(event.method, m.ChannelClose):
            raise Refused(event.method)
        (taken if isinstance(event.method, wanted) else rest).append(event)
    if taken:
        events.clear()
        events.extend(rest)
    for event in client.events[0]:
        if isinstance(event.method, m.ConnectionClose):
            raise Refused(event.method)
    return taken
