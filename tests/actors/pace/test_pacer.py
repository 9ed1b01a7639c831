"""The process that holds the clocks of pace groups (QP-106)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from warren.actors.pace import pacer, shared_clock
from warren.actors.pace.pace_clock import SECOND
from warren.actors.pace.pacer import Pacer

from ..measured_turns import assert_no_turn_grows, measured
from ..stage import Stage, Stub

#: A million slots a second.
FAST = (1000, 0, 0)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def a_pacer(stage: Stage) -> Any:
    address = stage.create(Pacer)
    stage.tell(stage.metadata, address, "start", stage.context)
    stage.settle()
    return address


def ask(stage: Stage, pacer: Any, queue: Any, group: str = "api") -> None:
    stage.tell(queue, pacer, "lease", "/", group, FAST, 1, 0)


def has_lease(stage: Stage, queue: Any) -> Callable[[], bool]:
    return lambda: any(message[0] == "leased" for message in stage.actor(queue).received)


def many_queues_of_one_group(stage: Stage, count: int) -> Callable[[], None]:
    """Many queues ask a new clock, which serves them together after its first 100 ms."""
    pacer, queues = a_pacer(stage), [stage.create(Stub) for _ in range(count)]

    def act() -> None:
        for queue in queues:
            ask(stage, pacer, queue)
        stage.until(has_lease(stage, queues[-1]))
        assert all(has_lease(stage, queue)() for queue in queues)

    return act


def another_queue_of_one_group(stage: Stage, count: int) -> Callable[[], None]:
    pacer, queues = a_pacer(stage), [stage.create(Stub) for _ in range(count)]
    for queue in queues:
        ask(stage, pacer, queue)
    stage.until(has_lease(stage, queues[-1]))

    def act() -> None:
        another = stage.create(Stub)
        ask(stage, pacer, another)
        stage.until(has_lease(stage, another))

    return act


def another_group(stage: Stage, count: int) -> Callable[[], None]:
    pacer, queue = a_pacer(stage), stage.create(Stub)
    for number in range(count):
        ask(stage, pacer, queue, str(number))
    stage.settle()

    def act() -> None:
        another = stage.create(Stub)
        ask(stage, pacer, another, "another")
        stage.until(has_lease(stage, another))

    return act


@pytest.mark.parametrize("scenario", [another_queue_of_one_group, another_group])
def test_a_lease_costs_the_same_however_many_queues_and_groups_share_rates(scenario: Any) -> None:
    assert_no_turn_grows(scenario)


def test_queues_that_are_served_together_are_served_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacer, "LEASES", 50)
    small, large = (measured(many_queues_of_one_group, count).lines for count in (100, 400))
    assert large < 1.4 * small


def test_clocks_that_nobody_uses_are_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    address, queues, another = a_pacer(stage), [stage.create(Stub) for _ in range(100)], stage.create(Stub)
    for number, queue in enumerate(queues):
        ask(stage, address, queue, f"old {number}")
    stage.until(lambda: all(has_lease(stage, queue)() for queue in queues))
    clocks = stage.actor(address)._clocks
    assert len(clocks) == 100
    monkeypatch.setattr(shared_clock, "CLOCK_KEPT", -SECOND)
    for number in range(60):
        ask(stage, address, another, f"new {number}")
    stage.until(has_lease(stage, another))
    assert not any(group.startswith("old") for _, group in clocks)


def test_a_clock_whose_timer_runs_is_not_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that no longer holds a clock keeps it until 100 ms after slots have come back, however old its latest slot
    is.
    """
    address, one, other = a_pacer(stage), stage.create(Stub), stage.create(Stub)
    monkeypatch.setattr(shared_clock, "CLOCK_KEPT", -SECOND)
    ask(stage, address, one, "one")
    stage.until(has_lease(stage, one))
    monkeypatch.setattr(pacer, "holder", lambda context, name: "another node")
    stage.tell(one, address, "give_back", "/", "one", 0, 0, 1, 0)
    ask(stage, address, other, "other")
    stage.until(lambda: stage.actor(other).received)
    assert stage.actor(other).received == [("pacer_moved", "/", "other")]
    assert stage.is_alive(address)
