"""The API of a cluster: each node answers for all (CM-270, CM-273), and its metrics are its own (CM-330)."""

from __future__ import annotations

import contextlib
import http.client
import time

import pika
import pytest

from warren import Cluster

from .conftest import PATIENCE, Api, ports, until

NODES = 3


@pytest.fixture(scope="module")
def cluster():
    with Cluster(
        NODES, management=True, management_port=0, prometheus_port=0, management_interval=100, net_ticktime=20.0
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def apis(cluster):
    return [Api(ports(cluster.broker(index))["http"]) for index in range(NODES)]


@pytest.fixture
def clients(cluster):
    """A connection to each node with a channel, and a queue that it has declared and that has a message."""
    connections = [pika.BlockingConnection(pika.URLParameters(url)) for url in cluster.urls]
    channels = [connection.channel() for connection in connections]
    for number, channel in enumerate(channels):
        channel.confirm_delivery()
        channel.queue_declare(f"at {number}")
        channel.basic_publish("", f"at {number}", b"hello")
        channel.basic_consume(f"at {number}", lambda *delivery: None, consumer_tag=f"tag {number}")
    yield channels
    with pika.BlockingConnection(pika.URLParameters(cluster.urls[0])) as connection:
        for number in range(NODES):
            connection.channel().queue_delete(f"at {number}")
    for connection in connections:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def test_each_node_shows_the_objects_of_all(cluster, apis, clients):
    names = [cluster.broker(index).settings.node_name for index in range(NODES)]
    for api in apis:
        rows = until(
            lambda api=api: api.get("/api/queues"), lambda rows: [row.get("messages") for row in rows] == [1] * NODES
        )
        assert [(row["name"], row["node"], row["consumers"]) for row in rows] == [
            (f"at {number}", name, 1) for number, name in enumerate(names)
        ]
        until(lambda api=api: api.get("/api/overview")["object_totals"]["connections"], lambda count: count == NODES)
        overview = api.get("/api/overview")
        assert (overview["queue_totals"]["messages"], overview["message_stats"]["publish"]) == (NODES, NODES)
        assert overview["object_totals"] | {"exchanges": 0} == {
            "channels": NODES,
            "connections": NODES,
            "consumers": NODES,
            "exchanges": 0,
            "queues": NODES,
        }
        assert sorted(row["node"] for row in api.get("/api/connections")) == sorted(names)
        assert sorted(row["node"] for row in api.get("/api/channels")) == sorted(names)
        assert [row["consumer_tag"] for row in api.get("/api/consumers")] == [f"tag {each}" for each in range(NODES)]
        for row in api.get("/api/nodes"):
            assert row["running"] and row["mem_used"] > 0 and row["sockets_used"] == 1
        for number in range(NODES):
            (consumer,) = api.get(f"/api/queues/%2F/at%20{number}")["consumer_details"]
            assert consumer["channel_details"]["node"] == names[number]


def test_a_connection_of_another_node_is_closed(apis, clients):
    first, *_ = apis
    rows = until(lambda: first.get("/api/connections"), lambda rows: len(rows) == NODES)
    remote = next(row["name"] for row in rows if row["node"] == "warren3@localhost")
    status, value = first("DELETE", f"/api/connections/{remote.replace(' ', '%20')}")
    assert status == 204, value
    with pytest.raises(pika.exceptions.AMQPError):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            clients[2].connection.process_data_events(0.1)


def test_metrics_are_those_of_one_node(cluster, clients):
    for index in range(NODES):
        port = ports(cluster.broker(index))["http/prometheus"]

        def metric(name, port=port):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
            connection.close()
            return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))

        for name in ("rabbitmq_connections", "rabbitmq_queues", "rabbitmq_consumers"):
            until(lambda metric=metric, name=name: metric(name), lambda count: count == 1)


def test_what_a_lost_node_has_counted_stays_in_the_sums(cluster, apis, clients):
    """CM-376: a rate below zero would be drawn as a fall of the whole cluster."""
    first = apis[0]
    published = until(lambda: first.get("/api/overview")["message_stats"]["publish"], lambda count: count >= NODES)
    cluster.kill(2)
    until(lambda: [row["running"] for row in first.get("/api/nodes")], lambda running: running == [True, True, False])
    assert first.get("/api/overview")["message_stats"]["publish"] >= published
    assert all(row["node"] != "warren3@localhost" for row in first.get("/api/connections"))
    cluster.start_node(2)
    cluster.wait_healthy()
    until(lambda: [row.get("mem_used", 0) > 0 for row in first.get("/api/nodes")], all)
    assert first.get("/api/overview")["message_stats"]["publish"] >= published
