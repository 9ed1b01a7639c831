"""Clients of a broker that will be killed. Each works on a thread until its connection breaks, and reports to the
model.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from warren.amqp import methods as m
from warren.amqp.fields import table_from
from warren.amqp.properties import Properties, encode_properties
from warren.simulation import bodies
from warren.simulation.bodies import LEAST, MOST, Key
from warren.tests.behaviour.wire import TIMEOUT, Channel, Client, Event, Refused

from .model import HELD_BACK, Death, Entry, Found, Model, QueueModel, Violation

FANOUT = "torture.fanout"
#: Seconds to wait for input that may not come.
QUIET = 0.02
#: Most unconfirmed messages of a publisher.
WINDOW = 300
PRIORITIES = 5
#: `(weight, least, most)` of sizes in bytes. They lie on both sides of 4,096, below which a message with its properties
#: is embedded in the queue index, and below the limit of a body frame, 131,072.
_SIZES = ((40, LEAST, 100), (34, 100, 3_900), (8, 3_900, 4_300), (16, 4_300, 20_000), (2, 20_000, MOST))
_WEIGHTS = [weight for weight, _, _ in _SIZES]

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "lazy": {"x-queue-mode": "lazy"},
    "priority": {"x-max-priority": PRIORITIES - 1},
    "ttl": {"x-message-ttl": 3_600_000},
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "lazy work": {"x-queue-mode": "lazy", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "expiring": {"x-message-ttl": 150, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "short": {"x-max-length": 40, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shorter"},
    "shorter": {"x-max-length": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "dead": {},
    "tx": {},
    "scratch": {},
}
IN_FANOUT = ("plain", "lazy", "priority")
PUBLISHED = (
    "plain",
    "plain",
    "lazy",
    "lazy",
    "priority",
    "priority",
    "ttl",
    "work",
    "work",
    "lazy work",
    "expiring",
    "short",
    FANOUT,
)
CONSUMED = ("plain", "lazy", "priority", "ttl", "work", "lazy work", "dead")


def new_model() -> Model:
    """A model of QUEUES. Its last queue is the one that dead letters go to in the end."""
    queues: dict[str, QueueModel] = {}
    for name in ("dead", "shorter", *(name for name in QUEUES if name not in ("dead", "shorter"))):
        arguments = QUEUES[name]
        queues[name] = QueueModel(
            name,
            keeps_order=name not in ("dead", "shorter"),
            heirs=queues.get(arguments.get("x-dead-letter-routing-key", "")),
            loses_by_itself="x-message-ttl" in arguments and name != "ttl" or "x-max-length" in arguments,
        )
    return Model([*(queue for name, queue in queues.items() if name != "dead"), queues["dead"]])


def declare(channel: Channel) -> None:
    channel.exchange(FANOUT, "fanout", durable=True)
    for name, arguments in QUEUES.items():
        channel.queue(name, arguments, durable=True)
    for name in IN_FANOUT:
        channel.bind(name, FANOUT)


def found(queue: str, event: Event) -> Found:
    """The message of a delivery. Raises Violation for a body that no client published."""
    assert event.body is not None and event.properties is not None
    key = bodies.read(event.body)
    if key is None:
        raise Violation(
            f"{queue}: a body of {len(event.body)} bytes that no client published: {event.body[:64]!r}; "
            f"correlation id {event.properties.correlation_id}"
        )
    if event.properties.correlation_id != f"{key.publisher}.{key.number}":
        raise Violation(f"{queue}: {key} has the properties of another message: {event.properties}")
    return Found(key, event.method.redelivered, _death(event))


def _death(event: Event) -> Death | None:
    entry = event.headers.get("x-death") if event.headers is not None else None
    if entry is None:
        return None
    values = {name: value for name, _, value in entry[1][0][1]}
    return Death(
        values["reason"],
        values["queue"],
        values["count"],
        values["exchange"],
        tuple(key for _, key in values["routing-keys"]),
        values["time"],
    )


def size(chooser: random.Random) -> int:
    _, least, most = chooser.choices(_SIZES, _WEIGHTS)[0]
    return chooser.randint(least, most)


class Worker(threading.Thread):
    """A client on a thread of its own. It calls `failed`, in that thread, with an exception that should not happen."""

    def __init__(
        self, name: str, url: str, model: Model, chooser: random.Random, failed: Callable[[BaseException], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.url = url
        self.model = model
        self.chooser = chooser
        self.publisher = model.new_publisher()
        self._failed = failed
        self._number = 0

    def run(self) -> None:
        try:
            client = Client(self.url)
        except OSError:
            return
        except BaseException as error:
            self._failed(error)
            return
        try:
            self.work(client)
        except OSError:
            pass
        except Refused as refused:
            if refused.close.reply_code != 320:
                self._failed(refused)
        except BaseException as error:
            self._failed(error)
        finally:
            client.abort()

    def work(self, client: Client) -> None:
        raise NotImplementedError

    def new_message(self, persistent: bool = True, priority: int | None = None) -> tuple[Key, bytes, bytes]:
        """The key, body and encoded properties of a new message."""
        self._number += 1
        key = Key(self.publisher, self._number)
        headers = table_from({"number": self._number}) if self.chooser.random() < 0.1 else None
        properties = Properties(
            headers=headers,
            delivery_mode=2 if persistent else 1,
            priority=priority,
            correlation_id=f"{key.publisher}.{key.number}",
        )
        return key, bodies.body(key, size(self.chooser)), encode_properties(properties)


class Publisher(Worker):
    """Publishes with confirms to one queue or to several."""

    def work(self, client: Client) -> None:
        channel = client.channel()
        channel.confirm()
        waiting: deque[list[Entry]] = deque()  # the entries of each publish that is not yet confirmed
        first = 1  # the delivery tag of the first of these publishes
        while not self.model.is_over:
            with client.in_one_piece():
                for _ in range(self.chooser.choice((1, 1, 5, 30))):
                    waiting.append(self.publish(channel))
            while True:
                for event in _taken(client, channel.number, m.BasicAck, m.BasicNack):
                    first = self.settled(event, waiting, first)
                if len(waiting) <= WINDOW and not (waiting and self.chooser.random() < 0.2):
                    break
                if not client.receive(TIMEOUT):
                    raise Violation(f"{len(waiting)} messages were not confirmed within {TIMEOUT:.0f} s")
            client.receive(0)

    def publish(self, channel: Channel) -> list[Entry]:
        target = self.chooser.choice(PUBLISHED)
        priority = self.chooser.randrange(PRIORITIES) if target in ("priority", FANOUT) else None
        persistent = self.chooser.random() < 0.9
        key, body, properties = self.new_message(persistent, priority)
        with self.model.lock:
            entries = []
            for name in IN_FANOUT if target == FANOUT else (target,):
                entries += self.model.publish(key, (name,), (priority or 0) if name == "priority" else 0, persistent)
        exchange, routing_key = (FANOUT, "") if target == FANOUT else ("", target)
        channel.send(m.BasicPublish(exchange=exchange, routing_key=routing_key), body, properties)
        return entries

    def settled(self, event: Event, waiting: deque[list[Entry]], first: int) -> int:
        method = event.method
        with self.model.lock:
            last = method.delivery_tag
            if last - first >= len(waiting):
                raise Violation(f"a confirm of {last}, but the last publish was {first + len(waiting) - 1}")
            tags = range(first, last + 1) if method.multiple else (last,)
            for tag in tags:
                entries, waiting[tag - first] = waiting[tag - first], []
                if isinstance(method, m.BasicAck):
                    self.model.confirm(entries)
            while waiting and not waiting[0]:
                waiting.popleft()
                first += 1
        return first


class Consumer(Worker):
    """Consumes from several queues, settles in many ways, and sometimes cancels and consumes again."""

    def __init__(self, *args: Any, queues: list[str]) -> None:
        super().__init__(*args)
        self.queues = queues

    def work(self, client: Client) -> None:
        lines = [Line(self, client, queue) for queue in self.queues]
        while not self.model.is_over:
            for line in lines:
                line.step()
            if not any(client.events[line.channel.number] for line in lines):
                client.receive(QUIET)
            else:
                client.receive(0)


class Line:
    """One channel with a consumer of one queue."""

    def __init__(self, worker: Consumer, client: Client, queue: str) -> None:
        self.worker = worker
        self.client = client
        self.queue = queue
        self.model = worker.model
        self.chooser = worker.chooser
        self.held: dict[int, Entry] = {}  # unsettled deliveries by delivery tag
        self.settled: list[Entry] = []  # settled since the last round trip
        self.all_settled: list[Entry] = []  # settled since the last probe
        self.probes: dict[int, Entry] = {}  # unconfirmed probes by delivery tag
        self.published = 0
        self.highest: dict[tuple[int, int], int] = {}
        self.channel = client.channel()
        self.channel.confirm()
        with self.model.lock:
            self.model.queues[queue].was_consumed = True
        self.consume()

    def consume(self) -> None:
        self.channel.qos(self.chooser.choice((1, 10, 100, 300)))
        self.tag = self.channel.consume(self.queue)

    def step(self) -> None:
        events = _taken(self.client, self.channel.number, m.BasicDeliver)
        if events:
            self.take(events)
        for event in _taken(self.client, self.channel.number, m.BasicAck, m.BasicNack):
            self.confirmed(event)
        chance = self.chooser.random()
        if chance < 0.05:
            self.round_trip()
        elif chance < 0.15:
            self.probe()
        elif chance < 0.17:
            self.channel.cancel(self.tag)
            self.take(_taken(self.client, self.channel.number, m.BasicDeliver))
            self.requeue(list(self.held))
            self.consume()

    def take(self, events: list[Event]) -> None:
        with self.model.lock:
            for event in events:
                one = found(self.queue, event)
                entry = self.held[event.tag] = self.model.deliver(self.queue, one)
                if not one.redelivered and self.model.queues[self.queue].keeps_order:
                    line = one.key.publisher, entry.priority
                    if self.highest.get(line, 0) > one.key.number:
                        raise Violation(
                            f"{self.queue}: {one.key} was delivered for the first time, "
                            f"after number {self.highest[line]} of the same publisher"
                        )
                    self.highest[line] = one.key.number
        with self.client.in_one_piece():
            self.settle()

    def settle(self) -> None:
        tags = list(self.held)
        chance = self.chooser.random()
        if chance < 0.05:
            return  # settle nothing in this round
        if chance < 0.3 and tags:
            self.forget(tags)
            self.channel.ack(tags[-1], multiple=True)
            return
        for tag in tags:
            chance = self.chooser.random()
            if chance < 0.6:
                self.forget([tag])
                self.channel.ack(tag)
            elif chance < 0.7:
                self.requeue([tag])
            elif chance < 0.8 and self.held[tag].heir is None:
                self.forget([tag], is_reject=True)
                self.channel.nack(tag, requeue=False)

    def forget(self, tags: list[int], is_reject: bool = False) -> None:
        with self.model.lock:
            for tag in tags:
                entry = self.held.pop(tag)
                self.model.settle(self.queue, entry, is_reject)
                self.settled.append(entry)
                self.all_settled.append(entry)

    def requeue(self, tags: list[int]) -> None:
        for tag in tags:
            del self.held[tag]
            self.channel.nack(tag)

    def round_trip(self) -> None:
        self.channel.qos(self.chooser.choice((1, 10, 100, 300)))
        with self.model.lock:
            self.model.flushed(self.settled)
        self.settled = []

    def probe(self) -> None:
        """Publish a probe. Its confirm proves that earlier settlements are on disk, because the journal keeps the
        order.

        This does not hold if the probe itself is settled first.
        """
        if not self.all_settled:
            return
        key, body, properties = self.worker.new_message()
        with self.model.lock:
            (entry,) = self.model.publish(key, (self.queue,), 0, True)
            entry.probe, self.all_settled = self.all_settled, []
        self.published += 1
        self.probes[self.published] = entry
        self.channel.send(m.BasicPublish(routing_key=self.queue), body, properties)

    def confirmed(self, event: Event) -> None:
        method = event.method
        tags = [tag for tag in self.probes if tag <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        with self.model.lock:
            entries = [self.probes.pop(tag) for tag in tags]
            if isinstance(method, m.BasicAck):
                self.model.confirm(entries)


class Getter(Worker):
    """Sends basic.get, one at a time, with and without ack."""

    def work(self, client: Client) -> None:
        channel = client.channel()
        while not self.model.is_over:
            queue, no_ack = (
                self.chooser.choice(("plain", "lazy", "priority", "ttl", "work")),
                self.chooser.random() < 0.3,
            )
            model = self.model.queues[queue]
            with self.model.lock:
                model.was_consumed = True
                model.lost_gets += no_ack
            event = channel.get(queue, no_ack)
            with self.model.lock:
                if event is None:
                    model.lost_gets -= no_ack
                    continue
                entry = self.model.deliver(queue, found(queue, event))
                is_reject = self.chooser.random() < 0.2 and entry.heir is None and not no_ack
                is_kept = self.chooser.random() < 0.3 and not no_ack
                if not is_kept:
                    self.model.settle(queue, entry, is_reject)
                if no_ack:
                    model.lost_gets -= 1
                    self.model.flushed([entry])
            if is_kept:
                channel.reject(event.tag)
            elif is_reject:
                channel.reject(event.tag, requeue=False)
            elif not no_ack:
                channel.ack(event.tag)


class Transactor(Worker):
    """Publishes and acknowledges in transactions."""

    def work(self, client: Client) -> None:
        channel = client.channel()
        channel.call(m.TxSelect())
        channel.qos(50)
        with self.model.lock:
            self.model.queues["tx"].was_consumed = True
        channel.consume("tx")
        held: dict[int, Entry] = {}
        while not self.model.is_over:
            published = self.publish(channel, self.chooser.choice((0, 1, 3, 20)))
            client.receive(0)
            with self.model.lock:
                for event in _taken(client, channel.number, m.BasicDeliver):
                    held[event.tag] = self.model.deliver("tx", found("tx", event))
            settled = [tag for tag in held if self.chooser.random() < 0.6]
            for tag in settled:
                channel.ack(tag)
            if self.chooser.random() < 0.8:
                with self.model.lock:
                    entries = [held[tag] for tag in settled]
                    self.model.commit(published, [("tx", entry) for entry in entries])
                channel.call(m.TxCommit())
                with self.model.lock:
                    self.model.confirm(published)
                    self.model.flushed(entries)
                for tag in settled:
                    del held[tag]
            else:
                channel.call(m.TxRollback())
                with self.model.lock:
                    self.model.roll_back("tx", published)

    def publish(self, channel: Channel, count: int) -> list[Entry]:
        entries = []
        with channel.client.in_one_piece():
            for _ in range(count):
                key, body, properties = self.new_message()
                with self.model.lock:
                    entries += self.model.publish(key, ("tx",), 0, True, HELD_BACK)
                channel.send(m.BasicPublish(routing_key="tx"), body, properties)
        return entries


class Sweeper(Worker):
    """Fills a queue, and purges it or deletes and declares it again."""

    def work(self, client: Client) -> None:
        channel = client.channel()
        channel.confirm()
        queue = self.model.queues["scratch"]
        confirmed = 0
        while not self.model.is_over:
            published: list[Entry] = []
            for _ in range(self.chooser.choice((1, 20, 300))):
                key, body, properties = self.new_message()
                with self.model.lock:
                    published += self.model.publish(key, ("scratch",), 0, True)
                channel.send(m.BasicPublish(routing_key="scratch"), body, properties)
            channel.confirms(confirmed + 1, confirmed + len(published))
            confirmed += len(published)
            with self.model.lock:
                self.model.confirm(published)
            chance = self.chooser.random()
            if chance < 0.2:
                continue
            with self.model.lock:
                swept = list(queue.entries.values())
                for entry in swept:
                    self.model.settle("scratch", entry)
            if chance < 0.6:
                channel.purge("scratch")
                with self.model.lock:
                    self.model.flushed(swept)
            else:
                channel.delete("scratch")
                with self.model.lock:
                    self.model.forgotten(swept)
                channel.queue("scratch", durable=True)


def _taken(client: Client, channel: int, *kinds: type) -> list[Event]:
    """Take out the received events of these kinds, in order. Refused if the broker closed channel or connection."""
    events = client.events[channel]
    for event in (*client.events[0], *events):
        if isinstance(event.method, (m.ChannelClose, m.ConnectionClose)):
            with suppress(OSError):
                client.send(0, m.ConnectionCloseOk())
            raise Refused(event.method)
    taken = [event for event in events if isinstance(event.method, kinds)]
    if taken:
        rest = [event for event in events if not isinstance(event.method, kinds)]
        events.clear()
        events.extend(rest)
    return taken
