"""When free heap is given back to the system: if it is worth it, memory does not grow, and the last attempt is long
enough ago (QS-16).
"""

from __future__ import annotations

import pytest

from warren.actors.resources.heap_return import WORTH_IT, HeapReturn

MIB = 1 << 20
MUCH = 500 * MIB


@pytest.fixture
def rule():
    """A HeapReturn that has seen `MUCH` in use, and whose attempt at second 100 took 0 s and freed nothing."""
    rule = HeapReturn()
    assert not rule.is_due(0.0, MUCH, False), "it has just grown"
    rule.tried(100.0, 0.00003, MUCH, MUCH)
    return rule


def test_a_broker_that_uses_little_is_left_alone():
    rule = HeapReturn()
    assert [rule.is_due(second, WORTH_IT - 1, False) for second in range(3)] == [False] * 3


def test_it_waits_until_memory_no_longer_grows():
    rule = HeapReturn()
    assert [rule.is_due(0.0, used * MIB, False) for used in (100, 200, 300, 300)] == [False, False, False, True]


def test_a_pause_lies_between_two_attempts(rule):
    assert not rule.is_due(104.9, MUCH, False)
    assert rule.is_due(105.0, MUCH, False)


def test_fruitless_attempts_cost_a_thousandth(rule):
    rule.tried(200.0, 0.08, MUCH, MUCH - MIB)
    assert not rule.is_due(279.0, MUCH, False)
    assert rule.is_due(280.0, MUCH, False)


def test_but_are_not_given_up(rule):
    rule.tried(200.0, 10.0, MUCH, MUCH)
    assert rule.is_due(500.0, MUCH, False)


def test_after_success_it_comes_back_soon(rule):
    rule.tried(200.0, 0.4, MUCH, MUCH - 100 * MIB)
    assert rule.is_due(205.0, MUCH - 100 * MIB, False)


def test_under_an_alarm_size_and_growth_do_not_matter(rule):
    """Under an alarm, heap is given back whatever its size and growth, at most twenty times a second."""
    assert not rule.is_due(100.04, MUCH + 50 * MIB, True)
    assert rule.is_due(100.06, MUCH + 100 * MIB, True)
    assert HeapReturn().is_due(0.0, MIB, True)


def test_under_an_alarm_fruitless_attempts_cost_a_twentieth(rule):
    rule.tried(200.0, 0.1, MUCH, MUCH)
    assert not rule.is_due(201.9, MUCH, True)
    assert rule.is_due(202.0, MUCH, True)
