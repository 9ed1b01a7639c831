"""Readers on real sockets, beside publishers, consumers that hold messages, dead letters, paging, purges and restarts.

Whatever others do, a reader from `first` gets every number once and in order, and misses only numbers whose messages
have left the queue.
"""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from warren import Broker
from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client

from ..oracle import ORACLE

pytestmark = pytest.mark.skipif(bool(ORACLE), reason="no other broker has it")

#: Bytes of a body that is embedded in the index, and of one that goes to the message store.
SMALL, LARGE = 10, 5000
_names = itertools.count(1)


class Reader:
    """Reads a queue from its first number, and acknowledges only when it is told to. `got` are the numbers so far."""

    def __init__(self, client, queue, prefetch):
        self.channel = client.channel()
        self.no_ack = not prefetch
        if prefetch:
            self.channel.qos(prefetch)
        self.tag = self.channel.consume(queue, arguments={"x-warren-read-from": "first"}, no_ack=self.no_ack)
        self.got, self.bodies = [], []
        self.unacked = deque()

    def take(self):
        """Note what has arrived."""
        events = self.channel.client.events[self.channel.number]
        while events:
            event = events.popleft()
            assert isinstance(event.method, m.BasicDeliver), event.method
            [number] = [value for name, _, value in event.headers if name == "x-warren-seq"]
            assert not self.got or number > self.got[-1], f"number {number} follows {self.got[-1]}"
            self.got.append(number)
            self.bodies.append(event.body)
            if not self.no_ack:
                self.unacked.append(event.tag)

    def ack(self, count):
        for _ in range(min(count, len(self.unacked))):
            self.channel.ack(self.unacked.popleft())

    def read_to(self, number):
        """Acknowledge everything until `number` has come."""
        self.take()
        while not self.got or self.got[-1] < number:
            self.ack(len(self.unacked))
            assert self.channel.client.receive(30.0), f"after {self.got[-1:]} nothing comes, not even {number}"
            self.take()


