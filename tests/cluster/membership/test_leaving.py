"""An operator removes nodes of a simulated cluster from it with `reset` (CM-50)."""

from __future__ import annotations

import pytest

from warren.actors.contracts.membership import AppStopped
from warren.actors.contracts.node import to_node
from warren.cluster.membership.identity import Identity, write_identity
from warren.cluster.membership.process import Members
from warren.runtime.sim.choosing import SeedChooser
from warren.simulation.cluster.plan import parse_cluster_plan
from warren.simulation.cluster.schedule import ClusterSchedule


@pytest.fixture(params=range(4))
def cluster(request):
    """Three nodes that have found their cluster. Each parameter is a seed, and so another order of events."""
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=3"), chooser=SeedChooser(request.param))
    try:
        schedule.begin()
        yield schedule
    finally:
        schedule.close()


def reset_at_once(cluster, node):
    """Start this node with its app stopped, and reset it as soon as it takes commands, after which it is to begin a new
    run.
    """
    node.boot(app_stopped=True)
    assert cluster.world.run_until(lambda: node.process(Members), 60)
    node.port.begin(node.address, to_node.operate("reset", {}))
    assert cluster.world.run_until(lambda: node.starting.is_here, 60)
    with pytest.raises(AppStopped):
        node.starting.value()


def members(cluster):
    return [sorted(cluster.nodes[letter].process(Members).table.nodes) for letter in "ab"]


def test_a_node_that_is_reset_as_soon_as_it_answers_leaves_its_cluster(cluster):
    """A node that is reset while it has not read its members yet still leaves its cluster.

    Such a node once counted itself as alone and was reset without leaving, and the others waited for its vote for ever.
    """
    third = cluster.nodes["c"]
    third.kill()
    reset_at_once(cluster, third)
    assert members(cluster) == [["warren@a", "warren@b"]] * 2


def test_a_node_that_has_joined_and_is_reset_before_it_knows_the_members_leaves(cluster):
    """A node that has joined, and is reset before it knows the members, leaves by the member through which it joined,
    which its identity names.
    """
    third, of_first = cluster.nodes["c"], cluster.nodes["a"].process(Members).own.identity
    node_id = third.process(Members).own.identity.node_id
    third.kill()
    third.wipe()
    write_identity(
        third.disks.open(third.settings.data_dir), Identity(node_id, cluster=of_first.cluster, through="warren@a")
    )
    reset_at_once(cluster, third)
    assert members(cluster) == [["warren@a", "warren@b"]] * 2
