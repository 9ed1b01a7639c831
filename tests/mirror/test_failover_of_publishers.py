"""What publishers see when the master of a mirrored queue is lost; the nodes are in this process (CL-95, CL-96)."""

from __future__ import annotations

import pytest

from warren import Cluster
from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client

FIRST, SECOND, THIRD = ("warren1@localhost", "warren2@localhost", "warren3@localhost")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes. Leases are so long that a pause of the machine ends none; a killed node is noticed at once all the
    same.
    """
    with Cluster(
        3, data_dir=tmp_path_factory.mktemp("nodes"), net_ticktime=20.0, channel_retain_limit=100_000
    ) as nodes:
        nodes.set_policy("mirrors", "^ha", {"ha-mode": "all"})
        yield nodes


def answers(channel, most: int) -> tuple[list[int], list[int]]:
    """Wait until all delivery tags up to `most` are answered, and return those that were acked and those that were
    nacked.
    """
    acked: set[int] = set()
    nacked: set[int] = set()
    while len(acked) + len(nacked) < most:
        event = channel.wait(m.BasicAck, m.BasicNack)
        tags, tag = (acked if isinstance(event.method, m.BasicAck) else nacked), event.tag
        tags.update(
            [each for each in range(1, tag + 1) if each not in acked | nacked] if event.method.multiple else [tag]
        )
    return sorted(acked), sorted(nacked)


def taken(cluster, queue: str) -> list[bytes]:
    found = []
    while (message := cluster.get(queue)) is not None:
        found.append(message.body)
    return found


def back(cluster, node: str, queue: str) -> None:
    cluster.start_node(node)
    cluster.wait_healthy(120)
    cluster.wait_in_sync(queue, timeout=120)


def test_what_the_lost_master_had_not_passed_on_is_published_again(cluster):
    """Publishes that were lost with the master are published again by the channel, so the client of another node gets
    acks only, and all messages are in the queue in order.
    """
    cluster.broker(SECOND).declare_queue("ha-again", durable=True)
    channel = Client(cluster.url_of(FIRST)).channel()
    channel.call(m.ConfirmSelect())
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies[:10]:
        channel.publish(body, "ha-again", delivery_mode=2)
    assert answers(channel, 10) == ([*range(1, 11)], [])
    cluster.partition(FIRST, SECOND)
    for body in bodies[10:30]:
        channel.publish(body, "ha-again", delivery_mode=2)
    # the answer shows that the channel has handled the publishes
    channel.call(m.ExchangeDeclare(exchange="amq.direct", passive=True))
    cluster.kill(SECOND)
    cluster.heal()
    for body in bodies[30:]:
        channel.publish(body, "ha-again", delivery_mode=2)
    assert answers(channel, 40)[1] == []
    back(cluster, SECOND, "ha-again")
    assert taken(cluster, "ha-again") == bodies
    cluster.delete_queue("ha-again")


def test_what_is_too_much_to_be_retained_is_refused(cluster):
    """Of unconfirmed publishes beyond `channel_retain_limit` the oldest are nacked, and the others are
    published again.
    """
    cluster.broker(SECOND).declare_queue("ha-much", durable=True)
    channel = Client(cluster.url_of(FIRST)).channel()
    channel.call(m.ConfirmSelect())
    cluster.partition(FIRST, SECOND)
    bodies = [b"%d" % number + bytes(20_000) for number in range(8)]
    for body in bodies:
        channel.publish(body, "ha-much", delivery_mode=2)
        channel.call(m.ExchangeDeclare(exchange="amq.direct", passive=True))
    cluster.kill(SECOND)
    cluster.heal()
    acked, nacked = answers(channel, 8)
    assert (nacked, acked) == ([1, 2, 3, 4], [5, 6, 7, 8])
    back(cluster, SECOND, "ha-much")
    assert taken(cluster, "ha-much") == bodies[4:]
    cluster.delete_queue("ha-much")


def test_what_is_published_again_may_have_been_delivered(cluster):
    """A message that is published again is flagged as redelivered, because the lost master may have delivered it; a
    later one is not.
    """
    cluster.broker(SECOND).declare_queue("ha-flag", durable=True)
    channel = Client(cluster.url_of(FIRST)).channel()
    channel.call(m.ConfirmSelect())
    cluster.partition(FIRST, SECOND)
    channel.publish(b"again", "ha-flag", delivery_mode=2)
    channel.call(m.ExchangeDeclare(exchange="amq.direct", passive=True))
    cluster.kill(SECOND)
    cluster.heal()
    assert answers(channel, 1) == ([1], [])
    channel.publish(b"new", "ha-flag", delivery_mode=2)
    assert channel.wait(m.BasicAck).tag == 2
    back(cluster, SECOND, "ha-flag")
    found = [cluster.get("ha-flag") for _ in range(2)]
    assert [(message.body, message.redelivered) for message in found] == [(b"again", True), (b"new", False)]
    cluster.delete_queue("ha-flag")