class Play:
    """One queue with its dead-letter queue, a publisher, a consumer that holds what it has, and readers."""

    def __init__(self, broker, hold):
        self.broker = broker
        self.name = f"read {next(_names)}"
        self.client = Client(broker.url)
        self.publisher, self.consumer = self.client.channel(), self.client.channel()
        self.publisher.confirm()
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{self.name} dead"}
        self.publisher.queue(f"{self.name} dead", durable=True)
        self.publisher.queue(self.name, dead, durable=True)
        self.consumer.qos(hold)
        self.tag = self.consumer.consume(self.name)
        self.published = self.confirmed = 0
        #: Ack tag and number of what the consumer holds.
        self.held = {}
        #: Numbers whose messages may have left the queue, and those that were rejected.
        self.left, self.rejected = set(), []
        self.readers = []

    def publish(self, count, size=SMALL):
        with self.client.in_one_piece():
            for number in range(self.published, self.published + count):
                self.publisher.publish(f"{number}".ljust(size), self.name, delivery_mode=2)
        self.published += count
        self.publisher.confirms(self.confirmed + 1, self.published)
        self.confirmed = self.published
        self.take()

    def take(self):
        """Note what the consumer and the readers have received by now."""
        # The queue has handled all that was sent to it before its answer, and its deliveries are on their way.
        self.publisher.ready(self.name)
        while self.client.receive(0.0):
            pass
        events = self.client.events[self.consumer.number]
        while events:
            event = events.popleft()
            self.held[event.tag] = int(event.body)
        for reader in self.readers:
            reader.take()

    def settle(self, outcome, every):
        """Settle each `every`-th message that the consumer holds."""
        for tag in list(self.held)[::every]:
            number = self.held.pop(tag)
            if outcome == "requeue":
                self.consumer.reject(tag)
                continue
            self.left.add(number)
            if outcome == "ack":
                self.consumer.ack(tag)
            else:
                self.rejected.append(number)
                self.consumer.reject(tag, requeue=False)
        self.take()

    def purge(self):
        # What the consumer holds stays. It may hold more than has arrived here, so this is the least that stays.
        self.left |= set(range(self.published)) - set(self.held.values())
        self.publisher.purge(self.name)
        self.take()

    def read(self, prefetch):
        self.readers.append(Reader(self.client, self.name, prefetch))

    def step(self, name, amount):
        if name in ("ack", "requeue", "reject"):
            self.settle(name, 1 + amount % 3)
        elif name == "publish":
            self.publish(amount)
        elif name == "large":
            self.publish(1 + amount // 4, LARGE)
        elif name == "purge":
            self.purge()
        elif name == "read":
            self.read(amount)
        elif name == "mode":
            self.broker.set_queue_mode(self.name, "lazy" if amount % 2 else "default")
        else:
            for reader in self.readers:
                reader.ack(amount)
            self.take()

    def end(self):
        """Have everybody read to the end of the queue, which is a last message that nobody can take."""
        self.consumer.cancel(self.tag)
        self.publish(1)
        self.read(20)  # one more reader, which finds what is left
        for reader in self.readers:
            reader.read_to(self.published - 1)
            missing = set(range(self.published)) - set(reader.got)
            assert missing <= self.left, f"the reader missed {sorted(missing - self.left)}"
            assert [int(body) for body in reader.bodies] == reader.got
        if self.rejected:
            dead = Reader(self.client, f"{self.name} dead", 3)
            dead.read_to(len(self.rejected) - 1)
            assert [int(body) for body in dead.bodies] == self.rejected and dead.got == list(range(len(dead.got)))
        for name in (self.name, f"{self.name} dead"):
            self.publisher.delete(name)
        self.client.close()


STEPS = st.one_of(
    st.tuples(st.sampled_from(["publish", "read acks"]), st.integers(1, 120)),
    st.tuples(st.sampled_from(["ack", "requeue", "reject", "mode", "large"]), st.integers(1, 20)),
    st.tuples(st.just("read"), st.sampled_from([0, 1, 20, 300])),
    st.tuples(st.just("purge"), st.just(0)),
)


#: Each reader acknowledges all that it has.
ALL = ("read acks", 1000)


@pytest.fixture(params=["memory", "disk"], scope="module")
def broker(request, tmp_path_factory):
    where = {"data_dir": str(tmp_path_factory.mktemp("readers"))} if request.param == "disk" else {}
    with Broker(port=0, stop_timeout=100, **where) as broker:
        yield broker


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hold=st.sampled_from([1, 30, 200]), steps=st.lists(STEPS, max_size=14))
@example(30, [("read", 20), *[("publish", 1)] * 15, ("publish", 27), *[("publish", 40)] * 4])
@example(30, [("read", 20), *[step for count in (1, 1, 1, 12, 27, *[40] * 6) for step in (("publish", count), ALL)]])
@example(200, [("read", 0), ("read", 300), *[("publish", 120)] * 4, ("reject", 2), ("requeue", 1), ("publish", 120)])
@example(30, [("mode", 1), ("large", 20), ("read", 20), ("publish", 120), ("reject", 1), ("mode", 2), ("large", 20)])
@example(30, [("publish", 120), ("read", 1), ("read acks", 3), ("purge", 0), ("publish", 120), ("read", 20)])
def test_whatever_others_do_a_reader_gets_each_number_once_and_in_order(broker, hold, steps):
    play = Play(broker, hold)
    for step in steps:
        play.step(*step)
    play.end()


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["embedded", "stored"])
def test_a_reader_finds_the_same_numbers_after_every_restart(tmp_path, size):
    """Numbers continue after every restart: a reader that begins anew gets what is left, and nothing twice."""
    expected = []
    for life in range(3):
        with Broker(port=0, stop_timeout=100, data_dir=str(tmp_path)) as broker:
            client = Client(broker.url)
            channel, consumer = client.channel(), client.channel()
            channel.confirm()
            channel.queue("q", durable=True)
            reader = Reader(client, "q", 20)
            if expected:
                reader.read_to(expected[-1][0])
            with client.in_one_piece():
                for number in range(250):
                    channel.publish(f"{life} {number}".ljust(size), "q", delivery_mode=2)
            channel.confirms(1, 250)
            reader.read_to(250 * (life + 1) - 1)
            expected += [(250 * life + number, f"{life} {number}".ljust(size).encode()) for number in range(250)]
            assert list(zip(reader.got, reader.bodies, strict=True)) == expected
            consumer.qos(100)
            consumer.consume("q")
            for event in consumer.deliveries(50):
                consumer.ack(event.tag)
            expected = expected[50:]
            client.close()
