"""Globs match as the simple definition says (SP-20)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from warren.routing.glob import matches_glob


def slow(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(slow(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and slow(pattern[1:], name[1:])


@settings(max_examples=500, deadline=None)
@given(st.text("ab*?", max_size=7), st.text("ab*", max_size=7))
def test_a_glob_means_what_its_definition_says(pattern, name):
    assert matches_glob(pattern, name) is slow(pattern, name)


def test_dots_and_brackets_are_themselves():
    assert matches_glob("orders.*", "orders.eu") and not matches_glob("orders.*", "ordersXeu")
    assert matches_glob("[a]", "[a]") and not matches_glob("[a]", "a")


class Counted(str):
    """A name that counts how often its characters are read."""

    looks = 0

    def __getitem__(self, key):
        Counted.looks += 1
        return super().__getitem__(key)


def test_no_pattern_makes_the_broker_try_combinations():
    """No pattern takes long to match, unlike a backtracking regular expression, which would try exponentially many
    combinations.
    """
    name = Counted("a" * 255)
    assert not matches_glob("a*" * 100 + "b", name)
    assert Counted.looks < 300 * 255
