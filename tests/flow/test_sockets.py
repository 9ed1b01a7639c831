"""Flow control over real sockets: clients observe a broker in which one stage is stopped (flow-control section 15)."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from warren.actors.channel import Channel
from warren.actors.connection import Connection
from warren.actors.contracts.queue import to_queue
from warren.amqp.constants import FRAME_METHOD
from warren.amqp.decoding import decode_method
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warren.tests.system.wire import publish_frames

from .conftest import HOLD

#: The initial credit of a relation, and the number of messages after which more is granted.
I, M = 400, 200
STORE = "a store that does not take anything"


@contextmanager
def frozen_store(anatomy, name):
    """A queue that has used up its credit with a store: it goes on working, but grants its publishers no credit."""
    queue = anatomy.call(anatomy.queue, name)
    anatomy.call(queue.channels.credit.spend, STORE, I)
    yield queue
    anatomy.call(queue.send, queue.myAddress, to_queue.bump(STORE, I))


class Publisher(threading.Thread):
    """Sends `count` numbered messages as fast as the broker reads them."""

    def __init__(self, wire, queue, count, size=1000):
        super().__init__(daemon=True)
        self.wire, self.queue, self.count, self.size, self.sent = wire, queue, count, size, 0
        self.start()

    def run(self):
        for number in range(self.count):
            self.wire.send(publish_frames(1, b"%08d" % number * (self.size // 8), self.queue))
            self.sent += 1


def blocked_connection(anatomy):
    return next((each for each in anatomy.processes(Connection) if each.state == "blocked"), None)


def declared(wire, queue):
    wire.call(1, QueueDeclare(queue=queue), QueueDeclareOk)
    return wire


def test_a_publisher_faster_than_the_store_is_blocked_and_continues(broker, anatomy, connect, name):
    """A publisher that is faster than the store is no longer read, and goes on when the store does: no mailbox grows,
    the client receives no frame about it, and no message is lost (cascade, no_blocked_frame: FC-8, FC-22, FC-27,
    FC-59).
    """
    wire, count = declared(connect(), name), 20_000
    with frozen_store(anatomy, name) as queue:
        publisher = Publisher(wire, name, count)
        anatomy.eventually(lambda: blocked_connection(anatomy))
        broker.wait_idle()
        assert len(queue.backing) <= 2 * I and anatomy.call(blocked_connection, anatomy)
        assert broker.queue(name).state == "flow" and [each.state for each in broker.channels()] == ["flow"]
        held = anatomy.call(
            lambda: [sum(map(len, (each._host.queue, each.backlog))) for each in anatomy.processes(Channel)]
        )
        assert max(held) == 0, "a blocked channel must leave the rest in the socket"
    publisher.join(60)
    assert not publisher.is_alive()
    wire.call(1, ConfirmSelect(), ConfirmSelectOk)
    wire.publish(1, b"last", name)
    wire.method(1, BasicAck)  # reading up to this ack shows that no connection.blocked came on channel 0
    assert all(frame.kind != FRAME_METHOD for frame in wire.waiting)
    assert len(queue.backing) == count + 1
    seen = [int(broker.get(name).body[:8]) for _ in range(500)]
    assert seen == list(range(500))
    wire.call(1, QueueDelete(queue=name), QueueDeleteOk)


def test_consumers_and_other_publishers_are_not_delayed(broker, anatomy, connect, name):
    """While a queue blocks its publisher, it still delivers, and another connection publishes to another queue
    (acks_pass: FC-13, FC-28, FC-31).
    """
    busy, other = name, name + "-other"
    blocked, consumer = declared(connect(), busy), declared(connect(), other)
    with frozen_store(anatomy, busy):
        publisher = Publisher(blocked, busy, 3000)
        anatomy.eventually(lambda: blocked_connection(anatomy))
        consumer.call(1, BasicConsume(queue=busy, consumer_tag="c"), BasicConsumeOk)
        for number in range(I):
            delivery = consumer.method(1, BasicDeliver)
            assert int(consumer.content(1)[1][:8]) == number
            consumer.send_method(1, BasicAck(delivery.delivery_tag, False))
        consumer.open_channel(2)
        consumer.publish(2, b"elsewhere", other)
        consumer.call(2, BasicGet(queue=other, no_ack=True), BasicGetOk)
        assert consumer.content(2)[1] == b"elsewhere"
        assert anatomy.call(blocked_connection, anatomy)
    for number in range(I, 3000):
        delivery = consumer.method(1, BasicDeliver)
        assert int(consumer.content(1)[1][:8]) == number
        if number % 100 == 99:
            consumer.send_method(1, BasicAck(delivery.delivery_tag, True))
    publisher.join(60)
    for queue in (busy, other):
        broker.delete_queue(queue)


@pytest.mark.parametrize("end", ["delete", "crash"])
def test_the_end_of_the_exhausted_queue_frees_the_publisher(broker, anatomy, connect, name, end):
    """When the blocking queue ends, the publisher goes on. Its publishes are acked if the queue is deleted, and acked
    or nacked if it crashes (peer_death: FC-53, AB-111).
    """
    wire, count = declared(connect(), name), 3000
    wire.call(1, ConfirmSelect(), ConfirmSelectOk)
    queue = anatomy.call(anatomy.queue, name)
    anatomy.call(queue.channels.credit.spend, STORE, I)
    publisher = Publisher(wire, name, count)
    anatomy.eventually(lambda: blocked_connection(anatomy))
    if end == "delete":
        broker.delete_queue(name)
    else:
        anatomy.crash(lambda: anatomy.queue(name))
    publisher.join(60)
    assert not publisher.is_alive()
    settled = set()
    while len(settled) < count:
        frame = wire.on(1)
        answer = decode_method(frame.payload)
        assert isinstance(answer, BasicAck) or (end == "crash" and isinstance(answer, BasicNack))
        settled |= set(range(1, answer.delivery_tag + 1)) if answer.multiple else {answer.delivery_tag}
    assert settled == set(range(1, count + 1))
    broker.delete_queue(name)


def test_flow_is_listed_for_its_hold_time_and_never_with_an_alarm(broker, anatomy, connect, name):
    """A connection is listed as `flow` for its hold time, and with an alarm as `blocked` instead (flow_hold: FC-41 to
    FC-44).
    """
    wire = declared(connect(), name)

    def states():
        return [each.state for each in broker.connections()]

    with frozen_store(anatomy, name):
        publisher = Publisher(wire, name, 2000)
        anatomy.eventually(lambda: blocked_connection(anatomy))
        assert states() == ["flow"]
        broker.set_alarm("memory", True)
        assert states() == ["blocked"]
        broker.set_alarm("memory", False)
        assert states() == ["flow"]
    publisher.join(60)
    broker.wait_idle()
    ended = time.monotonic()
    assert states() == ["flow"]
    anatomy.eventually(lambda: not any(each.reported_state == "flow" for each in anatomy.processes(Connection)))
    assert time.monotonic() - ended < HOLD + 0.3
    assert states() == ["running"]
    broker.delete_queue(name)


def test_a_consumer_that_stops_reading_does_not_delay_others(broker, anatomy, connect, name):
    """When a consumer stops reading, the publisher and the other consumer go on, and the output buffer is bounded
    (slow_reader: FC-32, FC-33, FC-35).
    """
    publisher_wire, slow, fast = declared(connect(), name), connect(receive_buffer=4096), connect()
    for wire in (slow, fast):
        wire.call(1, BasicConsume(queue=name, consumer_tag="c", no_ack=True), BasicConsumeOk)
    count = 20_000
    publisher = Publisher(publisher_wire, name, count, size=8000)
    got = 0
    most = 0
    while got < count // 2:
        fast.method(1, BasicDeliver)
        fast.content(1)
        got += 1
        if got % 500 == 0:
            most = max(most, anatomy.call(lambda: max(each.output.size for each in anatomy.processes(Connection))))
    publisher.join(60)
    assert not publisher.is_alive()
    assert most <= 200 * 8200 + (8 << 20)
    (queue,) = [each for each in broker.queues() if each.name == name]
    assert queue.consumers == 2
    slow.hang_up()
    broker.delete_queue(name)
