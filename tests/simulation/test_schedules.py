"""Random schedules of one node. tests/testdata/simulation has the conversations that once failed.

WARREN_SCHEDULES sets how many; 250 take 10 s on one core. A failure prints its seed, and `warren simulate --seed` runs
it again. `make search` draws new seeds.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.plan import draw_plan, parse_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import plainest, shrink

from .processes import check_same_traces

SCHEDULES = int(os.environ.get("WARREN_SCHEDULES", "250"))
BATCHES = 5


def check(seed):
    outcome = run(seed)
    if outcome.failure is not None:
        pytest.fail(
            f"seed {seed}: {outcome.failure}\n{shrink(outcome, run, attempts=200).story}\n"
            f"warren simulate --seed {seed} --schedules 1",
            pytrace=False,
        )
    return outcome


@pytest.mark.parametrize("batch", range(BATCHES))
def test_seeds(batch, first_seed):
    """Schedules have 200 steps on average, because one with few would hardly find anything."""
    seeds = range(first_seed, first_seed + SCHEDULES // BATCHES)
    assert sum(check(seed).steps for seed in seeds) / len(seeds) >= 200


def test_a_seed_is_the_same_schedule_in_every_process():
    """Schedules do not depend on the order of a set of texts, which Python decides anew in each process."""
    check_same_traces("warren.simulation.schedule", "Schedule", "draw_plan", range(25, 45))


@pytest.mark.parametrize("seed", range(20))
def test_the_text_of_a_plan_describes_it_completely(seed):
    """A plan that is written and read again is the same. A value of 0 is left out of the text, and means the same as
    none.
    """
    plan = draw_plan(SeedChooser(seed).below)
    again = parse_plan(str(plan))
    assert str(again) == str(plan)
    spoken = [replace(one, values={key: value for key, value in one.values.items() if value}) for one in plan.actions]
    assert again == plan.with_actions(spoken)


@pytest.mark.parametrize("seed", range(4))
def test_a_parsed_plan_runs_as_the_drawn_one(seed):
    assert run(seed, parse_plan(str(draw_plan(SeedChooser(seed).below)))).story == run(seed).story


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "begins with"),
        ("alice/1 get", "begins with"),
        ("node store=1\nalice/1", "what alice/1 does"),
        ("node store=1\nalice/1 get queue", "'queue' is not key=value"),
        ("node credit=8", "two numbers such as 400,200: node credit=8"),
        ("node credit=a,b", "two numbers .*: node credit=a,b"),
        ("node credit=8,4,2", "two numbers .*: node credit=8,4,2"),
        ("node heartbeat=on", "'heartbeat=on' is no number: node heartbeat=on"),
        ("node turn=²", "'turn=²' is no number: node turn=²"),
        ("node store=1\nalice/1 get then=x", "'then=x' is no number: alice/1 get then=x"),
        ("node store=1\nalice/x get", "'x' is no number of a channel: alice/x get"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_plan(text)


def test_the_plainest_plan_in_the_plainest_order_breaks_no_promise():
    plan = draw_plan(lambda count: 0)
    assert run(0, plan, plainest()).failure is None
