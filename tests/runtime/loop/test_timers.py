"""The timer heap by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.runtime.loop.timers import PAYLOAD, SLACK, Timers


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
    """A second cancel returns False."""
    timers = Timers()
    first, second = timers.start(1.0, "owner", "a"), timers.start(2.0, "owner", "b")
    assert timers.cancel(first) and not timers.cancel(first)
    assert timers.next_deadline() == 2.0
    assert drain(timers, 5.0) == ["b"]
    assert timers.next_deadline() is None and len(timers) == 0
    assert second[PAYLOAD] == "b"


def test_the_heap_is_bounded_by_what_lives():
    """100,000 timers that are started and cancelled beside ten live ones leave a small heap."""
    timers = Timers()
    for number in range(10):
        timers.start(1e9, "owner", number)
    for _ in range(100_000):
        timers.cancel(timers.start(1e6, "owner", None))
        assert len(timers.heap) <= 2 * (10 + SLACK)
    assert len(timers) == 10


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(0, 10_000)), max_size=300))
def test_it_agrees_with_a_sorted_list(steps):
    """Timers are started, cancelled and taken out in any order."""
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
                entry[2] = None  # as the base does: taken out, so no longer cancellable
            assert fired == due
            model = [key for key in model if key[0] > now]
        else:
            key = (now + delay, number)
            entries.append((timers.start(now + delay, "owner", number), key))
            model.append(key)
        assert len(timers) == len(model)
        assert timers.next_deadline() == (min(model)[0] if model else None)
