"""Nodes that join a cluster by command and leave it, as RabbitMQ's operators do (CM-50, CM-51, CM-60, CM-64)."""

from __future__ import annotations

import secrets

import pytest

from warren.tests.cluster_system.nodes import Nodes, free_ports, wait_for, warren_node
from warren.tests.cluster_system.operating import PATIENT, declared

NAMES = ["warren@n1", "warren@n2", "warren@n3"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Three nodes, each with a cluster of its own, because none has a list of the others."""
    ports = free_ports(6)
    cookie = secrets.token_hex(16)
    addresses = [f'"{name}" = "127.0.0.1:{port}"' for name, port in zip(NAMES, ports[3:], strict=True)]
    directory = tmp_path_factory.mktemp("joining")
    made = []
    for at, name in enumerate(NAMES):
        settings = "\n".join([PATIENT, f"cluster_port = {ports[3 + at]}", "[cluster_peer_addresses]", *addresses, ""])
        made.append(warren_node(name, directory / name.partition("@")[2], ports[at], settings, WARREN_COOKIE=cookie))
    with Nodes(made) as nodes:
        nodes.start()
        yield nodes


def status(command, node):
    return command.json(node, "cluster_status")


def await_members(command, node, *expected):
    names = [each.name for each in expected]
    wait_for(f"the members {names}", lambda: status(command, node)["disk_nodes"] == names)
    wait_for(f"the voters {names}", lambda: status(command, node)["metadata"]["voters"] == names)


def queues(command, node):
    return sorted(row["name"] for row in command.json(node, "list_queues"))


def joined(command, node, other):
    assert command(node, "stop_app").code == 0
    ran = command(node, "join_cluster", other.name)
    assert (ran.code, ran.out) == (0, f"Clustering node {node.name} with {other.name}\n"), ran.err
    ran = command(node, "start_app")
    assert ran.code == 0, ran.err


def test_nodes_with_clusters_of_their_own_become_one_by_command(nodes, command):
    first, second, third = nodes
    for node in nodes:
        declared(node, f"of {node.name}")

    ran = command(second, "join_cluster", first.name)
    assert ran.code == 64
    assert "requires the 'warren' app to be stopped on the target node. Stop it with 'warren stop_app'." in ran.err
    assert command(second, "join_cluster", "--disc", "--ram", first.name).code == 65
    joined(command, second, first)
    # The node's own queues were deleted, as in RabbitMQ, and it has those of the cluster.
    assert queues(command, second) == ["of warren@n1"]
    joined(command, third, second)
    for node in nodes:
        await_members(command, node, *nodes)
        assert queues(command, node) == ["of warren@n1"]
    declared(third, "on the third")
    declared(first, "on the third", passive=True)

    command(third, "stop_app")
    again = command(third, "join_cluster", first.name)
    assert (again.code, again.out.splitlines()[-1]) == (0, "The node is already a member of this cluster")
    assert command(third, "start_app").code == 0
    declared(third, "on the third", passive=True)


def test_a_node_that_cannot_join_keeps_what_it_has(nodes, command):
    first, _, third = nodes
    command(third, "stop_app")
    itself = command(third, "join_cluster", third.name)
    assert itself.code == 70 and f"cannot cluster node with itself: {third.name}" in itself.err
    member = command(third, "join_cluster", "warren@elsewhere")
    assert member.code == 69 and "`warren reset` before it joins another one" in member.err
    assert command(third, "start_app").code == 0
    declared(third, "on the third", passive=True)


def test_a_member_that_is_reset_leaves_and_may_join_again(nodes, command):
    first, second, third = nodes
    running = command(third, "reset")
    assert running.code == 64 and "Stop it with 'warren stop_app'" in running.err
    command(third, "stop_app")
    ran = command(third, "reset")
    assert (ran.code, ran.out) == (0, f"Resetting node {third.name} ...\n"), ran.err
    await_members(command, first, first, second)
    assert queues(command, first) == ["of warren@n1"], "nobody else has the queues that were at home there"
    unreachable = command(third, "join_cluster", "warren@localhost")
    assert unreachable.code == 69 and "warren@localhost cannot be reached at localhost:25672" in unreachable.err
    joined_again = command(third, "join_cluster", second.name)
    assert joined_again.code == 0, joined_again.err
    assert command(third, "start_app").code == 0
    for node in nodes:
        await_members(command, node, *nodes)
    assert queues(command, third) == ["of warren@n1"]


def test_a_node_that_was_forgotten_while_its_app_is_stopped_is_reset_and_joins(nodes, command):
    first, second, third = nodes
    own = command(third, "forget_cluster_node", third.name)
    assert own.code == 69 and f"RabbitMQ on node {third.name} must be stopped with" in own.err
    command(third, "stop_app")
    ran = command(first, "forget_cluster_node", third.name)
    assert ran.code == 0, ran.err
    refused = command(third, "start_app")
    assert refused.code == 69 and f"{third.name} is no member of the cluster of" in refused.err
    wait_for("the node to answer again", lambda: command(third, "ping").code == 0)
    ran = command(third, "reset")
    assert ran.code == 0, ran.err
    assert command(third, "join_cluster", first.name).code == 0
    assert command(third, "start_app").code == 0
    await_members(command, third, *nodes)


def test_the_last_node_of_a_cluster_is_reset_without_asking_anybody(nodes, command):
    first, second, third = nodes
    for node in (second, third):
        command(node, "stop_app")
        ran = command(node, "reset")
        assert ran.code == 0, ran.err
    await_members(command, first, first)
    command(first, "stop_app")
    assert command(first, "reset").code == 0
    assert command(first, "start_app").code == 0
    assert queues(command, first) == []


def test_a_forced_reset_asks_nobody(nodes, command):
    first, second, _ = nodes
    assert command(second, "join_cluster", first.name).code == 0
    assert command(second, "start_app").code == 0
    declared(first, "kept")
    command(second, "stop_app")
    ran = command(second, "force_reset")
    assert (ran.code, ran.out) == (0, f"Forcefully resetting node {second.name} ...\n"), ran.err
    assert status(command, second)["disk_nodes"] == [second.name]
    assert second.name in status(command, first)["disk_nodes"], "nobody has told the cluster"


def test_of_two_nodes_the_one_that_is_left_goes_on_alone(nodes, command):
    """If the other one of two nodes is lost, `forget_cluster_node --offline` on the stopped node makes it the only
    voter. Here the other node has left by `force_reset` in the test before (CM-61).
    """
    first, second, _ = nodes
    nodes.kill(second.name)
    runs = command(first, "forget_cluster_node", "--offline", "--accept-loss", second.name)
    assert runs.code == 75
    nodes.kill(first.name)
    stranger = command(first, "forget_cluster_node", "--offline", "--accept-loss", "warren@stranger")
    assert stranger.code == 69 and "not_a_cluster_node" in stranger.err
    ran = command(first, "forget_cluster_node", "--offline", "--accept-loss", second.name)
    assert ran.code == 0, ran.err
    assert f"These members are removed: {second.name}" in ran.out
    nodes.start_node(first.name)
    first.wait_ready()
    declared(first, "kept", passive=True)
    await_members(command, first, first)
