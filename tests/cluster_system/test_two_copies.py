"""Two nodes copy a queue at the same time, and its messages cross the network once for each of them (CL-84)."""

from __future__ import annotations

from warren import Cluster
from warren.mirror.sync.sync_source import SyncSource
from warren.tests.cluster_system.nodes import wait_for

SIZE, COUNT = 10_000, 1500


def test_the_second_goes_on_when_the_first_is_in_the_ring(tmp_path, monkeypatch):
    """A node that copied a transient queue began again when another one had copied it first."""
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
