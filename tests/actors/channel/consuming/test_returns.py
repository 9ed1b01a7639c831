"""basic.reject and basic.nack of consecutive deliveries, sent one after the other, are settled as one range."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest

from warren.actors.channel.consuming.unacked import Unacked
from warren.amqp.methods import (
    BasicConsume,
    BasicNack,
    BasicQos,
    BasicReject,
    ChannelClose,
    TxRollback,
    TxSelect,
)

from ...stage import Stage

COUNT = 40


@pytest.fixture
def stage():
    with Stage() as stage:
        yield stage


def consuming(stage, name="q", **arguments):
    """A channel with `COUNT` deliveries of a queue, which are all that its prefetch allows."""
    queue, channel = stage.queue(name, **arguments), stage.channel()
    channel.send(BasicQos(0, COUNT, False), BasicConsume(queue=name, consumer_tag="c"))
    channel.publish([b"%d" % number for number in range(COUNT)], name)
    stage.settle()
    channel.frames()
    return queue, channel


def looked_up(stage, channel, *methods):
    """Have the channel handle the methods, and return the ranges and the single deliveries that it looked
    up for that.
    """
    found = []
    take_range, take = Unacked.take_range, Unacked.take
    with (
        patch.object(Unacked, "take_range", lambda self, *tags: found.append(tags) or take_range(self, *tags)),
        patch.object(Unacked, "take", lambda self, tag, *rest: found.append(tag) or take(self, tag, *rest)),
    ):
        channel.send(*methods)
        stage.settle()
    return found


@pytest.mark.parametrize("kind", [BasicReject, BasicNack])
def test_consecutive_returns_are_looked_up_once(stage, kind):
    queue, channel = consuming(stage)
    returns = [kind(tag, requeue=False) for tag in range(1, COUNT + 1)]
    assert looked_up(stage, channel, *returns) == [(1, COUNT)]
    assert queue.actor.backing.totals().depth == 0


def test_a_range_ends_where_the_methods_differ(stage):
    """A range ends before a method with another outcome, a method of another kind, a gap, or a nack of several
    deliveries.
    """
    _, channel = consuming(stage)
    found = looked_up(
        stage,
        channel,
        *[BasicReject(tag, False) for tag in (1, 2, 3)],
        *[BasicReject(tag, True) for tag in (4, 5)],
        *[BasicNack(tag, False, True) for tag in (6, 7)],
        BasicNack(8, True, True),
        *[BasicNack(tag, False, True) for tag in (10, 11)],
        BasicNack(9, False, True),
    )
    assert found == [(1, 3), (4, 5), (6, 7), 8, (10, 11), 9]


def test_an_unknown_tag_behind_others_closes_the_channel(stage):
    """An unknown tag closes the channel; deliveries that were rejected before it stay rejected, and the rest returns to
    the queue (AB-132).
    """
    queue, channel = consuming(stage)
    channel.send(*[BasicReject(tag, False) for tag in (*range(1, COUNT + 3), 1)])
    stage.settle()
    (close,) = [frame for frame in channel.frames() if isinstance(frame, ChannelClose)]
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 90)
    assert f"unknown delivery tag {COUNT + 1}" in close.reply_text
    assert queue.actor.backing.totals().depth == 0


def test_a_transaction_holds_ranges_back(stage):
    """In a transaction nothing is settled before the commit: after a rollback all deliveries are unacknowledged again
    (AB-117).
    """
    queue, channel = consuming(stage)
    channel.send(TxSelect(), *[BasicReject(tag, False) for tag in range(1, 11)], TxRollback())
    stage.settle()
    assert len(channel.actor.deliveries.unacked) == COUNT == queue.actor.backing.totals().depth


@pytest.mark.parametrize("seed", range(20))
def test_together_they_do_what_they_do_one_by_one(stage, seed):
    """Methods that are handled together leave the same messages, in the same order, as methods that each wait for the
    effect of the one before.
    """
    rng = Random(seed)
    tags = list(range(1, COUNT + 1))
    returns = []
    while tags:
        start, kind, requeue = rng.randrange(len(tags)), rng.choice([BasicReject, BasicNack]), rng.random() < 0.5
        for tag in tags[start : start + rng.randint(1, 12)]:
            returns.append(kind(tag, requeue=requeue))
            tags.remove(tag)
    left = []
    for name, groups in (("a", [returns]), ("b", [[each] for each in returns])):
        queue, channel = consuming(stage, name)
        stage.tell(channel.connection, queue.address, "cancel", channel.id, "c")
        stage.settle()
        for group in groups:
            channel.send(*group)
            stage.settle()
        assert channel.actor.state == "running" and not len(channel.actor.deliveries.unacked)
        backing = queue.actor.backing
        deliveries = backing.fetch(COUNT, False)
        left.append([(list(each.tags), each.redelivered, each.contents) for each in deliveries])
    assert left[0] == left[1]
