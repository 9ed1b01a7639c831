"""Random schedules, with seeds of this very run. What they have once found is in tests/testdata/simulation.

WARREN_SCHEDULES says how many fresh ones; 4,000 take two minutes on two cores. A failure prints its seed, and `warren simulate --seed` shows it again.
"""

from __future__ import annotations

import os
import secrets

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.plan import draw_plan, parse_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import plainest, shrink

FRESH = int(os.environ.get("WARREN_SCHEDULES", "4000"))
PORTIONS = 20


def check(seed):
    outcome = run(seed)
    if outcome.failure is not None:
        pytest.fail(
            f"seed {seed}: {outcome.failure}\n{shrink(outcome, attempts=200).story}\nwarren simulate --seed {seed} --schedules 1",
            pytrace=False,
        )
    return outcome


@pytest.mark.timeout(600)
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_fresh_seeds(portion):
    first = secrets.randbelow(1 << 40)
    for seed in range(first, first + FRESH // PORTIONS):
        check(seed)


def test_schedules_are_long_enough():
    """On average 200 steps of the world or more."""
    assert sum(run(seed).steps for seed in range(50)) / 50 >= 200


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_what_its_text_says(seed):
    plan = draw_plan(SeedChooser(seed).below)
    again = parse_plan(str(plan))
    assert str(again) == str(plan)
    assert run(seed, again).story == run(seed).story


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "begins with"),
        ("alice/1 get", "begins with"),
        ("node store=1\nalice/1", "what alice/1 does"),
        ("node store=1\nalice/1 get queue", "'queue' is not key=value"),
    ],
)
def test_a_text_that_is_no_plan(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_plan(text)


def test_the_plainest_plan_in_the_plainest_order():
    plan = draw_plan(lambda count: 0)
    assert run(0, plan, plainest()).failure is None
