"""A search without backtracking finds the same matches as Python's backtracking search."""

from __future__ import annotations

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from warren.definitions import position_sets
from warren.definitions.position_sets import PositionSets, TooManySteps, Unsupported

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[b-d.]", r"\d", r"\W", r"\s", r"\.", "^", "$", r"\b", r"\B", r"\A", r"\Z", ""]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map("(?:{})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{2,}", "{0}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.tuples(st.sampled_from(["=", "!"]), inner).map(lambda pair: f"(?{pair[0]}{pair[1]})"),
        inner.map("({})".format),
        inner.map("(?i:{})".format),
        st.tuples(st.sampled_from(["<=", "<!"]), st.sampled_from(["a", "ab", "[^b].", "^a"])).map(
            lambda pair: f"(?{pair[0]}{pair[1]})"
        ),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.sampled_from(["", "(?s)", "(?m)", "(?i)"]), st.text("abcA1.\n", max_size=6))
def test_it_finds_what_a_search_with_backtracking_finds(pattern, flags, text):
    whole, encoded = (flags + pattern).encode(), text.encode()
    expected = bool(regex.compile(whole).search(encoded))
    assert PositionSets(whole).is_found(encoded) is expected


@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [
        ("(x+x+)+y", False),
        ("(x+x+)+$", True),
        ("^(((((x*)*)*)*)*)*y$", False),
        ("((x{1,1000}){1,1000}){1,1000}$", True),
        ("((){1000}){1000}y", False),
        ("(?=(x|xx)+y)x", False),
    ],
)
def test_a_pattern_in_which_others_get_lost_takes_few_steps(pattern, is_found):
    before = time.process_time()
    assert PositionSets(pattern.encode()).is_found(b"x" * 254) is is_found
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize(
    "pattern", ["(a)\\1", "(?>a+)b", "a++b", "(?P<n>a)(?P=n)", "(a)?(?(1)b|c)", "(?R)", "[[:alpha:]]"]
)
def test_what_depends_on_the_order_of_a_search_is_not_supported(pattern):
    with pytest.raises(Unsupported):
        PositionSets(pattern.encode())


def test_the_steps_are_bounded(monkeypatch):
    monkeypatch.setattr(position_sets, "STEPS_MOST", 100)
    assert not PositionSets(b"^a+b$").is_found(b"a" * 40)
    with pytest.raises(TooManySteps):
        PositionSets(b"^a+b$").is_found(b"a" * 200)
