"""A listing of very many things sorts them in parts, so that no turn takes long."""

from __future__ import annotations

from math import ceil
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from warren.actors.node.operations.observing.listings import sorted_in_parts


class Turns:
    """Counts the turns that a listing leaves to others."""

    def __init__(self):
        self.count = 0

    async def next_turn(self):
        self.count += 1


def result_of(coroutine):
    """The result of a coroutine that waits for nothing but its next turn."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits")


@given(names=st.lists(st.text(max_size=3), max_size=30), part=st.integers(1, 8))
def test_things_are_sorted_in_parts_with_the_turns_of_others_in_between(names, part):
    turns = Turns()
    found = result_of(sorted_in_parts(SimpleNamespace(process=turns), names, str, part))
    assert list(found) == sorted(names)
    assert turns.count == ceil(len(names) / part)
