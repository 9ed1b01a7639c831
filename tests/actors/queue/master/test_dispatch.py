"""Which consumer gets which message of a queue, decided without a process (AB-122, AB-127, FC-32, FC-33)."""

from __future__ import annotations

import pytest

from warren.actors.queue.consumers.consumer import UNSENT_LIMIT_SMALL

from .core import Core


def test_messages_go_round_and_each_consumer_gets_its_own_in_order():
    """Messages go to the consumers in turn, and neighbours that go to one consumer are one delivery."""
    core = Core()
    core.consume("one", "a"), core.consume("other", "b")
    core.publish(6)
    core.turn()
    assert core.delivered() == [("a", [0, 2, 4]), ("b", [1, 3, 5])]


def test_a_prefetch_bounds_what_a_consumer_has():
    """A consumer has no more messages than its prefetch; the next is delivered in the turn in which one is settled
    (AB-127).
    """
    core = Core()
    consumer = core.consume(prefetch=2)
    core.publish(5)
    core.turn()
    assert core.bodies() == [0, 1] and len(core.backing) == 3
    core.master.settle(consumer.channel, "ack", [[0]])
    core.turn()
    assert core.bodies() == [2] and consumer.unacked == 2


def test_nothing_leaves_a_queue_that_is_held():
    """A queue on hold stores publishes and delivers nothing."""
    core = Core()
    core.publish(2)
    core.master.end_turn(True)
    core.consume()
    core.master.end_turn(True)
    assert core.delivered() == [] and len(core.backing) == 2


def test_publishes_wait_while_a_consumer_waits_for_its_socket():
    """While a consumer waits for its socket, one publish is accepted for every two deliveries written; when none is
    written any more, all are (FC-33).
    """
    core = Core()
    consumer = core.consume(no_ack=True)
    core.publish(UNSENT_LIMIT_SMALL + 10)
    core.turn()
    assert core.master.dispatch.awaits_write and len(core.bodies()) == UNSENT_LIMIT_SMALL
    core.publish(1, number=1000)
    core.turn()
    assert len(core.master.publish_delay.delayed) == 1 and core.timers() == {"delay": pytest.approx(0.002)}
    core.master.sent(consumer.channel, 20)
    core.turn()
    assert not core.master.publish_delay.delayed and core.timers() == {"delay": None}
    core.master.sent(consumer.channel, 2)
    core.publish(UNSENT_LIMIT_SMALL, number=2000)
    core.publish(1, number=3000)
    core.turn()
    core.timers()
    core.master.timer_fired("delay")
    core.turn()
    assert not core.master.publish_delay.delayed and core.master.publish_delay.is_stalled


def test_a_limiter_is_asked_once_for_what_is_ready_and_gets_the_rest_back():
    """A queue asks the limiter of a channel-wide prefetch once for all that is ready, and returns the rest of the grant
    (AB-127).
    """
    core = Core()
    record = core.channel(is_limited=True)
    core.consume(no_ack=True)
    core.publish(3)
    core.turn()
    core.turn()
    assert core.delivered() == [] and core.sent("limiter_request") == [("a channel", "id of q", 3)]
    core.master.limiter_grant(record, 5)
    core.turn()
    assert core.bodies() == [0, 1, 2] and core.sent("limiter_return") == [("a channel", "id of q", 2)]
    assert record.granted == 0 and not record.is_grant_requested


def test_the_deliveries_of_a_channel_that_ends_are_dropped_and_its_messages_requeued():
    """When a channel ends, its unsent deliveries are dropped, and its messages go to another channel, in order and
    redelivered (AB-53).
    """
    core = Core()
    core.consume("ending", "a")
    core.publish(3)
    core.turn()
    record = core.state.channels.pop("ending")
    list(core.master.forget_channel(record))
    core.consume("staying", "b")
    core.turn()
    assert core.delivered() == [("b", [0, 1, 2])] and len(core.master.consumers) == 1
    assert core.effects.consumers_changed


def test_an_auto_delete_queue_ends_when_its_last_consumer_leaves():
    """An auto-delete queue ends when its last consumer leaves, but not before it had one (AB-85)."""
    core = Core()
    core.state.row = core.master.state.row = type(core.state.row)("/", "q", "q", "id of q", auto_delete=True)
    list(core.master.forget_channel(core.channel("publisher")))
    assert core.effects.end_reason is None
    core.consume(tag="a"), core.consume(tag="b")
    core.master.cancel("a channel", "a")
    assert core.effects.end_reason is None
    core.master.cancel("a channel", "b")
    assert core.effects.end_reason == "auto-delete"
