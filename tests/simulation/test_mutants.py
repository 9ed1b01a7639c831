"""Each planted bug is found and shrinks to a short story. docs/internals/simulation.md lists the bugs."""

from __future__ import annotations

import pytest

from warren.simulation.schedule import run
from warren.simulation.shrinking import kind_of, shrink

from .mutants import MUTANTS

#: Schedules within which a bug must be found.
MOST = 10_000
#: Most lines of the shrunk story.
LINES = 30
#: Longer stories: a run must have messages for several queues, each of which is declared and bound, or two files of the
#: message store must have enough garbage to be combined.
LONGER = {
    "body_misplaced_in_garbage_collection": 60,
    "destinations_of_the_first": 60,
    "pattern_of_any_priority": 60,
    "priority_overlooked": 60,
}
#: The first seed for bugs that lower seeds do not find; skipping those saves time.
FIRST = {"ack_to_the_next_process": 2_700}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name):
    with MUTANTS[name]():
        found = next(filter(lambda outcome: outcome.failure, map(run, range(FIRST.get(name, 0), MOST))), None)
        assert found is not None, f"{MOST} schedules, and the bug was not found"
        short = shrink(found)
        again = run(short.seed, short.plan) if short.seed is not None else None
    assert kind_of(short.failure) == kind_of(found.failure)
    assert short.lines < LONGER.get(name, LINES), short.story
    assert again is None or again.story == short.story


@pytest.mark.parametrize("name", MUTANTS)
def test_a_bug_that_is_switched_off_leaves_no_trace(name):
    before = run(1).story
    with MUTANTS[name]():
        pass
    assert run(1).story == before
