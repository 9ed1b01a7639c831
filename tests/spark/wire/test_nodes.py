"""Where clients reach the nodes of a cluster that have a mirrored queue (SP-21)."""

import json

from warren import Cluster
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
