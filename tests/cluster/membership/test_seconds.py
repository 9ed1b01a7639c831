"""How long a cluster takes to start and to stop when all its nodes do so at the same time, in simulated seconds
(CL-105).
"""

from __future__ import annotations

import pytest

from warren.runtime.sim.world import SimWorld
from warren.simulation.cluster.nodes import ClusterNodes


@pytest.fixture
def nodes():
    nodes = ClusterNodes(SimWorld(1), "abc")
    yield nodes
    nodes.close()


def started(nodes) -> None:
    for node in nodes:
        node.boot()
    assert nodes.world.run_until(nodes.are_up, 60)


def test_three_nodes_start_and_stop_without_waiting_for_rounds(nodes):
    world = nodes.world
    began = world.time
    for node in nodes:
        node.boot()
    assert world.run_until(nodes.are_up, 60)
    # The nodes ask each other every 0.5 s, and a node gets its vote within three heartbeats of 0.25 s.
    assert world.time - began < 1.5

    # When all stop, the last has no node to hand leadership over to, for which a node waits 2 s at most.
    began = world.time
    for node in nodes:
        node.begin_stop()
    assert world.run_until(lambda: all(node.has_stopped for node in nodes), 60)
    assert world.time - began < 1.0


@pytest.mark.parametrize("letter", "abc")
def test_a_node_that_stops_counts_as_down_at_once(nodes, letter):
    """A node that stops counts as down at once, also if it leads: the new leader need not wait for the next heartbeats,
    because all nodes send it one when it is elected.
    """
    started(nodes)
    world, stopping = nodes.world, nodes[letter]
    other = next(node for node in nodes if node is not stopping)
    world.run(2.0)
    stopping.begin_stop()
    assert world.run_until(lambda: stopping.has_stopped, 60)
    began = world.time
    assert world.run_until(lambda: not other.supervisor.context.definitions.node(stopping.name).incarnation, 60)
    assert world.time - began < 0.1
