"""The timer heap by itself."""

from __future__ import annotations

import math
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from warren.runtime.loop import timers as timers_module
from warren.runtime.loop.timers import PAYLOAD, SLACK, SWEPT, Timers


def drain(timers: Timers, now: float) -> list[object]:
    fired = []
    while (entry := timers.pop_due(now)) is not None:
        fired.append(entry[PAYLOAD])
    return fired


def test_due_timers_come_by_deadline_then_by_start():
    """Timers with the same deadline fire in the order in which they were started."""
    timers = Timers()
    for deadline, payload in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b"), (3.0, "e")]:
        timers.start(deadline, "owner", payload)
    assert drain(timers, 2.0) == ["a", "b", "c", "d"]
    assert timers.next_deadline() == 3.0 and len(timers) == 1


def test_a_cancelled_timer_is_neither_due_nor_next():
    """A timer that was cancelled never fires and decides about no sleep; cancelling it again returns False."""
    timers = Timers()
    first, second = timers.start(1.0, "owner", "a"), timers.start(2.0, "owner", "b")
    assert timers.cancel(first) and not timers.cancel(first)
    assert timers.next_deadline() == 2.0
    assert drain(timers, 5.0) == ["b"]
    assert timers.next_deadline() is None and len(timers) == 0
    assert second[PAYLOAD] == "b"


def test_the_heap_is_bounded_by_what_lives():
    """The heap shrinks when timers are cancelled: 100,000 that are started and cancelled beside ten live ones leave it
    small.
    """
    timers = Timers()
    for number in range(10):
        timers.start(1e9, "owner", number)
    for _ in range(100_000):
        timers.cancel(timers.start(1e6, "owner", None))
        assert len(list(timers.entries())) <= 2 * (10 + SLACK)
    assert len(timers) == 10


class Deadline(float):
    """A deadline that counts the comparisons of deadlines."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Deadline.compared += 1
        return float.__eq__(self, other)

    def __lt__(self, other: float) -> bool:
        Deadline.compared += 1
        return float.__lt__(self, other)

    __hash__ = float.__hash__


def test_no_cancel_rebuilds_the_heap():
    """However many timers there are, a single `cancel` compares and removes a few entries only."""
    timers = Timers()
    entries = [timers.start(Deadline(number * 7919 % 4003), "owner", number) for number in range(4000)]
    most_compared = most_removed = 0
    for entry in entries[:3000]:
        Deadline.compared, before = 0, len(list(timers.entries()))
        timers.cancel(entry)
        most_compared = max(most_compared, Deadline.compared)
        most_removed = max(most_removed, before - len(list(timers.entries())))
    assert most_removed <= SWEPT
    assert most_compared <= 2 * (SWEPT + 2) * 20  # two comparisons of a pair, and a heap of 4,000 has 12 levels
    assert drain(timers, math.inf) == sorted(range(3000, 4000), key=lambda number: number * 7919 % 4003)
    assert not list(timers.entries())


def test_most_entries_are_live_while_timers_are_cancelled():
    """Sweeps keep up with cancels that come without a pause."""
    timers = Timers()
    entries = [timers.start(1e9, "owner", number) for number in range(5000)]
    for number, entry in enumerate(entries, 1):
        timers.cancel(entry)
        if number % 50 == 0:
            assert len(list(timers.entries())) <= 3 * len(timers) + 4 * SLACK
    assert len(timers) == 0


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(0, 10_000)), max_size=300),
    st.sampled_from([0, SLACK]),
)
def test_it_agrees_with_a_sorted_list(steps, slack):
    """Timers are started, cancelled and taken out in any order, with sweeps after few cancels and after many."""
    with patch.object(timers_module, "SLACK", slack), patch.object(timers_module, "SWEPT", 1 if slack == 0 else SWEPT):
        agree(steps)


def agree(steps):
    timers, model, entries, now = Timers(), [], [], 0
    for number, (delay, is_cancel, which) in enumerate(steps):
        if is_cancel and entries:
            entry, key = entries.pop(which % len(entries))
            assert timers.cancel(entry) == (key in model)
            if key in model:
                model.remove(key)
        elif delay == 20:
            now += 3
            due = sorted(key for key in model if key[0] <= now)
            fired = []
            while (entry := timers.pop_due(now)) is not None:
                fired.append((entry[0], entry[PAYLOAD]))
                entry[2] = None  # as the loop does with a timer that it takes out: it can no longer be cancelled
            assert fired == due
            model = [key for key in model if key[0] > now]
        else:
            key = (now + delay, number)
            entries.append((timers.start(now + delay, "owner", number), key))
            model.append(key)
        assert len(timers) == len(model)
        assert timers.next_deadline() == (min(model)[0] if model else None)
