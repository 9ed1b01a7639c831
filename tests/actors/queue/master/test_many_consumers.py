"""The cost of one more consumer for a queue that has many, counted in function calls."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from warren.actors.queue.pacing.group_pacing import GATES_KEPT
from warren.store.messages.message import slice_of
from warren.store.queue.memory_queue import MemoryQueue

from .core import Core
from .test_pacing import Paced


def calls(function: Callable[..., Any], *arguments: Any) -> int:
    """How many calls of Python functions `function(*arguments)` makes."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # a collection would count the calls of Hypothesis, which measures collections
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("scope", ["consumer", "group"])
def test_a_consumer_costs_the_same_however_many_there_are(scope):
    """A consumer that comes costs the same however many there are, also if each consumer has a pace of its own
    (QP-111).
    """
    core = Paced(rate=10, scope=scope)
    core.publish(10)
    core.turn()

    def come(number):
        core.consume(f"channel {number}", f"c{number}")
        core.turn()

    costs = [calls(come, number) for number in range(300)]
    assert max(costs[100:]) <= max(costs[:10])


def test_an_ack_costs_the_same_however_many_consumers_wait():
    """An ack costs the same however many other consumers have used up their prefetch: the queue does not check each of
    them.
    """
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
    """The clocks of consumers that left are forgotten, while those that stay keep theirs."""
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


def test_messages_in_many_pieces_cost_in_proportion_to_their_number(monkeypatch):
    """The cost of delivering messages that a channel gave back one by one, to as many consumers, is in proportion to
    their number.
    """

    def in_pieces(backing, count, ack_required):
        return [
            delivery._replace(origins=slice_of(delivery.origins, part), tags=delivery.tags[part], contents=[content])
            for delivery in whole(backing, count, ack_required)
            for place, content in enumerate(delivery.contents)
            for part in (slice(place, place + 1),)
        ]

    def lines(count):
        core = Core()
        record = core.channel(unsent_limit=10 * count)
        for first in range(0, count, 10):
            core.publish(10, first=first, number=first + 1)
            core.turn()
        for number in range(count):
            core.consume(tag=f"c{number}", prefetch=1)
        found = 0

        def trace(frame, event, argument):
            nonlocal found
            found += event == "line"
            return trace

        sys.settrace(trace)
        try:
            core.turn()
        finally:
            sys.settrace(None)
        assert len(record.pending) == count
        return found

    whole = MemoryQueue.fetch
    monkeypatch.setattr(MemoryQueue, "fetch", in_pieces)
    assert lines(400) < 5 * lines(100)
