"""Programs of one's own with a simulated broker."""

from __future__ import annotations

import pytest

from warren.simulation.search import ScheduleFailed, attempt, check
from warren.simulation.service import Sim

BODIES = [b"%d" % number for number in range(12)]


def careful(sim):
    rows = []

    def handle(message):
        yield
        rows.append((message.body, message.redelivered))
        yield
        message.ack()

    sim.publish("q", BODIES)
    sim.service("taker", "q", handle, prefetch=3)
    return rows


def test_a_service_that_acknowledges_last_gets_everything():
    def scenario(sim):
        rows = careful(sim)
        assert sim.until_done()
        assert {body for body, _ in rows} == set(BODIES)

    check(scenario, 50)


@pytest.mark.parametrize("end", [Sim.kill, Sim.lose_power])
def test_a_broker_that_is_killed_or_loses_power_loses_nothing(end):
    def scenario(sim):
        rows = careful(sim)
        for _ in range(3):
            sim.run(0.005 * sim.world.below(8))
            end(sim)
        assert sim.until_done()
        assert {body for body, _ in rows} == set(BODIES)

    check(scenario, 40)


def test_a_plain_handler_may_requeue_and_reject():
    def scenario(sim):
        seen = []

        def handle(message):
            seen.append(message.body)
            if message.redelivered:
                message.reject()
            else:
                message.requeue()

        sim.publish("q", BODIES)
        sim.service("taker", "q", handle)
        assert sim.until_done()
        assert len(seen) >= 2 * len(BODIES)

    check(scenario, 10)


def hasty(sim):
    rows = []

    def handle(message):
        message.ack()
        yield
        rows.append(message.body)

    sim.publish("q", BODIES[:2])
    sim.service("taker", "q", handle)
    assert sim.until_done()
    assert set(rows) >= set(BODIES[:2]), "something is missing"


def test_a_failure_has_a_story_and_the_same_seed_has_the_same_story():
    with pytest.raises(ScheduleFailed) as caught:
        check(hasty, 200)
    text = str(caught.value)
    seed = int(text.split()[1])
    found = attempt(hasty, seed)
    assert found is not None and found.story in text
    assert "something is missing" in text and "taker      crashes" in text
