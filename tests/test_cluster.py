"""`warren.Cluster`: nodes inside this process that are one broker."""

from __future__ import annotations

import os
import threading

import pytest

from warren import Broker, BrokerError, Cluster
from warren.actors.contracts.membership import CountsAsDown
from warren.actors.metadata.state.commands import CreateVhost
from warren.amqp import methods as m
from warren.cluster.metadata.replicated_state import ReplicatedState
from warren.running_node import RunningNode
from warren.runtime.errors import ProcessTimeout
from warren.tests.behaviour.wire import Client, Refused
from warren.tests.cluster_system.nodes import wait_for

#: Seconds that a test waits for a cluster to be healthy again, because a busy machine may be slow.
LONG = 120.0


def test_every_node_is_the_same_broker(warren_cluster):
    """What is declared on one node is on all, and messages can be fetched from every node."""
    cluster = warren_cluster
    assert cluster.nodes == ["warren1@localhost", "warren2@localhost", "warren3@localhost"]
    cluster.broker(0).declare_queue("orders")
    for node in range(3):
        assert cluster.broker(node).publish(b"%d" % node, "orders")
    assert cluster.broker("warren3@localhost").get("orders").body == b"0"
    assert cluster.get("orders").body == b"1"
    client = Client(cluster.urls[1])
    assert client.channel().get("orders").body == b"2"
    client.close()


def test_another_node_leads_when_the_leader_is_killed(warren_cluster):
    lost = warren_cluster.leader
    assert lost in warren_cluster.nodes
    warren_cluster.kill(lost)
    warren_cluster.declare_queue("afterwards")  # is answered by the next leader
    assert warren_cluster.leader in set(warren_cluster.nodes) - {lost}


def test_the_others_go_on_when_a_node_is_killed(tmp_path):
    """When a node is killed the others go on, and its durable queue is back with its messages when the node is."""
    with Cluster(3, data_dir=tmp_path) as cluster:
        cluster.broker(2).declare_queue("kept", durable=True)
        assert cluster.publish(b"m", "kept", delivery_mode=2)
        cluster.kill(2)
        assert len(cluster.urls) == 2
        cluster.declare_queue("new")
        with pytest.raises(BrokerError, match="home node 'warren3@localhost' of durable queue 'kept'"):
            cluster.declare_queue("kept", passive=True)
        cluster.start_node(2)
        cluster.wait_healthy(LONG)
        assert cluster.broker(2).declare_queue("new", passive=True) == "new"
        assert cluster.get("kept").body == b"m"


def test_a_rejected_message_waits_for_the_node_of_its_dead_letter_queue(tmp_path):
    """A rejected message stays in its queue while the node of its dead-letter queue is away (AB-147)."""
    with Cluster(3, data_dir=tmp_path, net_ticktime=20.0) as cluster:
        cluster.broker(2).declare_queue("grave", durable=True)
        cluster.broker(0).declare_queue(
            "source", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
        )
        home = cluster.broker(0)
        channel = Client(home.url).channel()

        def reject(body: bytes) -> None:
            assert home.publish(body, "source", delivery_mode=2)
            assert channel.get("source").body == body
            channel.send(m.BasicReject(delivery_tag=int(body), requeue=False))

        reject(b"1")
        wait_for("the first dead letter", lambda: home.queue("grave").messages == 1, seconds=LONG)
        wait_for("the message to leave", lambda: home.queue("source").messages == 0, seconds=LONG)
        cluster.kill(2)
        reject(b"2")
        wait_for("the message to be kept", lambda: home.queue("source").messages_unacknowledged == 1, seconds=LONG)
        cluster.start_node(2)
        cluster.wait_healthy(LONG)
        wait_for("the message to leave", lambda: home.queue("source").messages == 0, seconds=LONG)
        assert [home.get("grave").body for _ in range(2)] == [b"1", b"2"]


def test_a_node_that_is_cut_off_answers_nothing(tmp_path):
    """A node that is cut off answers nothing, the majority goes on, and the node has all changes when the network is
    back.
    """
    with Cluster(3, data_dir=tmp_path) as cluster:
        client = Client(cluster.url_of(0))
        channel = client.channel()
        cluster.partition(0, 1)
        cluster.partition(0, 2)
        while client.receive(0.5):  # until the node's lease has ended
            pass
        cluster.broker(1).declare_queue("meanwhile", durable=True)
        client.timeout = 3.0
        # The node answers nothing, and closes the connection when it has waited for five seconds.
        with pytest.raises((AssertionError, Refused), match="no QueueDeclareOk|320 CONNECTION_FORCED"):
            channel.queue("late", durable=True)
        client.abort()
        cluster.heal()
        cluster.wait_healthy(LONG)
        assert cluster.broker(0).declare_queue("meanwhile", passive=True) == "meanwhile"


