"""Schedules in which nearly every message is large and goes to several queues.

Such a body is stored once, and every queue must find it, whatever crashes.
"""

from __future__ import annotations

import os

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.plan import Action, Plan, draw_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import shrink
from warren.store.bodies.store_engine import StoreEngine
from warren.store.messages.message_ids import SharedIds

from .mutants.shared_body_mutants import SHARED_BODY_MUTANTS

SCHEDULES = int(os.environ.get("WARREN_SCHEDULES", "250")) // 5
MOST = 3000
QUEUES = ("orders", "archive", "urgent", "news")


def fanned_out(seed: int) -> Plan:
    """The plan of that seed, with three queues that are bound first, and with every publish large and to
    all of them.
    """
    drawn = draw_plan(SeedChooser(seed).below)
    names = (*drawn.queues, *[name for name in QUEUES if name not in drawn.queues][: 3 - len(drawn.queues)])
    binds = [Action("alice", 1, "bind", {"queue": name}, 20) for name in names]
    return Plan(True, names, drawn.credit, (*binds, *map(_fanned_out, drawn.actions)))


def _fanned_out(action: Action) -> Action:
    if action.what == "publish":
        return Action(
            action.who,
            action.channel,
            action.what,
            {**action.values, "by": "exchange", "size": 4_200 if action.values["size"] != 9_000 else 9_000},
            action.then,
        )
    # An unbind would leave fewer queues that share a body, so it becomes a bind.
    return Action(action.who, action.channel, "bind", action.values, action.then) if action.what == "unbind" else action


def test_no_shared_body_is_lost_and_none_stays(first_seed, monkeypatch):
    """Whenever the node is at rest, its stores count exactly the references that its queues have (QS-26).

    After a crash of a queue they may count too many, never too few. The schedules must have many shared bodies, or the
    test would show nothing. Few schedules adopt a body, so more are run until one does.
    """
    taken, adopted = [], []
    take, adopt = SharedIds.take, StoreEngine.adopt
    monkeypatch.setattr(SharedIds, "take", lambda *args: taken.append(take(*args)) or taken[-1])
    monkeypatch.setattr(StoreEngine, "adopt", lambda *args: adopted.append(adopt(*args)) or adopted[-1])
    for seed in range(first_seed, first_seed + MOST):
        if seed >= first_seed + SCHEDULES and adopted:
            break
        outcome = run(seed, fanned_out(seed))
        if outcome.failure is not None:
            pytest.fail(f"seed {seed}: {outcome.failure}\n{shrink(outcome, run, attempts=200).story}", pytrace=False)
    assert sum(map(bool, taken)) > SCHEDULES and adopted, f"{len(taken)} bodies shared, {len(adopted)} adopted"


@pytest.mark.parametrize("name", SHARED_BODY_MUTANTS)
def test_a_planted_bug_is_found(name):
    with SHARED_BODY_MUTANTS[name]():
        assert any(run(seed, fanned_out(seed)).failure for seed in range(MOST)), (
            f"{MOST} schedules, and the bug was not found"
        )
