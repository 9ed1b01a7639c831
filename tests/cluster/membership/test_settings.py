"""Settings that must be the same on all nodes: nodes that differ in one refuse each other, and both log it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.runtime.sim.world import SimWorld
from warren.simulation.cluster.nodes import ClusterNodes


@pytest.fixture
def nodes():
    nodes = ClusterNodes(SimWorld(1), "ab")
    yield nodes
    nodes.close()


def test_nodes_with_another_credit_do_not_link(nodes, caplog):
    """Nodes with different credit settings do not link, because a channel could wait for ever for the credit of a queue
    on the other node.
    """
    caplog.set_level("INFO", "warren")
    a, b = nodes
    b.settings = replace(b.settings, credit_flow_default_credit=(50, 10))
    for node in nodes:
        node.boot()
    text = "credit_flow_default_credit is 400, 200 on warren@a and 50, 10 on warren@b; give it the same value"
    assert nodes.world.run_until(lambda: text in caplog.text, 60)
    assert not nodes.are_up()
