"""Two nodes with queues and a witness: any one of the three may fail (CL-20, CL-49)."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.tests.cluster_system.nodes import wait_for, warren_cluster
from warren.tests.cluster_system.operating import PATIENT, await_running, declared


def configure(node, line):
    """Add a setting to the node's file, which it reads at its next start."""
    config = Path(node.directory) / "warren.toml"
    config.write_text(f"{line}\n{config.read_text()}")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with warren_cluster(tmp_path_factory.mktemp("witness"), 3, PATIENT) as cluster:
        first, second, third = cluster
        configure(third, 'cluster_role = "witness"')
        for node in (third, second, first):
            cluster.start_node(node.name)
        for node in (first, second):
            node.wait_ready()
        yield cluster


def members(command, node):
    found = command.json(node, "cluster_status")["metadata"]
    return {row["node"]: row for row in found["members"]} | {"": found}


def test_a_witness_votes_and_has_neither_queues_nor_clients(nodes, command):
    first, second, third = nodes
    await_running(command, first, first, second, third)
    wait_for("all to vote", lambda: len(members(command, first)[""]["voters"]) == 3)
    known = members(command, first)
    assert [known[node.name]["role"] for node in nodes] == ["data", "data", "witness"]
    wait_for("the witness to have started", lambda: command.json(third, "status")["is_running"])
    assert [one["protocol"] for one in command.json(third, "status")["listeners"]] == ["clustering"]
    assert not third.serves()
    assert f"{third.name}: witness, up" in command(first, "cluster_status").out

    # The command runs at the witness, and the queues that it creates get their homes on the other nodes.
    definitions = third.directory / "definitions.json"
    definitions.write_text('{"queues": [{"vhost": "/", "name": "imported", "durable": true, "arguments": {}}]}')
    ran = command(third, "import_definitions", str(definitions))
    assert ran.code == 0, ran.err
    declared(first, "imported", passive=True)


@pytest.mark.parametrize("number", (0, 2))
def test_a_node_or_the_witness_may_fail(nodes, command, number):
    failing = list(nodes)[number]
    others = [node for node in nodes if node is not failing]
    nodes.kill(failing.name)
    await_running(command, others[0], *others)
    declared(others[0], f"without {failing.name}")
    nodes.start_node(failing.name)
    await_running(command, others[0], *nodes)
    if number < 2:
        failing.wait_ready()
        declared(failing, f"without {failing.name}", passive=True)


def test_a_node_becomes_a_witness_and_has_queues_again_by_command(nodes, command):
    """`change_cluster_node_type` makes a node a witness, and again a node with queues (CM-46, CM-63)."""
    first, second, third = nodes
    wait_for("the witness to have started", lambda: command.json(third, "status")["is_running"])
    assert command(third, "change_cluster_node_type", "disc").code == 64, "its app runs"
    for node in (second, third):
        assert command(node, "stop_app").code == 0
    assert command(third, "change_cluster_node_type", "tree").code == 65
    nodes.kill(third.name)
    await_running(command, first, first)

    declared(first, "on the first")
    refused = command(second, "change_cluster_node_type", "witness")
    assert refused.code == 69 and f"{second.name} cannot become a witness while" in refused.err
    for row in command.json(first, "list_queues", "name"):
        assert command(first, "delete_queue", row["name"]).code == 0
    ran = command(second, "change_cluster_node_type", "witness")
    assert (ran.code, ran.out) == (0, f"Turning {second.name} into a witness node\n"), ran.err
    assert members(command, first)[second.name]["role"] == "witness"
    assert command(second, "start_app").code == 0
    assert not second.serves()
    nodes.start_node(third.name)
    command(first, "await_online_nodes", "3")
    last = command(first, "stop_app")
    assert last.code == 0
    refused = command(first, "change_cluster_node_type", "witness")
    assert refused.code == 69

    assert command(first, "start_app").code == 0
    command(second, "stop_app")
    assert command(second, "change_cluster_node_type", "disc").code == 0
    assert command(second, "start_app").code == 0
    declared(second, "on the second")
