"""How failures are shrunk; `test_mutants` shrinks that of every planted bug."""

from __future__ import annotations

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.outcome import ScheduleOutcome
from warren.simulation.plan import draw_plan
from warren.simulation.shrinking import shrink


def test_no_plan_is_run_twice_in_one_order():
    """Shrinking runs no plan twice with one order: the outcome would be the same, and the number of runs is limited."""
    tried = []
    plans = (draw_plan(SeedChooser(seed).below) for seed in range(100))
    plan = next(plan for plan in plans if sum(action.what == "publish" for action in plan.actions) > 4)

    def fails_with_two_publishes(seed, plan, chooser):
        tried.append((str(plan), None if chooser else seed))
        fails = sum(action.what == "publish" for action in plan.actions) >= 2
        return ScheduleOutcome(plan, None if chooser else seed, "it broke" if fails else None, "", 0)

    short = shrink(fails_with_two_publishes(1, plan, None), fails_with_two_publishes)
    assert [action.what for action in short.plan.actions] == ["publish"] * 2
    assert len(tried) > 100
    passed = [one for one in tried if one[0] != str(short.plan)]
    assert len(set(passed)) == len(passed)
