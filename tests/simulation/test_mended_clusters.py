"""Faults of clusters that schedules have found. Those of a single part have a test beside the others of that part."""

from __future__ import annotations

import pytest

from warren.actors.metadata.state.commands import ChangeNodes
from warren.amqp.errors import AmqpError
from warren.cluster.metadata.process import ClusterMetadata
from warren.simulation.cluster.plan import parse_cluster_plan
from warren.simulation.cluster.schedule import ClusterSchedule
from warren.simulation.shrinking import plainest


@pytest.fixture
def cluster():
    """Three nodes that have found their cluster."""
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=3"), chooser=plainest())
    try:
        schedule.begin()
        yield schedule
    finally:
        schedule.close()


def leader(cluster):
    (found,) = [node for node in cluster.nodes if node.process(ClusterMetadata).agreed.replication.leads]
    return found


def test_a_verdict_that_cannot_be_agreed_on_crashes_nobody(cluster, monkeypatch):
    handler = ClusterMetadata._handlers["change_definitions"]
    refused = []

    def change_definitions(self, sender, command):
        if isinstance(command, ChangeNodes) and not refused:
            refused.append(command)
            raise AmqpError(541, "this node has missed what became of this change")
        return handler(self, sender, command)

    monkeypatch.setitem(ClusterMetadata._handlers, "change_definitions", change_definitions)
    lost = next(node for node in cluster.nodes if node is not leader(cluster))
    cluster.perform(parse_cluster_plan(f"cluster nodes=3\n{lost.letter} kill for=1000").actions[0])
    cluster.finish()
    assert refused
