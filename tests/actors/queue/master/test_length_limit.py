"""Limits on the length of a queue, decided without a process (AB-99 to AB-103)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .core import Core


@pytest.mark.parametrize("limit", [{"x_max_length": 2}, {"x_max_length_bytes": 2}])
def test_the_oldest_messages_are_dropped(limit):
    """The oldest messages are dropped, and confirmed all the same (AB-100)."""
    core = Core(**limit)
    core.publish(5)
    core.turn()
    assert len(core.backing) == 2 and core.master.dead_letterer.counts.dead["maxlen"] == 3
    assert core.sent("confirm") == [("publisher", "id of q", [(1, 5)])]
    core.consume()
    core.turn()
    assert core.bodies() == [3, 4]


def test_dropped_messages_become_dead_letters():
    core = Core(x_max_length=1, x_dead_letter_exchange="", x_dead_letter_routing_key="grave")
    core.grave("grave")
    core.publish(3)
    core.turn()
    assert core.buried() == [("grave", [0, 1])] and core.backing.totals().depth == 1


def test_requeued_messages_count():
    """Requeued messages count: if a requeue exceeds the limit, the head is dropped (AB-102)."""
    core = Core(x_max_length=2)
    consumer = core.consume(prefetch=2)
    core.publish(4)
    core.turn()
    assert core.bodies() == [0, 1] and len(core.backing) == 2
    core.master.cancel("a channel", "c")
    core.master.settle(consumer.channel, "requeue", [[0, 1]])
    core.turn()
    core.consume()
    core.turn()
    assert core.bodies() == [2, 3]


@pytest.mark.parametrize(("overflow", "left"), [("drop-head", 2), ("reject-publish", 5)])
def test_a_lowered_limit_drops_the_head_at_once_unless_publishes_are_refused(overflow, left):
    """A lowered limit drops the head at once, unless the queue refuses publishes (AB-103)."""
    core = Core(x_max_length=5)
    core.publish(5)
    core.turn()
    core.apply(replace(core.settings, max_length=2, overflow=overflow))
    core.master.release()
    assert len(core.backing) == left
    core.sent("confirm")
    core.publish(1, first=5, number=6)
    core.turn()
    assert len(core.sent("refuse")) == (overflow == "reject-publish") and len(core.backing) == left


def test_a_turn_drops_no_more_than_it_may():
    """A large message displaces many small ones in several turns, none of which drops more than a turn may (AB-100)."""
    core = Core(x_max_length_bytes=2000)
    for _ in range(20):
        core.publish(100, first=0)  # bodies of one or two bytes
        core.turn()
    size = core.backing.totals().ready_bytes
    before = len(core.backing)
    core.publish(1, first=10 ** (size - 1))
    lengths = [before]
    core.turn()
    while core.master.length_limit.is_behind:
        lengths.append(len(core.backing))
        core.turn()
    assert len(core.backing) == 1 and len(lengths) > 2
    most = core.state.work.most
    assert max(one - other for one, other in zip(lengths, lengths[1:])) <= most + 1
