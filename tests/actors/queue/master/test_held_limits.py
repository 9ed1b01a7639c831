"""Limits on what a consumer may hold: messages, bytes and span (QP-115, QP-116)."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from warren.actors.queue.master import master
from warren.amqp.fields import table_from

from .core import Core


def limited(core, **changes):
    """Change the queue's settings, as a policy does."""
    core.settings = replace(core.settings, **changes)
    core.apply(core.settings)


def publish(core, *sizes):
    """Publish a message of each size."""
    for size in sizes:
        core.publish(1, first=10 ** (size - 1))
        core.turn()


def sizes(core):
    return [len(str(body)) for body in core.bodies()]


def test_a_policy_limits_how_many_messages_a_consumer_holds():
    """A policy limits at once how many messages a consumer holds, whatever its prefetch is, and an acknowledgement lets
    the next one go (QP-114).
    """
    core = Core()
    consumer = core.consume(prefetch=10)
    limited(core, consumer_max_unacked=3)
    core.publish(6)
    core.turn()
    assert core.bodies() == [0, 1, 2] and consumer.blocked_by == "count"
    core.master.settle(consumer.channel, "ack", [[1]])
    core.turn()
    assert core.bodies() == [3]
    limited(core, consumer_max_unacked=0)
    core.turn()
    assert core.bodies() == [4, 5] and consumer.blocked_by == ""


def test_bytes_are_limited_and_a_message_above_the_limit_is_delivered_alone():
    core = Core()
    consumer = core.consume(arguments=table_from({"x-max-unacked-bytes": 4}))
    publish(core, 2, 2, 1, 6, 1)
    assert sizes(core) == [2, 2] and consumer.blocked_by == "bytes"
    core.master.settle(consumer.channel, "ack", [range(2)])
    core.turn()
    assert sizes(core) == [1]
    core.master.settle(consumer.channel, "ack", [[2]])
    core.turn()
    assert sizes(core) == [6]
    core.master.settle(consumer.channel, "requeue", [[3]])
    core.turn()
    assert sizes(core) == [6]
    core.master.settle(consumer.channel, "ack", [[3]])
    core.turn()
    assert sizes(core) == [1]


def test_the_span_ends_at_a_message_that_is_not_acknowledged():
    """The span of a consumer begins at its oldest unacknowledged message; acknowledgements of later ones do not help,
    so that a message that is stuck is noticed.
    """
    core = Core()
    consumer = core.consume(arguments=table_from({"x-max-unacked-span": 3}))
    core.publish(10)
    core.turn()
    assert core.bodies() == [0, 1, 2, 3]
    core.master.settle(consumer.channel, "ack", [[1], [3], [2]])
    core.turn()
    assert core.bodies() == [] and consumer.blocked_by == "span"
    core.master.settle(consumer.channel, "ack", [[0]])
    core.turn()
    assert core.bodies() == [4, 5, 6, 7]


def test_a_consumer_that_is_held_back_leaves_messages_to_others():
    """A consumer that cannot take the next message, because it is too large, leaves it to another one and can take a
    small message behind it.
    """
    core = Core()
    core.consume("one", "a", arguments=table_from({"x-max-unacked-bytes": 3}))
    publish(core, 2)
    assert core.delivered() == [("a", [10])]
    core.consume("other", "b", prefetch=1)
    publish(core, 2, 1)
    assert core.delivered() == [("b", [10]), ("a", [1])]


@pytest.mark.parametrize("arguments", [{"x_max_priority": 3}, {"x_fair_by": "routing-key"}])
def test_a_queue_with_levels_has_no_span(arguments):
    core = Core(**arguments)
    core.consume(arguments=table_from({"x-max-unacked-span": 1}))
    core.publish(5)
    core.turn()
    assert len(core.bodies()) == 5


@settings(max_examples=150, deadline=None)
@given(
    limits=st.tuples(st.integers(0, 4), st.integers(0, 8), st.integers(0, 4)),
    consumers=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(["publish", "publish", "ack", "requeue"]), st.integers(0, 20)), max_size=40
    ),
)
def test_no_schedule_exceeds_a_limit_and_everything_is_delivered(limits, consumers, steps):
    """Whatever is published, acknowledged and requeued, no delivery exceeds a limit, and all messages are delivered
    once the consumers acknowledge.
    """
    messages, body_bytes, span = limits
    core = Core()
    limited(core, consumer_max_unacked=messages, consumer_max_bytes=body_bytes, consumer_max_span=span)
    everyone = [core.consume(f"channel {number}", f"c{number}") for number in range(consumers)]
    held = {consumer.tag: {} for consumer in everyone}
    published, acknowledged = 0, 0

    def turn():
        core.turn()
        channels, core.effects.outbox.channels = core.effects.outbox.channels, {}
        for segments in channels.values():
            for consumer, runs in segments:
                own = held[consumer.tag]
                for _, _, tags, contents in runs:
                    for tag, content in zip(tags, contents, strict=True):
                        size = int.from_bytes(content[11:19], "big")
                        assert not messages or len(own) < messages
                        assert not body_bytes or not own or sum(own.values()) + size <= body_bytes
                        assert not span or not own or tag - min(own) <= span
                        own[tag] = size
                        consumer.channel.unsent -= 1

    for step, choice in steps:
        if step == "publish":
            core.publish(1, first=10 ** (choice % 6))
            published += 1
        else:
            consumer = everyone[choice % consumers]
            own = held[consumer.tag]
            if own:
                tag = sorted(own)[choice % len(own)]
                del own[tag]
                core.master.settle(consumer.channel, step, [[tag]])
                acknowledged += step == "ack"
        turn()
    while any(held.values()):
        for consumer in everyone:
            tags = sorted(held[consumer.tag])
            if tags:
                held[consumer.tag].clear()
                core.master.settle(consumer.channel, "ack", [tags])
                acknowledged += len(tags)
        turn()
    assert acknowledged == published and not len(core.backing)


def test_each_consumer_that_comes_is_looked_at_once(monkeypatch):
    """When a consumer comes, only its own limits are computed, and not those of all consumers again."""
    looked_at = []
    original = master.bounds_of
    monkeypatch.setattr(master, "bounds_of", lambda *each: looked_at.append(each) or original(*each))
    core = Core()
    for number in range(50):
        core.consume(f"c{number}", arguments=table_from({"x-max-unacked-bytes": 4} if number % 2 else {}))
    assert len(looked_at) == 50


def test_a_consumer_that_comes_to_a_queue_with_a_limit_gets_one_too():
    core = Core()
    limited(core, consumer_max_unacked=2)
    first, second = core.consume("one"), core.consume("two")
    core.publish(6)
    core.turn()
    assert sorted(core.bodies()) == [0, 1, 2, 3]
    assert first.blocked_by == second.blocked_by == "count"
