"""Operators move the masters of mirrored queues while clients publish; the nodes are in this process (CL-98, CM-65)."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

import pytest

from warren import Cluster
from warren.amqp import methods as m
from warren.mirror import handover
from warren.mirror.instructions import published
from warren.mirror.sync.sync_source import SyncSource
from warren.running_node import BrokerError
from warren.tests.behaviour.wire import Client, table
from warren.tests.cluster_system.nodes import wait_for

FIRST, SECOND = NAMES = ("warren1@localhost", "warren2@localhost")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # Leases are so long that a pause of a busy machine ends none.
    with Cluster(2, data_dir=tmp_path_factory.mktemp("nodes"), net_ticktime=20.0) as cluster:
        cluster.set_policy("mirrors", "^ha", {"ha-mode": "all"})
        yield cluster


def operate(cluster, operation: str, **arguments: object):
    return cluster.broker(0)._node.operate(operation, **arguments)


class Publisher:
    """Publishes the number of its node and a count, in bursts of `BURST`. A burst begins when the previous one is
    answered and `PAUSE` seconds are over.

    Without a pause the publishers fill the queue faster than a replica that joins can copy it, and the test takes a
    minute of processor time.
    """

    BURST = 50
    PAUSE = 0.1

    def __init__(self, cluster, node: int, queue: str) -> None:
        self.channel = Client(cluster.urls[node]).channel()
        self.channel.call(m.ConfirmSelect())
        self.node, self.queue = node, queue
        self.published = self.confirmed = 0
        self.refused: list[int] = []
        self._is_over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(self.PAUSE):
            for _ in range(self.BURST):
                self.published += 1
                self.channel.publish(b"%d %d" % (self.node, self.published), self.queue, delivery_mode=2)
            while self.confirmed < self.published:
                answer = self.channel.wait(m.BasicAck, m.BasicNack)
                if isinstance(answer.method, m.BasicNack):
                    self.refused.append(answer.tag)
                self.confirmed = max(self.confirmed, answer.tag)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


@contextmanager
def publishing(cluster, queue: str):
    """Run a publisher on each node. At the end, none was refused, and the queue has all messages of each in order."""
    cluster.broker(0).declare_queue(queue, durable=True)
    publishers = [Publisher(cluster, node, queue) for node in (0, 1)]
    try:
        yield publishers
    finally:
        for publisher in publishers:
            publisher.end()
    assert [publisher.refused for publisher in publishers] == [[], []]
    found: dict[int, list[int]] = {0: [], 1: []}
    while (message := cluster.get(queue)) is not None:
        node, number = map(int, message.body.split())
        found[node].append(number)
    for publisher in publishers:
        assert found[publisher.node] == [*range(1, publisher.published + 1)]
    cluster.delete_queue(queue)


def go_on(cluster, queue: str, publishers) -> None:
    """Wait until both publishers have published more, and all replicas are in sync."""
    before = [publisher.confirmed for publisher in publishers]
    wait_for(
        "the publishers to go on",
        lambda: all(now.confirmed > then + 200 for now, then in zip(publishers, before)),
    )
    wait_for("all replicas to be in sync", lambda: len(cluster.queue(queue).in_sync) == 2)


def test_nothing_is_refused_when_a_replica_is_promoted(cluster):
    with publishing(cluster, "ha-moves") as publishers:
        for node in (SECOND, FIRST, SECOND):
            go_on(cluster, "ha-moves", publishers)
            assert operate(cluster, "promote", name="ha-moves", vhost="/", node=node)
            assert cluster.queue("ha-moves").node == node
        go_on(cluster, "ha-moves", publishers)


def test_nothing_is_refused_when_a_policy_or_a_rebalance_moves_the_master(cluster):
    with publishing(cluster, "ha-policed") as publishers:
        for node in (SECOND, FIRST):
            go_on(cluster, "ha-policed", publishers)
            nodes = [node, FIRST if node == SECOND else SECOND]
            cluster.set_policy("named", "^ha-policed", {"ha-mode": "nodes", "ha-params": [node]}, priority=1)
            wait_for("the master to move", lambda node=node: cluster.queue("ha-policed").node == node)
            cluster.set_policy("named", "^ha-policed", {"ha-mode": "nodes", "ha-params": nodes}, priority=1)
        cluster.clear_policy("named")
        cluster.broker(0).declare_queue("ha-other", durable=True)
        go_on(cluster, "ha-policed", publishers)
        assert cluster.queue("ha-policed").node == cluster.queue("ha-other").node == FIRST
        operate(cluster, "rebalance", kind="classic")
        assert {cluster.queue(name).node for name in ("ha-policed", "ha-other")} == {FIRST, SECOND}
    cluster.delete_queue("ha-other")


def test_a_node_in_maintenance_has_no_masters(cluster):
    """`drain` moves the masters of a node to the other one, whose clients see no refusal."""
    cluster.broker(0).declare_queue("ha-drained", durable=True)
    publisher = Publisher(cluster, 1, "ha-drained")
    try:
        wait_for("the publisher to begin", lambda: publisher.confirmed > 200)
        assert cluster.queue("ha-drained").node == FIRST
        operate(cluster, "drain")
        assert cluster.queue("ha-drained").node == SECOND
        wait_for("the publisher to go on", lambda before=publisher.confirmed: publisher.confirmed > before + 200)
    finally:
        publisher.end()
        operate(cluster, "revive")
    assert publisher.refused == []
    assert cluster.queue("ha-drained").messages == publisher.published
    cluster.delete_queue("ha-drained")


@pytest.fixture
def copied(monkeypatch):
    """The runs of messages that replicas in this process copy from others."""
    runs: list[bytes] = []
    answer = SyncSource.chunk

    async def noted(self, first):
        position, cursor, found = await answer(self, first)
        runs.extend(found)
        return position, cursor, found

    monkeypatch.setattr(SyncSource, "chunk", noted)
    return runs


def test_the_old_master_keeps_what_it_has(cluster, copied):
    """The old master becomes a replica without copying the queue again: it compares the messages on its disk with the
    other replica, and copies only what was published since (CL-86).
    """
    queue = "ha-kept"
    cluster.broker(0).declare_queue(queue, durable=True)
    bodies = [b"%d" % number + bytes(10_000 * (number % 7 == 0)) for number in range(200)]
    for body in bodies:
        cluster.broker(0).publish(body, queue, delivery_mode=2)
    for body in bodies[:20]:
        assert cluster.get(queue).body == body
    for node in (SECOND, FIRST, SECOND):
        assert operate(cluster, "promote", name=queue, vhost="/", node=node)
        wait_for("the old master to have left", lambda: len(cluster.queue(queue).in_sync) == 1)
        assert cluster.broker(0).publish(node.encode(), queue, delivery_mode=2)
        bodies.append(node.encode())
        wait_for("all replicas to be in sync", lambda: len(cluster.queue(queue).in_sync) == 2)
    assert sum(len(published(content)[1].contents) for content in copied) <= 3, "those published since"
    found = []
    while (message := cluster.get(queue)) is not None:
        found.append(message.body)
    assert found == bodies[20:]
    cluster.delete_queue(queue)


def test_what_was_acknowledged_while_the_master_was_at_rest_does_not_come_again(cluster, monkeypatch):
    """A message that was acknowledged while its master was being moved does not come again, because the old master
    sends the acknowledgements to the new one (CL-98).
    """
    queue, at_rest, rest = "ha-acked", Event(), handover.rest
    cluster.broker(0).declare_queue(queue, durable=True)
    for number in range(5):
        cluster.broker(0).publish(b"%d" % number, queue, delivery_mode=2)

    async def wait_for_acks(replica, is_level):
        await rest(replica, is_level)
        at_rest.set()
        while sum(len(tags) for _, pieces in replica.membership._acks or () for tags in pieces) < 2:
            await replica.sleep(0.002)

    monkeypatch.setattr(handover, "rest", wait_for_acks)
    channel = Client(cluster.urls[1]).channel()
    channel.call(m.BasicQos(0, 3))
    channel.call(m.BasicConsume(queue=queue, consumer_tag="c"))
    first = [channel.wait(m.BasicDeliver) for _ in range(3)]
    to = SECOND if cluster.queue(queue).node == FIRST else FIRST
    moving = Thread(target=operate, args=[cluster, "promote"], kwargs={"name": queue, "vhost": "/", "node": to})
    moving.start()
    assert at_rest.wait(60)
    for delivery in (first[0], first[2]):
        channel.send(m.BasicAck(delivery.method.delivery_tag))
    moving.join(60)
    again = [channel.wait(m.BasicDeliver) for _ in range(3)]
    assert [(each.body, each.method.redelivered) for each in again] == [(b"1", True), (b"3", True), (b"4", True)]
    cluster.delete_queue(queue)


def test_a_move_waits_for_the_floor_of_replicas_in_sync(tmp_path):
    """A master is not moved while its queue would then have fewer replicas in sync than `ha-min-in-sync`, because a
    moved master leaves the ring, and the queue would refuse publishes (CL-98, CL-123).
    """
    with Cluster(3, data_dir=tmp_path, net_ticktime=20.0) as cluster:
        policy = {"ha-mode": "all", "ha-min-in-sync": 2, "ha-sync-mode": "manual"}
        cluster.set_policy("mirrors", "^ha", policy)
        # A queue that is not durable has nothing on the old master's disk, so with manual synchronisation its replica
        # waits.
        cluster.broker(0).declare_queue("ha-floor", durable=False)
        assert cluster.broker(0).publish(b"older than a new replica", "ha-floor", delivery_mode=2)
        first, second, third = cluster.queue("ha-floor").in_sync
        assert operate(cluster, "promote", name="ha-floor", vhost="/", node=second)
        assert cluster.queue("ha-floor").in_sync in ((second, first, third), (second, third))
        with pytest.raises(BrokerError, match="would have 1 replicas in sync without its master and needs 2 of them"):
            operate(cluster, "promote", name="ha-floor", vhost="/", node=third)
        assert cluster.broker(0).publish(b"not refused", "ha-floor", delivery_mode=2)
        cluster.set_policy("mirrors", "^ha", policy | {"ha-sync-mode": "automatic"})
        assert operate(cluster, "promote", name="ha-floor", vhost="/", node=third)
        assert cluster.queue("ha-floor").node == third
        assert cluster.broker(0).publish(b"not refused either", "ha-floor", delivery_mode=2)


def test_a_node_that_stops_has_no_masters_before_its_clients_are_told(tmp_path):
    """A node that stops hands its masters over while it still waits for a client that does not answer
    connection.close.
    """
    with Cluster(2, data_dir=tmp_path, net_ticktime=20.0, stop_timeout=60_000) as cluster:
        cluster.set_policy("mirrors", "^ha", {"ha-mode": "all"})
        cluster.broker(0).declare_queue("ha-led", durable=True)
        assert cluster.queue("ha-led").node == FIRST
        assert cluster.broker(1).publish(b"kept", "ha-led", delivery_mode=2)
        client = Client(cluster.url_of(FIRST))
        stopping = Thread(target=cluster.stop_node, args=[FIRST])
        stopping.start()
        while not any(isinstance(event.method, m.ConnectionClose) for event in client.events[0]):
            assert client.receive(60.0), "the node does not close the connection"
        wait_for("the other node to lead", lambda: cluster.queue("ha-led").node == SECOND, seconds=20)
        assert stopping.is_alive()
        assert cluster.broker(1).get("ha-led").body == b"kept"
        client.send(0, m.ConnectionCloseOk())
        stopping.join(60)
        assert not stopping.is_alive()


def test_a_node_without_a_majority_stops_with_its_masters(tmp_path):
    """A node without a majority stops at once, without waiting 15 s for masters to move, because no other node could be
    agreed on.
    """
    with Cluster(2, data_dir=tmp_path, net_ticktime=20.0) as cluster:
        cluster.set_policy("mirrors", "^ha", {"ha-mode": "all"})
        cluster.broker(0).declare_queue("ha-led", durable=True)
        assert cluster.queue("ha-led").node == FIRST
        cluster.kill(SECOND)
        began = monotonic()
        cluster.stop_node(FIRST)
        assert monotonic() - began < 12.0


def test_only_a_replica_in_sync_is_promoted(cluster):
    cluster.broker(0).declare_queue("ha-asked", durable=True)
    assert not operate(cluster, "promote", name="ha-asked", vhost="/", node=FIRST), "it is the master already"
    with pytest.raises(BrokerError, match=f"has no replica of .* that is in sync; {SECOND} may be chosen"):
        operate(cluster, "promote", name="ha-asked", vhost="/", node="other@localhost")
    cluster.broker(0).declare_queue("plain", durable=True)
    for name, reason in (("plain", "not_mirrored"), ("nosuch", "not_found")):
        with pytest.raises(BrokerError, match=reason):
            operate(cluster, "promote", name=name, vhost="/", node=SECOND)
    cluster.delete_queue("ha-asked")


def test_rebalance_spreads_the_masters(cluster):
    for number in range(5):
        cluster.broker(0).declare_queue(f"ha-{number}", durable=True)
    cluster.broker(0).publish(b"kept", "ha-0", delivery_mode=2)

    def led(**arguments: object) -> list[int]:
        rows = operate(cluster, "rebalance", **arguments)
        assert [row["Node name"] for row in rows] == list(NAMES)
        return [row["Number of replicated classic queues"] for row in rows]

    assert led(kind="quorum") == [5, 0]
    assert led(queue_pattern="^nothing") == [5, 0]
    assert led(queue_pattern="[34]$") == [4, 1]
    assert sorted(led(kind="all")) == [2, 3]
    nodes = [cluster.queue(f"ha-{number}").node for number in range(5)]
    assert sorted(led(kind="classic")) == [2, 3]
    assert [cluster.queue(f"ha-{number}").node for number in range(5)] == nodes, "nothing moves without need"
    assert cluster.get("ha-0").body == b"kept"
    with pytest.raises(BrokerError, match="is no regular expression"):
        led(vhost_pattern="[")


def test_a_replica_that_joins_later_knows_which_numbers_were_left_out(cluster):
    """The numbers that a new master has left out are a gap on every replica, also on one that joins after that: if it
    is the master later, a reader of old numbers must not take them for lost messages (SP-25, SP-26).
    """
    queue, bodies, gaps = "ha-lives", [], []
    cluster.broker(0).declare_queue(queue, durable=True)
    for life, node in enumerate((FIRST, SECOND, FIRST, SECOND)):
        if life:
            assert operate(cluster, "promote", name=queue, vhost="/", node=node)
            wait_for("the master to move", lambda node=node: cluster.broker(node).queue(queue).node == node)
        bodies.append(b"%d" % life)
        assert cluster.broker(0).publish(bodies[-1], queue, delivery_mode=2)
        found = cluster.broker(node).queue(queue)
        assert (found.life, found.gaps[:-1]) == (life, gaps[:life])
        gaps = found.gaps
        cluster.wait_in_sync(queue, timeout=60)
    assert len(gaps) == 3
    channel = Client(cluster.urls[0]).channel()
    for count in (1, 2, 4):  # the last messages are counted across the gaps
        reading = table({"x-warren-read-from": -count})
        channel.call(m.BasicConsume(queue=queue, consumer_tag=str(count), arguments=reading))
        assert [channel.wait(m.BasicDeliver).body for _ in range(count)] == bodies[-count:]
    cluster.delete_queue(queue)


def test_a_replica_that_is_not_in_sync_becomes_the_only_one(tmp_path):
    """A queue that has lost all replicas in sync goes on with what another one has, when an operator forces that. The
    first one comes back and copies that, without the messages that only it had. Without `accept_loss` the command only
    says which replicas there are (CL-100).
    """
    queue = "ha-orders"
    with Cluster(2, witnesses=1, data_dir=tmp_path, net_ticktime=20.0) as cluster:
        cluster.set_policy("ha", "^ha", {"ha-mode": "all"})
        cluster.broker(0).declare_queue(queue, durable=True)
        for number in range(3):
            cluster.broker(0).publish(b"%d" % number, queue, delivery_mode=2)
        cluster.stop_node(SECOND)
        for number in range(3, 5):
            cluster.broker(0).publish(b"%d" % number, queue, delivery_mode=2)
        cluster.kill(FIRST)
        cluster.start_node(SECOND)

        def operate(operation, **arguments):
            return cluster.broker(1)._node.operate(operation, name=queue, vhost="/", **arguments)

        def state():
            return operate("show_ring")["state"]

        wait_for("the queue to be down", lambda: state() == "down", seconds=60)
        with pytest.raises(BrokerError, match="no replica of queue 'ha-orders' in vhost '/' that is in sync"):
            operate("promote", node=SECOND)
        with pytest.raises(BrokerError) as refused:
            operate("promote", node=SECOND, is_forced=True)
        assert f"loses each message that the replica on {SECOND} lacks" in str(refused.value)
        assert f"{FIRST}: in sync at epoch" in str(refused.value) and f"{SECOND}: left the ring" in str(refused.value)
        with pytest.raises(BrokerError, match=f"{FIRST} does not run"):
            operate("promote", node=FIRST, is_forced=True, accept_loss=True)
        with pytest.raises(BrokerError, match="has never had a replica that was in sync"):
            operate("promote", node="other@localhost", is_forced=True, accept_loss=True)
        assert state() == "down"

        assert operate("promote", node=SECOND, is_forced=True, accept_loss=True)
        wait_for("the queue to run", lambda: state() == "running", seconds=60)
        assert not operate("promote", node=SECOND, is_forced=True, accept_loss=True), "it is the master already"
        cluster.start_node(FIRST)
        cluster.wait_in_sync(queue, timeout=120)
        ring = operate("show_ring")
        assert [(each["node"], each["messages"]) for each in ring["members"]] == [(SECOND, 3), (FIRST, 3)]
        assert [each["by"] for each in ring["forced"]] == [f"an operator of {SECOND}"]
        assert [cluster.broker(0).get(queue).body for _ in range(3)] == [b"0", b"1", b"2"]