def test_a_paused_node_comes_back(warren_cluster):
    """A node that is paused for less than the others wait goes on where it was."""
    warren_cluster.broker(1).declare_queue("q")
    warren_cluster.pause(1)
    warren_cluster.resume(1)
    warren_cluster.wait_healthy(LONG)
    assert warren_cluster.publish(b"m", "q")


def test_a_node_that_answers_late_is_waited_for(warren_cluster, monkeypatch):
    """`wait_healthy` asks a node that does not answer in time again until its own time is over, because on a busy
    machine answers may be late.
    """
    ask, late = RunningNode.ask_named, []

    def ask_late(node, name, request):
        if not late:
            late.append(name)
            raise ProcessTimeout("no answer in time")
        return ask(node, name, request)

    monkeypatch.setattr(RunningNode, "ask_named", ask_late)
    warren_cluster.wait_healthy(LONG)
    assert late
    late.clear()
    with pytest.raises(TimeoutError, match="not healthy after 0 s: warren1@localhost does not answer"):
        warren_cluster.wait_healthy(0)


def test_nodes_are_added_and_removed(tmp_path):
    """An added node has everything, and a node with durable queues is removed only with the consent to lose them
    (CL-105).
    """
    with Cluster(2, data_dir=tmp_path) as cluster:
        cluster.declare_queue("orders", durable=True)
        assert cluster.home("orders") == "warren1@localhost"
        added = cluster.add_node()
        assert cluster.nodes[2] == added == "warren3@localhost"
        cluster.wait_healthy(LONG)
        assert cluster.broker(2).declare_queue("orders", passive=True) == "orders"
        cluster.broker(2).declare_queue("of the third", durable=True)
        assert cluster.home("of the third") == added

        with pytest.raises(BrokerError, match="1 durable queues are at home on warren3@localhost"):
            cluster.remove_node(added)
        cluster.remove_node(added, accept_loss=True)
        assert cluster.nodes == ["warren1@localhost", "warren2@localhost"]
        with pytest.raises(BrokerError, match="404"):
            cluster.home("of the third")
        assert cluster.add_node() == "warren4@localhost"


def test_a_witness_votes_and_has_no_clients():
    """CL-105: two nodes and a witness survive the death of one node."""
    with Cluster(2, witnesses=1) as cluster:
        assert cluster.nodes == ["warren1@localhost", "warren2@localhost", "witness1@localhost"]
        assert len(cluster.urls) == 2
        cluster.kill(0)
        cluster.declare_queue("afterwards")
        assert cluster.home("afterwards") == "warren2@localhost"
        cluster.start_node(0)
        cluster.wait_healthy(LONG)
    with pytest.raises(ValueError, match="witnesses is -1; give 0 or more"):
        Cluster(1, witnesses=-1)


def test_nothing_is_left_behind(tmp_path):
    """Nodes that were killed or stopped leave no thread and no open descriptor behind."""
    with Broker():
        pass
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with Cluster(3, data_dir=tmp_path) as cluster:
        cluster.kill(0)
        cluster.stop_node(1)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_node_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="there is no node 5; the nodes are warren1@localhost, warren2@localhost"):
        Cluster(2).kill(5)
    with pytest.raises(ValueError, match="at least one node"):
        Cluster(0)
    with pytest.raises(RuntimeError, match="no node of the cluster is running"):
        Cluster(2).declare_queue("q")


def test_a_node_that_is_declared_down_while_it_starts_starts_again(monkeypatch, caplog):
    """A node that is declared down while it starts, because its machine stood still for seconds, starts
    again (CL-55).
    """
    check, refused = ReplicatedState._check_run, []

    def refuse_once(state, proposer, command):
        if not refused and isinstance(command, CreateVhost):
            refused.append(proposer)
            raise CountsAsDown(541, f"{proposer[0]} counts as down in its cluster")
        check(state, proposer, command)

    monkeypatch.setattr(ReplicatedState, "_check_run", refuse_once)
    with Cluster(1) as cluster:
        assert cluster.broker(0).declare_queue("orders") == "orders"
    assert refused and "counts as down in its cluster. It starts again" in caplog.text
