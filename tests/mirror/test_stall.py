"""When a ring counts as stalled, and which member has to leave it (CL-80)."""

from __future__ import annotations

import pytest

from warren.mirror.stall import StallWatch, Standing, victim
from warren.routing.rows import Member

A, B, C = (Member(f"warren@{name}", "1", at) for at, name in enumerate("abc", 1))


def test_numbers_that_stand_still_while_something_is_outstanding():
    watch = StallWatch()
    assert not watch.is_stalled(0.0, True, (1, 0), 5.0)
    assert not watch.is_stalled(4.9, True, (1, 0), 5.0)
    assert watch.is_stalled(5.0, True, (1, 0), 5.0)
    assert not watch.is_stalled(6.0, True, (1, 1), 5.0), "they have risen"
    assert not watch.is_stalled(12.0, False, (1, 1), 5.0)
    assert not watch.is_stalled(13.0, True, (1, 1), 5.0), "nothing was outstanding a moment ago"
    assert watch.is_stalled(18.0, True, (1, 1), 5.0)


@pytest.mark.parametrize(
    ("standings", "found"),
    [
        ({A: (9, 0, 0), B: (9, 9, 0), C: (9, 9, 0)}, None),
        ({A: (9, 0, 0), C: (9, 9, 0)}, B),
        ({A: (9, 0, 0), B: (9, 9, 3)}, C),
        ({A: (9, 0, 4), B: (5, 5, 0), C: (5, 5, 0)}, B),
        ({A: (9, 0, 0), B: (9, 9, 4), C: (5, 5, 0)}, C),
        ({A: (9, 0, 0), B: (9, 9, 0), C: (5, 5, 0)}, C),
        ({A: (9, 0, 0), B: (9, 4, 0), C: (9, 9, 0)}, B),
        ({A: (9, 0, 0), B: (9, 9, 0), C: (9, 4, 0)}, C),
        ({A: (9, 0, 0), B: (9, 4, 0), C: (9, 4, 0)}, None),
    ],
)
def test_who_holds_up_the_ring(standings, found):
    result = victim((A, B, C), {member: Standing(*each) for member, each in standings.items()})
    assert (None if result is None else result[0]) == found


def test_of_two_members_the_mirror_whose_disk_stands_still_leaves():
    assert victim((A, B), {A: Standing(9, 0, 0), B: Standing(9, 4, 0)})[0] == B
    assert victim((A, B), {A: Standing(9, 0, 0), B: Standing(9, 9, 0)}) is None
    assert victim((A,), {A: Standing(9, 0, 0)}) is None
