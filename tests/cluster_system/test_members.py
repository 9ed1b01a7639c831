"""Nodes that found a cluster, die, stand still, lose their disks and come back (cluster sections 6 and 7)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable

import pytest

from warren.amqp import methods as m
from warren.tests.behaviour.wire import Client, Refused
from warren.tests.cluster_system.nodes import Node, wait_for, warren_cluster
from warren.tests.cluster_system.operating import PATIENT


def log_of(node: Node) -> str:
    return node.log.read_text(errors="replace")


def is_down(node: Node, others: Iterable[Node]) -> bool:
    """Whether the log of one of these nodes says that the node is down, which the leader among them has declared."""
    return any(f"warren.members: {node.name} is down" in log_of(other) for other in others)


def declares(node: Node, queue: str) -> bool:
    """Whether a client of this node can declare a durable queue now."""
    try:
        client = Client(node.url, timeout=300)
        try:
            client.channel().queue(queue, durable=True)
            return True
        finally:
            client.abort()
    except (OSError, Refused, AssertionError):
        return False


def sees(node: Node, queue: str) -> bool:
    client = Client(node.url, timeout=300)
    try:
        client.channel().call(m.QueueDeclare(queue=queue, passive=True))
        return True
    except Refused:
        return False
    finally:
        client.abort()


@pytest.fixture
def nodes(tmp_path, request):
    """Three nodes with a long `net_ticktime` unless the test chooses another one: on a busy machine a node may stand
    still for longer than the default of 2 s, and would be declared down.
    """
    with warren_cluster(tmp_path, 3, getattr(request, "param", PATIENT)) as cluster:
        yield cluster


def test_nodes_that_start_together_are_one_broker_and_one_of_them_may_die(nodes):
    nodes.start()
    first, second, third = nodes
    assert declares(first, "orders")
    assert all(sees(node, "orders") for node in nodes), "declare-ok is in force on every node (CL-31)"
    ids = {
        line.split()[-3] for node in nodes for line in log_of(node).splitlines() if "is a member of the cluster" in line
    }
    assert len(ids) == 1

    # The first node founded the cluster and leads. Its end is noticed before `net_ticktime`, because its host refuses
    # connections (CL-50).
    began = time.monotonic()
    nodes.kill(first.name)
    wait_for("the others to declare it down", lambda: is_down(first, (second, third)), 30)
    noticed = time.monotonic() - began
    wait_for("a declare on another node", lambda: declares(second, "later"), 30)
    assert sees(third, "later")
    assert noticed < 20

    nodes.start_node(first.name)
    first.wait_ready()
    assert sees(first, "later")
    assert sees(first, "orders")


def test_nodes_may_start_in_any_order_and_wait_for_the_lowest_name(nodes):
    """Nodes started in any order wait for the one with the lowest name, because only that one founds a cluster, and
    only with a majority (CL-38).
    """
    first, second, third = nodes
    nodes.start_node(third.name)
    nodes.start_node(second.name)
    wait_for("the two to be linked", lambda: f"link to {second.name} is up" in log_of(third))
    assert not second.serves() and not third.serves()
    nodes.start_node(first.name)
    nodes.wait_ready()


@pytest.mark.parametrize("nodes", ["net_ticktime = 10.0"], indirect=True)
def test_a_node_without_a_majority_serves_nobody_and_comes_back_by_itself(nodes):
    """A node without a majority closes its clients' connections and refuses new ones, and serves again by itself when
    there is a majority (CL-54, CL-55).
    """
    nodes.start()
    first, second, third = nodes
    client = Client(third.url, timeout=300)
    client.channel()
    nodes.kill(first.name)
    nodes.kill(second.name)
    wait_for("the node to pause", lambda: "pauses and serves no clients" in log_of(third), 60)
    close = client.wait(0, m.ConnectionClose).method
    assert (close.reply_code, close.reply_text) == (
        320,
        f"CONNECTION_FORCED - node '{third.name}' cannot reach a majority of its cluster",
    )
    client.abort()
    wait_for("it to refuse clients", lambda: not third.serves(), 30)
    nodes.start_node(first.name)
    wait_for("it to serve clients again", third.serves, 60)
    wait_for("a declare", lambda: declares(third, "orders"), 60)


@pytest.mark.parametrize("nodes", [""], indirect=True)
def test_a_node_that_stood_still_begins_anew_in_its_process(nodes):
    """A node that stood still and was declared down begins another run in the same process (CL-55, CL-56)."""
    nodes.start()
    first, second, third = nodes
    third.pause()
    wait_for("the leader to declare it down", lambda: is_down(third, (first, second)), 60)
    pid = third.process.pid
    third.resume()
    wait_for("it to begin another run", lambda: "ends this run of its app" in log_of(third), 60)
    wait_for("it to serve clients again", lambda: declares(third, "orders"), 60)
    assert third.process.pid == pid and third.process.poll() is None


def test_a_node_that_waits_for_its_cluster_can_be_stopped(nodes):
    """A node that waits for its cluster answers commands, `stop` among them (CL-41)."""
    first = nodes["warren@n1"]
    nodes.start_node(first.name)
    command = [sys.executable, "-m", "warren", "--node", first.name, "--data-dir", str(first.data_dir)]
    wait_for("its links", lambda: "listens for other nodes" in log_of(first))

    def shown() -> str:
        return subprocess.run([*command, "cluster_status"], capture_output=True, text=True, cwd="/", timeout=300).stdout

    wait_for("it to say so", lambda: "1 of 3 nodes agree that there is no cluster yet" in shown())
    subprocess.run([*command, "stop"], check=True, capture_output=True, cwd="/", timeout=300)
    assert first.process.wait(60) == 0
    assert "stopped on an operator's command while it was starting" in log_of(first)


def test_a_member_with_an_empty_data_directory_is_refused_with_the_way_out(nodes):
    """A member whose data directory is empty is refused, and the log names the command with which it can return
    (CL-45).
    """
    nodes.start()
    third = nodes["warren@n3"]
    nodes.stop_node(third.name)
    third.wipe()
    nodes.start_node(third.name)
    assert third.process.wait(60) == 69
    assert "is a member with another data directory" in log_of(third)
    assert f"forget_cluster_node {third.name}" in log_of(third)


def test_lists_that_differ_are_found_out(nodes, tmp_path):
    """Two nodes whose lists differ found no cluster, because they might found two (CL-38)."""
    first, second, _ = nodes
    config = tmp_path / "n2" / "warren.toml"
    config.write_text(config.read_text().replace("'warren@n3'", "'warren@n4'"))
    nodes.start_node(first.name)
    nodes.start_node(second.name)
    codes = [node.process.wait(60) for node in (first, second)]
    assert codes == [69, 69]
    assert "differ, so they could found two clusters" in log_of(first)


def forced(node: Node, answer: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warren", "force_boot", "--data-dir", str(node.data_dir), *options]
    return subprocess.run(command, input=answer, capture_output=True, text=True, cwd="/", timeout=300)


def test_the_last_node_goes_on_alone_if_an_operator_says_so(nodes):
    """When the majority is gone for good, `force_boot` shows what would be lost, and makes the last node the only voter
    (CM-52, CL-48).
    """
    nodes.start()
    first, second, third = nodes
    for node, queue in ((first, "on the first"), (third, "on the third")):
        assert declares(node, queue)
    assert forced(third, "accept\n").returncode == 75, "the node runs"
    for node in (first, second, third):
        nodes.kill(node.name)
    for node in (first, second):
        node.wipe()

    command = [sys.executable, "-m", "warren", "--data-dir", str(third.data_dir), "forget_cluster_node", "--offline"]
    offline = subprocess.run([*command, first.name], capture_output=True, text=True, cwd="/", timeout=300)
    assert offline.returncode == 69 and f"{second.name} would remain besides this node" in offline.stderr

    refused = forced(third, "no\n")
    assert refused.returncode == 69
    assert "These members are removed: warren@n1, warren@n2" in refused.stdout
    assert "These queues are deleted: 'on the first' in vhost '/'" in refused.stdout
    assert "on the third" not in refused.stdout
    assert forced(third, "", "--yes").returncode == 0

    nodes.start_node(third.name)
    third.wait_ready()
    wait_for("the others to be removed", lambda: not sees(third, "on the first"), 60)
    assert sees(third, "on the third")
    assert declares(third, "later")

    # A removed member that was not lost after all joins the new cluster; its directory must be empty, as here.
    nodes.start_node(second.name)
    second.wait_ready()
    assert sees(second, "later")
