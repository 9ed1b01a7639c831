"""The end of a schedule finds a replica whose messages differ from its master's, even if no client notices (I7)."""

import pytest

from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.cluster.plan import draw_cluster_plan, parse_cluster_plan
from warren.simulation.cluster.schedule import ClusterSchedule, run
from warren.simulation.model.copies import PromiseBroken

PLAN = """cluster nodes=3 files=small mirrored=1
alice/1 publish queue=a.orders count=8 size=400 then=400
bob/1 publish queue=a.orders count=8 size=4200 then=400
"""


def test_a_replica_that_has_lost_a_message_is_found():
    schedule = ClusterSchedule(parse_cluster_plan(PLAN))
    check = schedule._have_equal_replicas

    def lose_one():
        routing = schedule.nodes["a"].routing
        mirror = routing.queue("/", "a.orders").group.ring[1].node
        (queue,) = [
            queue
            for queue in schedule.nodes[mirror.rpartition("@")[2]].processes("Queue")
            if queue.row.name == "a.orders"
        ]
        assert queue.backing.drop(1) == 1
        check()

    schedule._have_equal_replicas = lose_one
    with pytest.raises(PromiseBroken, match=r"the replica of a\.orders on warren@. lacks \[\(0, 4"):
        schedule.run()


def test_a_replica_that_has_not_started_yet_is_waited_for():
    """The check waits for a replica whose process has not started yet. It once failed, because it expected a process of
    each member of a ring.
    """
    plan = draw_cluster_plan(SeedChooser(92_000_162).below, is_mirrored=True)
    assert run(92_000_162, plan).failure is None
