"""Nodes whose app is stopped and started, as RabbitMQ's operators do (CM-40, CM-41), on real processes."""

from __future__ import annotations

from socket import create_server

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client
from warren.tests.cluster_system.nodes import single_warren, wait_for, warren_cluster
from warren.tests.cluster_system.operating import PATIENT, await_running, declared

NEEDS_APP = "this command requires the 'warren' app to be running on the target node. Start it with 'warren start_app'."


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A broker without a cluster."""
    with single_warren(tmp_path_factory.mktemp("alone")) as nodes:
        nodes.start()
        yield nodes["warren@n1"]


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    with warren_cluster(tmp_path_factory.mktemp("trio"), 3, PATIENT) as nodes:
        nodes.start()
        yield nodes


def test_a_node_whose_app_is_stopped_keeps_its_process_and_answers_commands(alone, command):
    declared(alone, "orders")
    pid = alone.process.pid
    client = Client(alone.url, timeout=300)
    client.channel()
    stopped = command(alone, "stop_app")
    assert (stopped.code, stopped.out) == (0, f"Stopping rabbit application on node {alone.name} ...\n"), stopped.err
    assert client.wait(0, m.ConnectionClose).method.reply_code == 320
    client.abort()
    assert not alone.serves()
    assert alone.process.pid == pid and alone.process.poll() is None

    assert command(alone, "ping").code == 0
    status = command.json(alone, "status")
    assert (status["is_running"], status["app"], status["pid"], status["listeners"]) == (False, "stopped", pid, [])
    assert "Is running: no, it is stopped" in command(alone, "status").out
    refused = command(alone, "list_queues")
    assert refused.code == 64 and NEEDS_APP in refused.err
    assert command(alone, "stop_app").code == 0, "a second time is success"

    started = command(alone, "start_app")
    assert (started.code, started.out) == (0, f"Starting node {alone.name} ...\n"), started.err
    declared(alone, "orders", passive=True)
    assert alone.process.pid == pid
    assert command(alone, "start_app").code == 0, "a second time is success"


def test_a_boot_that_fails_gives_its_reason_and_keeps_the_node(alone, command):
    command(alone, "stop_app")
    with create_server(("127.0.0.1", alone.port)):
        failed = command(alone, "start_app")
    assert failed.code == 69 and f"cannot listen on 127.0.0.1:{alone.port}" in failed.err
    wait_for("the node to answer again", lambda: command(alone, "ping").code == 0)
    assert command.json(alone, "status")["app"] == "stopped"
    assert command(alone, "start_app").code == 0
    assert alone.serves()


def test_a_member_whose_app_is_stopped_counts_as_down_and_goes_on_voting(trio, command):
    """A member whose app is stopped counts as down and still votes, so the cluster has a majority when another node
    dies.
    """
    first, second, third = trio
    declared(third, "at home on the third")
    assert command(third, "stop_app").code == 0
    for node in trio:
        await_running(command, node, first, second)
    assert command.json(third, "cluster_status")["metadata"]["stage"] == "stopped"

    trio.kill(second.name)
    await_running(command, first, first)
    declared(first, "with the vote of the third")

    assert command(third, "start_app").code == 0
    declared(third, "at home on the third", passive=True)
    declared(third, "with the vote of the third", passive=True)
    trio.start_node(second.name)
    second.wait_ready()


def test_a_leader_that_stops_hands_over_before_it_ends(trio, command):
    """A leader that stops hands leadership over first, so no other node has to notice its end and begin an election
    (CL-48).
    """
    leader = trio[command.json(trio["warren@n1"], "cluster_status")["metadata"]["leader"]]
    others = [node for node in trio if node is not leader]
    begin = {node.name: len(node.log.read_text()) for node in others}
    trio.stop_node(leader.name)
    logs = {node.name: node.log.read_text()[begin[node.name] :] for node in others}
    wait_for("a leader", lambda: command.json(others[0], "cluster_status")["metadata"]["leader"])
    new = command.json(others[0], "cluster_status")["metadata"]["leader"]
    assert new in logs
    said = logs[new]
    assert said.index(f"{new} leads the cluster in term") < said.index(f"link to {leader.name} is down")
    await_running(command, trio[new], *others)
    assert f"{leader.name} is down: it has stopped in order" in trio[new].log.read_text()[begin[new] :]
    trio.start_node(leader.name)
    leader.wait_ready()


def test_cluster_status_says_of_each_member_how_far_it_is_and_where_it_listens(trio, command):
    """`cluster_status` shows of each member how far it has applied the log, and its address (CL-102)."""
    first, second, third = trio
    await_running(command, first, first, second, third)
    found = command.json(first, "cluster_status")
    for member in found["metadata"]["members"]:
        assert member["stage"] == "running" and member["applied"] > 0 and member["lag"] >= 0
    for node in trio:
        assert found["versions"][node.name]["warren_version"]
        assert [one["protocol"] for one in found["listeners"][node.name]] == ["amqp", "clustering"]
    wait_for("leases", lambda: f"{first.name}: voter, up" in command(first, "cluster_status").out)
    out = command(second, "cluster_status").out
    assert "running, applied" in out and "protocol: clustering, purpose: inter-node communication" in out


def test_a_drained_node_lets_nobody_in_until_it_is_revived(trio, command):
    """`drain` closes the listeners and the connections of clients, with the reason; the node gets no new queue and does
    not lead until `revive` (CM-53).
    """
    first, second, third = trio
    leader = trio[command.json(first, "cluster_status")["metadata"]["leader"]]
    other = next(node for node in trio if node is not leader)
    client = Client(leader.url, timeout=300)
    client.channel()
    for _ in range(2):
        drained = command(leader, "drain")
        assert drained.code == 0, drained.err
    assert drained.out.startswith(f"Will put node {leader.name} into maintenance mode.")
    close = client.wait(0, m.ConnectionClose).method
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - Node was put into maintenance mode")
    client.abort()
    assert not leader.serves()
    assert command.json(leader, "status")["is_under_maintenance"]
    for node in trio:
        marks = command.json(node, "cluster_status")["maintenance_status"]
        assert {name for name, mark in marks.items() if mark == "under maintenance"} == {leader.name}
    wait_for(
        "another leader",
        lambda: command.json(other, "cluster_status")["metadata"]["leader"] not in ("", leader.name),
    )
    for _ in range(2):
        assert command(leader, "revive").code == 0
    assert leader.serves()
    assert not command.json(leader, "status")["is_under_maintenance"]


def test_a_node_in_maintenance_serves_clients_again_after_its_next_start(trio, command):
    third = trio["warren@n3"]
    assert command(third, "drain").code == 0
    trio.stop_node(third.name)
    trio.start_node(third.name)
    third.wait_ready()
    marks = command.json(third, "cluster_status")["maintenance_status"]
    assert set(marks.values()) == {"not under maintenance"}


def test_suspended_listeners_keep_the_clients_that_are_there(alone, command):
    """`suspend_listeners` refuses new clients and keeps those that are connected, until `resume_listeners` (CM-54)."""
    client = Client(alone.url, timeout=300)
    assert command(alone, "suspend_listeners").code == 0
    assert not alone.serves()
    client.channel()
    assert command(alone, "drain").code == 0 and command(alone, "revive").code == 0
    assert not alone.serves(), "the operator has suspended them as well"
    client.abort()
    assert command(alone, "resume_listeners").code == 0
    assert alone.serves()


def test_rebalance_leaves_queues_without_mirrors_where_they_are(alone, command):
    """`rebalance` does not move queues without mirrors (CM-65)."""
    ran = command(alone, "rebalance", "all")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "Re-balancing leaders of all replicated queues...",
        "Node name\tNumber of quorum queues\tNumber of replicated classic queues",
        f"{alone.name}\t0\t0",
    ]
    assert command(alone, "rebalance", "everything").code == 65
