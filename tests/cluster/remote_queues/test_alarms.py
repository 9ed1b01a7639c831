"""An alarm of one node blocks the publishers of all nodes (CL-57)."""

from __future__ import annotations

from warren.actors.contracts.node import to_node
from warren.amqp import methods as m
from warren.tests.behaviour.wire import CAPABILITIES


def set_alarm(nodes, name, source, on):
    node = nodes.nodes[name]
    node.port.request(node.address, to_node.set_alarm(source, on))


def publisher(nodes, name):
    """A channel whose connection gets connection.blocked."""
    channel = nodes.connect(name, capabilities={**CAPABILITIES, "connection.blocked": True}).channel()
    channel.queue("q")
    return channel


def blocked_for(nodes, channel):
    """The reason with which the connection is blocked when it publishes."""
    nodes.world.run(0.1)
    channel.publish("m", "q")
    return channel.client.wait(0, m.ConnectionBlocked).method.reason


def test_publishers_of_all_nodes_are_blocked(nodes):
    channels = [publisher(nodes, name) for name in "ab"]
    set_alarm(nodes, "b", "memory", True)
    assert [blocked_for(nodes, channel) for channel in channels] == ["low on memory"] * 2
    set_alarm(nodes, "a", "disk", True)
    set_alarm(nodes, "b", "memory", False)
    nodes.world.run(0.5)
    assert not any(channel.client.events[0] for channel in channels)
    set_alarm(nodes, "a", "disk", False)
    for channel in channels:
        channel.client.wait(0, m.ConnectionUnblocked)
    channels[0].expect_ready("q", 2)


def test_an_alarm_that_is_older_than_the_connection(nodes):
    """A node that connects to another one learns of its alarms, and forgets them when the connection ends."""
    nodes.home("a")
    channel = publisher(nodes, "a")
    nodes.cut("a", "b")
    set_alarm(nodes, "b", "disk", True)
    channel.publish("m", "q")
    channel.expect_ready("q", 1)
    nodes.world.mend()
    nodes.meet()
    assert blocked_for(nodes, channel) == "low on disk"
    nodes.cut("a", "b")
    channel.client.wait(0, m.ConnectionUnblocked)
    channel.expect_ready("q", 2)


def test_others_are_notified_of_their_own_node_only(nodes):
    """Embedding programs and events on a node report the alarms of that node only."""
    set_alarm(nodes, "b", "disk", True)
    nodes.world.run(0.5)
    disk_alarms = [nodes.nodes[name].processes("MemoryMonitor")[0].disk_alarm for name in "ab"]
    assert disk_alarms == [False, True]
