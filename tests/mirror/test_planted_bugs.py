"""Random plans find each bug that is planted into replicas; docs/internals/simulation.md lists the bugs."""

from __future__ import annotations

import random

import pytest

from warren.seams import SEAMS

from .mutants import MUTANTS
from .replicas import Violation
from .test_replicas import played

#: How many plans a search takes at most to find a bug.
MOST = 2_000


def finds(seed):
    try:
        played(random.Random(seed), 150)
    except (Violation, ValueError):  # a backing queue raises ValueError for numbers that contradict its own
        return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_of_replicas_is_found(name):
    with MUTANTS[name]():
        assert any(finds(seed) for seed in range(MOST)), f"{MOST} plans do not find it"


def test_every_seam_of_replicas_has_a_bug():
    assert {decision for decision in SEAMS if decision.startswith("replica: ")} <= MUTANTS.decisions
