"""Regular expressions of operators: what they match, and that no search takes long."""

from __future__ import annotations

import time

import pytest

from warren.definitions import patterns
from warren.definitions.errors import DefinitionError


@pytest.mark.parametrize(
    ("pattern", "name", "is_found"),
    [
        ("^orders\\.", "orders.eu", True),
        ("^orders\\.", "my.orders.eu", False),
        ("orders", "my.orders.eu", True),
        ("", "anything", True),
        (".*", "anything", True),
        ("^(?!amq\\.).*", "amq.topic", False),
        ("^(?!amq\\.).*", "topic", True),
        ("^.{2}$", "ä", True),
    ],
)
def test_a_pattern_is_searched_in_the_bytes_of_the_name(pattern, name, is_found):
    assert patterns.matches(pattern, name) is is_found


@pytest.mark.parametrize(("text", "is_found"), [("x" * 254 + "y", True), ("x" * 254 + "b", False)])
def test_what_a_search_finds_does_not_depend_on_the_clock(monkeypatch, text, is_found):
    """Whether a search finds a match does not depend on its time, because a busy node must not find that a policy does
    not match while the others find that it does (CL-27).
    """
    assert patterns.matches("^(x+x*)+y$", text) is is_found
    monkeypatch.setattr(patterns, "SEARCH_SECONDS", 1e-9)
    assert patterns.matches("^(x+x*)+y$", text) is is_found


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "((a{1,1000}){1,1000}){1,1000}$", "(a|aa|x|xx)+$", "(?P<c>x+)+(?P=c)!"]
)
def test_a_pattern_that_blows_up_matches_nothing_and_soon(pattern):
    before = time.process_time()
    assert not patterns.matches(pattern, "x" * 254 + "b")
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize("slow", range(1, patterns.SEARCHES + 1))
def test_a_search_that_other_threads_make_seem_slow_is_repeated(monkeypatch, slow):
    """`regex` counts the time of all threads of the process, so a search of microseconds may seem to take too long."""
    compiled, tries = patterns._compiled, []

    class Interrupted:
        def search(self, text, timeout):
            tries.append(text)
            if len(tries) <= slow:
                raise TimeoutError
            return compiled("^(?>orders)").search(text)

    monkeypatch.setattr(patterns, "_compiled", lambda pattern: Interrupted())
    assert patterns.matches("^(?>orders)", "orders.eu") is (slow < patterns.SEARCHES)
    assert len(tries) <= patterns.SEARCHES


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "(?P<a", "a{2,1}", "x" * 5000])
def test_a_pattern_that_cannot_be_compiled_is_refused_when_it_is_set(pattern):
    with pytest.raises(DefinitionError, match="invalid_regexp"):
        patterns.check(pattern)
    assert patterns.fault(pattern)


def test_a_pattern_that_is_spoiled_later_matches_nothing():
    """A topic permission whose variables become names that are no regular expressions matches nothing."""
    assert not patterns.matches("^(", "a")
