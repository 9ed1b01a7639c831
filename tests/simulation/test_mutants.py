"""A test of the tester: each planted bug is found, and told in a short story. docs/internals/simulation.md has the table."""

from __future__ import annotations

import pytest

from warren.simulation.schedule import run
from warren.simulation.shrinking import kind_of, shrink

from .mutants import MUTANTS

MOST = 10_000
LINES = 30
FIRST = {"ack_to_the_next_life": 2_700}
"""Seeds before these find nothing; that way is not gone each time."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name):
    with MUTANTS[name]():
        found = next(filter(lambda outcome: outcome.failure, map(run, range(FIRST.get(name, 0), MOST))), None)
        assert found is not None, f"{MOST} schedules, and nothing was noticed"
        short = shrink(found)
        again = run(short.seed, short.plan) if short.seed is not None else None
    assert kind_of(short.failure) == kind_of(found.failure)
    assert short.lines < LINES, short.story
    assert again is None or again.story == short.story


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_leaves_nothing_behind(name):
    before = run(1).story
    with MUTANTS[name]():
        pass
    assert run(1).story == before
