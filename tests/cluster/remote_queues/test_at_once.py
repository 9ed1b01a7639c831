"""Clients of several nodes declare, use and delete one queue at the same time (CL-30, CL-31, CL-34)."""

from __future__ import annotations

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import REPLIES, Refused

ROUNDS = 12
#: Virtual seconds that a method may take. A method that waits for a process that never starts takes 15.
SOON = 2.0


@pytest.fixture(params=range(4))
def nodes(request, make):
    """The nodes a, b and c; new queues get their home on b."""
    nodes = make("abc", seed=request.param)
    nodes.home("b")
    return nodes


def answer(nodes, channel, method):
    """The reply to a method that was sent. If it was refused: the reply code, after opening the channel again."""
    began = nodes.world.now()
    try:
        return channel.wait(*REPLIES[type(method)]).method
    except Refused as refused:
        channel.call(m.ChannelOpen())
        return refused.close.reply_code
    finally:
        assert nodes.world.now() - began < SOON, method


def is_starting(node):
    """Whether the node's Metadata has started so far that it can be told of other nodes."""
    return any(hasattr(metadata, "replicas") for metadata in node.processes("Metadata"))


def test_a_publish_waits_for_a_queue_that_is_starting(nodes):
    """A publish that reaches the home before the queue has started is neither lost nor refused, but waits there."""
    declarer, publisher = nodes.channel("c"), nodes.channel("a")
    publisher.confirm()
    published = 0
    for number in range(ROUNDS):
        name = f"q{number}"
        before = published
        declarer.send(m.QueueDeclare(queue=name))
        while not declarer.client.socket.data:
            publisher.publish(b"m", name, mandatory=True)
            published += 1
            nodes.world.run(5e-5)
        declarer.wait(m.QueueDeclareOk)
        assert publisher.confirms(before + 1, published)[1] == []
        returned = sum(isinstance(event.method, m.BasicReturn) for event in publisher.pending)
        publisher.client.events[publisher.number].clear()
        declarer.expect_ready(name, published - before - returned)
        assert returned < published - before, "nothing was published while the queue was starting"


def test_methods_that_meet_a_new_queue_wait_for_its_start(nodes):
    """A method that reaches a queue before it has started waits, and does not take the queue for crashed."""
    declarer, others = nodes.channel("c"), [nodes.channel("a"), nodes.channel("b")]
    for number in range(ROUNDS):
        method = m.QueueDeclare(queue=f"q{number}")
        declarer.send(method)
        for channel in others:
            channel.send(method)
        found = [answer(nodes, channel, method) for channel in (declarer, *others)]
        assert [type(each) for each in found] == [m.QueueDeclareOk] * 3


def test_a_declare_survives_the_deletions_of_others(nodes):
    """A declare whose queue is deleted before the answer declares the queue again, as in RabbitMQ."""
    declarers, deleters = [nodes.channel(name) for name in "abc"], [nodes.channel(name) for name in "abc"]
    declare, delete, look = m.QueueDeclare(queue="q"), m.QueueDelete(queue="q"), m.QueueDeclare(queue="q", passive=True)
    for _ in range(ROUNDS):
        for declarer, deleter in zip(declarers, deleters, strict=True):
            declarer.send(declare)
            deleter.send(delete)
            deleter.send(look)
            nodes.world.run(2e-4)
        assert [type(answer(nodes, channel, declare)) for channel in declarers] == [m.QueueDeclareOk] * 3
        assert [type(answer(nodes, channel, delete)) for channel in deleters] == [m.QueueDeleteOk] * 3
        for channel in deleters:
            found = answer(nodes, channel, look)
            assert found == 404 or isinstance(found, m.QueueDeclareOk)


def test_methods_that_meet_a_node_that_is_starting_wait_for_its_queues(make):
    """A method for a queue of a node that is starting waits until the queue is recovered, also if a client sent it
    while the node's earlier run had ended.
    """
    nodes = make("abc", with_store=True)
    nodes.home("b")
    near = [nodes.channel("a") for _ in range(ROUNDS)]
    for number, channel in enumerate(near):
        channel.queue(f"q{number}", durable=True)
    looks = [m.QueueDeclare(queue=f"q{number}", passive=True) for number in range(ROUNDS)]
    nodes.kill("b")
    nodes.boot("b")
    link = nodes.links["a", "b"]
    assert nodes.world.run_until(lambda: link.session("a"), SOON)
    near[0].send(looks[0])  # reaches no process, because node a knows only the address of the earlier run
    assert nodes.world.run_until(lambda: is_starting(nodes.nodes["b"]), SOON)
    nodes.met("a", "b")
    nodes.met("b", "a")
    for channel, look in zip(near[1:], looks[1:], strict=True):
        channel.send(look)
        nodes.world.run(2e-4)
    nodes.started("b")
    assert [type(answer(nodes, channel, look)) for channel, look in zip(near, looks, strict=True)] == [
        m.QueueDeclareOk
    ] * ROUNDS


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_a_publish_that_meets_a_deletion_is_confirmed(make, durable, seed):
    """A publish to a queue that another client is deleting is confirmed, as in RabbitMQ (CL-35, AB-111)."""
    nodes = make("abc", seed=seed, with_store=durable)
    nodes.home("b")
    publishers, deleter = [nodes.channel(name) for name in "abc"], nodes.channel("c")
    for publisher in publishers:
        publisher.confirm()
    published = dict.fromkeys(publishers, 0)
    for number in range(ROUNDS):
        name = f"q{number}"
        before = dict(published)
        deleter.queue(name, durable=durable)
        deleter.send(m.QueueDelete(queue=name))
        while not deleter.client.socket.data:
            for publisher in publishers:
                publisher.publish(b"m", name)
                published[publisher] += 1
            nodes.world.run(1e-4)
        deleter.wait(m.QueueDeleteOk)
        for publisher in publishers:
            assert publisher.confirms(before[publisher] + 1, published[publisher])[1] == []
