"""Random schedules of clusters of three nodes.

WARREN_CLUSTER_SCHEDULES sets how many; 300 take a minute on one core. A failure prints its seed, and `warren simulate
--nodes 3 --seed` runs it again.
"""

from __future__ import annotations

import os

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.cluster.plan import draw_cluster_plan, parse_cluster_plan
from warren.simulation.cluster.schedule import ClusterSchedule, run
from warren.simulation.shrinking import plainest, shrink

from .processes import check_same_traces

SCHEDULES = int(os.environ.get("WARREN_CLUSTER_SCHEDULES", "24"))
BATCHES = 4


@pytest.mark.parametrize("batch", range(BATCHES))
def test_clusters_keep_their_promises(batch, first_seed):
    for seed in range(first_seed + batch, first_seed + SCHEDULES, BATCHES):
        outcome = run(seed)
        if outcome.failure is not None:
            pytest.fail(
                f"seed {seed}: {outcome.failure}\n{shrink(outcome, run, attempts=40).story}\n"
                f"warren simulate --nodes 3 --seed {seed} --schedules 1",
                pytrace=False,
            )


@pytest.mark.parametrize("batch", range(BATCHES))
def test_clusters_with_mirrored_queues_keep_their_promises(batch, first_seed):
    """Promises are kept with all queues mirrored, too, where another node goes on with the queues of a node
    that fails.
    """
    for seed in range(first_seed + batch, first_seed + SCHEDULES // 2, BATCHES):
        outcome = run(seed, draw_cluster_plan(SeedChooser(seed).below, is_mirrored=True))
        if outcome.failure is not None:
            pytest.fail(
                f"seed {seed}: {outcome.failure}\n{outcome.story}\n"
                f"warren simulate --nodes 3 --mirrored --seed {seed} --schedules 1",
                pytrace=False,
            )


MOVES = """cluster nodes=3 credit=8,4 turn=2 mirrored=1
alice/1 publish queue=a.orders count=8 size=400 then=8
carol/2 consume queue=a.orders prefetch=2 then=20
b promote queue=a.orders then=20
alice/1 publish queue=a.orders count=8 size=400 then=60
bob/1 publish queue=a.orders count=3 size=4200 then=400
c promote queue=a.orders then=3
alice/1 publish queue=a.orders count=8 size=20 then=150
"""


@pytest.mark.parametrize("seed", range(5))
def test_operators_move_masters_and_no_client_is_refused(seed):
    """When an operator moves a master, no client sees a refusal, a lost connection or a cancelled consumer: a move is
    no fault.
    """
    schedule = ClusterSchedule(parse_cluster_plan(MOVES), seed)
    reigns = []
    check_drained = schedule.ledger.check_drained

    def checked(drained, dead_letters):
        row = schedule.nodes["a"].routing.queue("/", "a.orders")
        reigns.append((row.generation, row.node))
        check_drained(drained, dead_letters)

    schedule.ledger.check_drained = checked
    schedule.run()
    assert reigns == [(2, "warren@c")]
    assert not schedule.faults.is_disturbed
    assert schedule.ledger.counts["confirmed"] == 27


def test_the_plainest_plan_in_the_plainest_order_breaks_no_promise():
    plan = draw_cluster_plan(lambda count: 0)
    outcome = run(0, plan, plainest())
    assert outcome.failure is None
    assert "receives the confirm of message 1.1" in outcome.story


def test_a_seed_is_the_same_schedule_in_every_process():
    """Schedules do not depend on the order of a set of texts, which Python decides anew in each process."""
    check_same_traces("warren.simulation.cluster.schedule", "ClusterSchedule", "draw_cluster_plan", range(4))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_mirrored", [False, True])
def test_the_text_of_a_plan_describes_it_completely(seed, is_mirrored):
    plan = draw_cluster_plan(SeedChooser(seed).below, is_mirrored=is_mirrored)
    assert str(parse_cluster_plan(str(plan))) == str(plan)


def test_a_parsed_plan_runs_as_the_drawn_one():
    plan = draw_cluster_plan(SeedChooser(3).below)
    assert run(3, parse_cluster_plan(str(plan))).story == run(3).story


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "begins with"),
        ("node store=1", "begins with"),
        ("cluster nodes=9", "a cluster has 1 to 5 nodes"),
        ("cluster nodes=3\nalice", "what alice does"),
        ("cluster nodes=3\nd kill", "nobody can do this"),
        ("cluster nodes=3\nnet kill", "nobody can do this"),
        ("cluster nodes=3\nnet isolate node=e", "there is no machine 'e'"),
        ("cluster nodes=3\nalice/1 publish queue=tasks", "there is no queue 'tasks'"),
        ("cluster nodes=many", "'nodes=many' is no number: cluster nodes=many"),
        ("cluster credit=8", "two numbers such as 400,200: cluster credit=8"),
        ("cluster nodes=1\nall rest then=x", "'then=x' is no number: all rest then=x"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_cluster_plan(text)
