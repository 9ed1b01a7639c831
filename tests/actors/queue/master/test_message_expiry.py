"""The expiry of messages, decided without a process (AB-94 to AB-97, FC-36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.queue.master.message_expiry import EXPIRY_STEP

from .core import Core


def test_the_timer_is_that_of_the_head():
    """AB-95: at most a millisecond late, never early; none while no message expires."""
    core = Core(x_message_ttl=500)
    core.turn()
    assert core.timers() == {}
    core.publish(1)
    core.turn()
    assert core.timers() == {"expiry": pytest.approx(0.501)}
    core.seconds += 0.2
    core.publish(1, first=1)
    core.turn()
    assert core.timers() == {}
    core.seconds += 0.301
    core.master.timer_fired("expiry")
    core.turn()
    assert core.timers() == {"expiry": pytest.approx(0.2)} and len(core.backing) == 1
    core.master.purge()
    core.turn()
    assert core.timers() == {"expiry": None}


def test_the_shorter_of_queue_ttl_and_expiration_counts():
    """AB-94: and a message behind an unexpired one stays (AB-95)."""
    core = Core(x_message_ttl=500)
    core.publish(1, expiration=10_000)
    core.publish(1, first=1, expiration=100)
    core.turn()
    core.seconds += 0.3
    core.consume()
    core.turn()
    assert core.bodies() == [0]
    assert core.master.dead_letterer.counters["expired"] == 1


def test_a_long_stretch_expires_in_steps():
    """FC-36: others have their turn between two steps, and nothing is delivered before the last."""
    core = Core(x_message_ttl=100)
    core.publish(2 * EXPIRY_STEP + 1)
    core.turn()
    core.seconds += 1
    core.consume()
    left = []
    for _ in range(3):
        core.effects.needs_turn = False
        core.turn()
        left.append((len(core.backing), core.effects.needs_turn))
    assert left == [(EXPIRY_STEP + 1, True), (1, True), (0, False)] and core.bodies() == []


def test_expired_messages_become_dead_letters():
    core = Core(x_message_ttl=100, x_dead_letter_exchange="", x_dead_letter_routing_key="grave")
    core.grave("grave")
    core.publish(2)
    core.turn()
    core.seconds += 1
    core.master.timer_fired("expiry")
    core.turn()
    assert core.buried() == [("grave", [0, 1])] and not core.backing.depth()


def test_a_new_ttl_leaves_queued_messages_as_they_are():
    """AB-94: they never expire, and those behind them only when they are the head (AB-95)."""
    core = Core()
    core.publish(2)
    core.turn()
    core.master.apply(replace(core.settings, message_ttl=100))
    core.publish(2, first=2)
    core.turn()
    core.seconds += 1
    core.turn()
    assert len(core.backing) == 4
    core.consume()
    core.turn()
    assert core.bodies() == [0, 1] and core.master.dead_letterer.counters["expired"] == 2
