"""Virtual hosts run on every node, and end there as users do."""

from __future__ import annotations

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.state.commands import PutRecords, RemoveRecords
from warren.definitions.records import Permission
from warren.tests.behaviour.wire import Refused


@pytest.fixture
def nodes(make):
    """Nodes that take a while to start a virtual host."""
    return make(with_store=True)


def ask(nodes, message, at="a"):
    return nodes.nodes[at].port.request(nodes.metadata(at).myAddress, message)


def test_a_new_virtual_host_can_be_opened_on_every_node(nodes):
    """When the creation of a virtual host is answered, every node can open it: the creator may tell a client of another
    node, which declares a queue in it there.
    """
    ask(nodes, to_metadata.create_vhost("v"))
    assert all("v" in nodes.metadata(name).changing.supervisors for name in "ab")
    nodes.propose(PutRecords((Permission("guest", "v", ".*", ".*", ".*"),)))
    nodes.home("b")
    near = nodes.connect("a", vhost="v").channel()
    near.queue("q")
    far = nodes.connect("b", vhost="v").channel()
    near.publish("m", "q")
    far.expect_ready("q", 1)


def test_a_virtual_host_that_is_deleted_ends_on_every_node(nodes):
    ask(nodes, to_metadata.create_vhost("v"))
    assert [len(nodes.nodes[name].processes("QueueSupervisor")) for name in "ab"] == [2, 2]
    assert ask(nodes, to_metadata.delete_vhost("v"), at="b") is True
    nodes.world.run(1.0)
    assert [len(nodes.nodes[name].processes("QueueSupervisor")) for name in "ab"] == [1, 1]


def test_the_end_of_a_user_or_a_virtual_host_closes_connections_on_every_node(nodes):
    """cluster_user_deletion_forces_connection_closure, cluster_vhost_deletion_forces_connection_closure: connections of
    others stay (AB-31, AB-170).
    """
    ask(nodes, to_metadata.create_vhost("v"))
    nodes.propose(PutRecords((Permission("guest", "v", ".*", ".*", ".*"),)))
    inside, others = ([nodes.connect(name, vhost=vhost) for name in "ab"] for vhost in ("v", "%2F"))
    assert ask(nodes, to_metadata.delete_vhost("v"), at="b") is True
    for client in inside:
        with pytest.raises(Refused, match="vhost 'v' is deleted"):
            client.channel()
    for client in others:
        client.channel()
    nodes.propose(RemoveRecords((("users", ("guest",)),)))
    for client in others:
        with pytest.raises(Refused, match="user 'guest' is deleted"):
            client.channel()


def test_a_virtual_host_that_fails_on_one_node_closes_connections_there_alone(nodes):
    """vhost_failure_forces_connection_closure_on_failure_node (AB-171)."""
    near, far = nodes.connect("a"), nodes.connect("b")
    nodes.crash(nodes.nodes["b"].processes("VhostSupervisor")[0])
    nodes.world.run(1.0)
    with pytest.raises(Refused, match="vhost '/' is down"):
        far.channel()
    near.channel()


def test_a_node_that_does_not_answer_holds_nobody_up_for_long(nodes):
    nodes.cut("a", "b")
    before = nodes.world.time
    ask(nodes, to_metadata.create_vhost("v"))
    assert nodes.world.time - before < 1.0
