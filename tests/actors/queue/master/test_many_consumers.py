"""What one consumer costs a queue that has many, counted in calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from warren.actors.queue.master.pacing import GATES_KEPT

from .core import Core
from .test_pacing import Paced


def calls(function: Callable[..., Any], *arguments: Any) -> int:
    """How many calls of Python functions `function(*arguments)` makes."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("scope", ["consumer", "group"])
def test_a_consumer_costs_the_same_however_many_there_are(scope):
    """A queue whose pace is that of each consumer does not look at all of them when another one comes (QP-111)."""
    core = Paced(rate=10, scope=scope)
    core.publish(10)
    core.turn()

    def come(number):
        core.consume(f"channel {number}", f"c{number}")
        core.turn()

    costs = [calls(come, number) for number in range(300)]
    assert max(costs[100:]) <= max(costs[:10])


def test_an_ack_costs_the_same_however_many_consumers_wait():
    """A queue whose consumers have all used up their prefetch does not ask each of them after an ack of the last."""
    core = Core()

    def acknowledge(record):
        core.master.settle(record, "ack", [list(record.pending)])
        core.turn()

    costs = []
    for number in range(300):
        core.consume(f"channel {number}", f"c{number}", prefetch=1)
        core.publish(2, number=2 * number + 1)
        core.turn()
        costs.append(calls(acknowledge, core.channel(f"channel {number}")))
        core.delivered()
    assert max(costs[100:]) <= max(costs[:20]) + 5


def test_clocks_of_consumers_that_left_are_few():
    """Clients that come and go leave no clock each, and those that stay keep theirs."""
    core = Paced(rate=10, scope="consumer")
    core.publish(10)
    core.turn()
    stays = core.consume("stays")
    gate = stays.gate
    for number in range(500):
        core.consume("comes and goes", f"c{number}")
        core.turn()
        core.master.cancel("comes and goes", f"c{number}")
    assert stays.gate is gate
    assert len(core.master.dispatch.group_pacing._gates) <= GATES_KEPT + 4
    core.wait(0.1001)
    assert core.bodies() == [0]
