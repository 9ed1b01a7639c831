"""What operators see of a cluster and do to it; the nodes are in this process."""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from warren import Broker
from warren.cli.main import main
from warren.cluster.membership import own_node
from warren.cluster.membership.identity import read_identity
from warren.definitions.features import FEATURES
from warren.running_node import BrokerError, StartError
from warren.tests.cluster_system.nodes import free_ports, wait_for

NAMES = [f"warren{number}@localhost" for number in (1, 2, 3)]


class Brokers:
    """Nodes with data directories, which a test starts one by one, so that it decides which nodes found and
    which join.
    """

    def __init__(self, directory):
        self.directory = directory
        self.ports = dict(zip(NAMES, free_ports(len(NAMES))))
        self.made = {}

    def broker(self, name, formation):
        """Make a node, without starting it, which looks for a cluster among the nodes named in `formation`."""
        self.made[name] = Broker(
            node_name=name,
            data_dir=self.data_dir(name),
            control_dir=str(self.data_dir(name) / "control"),
            cluster_port=self.ports[name],
            cluster_cookie="a secret of the tests",
            cluster_formation={"nodes": formation},
            cluster_peer_addresses={other: f"127.0.0.1:{port}" for other, port in self.ports.items()},
        )
        return self.made[name]

    def data_dir(self, name):
        return self.directory / name.partition("@")[0]

    def start(self, *names):
        """Start these nodes at the same time, each with a list of all of them."""
        made = [self.broker(name, list(names)) for name in names]
        with ThreadPoolExecutor(len(made)) as pool:
            list(pool.map(Broker.start, made))
        return made


@pytest.fixture
def brokers(tmp_path):
    brokers = Brokers(tmp_path)
    yield brokers
    for broker in brokers.made.values():
        broker.kill()


