"""Operators decide when the replicas of a mirrored queue copy it; the nodes are in this process (CL-83, CL-91)."""

from __future__ import annotations

import json

import pika
import pytest

from warren import Cluster
from warren.mirror.sync.sync_source import SyncSource
from warren.tests.cluster_system.nodes import wait_for, warren_cluster
from warren.tests.cluster_system.operating import PATIENT, declared

MANUAL = {"ha-mode": "all", "ha-sync-mode": "manual"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two data nodes and a witness, which keeps the majority when one of them ends."""
    with Cluster(2, witnesses=1, data_dir=tmp_path_factory.mktemp("nodes"), net_ticktime=20.0) as cluster:
        cluster.set_policy("ha", "^ha", MANUAL)
        yield cluster


def stages(cluster, queue: str) -> dict[str, str | None]:
    ring = cluster.broker(0)._node.operate("show_ring", name=queue, vhost="/")
    return {member["node"]: member["stage"] for member in ring["members"] if member["role"] == "learner"}


def operate(cluster, operation: str, queue: str, **arguments: str):
    return cluster.broker(0)._node.operate(operation, name=queue, vhost="/", **arguments)


@pytest.fixture
def away(cluster, request):
    """A queue with 20 messages that were published while the node of its mirror was stopped. The node runs again, and
    its replica waits for `sync_queue`.
    """
    queue = f"ha-{request.node.name}"
    cluster.broker(0).declare_queue(queue, durable=True)
    second = "warren2@localhost"
    assert cluster.queue(queue).in_sync == ("warren1@localhost", second)
    cluster.stop_node(second)
    for number in range(20):
        assert cluster.broker(0).publish(b"%d" % number, queue, delivery_mode=2)
    cluster.start_node(second)
    cluster.wait_healthy(120)
    wait_for("the replica to wait", lambda: stages(cluster, queue) == {second: "waiting"}, seconds=60)
    yield queue
    cluster.delete_queue(queue)
    cluster.set_policy("ha", "^ha", MANUAL)


def test_a_replica_that_comes_back_waits_for_sync_queue(cluster, away):
    assert operate(cluster, "queue_action", away, action="sync")
    cluster.wait_in_sync(away, timeout=300)
    assert not operate(cluster, "cancel_sync_queue", away), "nobody copies it any more"
    members = operate(cluster, "show_ring", away)["members"]
    assert [member["messages"] for member in members] == [20, 20]


def test_a_changed_policy_has_it_copy_the_queue(cluster, away):
    cluster.set_policy("ha", "^ha", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    cluster.wait_in_sync(away, timeout=300)


def test_it_is_in_sync_when_everything_older_was_consumed(cluster, away):
    assert cluster.broker(0).publish(b"younger", away, delivery_mode=2)
    while (message := cluster.broker(1).get(away)) is not None and message.body != b"19":
        assert stages(cluster, away)
    cluster.wait_in_sync(away, timeout=120)
    assert operate(cluster, "show_ring", away)["members"][1]["messages"] == 1


def test_sync_queue_returns_when_the_replica_has_everything(tmp_path, command):
    """`sync_queue` returns when the replica has copied everything (CM-165, CM-166)."""
    with warren_cluster(tmp_path, 3, PATIENT) as nodes:
        nodes.start()
        first, second, third = nodes
        ran = command(first, "set_policy", "ha", "^ha", json.dumps(MANUAL))
        assert ran.code == 0, ran.err
        declared(first, "ha-orders")
        ran = command(first, "sync_queue", "ha-orders")
        assert (ran.code, ran.out) == (0, "Synchronising queue 'ha-orders' in vhost '/' ...\n")
        nodes.stop_node(second.name)
        with pika.BlockingConnection(pika.URLParameters(first.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(20):
                channel.basic_publish("", "ha-orders", b"message", pika.BasicProperties(delivery_mode=2))
        nodes.start_node(second.name)

        def learners():
            members = command.json(first, "show_ring", "ha-orders")["members"]
            return {each["node"]: each["stage"] for each in members if each["role"] == "learner"}

        wait_for("the replica to wait", lambda: learners() == {second.name: "waiting"})

        def listed():
            """What the master lists of the copies of its queue (CL-90)."""
            (row,) = command.json(first, "list_queues", "synchronisation")
            return [(copy["node"], copy["stage"], copy["copied"]) for copy in row["synchronisation"]]

        wait_for("the report of the replica", lambda: listed() == [(second.name, "waiting", 0)])
        ran = command(third, "sync_queue", "ha-orders")
        assert (ran.code, ran.err, learners(), listed()) == (0, "", {}, [])
        ran = command(third, "cancel_sync_queue", "ha-orders")
        banner = "Stopping synchronising queue 'ha-orders' in vhost '/' ..."
        assert (ran.code, ran.out.splitlines()) == (0, [banner, "not_syncing"])


#: Bytes of each message of a queue that two nodes copy, and how many there are.
SIZE, COUNT = 10_000, 1500


def test_the_second_goes_on_when_the_first_is_in_the_ring(tmp_path, monkeypatch):
    """Of two nodes that copied a transient queue, the second began again when the first was in the ring (CL-84)."""
    sent, chunk = [], SyncSource.chunk

    async def noted(source, first):
        found = await chunk(source, first)
        sent.extend(found[2])
        return found

    monkeypatch.setattr(SyncSource, "chunk", noted)
    with Cluster(3, data_dir=tmp_path, net_ticktime=20.0) as cluster:
        home = cluster.broker(0)
        home.declare_queue("q")
        for number in range(COUNT):
            home.publish(number.to_bytes(SIZE, "big"), "q")
        cluster.set_policy("ha", "^q", {"ha-mode": "all"})

        def are_in_sync() -> bool:
            home.publish(bytes(SIZE), "q")
            return len(cluster.queue("q").in_sync) == 3

        wait_for("both to have the queue", are_in_sync, seconds=60)
        copied = sum(map(len, sent))
        assert 2 * SIZE * COUNT <= copied < 2.2 * SIZE * home.queue("q").messages
        last = cluster.queue("q").in_sync[-1]
        cluster.broker(0)._node.operate("promote", name="q", vhost="/", node=last)
        wait_for("the second to be the master", lambda: cluster.broker(last).queue("q").node == last)
        bodies = [cluster.broker(last).get("q").body for _ in range(COUNT)]
        assert bodies == [number.to_bytes(SIZE, "big") for number in range(COUNT)]


def test_another_node_gets_the_replica_of_one_that_does_not_come_back(tmp_path):
    """`mirror_replace_wait` is for how long the place of a node is kept (CL-92)."""
    with Cluster(3, data_dir=tmp_path, net_ticktime=20.0, mirror_replace_wait=1.0) as cluster:
        cluster.set_policy("ha", "^ha", {"ha-mode": "exactly", "ha-params": 2})
        cluster.broker(0).declare_queue("ha-orders", durable=True)
        first, second = cluster.queue("ha-orders").in_sync
        (third,) = {f"warren{number}@localhost" for number in (1, 2, 3)} - {first, second}
        cluster.kill(second)
        wait_for("the third node", lambda: cluster.broker(0).queue("ha-orders").in_sync == (first, third), seconds=40)
