"""Operators move the masters of mirrored queues while clients go on, on nodes in this process (CL-98, CM-65)."""

from __future__ import annotations

from itertools import count
from threading import Event, Thread

import pytest

from warren import Cluster
from warren.running_node import BrokerError
from warren.tests.cluster_system.nodes import wait_for

pytestmark = pytest.mark.timeout(240)

FIRST, SECOND = NAMES = ("warren1@localhost", "warren2@localhost")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(2, data_dir=tmp_path_factory.mktemp("nodes")) as cluster:
        cluster.set_policy("mirrors", "^ha", {"ha-mode": "all"})
        yield cluster


def operate(cluster, operation: str, **arguments: object):
    return cluster.broker(0)._node.operate(operation, **arguments)


def test_a_promoted_replica_is_the_master_while_clients_publish(cluster):
    """Each publish is answered: what was confirmed is in the queue once, and what was refused is not."""
    cluster.broker(0).declare_queue("ha-moves", durable=True)
    confirmed: list[int] = []
    numbers = count()
    is_over = Event()

    def publish() -> None:
        for number in numbers:
            if is_over.is_set():
                return
            try:
                cluster.broker(1).publish(b"%d" % number, "ha-moves", delivery_mode=2)
            except BrokerError as error:
                assert error.code == 406, error
            else:
                confirmed.append(number)

    publisher = Thread(target=publish)
    publisher.start()
    try:
        for node in (SECOND, FIRST, SECOND):
            before = len(confirmed)
            wait_for("the publisher to go on", lambda before=before: len(confirmed) > before + 20)
            wait_for("all replicas to be in sync", lambda: len(cluster.queue("ha-moves").in_sync) == 2)
            assert operate(cluster, "promote", name="ha-moves", vhost="/", node=node)
            assert cluster.queue("ha-moves").node == node
    finally:
        is_over.set()
        publisher.join()
    bodies = []
    while (message := cluster.get("ha-moves")) is not None:
        bodies.append(int(message.body))
    assert bodies == confirmed
    cluster.delete_queue("ha-moves")


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
