"""Random schedules break no law of Raft, and the bugs that are planted in it are found."""

import pytest

from warren.seams import SEAMS
from warren.tests.conversations import TESTDATA

from . import schedules
from .conversation import played
from .mutants import MUTANTS
from .world import Violation

#: How many schedules a search takes at most to find a bug.
MOST = 2_000
#: The first seed of the search for a bug that needs many schedules; lower seeds do not find it, and take time.
FIRST = {
    "barrier_by_old_contact": 340,
    "change_while_one_is_uncommitted": 780,
    "half_commits": 650,
    "late_append_cuts_the_log": 200,
    "two_voters_commit_like_one": 430,
    "vote_before_it_is_on_disk": 1_600,
}
#: Bugs that random steps do not find within seconds. For each, the scenario that must come out differently with it.
BY_SCENARIO = {
    "earlier_term_committed_by_counting": "entry_of_an_earlier_term_is_not_counted",
    "forgets_its_leader_in_a_crash": "voter_that_starts_again_keeps_its_leader",
}


def test_schedules_break_no_law(first_seed):
    for seed in range(first_seed, first_seed + 300):
        failure = schedules.run(seed)
        assert failure is None, "\n".join([f"seed {seed}", *schedules.told(seed)[-60:]])


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - BY_SCENARIO.keys()))
def test_the_search_finds_a_planted_bug(name):
    first = FIRST.get(name, 0)
    with MUTANTS[name]():
        found = next(filter(None, map(schedules.run, range(first, first + MOST))), None)
    assert found is not None, f"{MOST} schedules, and the bug was not found"
    assert schedules.run(found.seed) is None, "the seed fails without the bug too"


@pytest.mark.parametrize("name", BY_SCENARIO)
def test_a_scenario_finds_a_planted_bug(name):
    text = (TESTDATA / "consensus" / f"{BY_SCENARIO[name]}.txt").read_text()
    assert played(text) == text
    with MUTANTS[name]():
        try:
            assert played(text) != text
        except Violation:
            pass


def test_every_seam_of_consensus_has_a_bug():
    seams = {
        name for name, functions in SEAMS.items() if functions[0].__module__.startswith("warren.cluster.consensus.")
    }
    assert MUTANTS.decisions == seams


def test_a_seed_gives_the_same_story_again():
    assert schedules.told(7) == schedules.told(7)
