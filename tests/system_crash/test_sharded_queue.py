"""A sharded queue whose processes crash: the logical queue's, or that of a shard (flow-control section 13)."""

from __future__ import annotations

import pytest

from warren.actors.node.restart_policy import MAX_RESTARTS
from warren.amqp.fields import table_from
from warren.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)

pytestmark = pytest.mark.usefixtures("witness")

SHARDS = 3


@pytest.fixture
def queue(connect, name):
    """The name of a sharded queue, which is deleted after the test."""
    wire = connect()
    wire.call(1, QueueDeclare(queue=name, arguments=table_from({"x-warren-shards": SHARDS})), QueueDeclareOk)
    yield name
    wire.call(1, QueueDelete(queue=name), QueueDeleteOk)


def consumers_of(anatomy, name):
    """The tags of the queue's consumers; none while it is dead."""
    row = anatomy.node().routing.queue("/", name)
    cell = anatomy.base.cells.get(row.address.actorAddressString)
    role = getattr(cell.actor, "role", None) if cell else None
    return [consumer.tag for consumer in role.consumers] if role else []


def crash(anatomy, name):
    address = anatomy.call(lambda: anatomy.queue(name).myAddress)
    anatomy.crash(lambda: anatomy.queue(name))
    anatomy.eventually(lambda: anatomy.node().routing.queue("/", name).address != address)


@pytest.mark.parametrize("part", ["", "_0", "_2"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_consumer_continues_without_notification(anatomy, connect, queue, part, prefetch):
    wire, publisher = connect(), connect()
    wire.call(1, BasicQos(0, prefetch, False), BasicQosOk)
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    for _ in range(2):
        crash(anatomy, queue + part)
        anatomy.eventually(lambda: consumers_of(anatomy, queue + part) == ["t"])
        for number in range(2 * SHARDS):
            publisher.publish(1, b"%d" % number, queue)
        found = []
        for _ in range(2 * SHARDS):
            delivery = wire.method(1, BasicDeliver)  # a basic.cancel would fail here
            found.append(int(wire.content(1)[1]))
            wire.send_method(1, BasicAck(delivery.delivery_tag, False))
        assert sorted(found) == list(range(2 * SHARDS))


def test_the_prefetch_of_a_crashed_shard_is_free_again(anatomy, connect, queue):
    """When a shard crashes, its delivery is lost and no longer counts in the prefetch, so that the consumer gets the
    next message of another shard.
    """
    wire, publisher = connect(), connect()
    wire.call(1, BasicQos(0, 1, False), BasicQosOk)
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    for number in range(SHARDS):
        publisher.publish(1, b"%d" % number, queue)
    wire.method(1, BasicDeliver)
    wire.content(1)
    held = anatomy.call(
        lambda: next(
            name
            for name in [f"{queue}_{at}" for at in range(SHARDS)]
            if any(record.pending for record in anatomy.queue(name).channels.by_id.values())
        )
    )
    crash(anatomy, held)
    for _ in range(SHARDS - 1):
        delivery = wire.method(1, BasicDeliver)
        wire.content(1)
        wire.send_method(1, BasicAck(delivery.delivery_tag, False))


def test_a_shard_that_stays_down_cancels_the_consumer_once_and_publishes_go_to_the_others(anatomy, connect, queue):
    wire, publisher = connect(), connect()
    wire.call(1, BasicConsume(queue=queue, consumer_tag="t"), BasicConsumeOk)
    for _ in range(MAX_RESTARTS):
        crash(anatomy, f"{queue}_1")
    anatomy.crash(lambda: anatomy.queue(f"{queue}_1"))
    assert wire.method(1, BasicCancel) == BasicCancel("t", True)
    for name in (queue, f"{queue}_0", f"{queue}_2"):
        anatomy.eventually(lambda name=name: consumers_of(anatomy, name) == [])
    anatomy.eventually(lambda: anatomy.node().routing.queue("/", f"{queue}_1").state == "crashed")
    publisher.call(1, ConfirmSelect(), ConfirmSelectOk)
    for number in range(1, 2 * SHARDS + 1):
        publisher.publish(1, b"x", queue)
        assert publisher.method(1, BasicAck).delivery_tag == number


def test_a_publish_to_a_shard_that_crashes_is_nacked(anatomy, connect, queue):
    publisher = connect()
    publisher.call(1, ConfirmSelect(), ConfirmSelectOk)
    for at in range(SHARDS):
        anatomy.crash_at_publish(f"{queue}_{at}")
    publisher.publish(1, b"x", queue)
    assert publisher.method(1, BasicNack).delivery_tag == 1
