"""A transaction whose settlements take several turns, and the channel-wide prefetch meanwhile (AB-117, AB-129)."""

from __future__ import annotations

import pytest

from warren.amqp.methods import BasicConsume, BasicQos, TxCommit, TxRollback, TxSelect

from ...stage import Stage, Stub

#: Deliveries that the channel-wide prefetch allows, each of which takes a turn of the channel.
COUNT = 8


@pytest.fixture
def stage():
    with Stage(turn_messages=1) as stage:
        yield stage


@pytest.fixture
def queue(stage):
    queue = stage.queue(process=Stub)
    queue.actor.answers = {"consume": True}
    return queue


@pytest.fixture
def channel(stage, queue):
    """A channel that has all deliveries that its prefetch allows, and has acknowledged them in a transaction."""
    publisher, channel = stage.channel(), stage.channel()
    publisher.publish([b"x"])
    channel.send(BasicQos(0, COUNT, True), BasicConsume(queue="q", consumer_tag="c"), TxSelect())
    stage.settle()
    ((_, ((origins, contents, *_),), *_),) = queue.actor.take("publish")
    for tag in range(COUNT):
        stage.tell(queue.address, channel.address, "deliver", queue.id, "c", [(origins, False, [tag], contents)])
    stage.settle()
    for tag in range(1, COUNT + 1):
        channel.ack(tag)
    stage.settle()
    queue.actor.received.clear()
    return channel


def what_the_queue_gets(stage, queue, channel, method):
    """Have the channel handle the method, while the queue asks for grants; return what the queue gets, in order."""
    channel.send(method)
    stage.tell(queue.address, channel.address, "limiter_request", queue.id, 100)
    stage.settle()
    return [(message[0], message[-1]) for message in queue.actor.received]


def test_a_rollback_lets_no_queue_deliver_more(stage, queue, channel):
    """The deliveries are unacknowledged all the time, also while some of them are put back and others are not yet."""
    assert what_the_queue_gets(stage, queue, channel, TxRollback()) == []


def test_a_commit_lets_queues_deliver_when_they_have_the_settlements(stage, queue, channel):
    """Grants follow all settlements of the commit. Otherwise a queue would use a grant for a message behind those that
    it gets back.
    """
    got = what_the_queue_gets(stage, queue, channel, TxCommit())
    assert [name for name, _ in got] == ["settle", "limiter_grant"]
    assert got[-1] == ("limiter_grant", COUNT)
