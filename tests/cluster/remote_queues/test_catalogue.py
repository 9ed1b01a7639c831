"""The catalogue of a node whose queues are on other nodes: where clients reach these nodes (SP-21)."""

from __future__ import annotations

import json

from warren.amqp import methods as m
from warren.simulation.node import PORT


def row(channel, queue="q"):
    """The row of a queue."""
    channel.consume("amq.warren.catalogue", arguments={"x-warren-queues": [queue]}, no_ack=True)
    (found,) = json.loads(channel.delivery().body)
    channel.wait(m.BasicCancel)
    return found


def declared(nodes):
    """Channels on a and b; the queue is on b."""
    nodes.home("b")
    near, far = nodes.channel("a"), nodes.channel("b")
    near.queue("q")
    return near, far


def test_a_row_has_the_address_of_the_node_that_has_the_queue(make):
    """A node that listens on all addresses is reached at the host by which other nodes reach it. The node that answers
    is reached where its client has reached it, which in a simulation is on the same machine.
    """
    near, far = declared(make(host="0.0.0.0"))
    there, here = row(near), row(far)
    assert (there["node"], there["here"], there["endpoints"]) == ("warren@b", False, [f"b:{PORT}"])
    assert (here["node"], here["here"], here["endpoints"]) == ("warren@b", True, [f"127.0.0.1:{PORT}"])
    assert there["in_sync"] == here["in_sync"] == ["warren@b"]


def test_a_node_whose_listeners_are_closed_has_no_address(make):
    nodes = make(host="0.0.0.0")
    near, _ = declared(nodes)
    (node,) = nodes.nodes["b"].processes("NodeSupervisor")
    node.gate.holds.add("maintenance")
    assert row(near)["endpoints"] == []
