"""Where clients reach the nodes of a cluster that have a mirrored queue (SP-21)."""

import json

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from warren import Cluster
from warren.spark.options import StreamOptions
from warren.spark.reading import stream_reader
from warren.spark.reading.stream_reader import StreamReader
from warren.tests.behaviour.wire import Client


def catalogue_row(cluster, node, queue):
    """The row of a queue in the catalogue, as a client of this node gets it."""
    client = Client(cluster.broker(node).url)
    channel = client.channel()
    channel.consume("amq.warren.catalogue", arguments={"x-warren-queues": [queue]}, no_ack=True)
    (row,) = json.loads(channel.delivery().body)
    client.close()
    return row


def test_the_catalogue_has_the_nodes_in_sync_and_where_clients_reach_them():
    """Clients of every node get the addresses of the nodes that have all messages of a queue, the master's first
    (SP-21). A node that stands still does not hold up the answer, and its address is left out.
    """
    with Cluster(3, net_ticktime=20.0) as cluster:
        cluster.set_policy("mirrored", "^orders", {"ha-mode": "all"})
        cluster.broker(1).declare_queue("orders", durable=True)
        cluster.wait_in_sync("orders", timeout=120)
        master, *mirrors = in_sync = cluster.queue("orders").in_sync
        addresses = {node: f"127.0.0.1:{cluster.broker(node).port}" for node in cluster.nodes}
        for node in cluster.nodes:
            row = catalogue_row(cluster, node, "orders")
            assert (row["node"], row["here"], row["in_sync"]) == (master, node == master, list(in_sync))
            assert row["endpoints"] == [addresses[each] for each in in_sync]
        cluster.pause(mirrors[0])
        try:
            assert catalogue_row(cluster, master, "orders")["endpoints"] == [addresses[master], addresses[mirrors[1]]]
        finally:
            cluster.resume(mirrors[0])


def test_a_stream_goes_on_with_the_next_master(row_plan, monkeypatch):
    """A query whose URL names only the node of the master goes on with another node after that one was killed. The
    numbers that the new master leaves out are no loss, also if the query has not read what is in front of them (SP-26).
    """
    monkeypatch.setattr(stream_reader, "IDLE_PAUSE", 0.0)
    with Cluster(3, net_ticktime=20.0) as cluster:
        cluster.set_policy("mirrored", "^orders", {"ha-mode": "all"})
        cluster.broker(1).declare_queue("orders", durable=True)
        cluster.wait_in_sync("orders", timeout=120)
        master, *mirrors = cluster.queue("orders").in_sync
        options = StreamOptions.parse({"url": cluster.broker(master).url, "queue": "orders", "columns": "seq,body"})
        stream = StreamReader(options, row_plan(options))
        start = stream.initialOffset()
        for number in range(10):
            cluster.broker(master).publish(b"%d" % number, "orders", delivery_mode=2)
        middle = stream.latestOffset(start, ReadMaxRows(4))
        planned = stream.latestOffset(middle, ReadMaxRows(4))
        cluster.kill(master)
        for number in range(10, 15):
            assert cluster.broker(mirrors[0]).publish(b"%d" % number, "orders", delivery_mode=2)
        end = stream.latestOffset(planned, ReadAllAvailable())
        found = [
            int(row["body"])
            for one, other in ((start, middle), (middle, planned), (planned, end))
            for partition in stream.partitions(one, other)
            for batch in stream.read(partition)
            for row in batch.to_pylist()
        ]
        stream.stop()
    assert found == list(range(15))
