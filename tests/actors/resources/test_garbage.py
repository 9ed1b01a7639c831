"""When a node whose memory is short collects all garbage, which stops all its processes."""

from __future__ import annotations

from warren.actors.resources.garbage import ALARM_SECONDS, COLLECT_SECONDS, CYCLES, LONGEST_PAUSE, Garbage


def test_cycles_are_a_sign_once():
    """Cycles that were found since the last collection are a reason for another one, but not a moment after it."""
    garbage = Garbage(50)
    assert not garbage.is_due(1.0, 50 + CYCLES - 1)
    assert garbage.is_due(1.0, 50 + CYCLES)
    garbage.collected(1.0, 3 * CYCLES)
    assert not garbage.is_due(2.0, 9 * CYCLES)
    assert not garbage.is_due(1.0 + COLLECT_SECONDS, 3 * CYCLES)
    assert garbage.is_due(1.0 + COLLECT_SECONDS, 4 * CYCLES)


def dues(garbage: Garbage, begins: int, ends: int, found: int) -> list[int]:
    """The seconds of an alarm in which a collection was due. Each collection frees `found` objects."""
    total, seen = 0, []
    for now in range(begins, ends):
        if garbage.is_due(now, total):
            total += found
            garbage.collected(now, total)
            seen.append(now - begins)
    return seen


def test_collections_under_an_alarm_become_rare_if_they_find_nothing():
    garbage = Garbage(0)
    garbage.alarmed(100, True)
    seen = dues(garbage, 100, 100 + 3600, 0)
    assert seen[:4] == [ALARM_SECONDS, 3 * ALARM_SECONDS, 7 * ALARM_SECONDS, 15 * ALARM_SECONDS]
    assert {later - earlier for earlier, later in zip(seen[4:], seen[5:])} == {LONGEST_PAUSE}
    garbage.alarmed(5000, False)
    assert dues(garbage, 5000, 6000, 0) == []
    garbage.alarmed(6000, True)
    assert dues(garbage, 6000, 6100, 0) == [ALARM_SECONDS], "another alarm may have another cause"


def test_collections_that_find_garbage_go_on():
    garbage = Garbage(0)
    garbage.alarmed(100, True)
    assert dues(garbage, 100, 100 + 5 * int(ALARM_SECONDS), CYCLES) == [ALARM_SECONDS * n for n in range(1, 5)]
