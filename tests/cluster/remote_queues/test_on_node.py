"""A client's connection on one node has another node perform operations (CL-59)."""

from __future__ import annotations

from warren.actors.control.frames import unpack
from warren.actors.node.operations.operating.remote import on_node
from warren.actors.node.operations.registry import OperationError

from .test_listings import rows_of


def answers(nodes, name, **arguments):
    """The messages with which b answers the client on a."""
    rows = rows_of(nodes, "on_node", node="warren@b", name=name, arguments=arguments)
    return [unpack(row["piece"]) for row in rows]


def sessions(nodes):
    """The sessions on b."""
    return nodes.nodes["b"].processes("RemoteSession")


def test_a_listing_arrives_in_pieces_and_a_value_in_one(nodes):
    channel = nodes.channel("a")
    for number in range(150):
        channel.queue(f"q{number:03}")
    *pieces, last = answers(nodes, "list_queues", vhost="/", columns=["name"])
    assert [len(piece["rows"]) for piece in pieces] == [100, 50]
    assert last == {"result": None}
    (only,) = answers(nodes, "status")
    assert only["result"]["is_running"]
    assert len(sessions(nodes)) == 1, "the session is kept"


def test_refusals_arrive_as_they_are(nodes):
    (refused,) = answers(nodes, "list_queues", vhost="missing")
    assert refused["error"]["text"] == "Virtual host 'missing' does not exist"
    (unknown,) = answers(nodes, "no_such_thing")
    assert unknown["error"]["kind"] == "usage"


def test_a_session_ends_with_the_link_and_the_next_request_makes_another(nodes):
    answers(nodes, "status")
    nodes.cut("a", "b")
    assert nodes.world.run_until(lambda: not sessions(nodes), 30.0)
    (node,) = nodes.nodes["a"].processes("NodeSupervisor")
    refused = []

    async def ask():
        try:
            async for _ in on_node(node.operator, node="warren@b", name="status", arguments={}):
                pass
        except OperationError as error:
            refused.append(str(error))

    node.spawn(ask())
    assert nodes.world.run_until(lambda: bool(refused), 30.0)
    assert refused == ["node warren@b does not answer"]
    nodes.world.mend()
    nodes.meet()
    answers(nodes, "status")
    node.operator.close()
    assert nodes.world.run_until(lambda: not sessions(nodes), 30.0)