@pytest.fixture
def run(monkeypatch, capfd, brokers):
    """`run(node, *arguments)` runs a command at a node; returns its exit code, its output and its error text."""

    def run(node, *arguments):
        monkeypatch.setattr(sys, "argv", ["warren", "--data-dir", str(brokers.data_dir(node)), *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return end.value.code, out, err

    return run


def rows(run, node, *arguments):
    code, out, err = run(node, "--formatter", "json", *arguments)
    assert code == 0, err
    return json.loads(out)


def test_links_has_a_row_for_each_lane_and_says_why_a_link_is_down(brokers, run):
    first, second, third = NAMES
    brokers.start(*NAMES)
    wait_for("both links", lambda: len(rows(run, first, "links")) == 6)
    found = rows(run, first, "links")
    assert [(row["node"], row["lane"]) for row in found] == [
        (node, lane) for node in (second, third) for lane in ("control", "data", "bulk")
    ]
    for row in found:
        assert row["state"] == "up" and row["since"] >= 0 and row["unsent"] == 0
    assert all(row["sent_bytes"] > 0 and row["received_bytes"] > 0 for row in found if row["lane"] == "control")

    code, out, _ = run(first, "links", "node", "lane", "incarnation", "sessions")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "Listing links ..."
    assert lines[1].split("\t") == ["node", "lane", "incarnation", "sessions"]
    assert [line.split("\t")[:2] for line in lines[2:]] == [[row["node"], row["lane"]] for row in found]

    code, _, err = run(first, "links", "colour")
    assert code == 64 and "Info key(s) colour are not supported" in err

    brokers.made[third].kill()
    wait_for("the link to end", lambda: "nobody listens" in rows(run, first, "links")[-1]["last_error"])
    down = rows(run, first, "links")[-1]
    assert (down["node"], down["lane"], down["sent_bytes"]) == (third, "", 0)
    assert down["state"] in ("refused", "connecting")


def test_whoever_waits_for_a_silent_node_is_told_when_it_counts_as_lost(brokers, run, caplog):
    """A paused node's links end when it counts as lost, so that a caller waiting for an answer gets an error. By itself
    a link would end only after twice `net_ticktime`.
    """
    caplog.set_level("INFO", "warren.links")
    first, second, third = NAMES
    brokers.start(*NAMES)
    wait_for("all links", lambda: all(len(rows(run, node, "links")) == 6 for node in (first, second)))

    def ends():
        begin = f"link to {third} is down: "
        return [text.removeprefix(begin) for text in list(caplog.messages) if text.startswith(begin)]

    caplog.clear()
    brokers.made[third].pause()
    wait_for("both links to end", lambda: len(ends()) == 2, 30)
    for reason in ends():
        assert reason.startswith(("nothing has come from it for ", "the cluster has declared this run down"))


def members(run, node):
    """The members and the voters, as this node reports them."""
    found = rows(run, node, "cluster_status")["metadata"]
    return [member["node"] for member in found["members"]], found["voters"]


def await_members(run, node, expected):
    wait_for(f"{node} to know the members", lambda: members(run, node) == (expected, expected))


def test_a_forgotten_node_is_gone_with_its_queues_and_may_not_come_back(brokers, run):
    """`forget_cluster_node` of a node with durable queues needs `--accept-loss`, because no other node has them; the
    node can return only with an empty data directory (CL-46).
    """
    first, second, third = NAMES
    on_first, on_second, on_third = brokers.start(*NAMES)
    on_third.declare_queue("lost", durable=True)
    on_first.declare_queue("kept", durable=True)

    code, _, err = run(first, "forget_cluster_node", third)
    assert code == 69 and f"RabbitMQ on node {third} must be stopped" in err
    on_third.stop()
    # The cluster counts the node as down a moment after its end, and the command waits for that.
    code, _, err = run(first, "forget_cluster_node", third)
    assert code == 69 and "repeat the command with --accept-loss" in err
    assert "queue 'lost' in vhost '/'" in err
    assert third in members(run, first)[0]

    code, out, err = run(first, "forget_cluster_node", third, "--accept-loss")
    assert code == 0, err
    assert "Deleted with it: queue 'lost' in vhost '/'" in out
    for node, broker in ((first, on_first), (second, on_second)):
        await_members(run, node, [first, second])
        assert [row["name"] for row in rows(run, node, "list_queues")] == ["kept"]
        with pytest.raises(BrokerError, match="404"):
            broker.declare_queue("lost", passive=True)
    assert on_second.declare_queue("lost", durable=True) == "lost"

    code, _, err = run(first, "forget_cluster_node", third)
    assert code == 69 and "not_a_cluster_node" in err

    with pytest.raises(StartError, match=f"{third} is no member of the cluster of .* empty data directory"):
        on_third.start()
    shutil.rmtree(brokers.data_dir(third))
    again = brokers.broker(third, NAMES).start()
    assert again.declare_queue("lost", passive=True) == "lost"


def test_a_node_joins_a_cluster_by_naming_one_member(brokers, run):
    first, second, third = NAMES
    on_first, _ = brokers.start(first, second)
    on_first.declare_queue("orders", durable=True)
    joined = brokers.broker(third, [second]).start()
    assert joined.declare_queue("orders", passive=True) == "orders"
    assert joined.declare_queue("later", durable=True) == "later"
    assert on_first.declare_queue("later", passive=True) == "later"
    for node in NAMES:
        await_members(run, node, NAMES)


def test_a_feature_is_enabled_once_all_nodes_have_it_and_then_demanded_of_all(brokers, run, monkeypatch):
    """After an upgrade node by node, a feature can be enabled only when all nodes have it, and from then on no node
    without it starts. A node in this process has the features that `FEATURES` had when it started (CM-148, CM-188,
    CL-26).
    """
    first, second, _ = NAMES
    made = brokers.start(first, second)
    monkeypatch.setitem(FEATURES, "teleport", "Messages arrive before they are sent")
    assert rows(run, first, "list_feature_flags")[-1] == {"name": "teleport", "state": "disabled"}
    made[0].stop()
    brokers.broker(first, [first, second]).start()
    code, _, err = run(first, "enable_feature_flag", "teleport")
    assert code == 69
    assert f"the feature flag 'teleport' is not supported by {second}. Upgrade these nodes and start them" in err
    made[1].stop()
    brokers.broker(second, [first, second]).start()
    assert run(second, "enable_feature_flag", "all")[0] == 0
    assert rows(run, first, "list_feature_flags")[-1] == {"name": "teleport", "state": "enabled"}
    assert "Flag: teleport, state: enabled" in run(first, "cluster_status")[1]
    assert run(first, "enable_feature_flag", "time_travel")[0] == 64

    monkeypatch.delitem(FEATURES, "teleport")
    brokers.made[second].stop()
    with pytest.raises(StartError, match="needs features that warren .* does not have: teleport.* newer version"):
        brokers.broker(second, [first, second]).start()


def test_a_node_that_is_alone_has_no_links(tmp_path, brokers, run):
    broker = brokers.made["alone"] = Broker(
        data_dir=brokers.data_dir("alone"), control_dir=str(brokers.data_dir("alone") / "control")
    )
    broker.start()
    assert rows(run, "alone", "links") == []


def test_a_command_names_the_node_that_answers(brokers, run):
    """A command that finds its node by the data directory still prints the node's own name."""
    broker = brokers.made["named"] = Broker(
        node_name="other@localhost",
        data_dir=brokers.data_dir("named"),
        control_dir=str(brokers.data_dir("named") / "control"),
    )
    broker.start()
    code, out, err = run("named", "cluster_status")
    assert (code, out.splitlines()[0]) == (0, "Cluster status of node other@localhost ..."), err
    assert rows(run, "named", "check_running")["node"] == "other@localhost"
    code, out, err = run("named", "check_virtual_hosts")
    assert code == 0, err
    assert "Node other@localhost reported all vhosts as running" in out
    broker.stop()
    code, out, err = run("named", "stop")
    place = f"node in '{brokers.data_dir('named')}'"
    assert (code, out) == (69, f"Stopping and halting {place} ...\n")
    assert f"unable to perform an operation on {place}" in err
    assert run("named", "stop", "--idempotent")[0] == 0


def test_commands_are_answered_before_the_node_knows_anything_of_itself(brokers, run, monkeypatch):
    """A node opens its control socket before it reads its disk, so commands are answered although it does not know its
    name and members yet (CM-37, CM-62).
    """
    first = NAMES[0]
    may_read = Event()

    def waiting(*arguments):
        assert may_read.wait(60)
        return read_identity(*arguments)

    monkeypatch.setattr(own_node, "read_identity", waiting)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(brokers.start, first)
        try:
            wait_for("its control socket", lambda: run(first, "ping")[0] == 0)
            assert rows(run, first, "status")["is_running"] is False
            assert rows(run, first, "cluster_status")["metadata"]["members"] == []
        finally:
            may_read.set()
        (broker,) = started.result(60)
    assert broker.declare_queue("orders") == "orders"
