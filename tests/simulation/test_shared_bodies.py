"""Schedules in which nearly every message is large and goes to several queues: what they share is stored once, and there for each of them, whatever crashes."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.plan import Action, Plan, draw_plan
from warren.simulation.schedule import run
from warren.simulation.shrinking import shrink
from warren.store.bodies.store_client import StoreClient
from warren.store.bodies.store_engine import StoreEngine
from warren.store.messages.message_ids import SharedIds

FRESH = int(os.environ.get("WARREN_SCHEDULES", "4000")) // 10
MOST = 3000
QUEUES = ("orders", "archive", "urgent", "news")


def fanned_out(seed: int) -> Plan:
    """A plan with the queues of that seed, and others, bound before all else; what would be published to one of them is published to all, most of it large."""
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
    # Whoever unbinds leaves the others nothing to share.
    return Action(action.who, action.channel, "bind", action.values, action.then) if action.what == "unbind" else action


@pytest.mark.timeout(600)
def test_nothing_shared_is_lost_and_nothing_stays():
    """Wherever the node rests, its stores count just the references that its queues have (QS-26); a crashed queue's may be too many, and none too few."""
    first = secrets.randbelow(1 << 40)
    for seed in range(first, first + FRESH):
        outcome = run(seed, fanned_out(seed))
        if outcome.failure is not None:
            pytest.fail(f"seed {seed}: {outcome.failure}\n{shrink(outcome, attempts=200).story}", pytrace=False)


def test_these_schedules_share(monkeypatch):
    """What would be tested otherwise is but the rest."""
    taken, adopted = [], []
    take, adopt = SharedIds.take, StoreEngine.adopt
    monkeypatch.setattr(SharedIds, "take", lambda *args: taken.append(take(*args)) or taken[-1])
    monkeypatch.setattr(StoreEngine, "adopt", lambda *args: adopted.append(adopt(*args)) or adopted[-1])
    for seed in range(60):
        run(seed, fanned_out(seed))
    assert sum(map(bool, taken)) > 100 and adopted


@contextmanager
def replaced(owner, name, function):
    original = getattr(owner, name)
    setattr(owner, name, function(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def one_write_is_enough(write):
    """The second queue's reference is not counted."""

    def once(self, client, messages):
        write(self, client, [message for message in messages if not self.contains(message[0])])
        self._report(client, "written", [message[0] for message in messages])

    return once


def removes_twice(remove):
    """A queue gives back one reference too many now and then."""

    def twice(self, message_ids):
        ids = list(message_ids)
        remove(self, ids)
        remove(self, ids[:1])

    return twice


def forgets_to_remove(remove):
    """Or none at all."""
    return lambda self, message_ids: None


def the_same_id_again(take):
    """A source of ids that begins anew with each channel."""

    def again(self, contents, embedded_below):
        self._random_bytes = bytes
        return take(self, contents, embedded_below)

    return again


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (StoreEngine, "write", one_write_is_enough),
        (StoreClient, "remove", removes_twice),
        (StoreClient, "remove", forgets_to_remove),
        (SharedIds, "take", the_same_id_again),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_bug_is_found(owner, name, fault):
    with replaced(owner, name, fault):
        assert any(run(seed, fanned_out(seed)).failure for seed in range(MOST)), (
            f"{MOST} schedules, and nothing was noticed"
        )
