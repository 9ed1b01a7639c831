"""Policies change while clients publish and consume, and while processes and the node crash."""

from __future__ import annotations

from warren.simulation import faults
from warren.simulation.plan import parse_plan
from warren.simulation.schedule import run

PLAN = """
node store=1 credit=400,200 queues=orders,last,full,newest,claims
alice/2 consume queue=orders prefetch=2 then=10
bob/2 publish queue=orders count=5 persistent=1 size=20
machine rest
machine policy on=1 then=2
bob/2 publish queue=last count=5 persistent=1 size=20
bob/2 publish queue=full count=5 persistent=1 size=20 then=40
machine policy on=0 then=1
bob/2 publish queue=newest count=5 persistent=1 size=20
alice/2 settle which=1 multiple=1 how=ack then=30
machine policy on=1 then=3
bob/2 publish queue=orders count=5 persistent=1 size=20
bob/2 publish queue=last count=5 persistent=1 size=20 then=60
machine crash process=Queue then=8
machine policy on=0 then=1
bob/2 publish queue=claims count=3 persistent=1 size=20 then=4
machine policy on=1 then=5
alice/2 get queue=claims
alice/2 settle which=1 how=reject any=1 then=60
machine kill then=20
bob/2 publish queue=last count=5 persistent=1 size=20
bob/2 publish queue=newest count=5 persistent=1 size=20 then=60
machine rest
"""


CALM = """
node store=1 credit=400,200 queues=orders
bob/2 publish queue=orders count=5 persistent=1 size=20
machine rest
machine policy on=1
machine rest
"""


def test_policies_that_change_under_load_break_no_promise():
    for seed in range(30):
        outcome = run(seed, parse_plan(PLAN))
        assert outcome.failure is None, outcome.story


def test_the_policy_of_these_plans_reaches_the_queues(monkeypatch):
    """With a policy that is narrower than the queues' own limits the model misses messages, so the policy of these
    plans does reach the queues.
    """
    assert run(0, parse_plan(CALM)).failure is None
    monkeypatch.setattr(faults, "WIDE_POLICY", '{"max-length":1}')
    assert "message 4 in queue 'orders' (confirmed)" in str(run(0, parse_plan(CALM)).failure)
