"""A command on one node lists the objects of all nodes, and acts on them (CL-59)."""

from __future__ import annotations

from inspect import isasyncgen

import pytest

from warren.actors.node.operations.catalogue import perform
from warren.amqp import methods as m
from warren.tests.behaviour.wire import Refused


def rows_of(nodes, operation, at="a", **arguments):
    """The rows of a listing by a command on this node, or the result of another operation."""
    (node,) = nodes.nodes[at].processes("NodeSupervisor")
    answers = []

    async def collect():
        outcome = perform(node.operator, operation, arguments)
        answers.append([row async for rows in outcome for row in rows] if isasyncgen(outcome) else await outcome)

    node.spawn(collect())
    assert nodes.world.run_until(lambda: bool(answers), 30.0)
    return answers[0]


@pytest.fixture
def work(nodes):
    """A client on each node; both consume from a queue on b."""
    channels = {name: nodes.channel(name) for name in "ab"}
    channels["a"].queue("q")
    for name, channel in channels.items():
        channel.consume("q", f"from {name}")
    channels["a"].publish("m", "q")
    channels["a"].delivery()
    return channels


def test_queues_and_consumers(nodes, work):
    rows = rows_of(nodes, "list_queues", vhost="/", columns=["name", "messages", "consumers", "pid"])
    assert [(row["name"], row["messages"], row["consumers"]) for row in rows] == [("q", 1, 2)]
    assert rows[0]["pid"].startswith("<warren@b.")
    consumers = rows_of(nodes, "list_consumers", vhost="/", columns=["consumer_tag", "channel_pid"])
    nodes_of = {row["consumer_tag"]: row["channel_pid"].partition(".")[0] for row in consumers}
    assert nodes_of == {"from b": "<warren@b", "from a": "<a"}, "the name of a simulated system is that of its machine"
    assert rows_of(nodes, "list_queues", vhost="/", columns=["name"], local=True) == []
    assert len(rows_of(nodes, "list_queues", at="b", vhost="/", columns=["name"], local=True)) == 1


def test_connections_and_channels(nodes, work):
    for operation in ("list_connections", "list_channels"):
        found = [row["pid"].partition(".")[0] for row in rows_of(nodes, operation, columns=["pid"])]
        assert sorted(found) == ["<warren@a", "<warren@b"]


def test_unresponsive_queues_of_this_node_only(nodes, work):
    """`--local` leaves out the unresponsive queues of other nodes (CM-147)."""
    nodes.nodes["b"].machine.pause()
    asked = {"vhost": "/", "columns": ["name"], "queue_timeout": 0.5}
    assert rows_of(nodes, "list_unresponsive_queues", **asked) == [{"name": "q"}]
    assert rows_of(nodes, "list_unresponsive_queues", local=True, **asked) == []


def test_a_node_that_does_not_answer_is_left_out(nodes, work):
    nodes.nodes["b"].machine.pause()
    found = rows_of(nodes, "list_connections", columns=["pid", "user"])
    assert [row["pid"].partition(".")[0] for row in found] == ["<warren@a"]
    (queue,) = rows_of(nodes, "list_queues", vhost="/", columns=["name", "messages"])
    assert queue == {"name": "q", "messages": ""}
    nodes.nodes["b"].machine.resume()


def test_a_connection_is_closed_from_another_node(nodes, work):
    (there,) = [row for row in rows_of(nodes, "list_connections", columns=["pid"]) if "@b" in row["pid"]]
    assert rows_of(nodes, "close_connection", connection=there["pid"], reason="enough") is True
    with pytest.raises(Refused, match="CONNECTION_FORCED - enough"):
        work["b"].wait(m.ChannelCloseOk)
    assert work["a"].ready("q") == 0
