"""Schedules find each bug that is planted into clusters; docs/internals/simulation.md lists the bugs."""

from __future__ import annotations

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.cluster.plan import draw_cluster_plan
from warren.simulation.cluster.schedule import run

from .cluster_mutants import CLUSTER_MUTANTS
from .mirror_mutants import MIRROR_MUTANTS

#: How many schedules a search runs at most to find a bug.
MOST = 2_000
#: The first seed of the search for a bug that needs many schedules; lower seeds do not find it, and take time.
FIRST = {
    "all_that_is_asked_for_was_taken": 1,
    "any_log_wins": 75,
    "append_answered_before_it_is_on_disk": 8,
    "confirm_before_sync": 118,
    "confirmed_by_the_master_alone": 8,
    "declared_down_at_once": 10,
    "half_is_a_majority": 13,
    "lease_from_the_answer": 14,
    "lost_requeue": 2,
    "never_begins_anew": 14,
    "nothing_is_published_again": 30,
    "nothing_was_taken": 12,
    "one_commits": 27,
    "redelivered_flag_lost": 4,
    "served_without_lease": 12,
}


@pytest.mark.parametrize("name", CLUSTER_MUTANTS)
def test_a_planted_bug_is_found(name):
    with CLUSTER_MUTANTS[name]():
        assert any(run(seed).failure for seed in range(FIRST.get(name, 0), MOST)), f"{MOST} schedules do not find it"


def run_mirrored(seed):
    return run(seed, draw_cluster_plan(SeedChooser(seed).below, is_mirrored=True))


@pytest.mark.parametrize("name", MIRROR_MUTANTS)
def test_a_planted_bug_of_mirrors_is_found(name):
    with MIRROR_MUTANTS[name]():
        assert any(run_mirrored(seed).failure for seed in range(FIRST.get(name, 0), MOST)), f"{MOST} do not find it"
