"""The API in a cluster: each node answers for all nodes (CM-270, CM-273), and its metrics are about itself alone
(CM-330).
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import time

import pika
import pytest

from warren import Cluster
from warren.management.copy.node_link import NodeLink, OperationRefused

from .conftest import PATIENCE, Api, ports, until

NODES = 3


@pytest.fixture(scope="module")
def cluster():
    with Cluster(
        NODES, management=True, management_port=0, prometheus_port=0, management_interval=100, net_ticktime=20.0
    ) as cluster:
        yield cluster


@pytest.fixture
def apis(cluster):
    """A client of each node's API. It is made for each test, because a node that a test has killed listens on another
    port afterwards.
    """
    return [Api(ports(cluster.broker(index))["http"]) for index in range(NODES)]


@pytest.fixture
def name_of(request):
    """The name of the client's connection to the node of this number; it begins with the test's name, so that no two
    tests share one.
    """
    return lambda number: f"{request.node.name} {number}"


@pytest.fixture
def clients(cluster, name_of):
    """A channel to each node, with a queue that it has declared there, a message in the queue, and a consumer."""
    parameters = [pika.URLParameters(url) for url in cluster.urls]
    for number, each in enumerate(parameters):
        each.client_properties = {"connection_name": name_of(number)}
    connections = [pika.BlockingConnection(each) for each in parameters]
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


def test_a_connection_of_another_node_is_closed(apis, clients, name_of):
    first, *_ = apis
    # The node may not know yet that connections of an earlier test have ended, so the connection is chosen by its name.
    remote = until(lambda: [row for row in first.get("/api/connections") if row["user_provided_name"] == name_of(2)])[0]
    assert remote["node"] == "warren3@localhost"
    status, value = first("DELETE", f"/api/connections/{remote['name'].replace(' ', '%20')}")
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
    """When a node is lost, the messages that it has counted stay in the overview's sums: otherwise the sum would fall,
    and the charts would show a negative rate (CM-376).
    """
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


def test_each_node_shows_what_another_one_uses(cluster, apis):
    """Any node answers with another node's own memory, settings and links (CM-272)."""
    names = [cluster.broker(index).settings.node_name for index in range(NODES)]
    other = f"/api/nodes/{names[1]}"
    until(lambda: apis[0].get("/api/nodes"), lambda rows: all("mem_used" in row for row in rows))
    assert apis[0].get(f"{other}/memory")["memory"]["total"]["rss"] > 0
    assert apis[0].get(f"{other}?memory=true")["memory"]["code"] > 0
    settings = {row["key"]: row["value"] for row in apis[0].get(f"{other}/environment")}
    assert settings["node_name"] == names[1]
    links = apis[0].get(other)["cluster_links"]
    assert sorted(link["name"] for link in links) == [names[0], names[2]]
    for link in links:
        assert link["state"] == "up" and link["peer_port"] > 0
        assert link["recv_bytes"] == link["stats"]["recv_bytes"] > 0
        assert link["send_bytes"] > 0


def test_the_traffic_of_a_link_has_a_rate(cluster, apis):
    """Each link of a node has a rate of its traffic, which is never 0, because the other nodes send their statistics in
    each interval.
    """
    name = cluster.broker(0).settings.node_name

    def rates():
        return [
            link["stats"]["recv_bytes_details"]["rate"] for link in apis[0].get(f"/api/nodes/{name}")["cluster_links"]
        ]

    until(rates, lambda found: len(found) == NODES - 1 and all(rate > 0 for rate in found))


def test_the_metrics_of_a_node_have_its_links(cluster):
    """The metrics of a node have the state, traffic and round trip of each of its links, and say which node leads
    (CM-369, CM-375).
    """
    client = Api(ports(cluster.broker(0))["http/prometheus"], user=None)
    for index in (1, 2):
        labels = f'{{peer="{cluster.broker(index).settings.node_name}"}}'
        until(
            lambda labels=labels: f"erlang_vm_dist_node_state{labels} 3\n" in client.raw("GET", "/metrics")[1].decode()
        )
        values = dict(line.rsplit(" ", 1) for line in client.raw("GET", "/metrics")[1].decode().splitlines())
        assert int(values[f"erlang_vm_dist_recv_bytes{labels}"]) > 0
        assert (
            int(values[f"erlang_vm_dist_recv_cnt{labels}"]) > 0 and int(values[f"erlang_vm_dist_send_cnt{labels}"]) > 0
        )
        assert 0 <= float(values[f"warren_link_rtt_seconds{labels}"]) < PATIENCE
        for lane in ("control", "data", "bulk"):
            assert int(values[f'warren_link_inflight{labels[:-1]},kind="{lane}"}}']) >= 0
    scrapes = [Api(ports(cluster.broker(index))["http/prometheus"], user=None) for index in range(NODES)]
    texts = [each.raw("GET", "/metrics")[1].decode() for each in scrapes]
    assert sum("\nwarren_raft_leader 1\n" in text for text in texts) == 1, "one node leads"
    assert all("\nwarren_members_down 0\n" in text for text in texts)


def test_a_queue_is_browsed_from_any_node(cluster, apis, clients):
    for api in apis[:2]:
        path = "/api/messages/%2F/by-number/at%201"
        found = until(lambda api=api, path=path: api("GET", path), lambda answer: answer[0] == 200)[1]
        assert [each["payload"] for each in found["messages"]] == ["hello"]
    settings = {row["key"]: row["value"] for row in cluster.broker(0)._node.operate("environment")}
    link = NodeLink(settings["control_dir"])
    arguments = {"user": "guest", "vhost": "/", "queue": "at 1", "first": None, "count": 1, "truncate": 1}
    with pytest.raises(OperationRefused, match="is at node 'warren2@localhost', which alone can browse it"):
        asyncio.run(link.call("browse_messages_as", **arguments))


def test_the_check_of_mirrored_queues_names_those_with_a_single_replica(cluster, apis):
    """The check fails on the node whose mirrored queue has no other replica in sync, and names the queue. It succeeds
    on the other nodes, and for queues without mirrors (CM-48).
    """
    path = "/api/health/checks/node-is-mirror-sync-critical"

    def failed():
        return [value.get("queues", []) for value in (api("GET", path)[1] for api in apis)]

    cluster.broker(1).declare_queue("plain.critical")
    cluster.broker(1).declare_queue("mirrored.critical", durable=True)
    assert [api("GET", path)[0] for api in apis] == [200] * NODES
    cluster.set_policy("ha", "^mirrored", {"ha-mode": "exactly", "ha-params": 2})
    until(lambda: len(cluster.queue("mirrored.critical").in_sync), lambda count: count == 2)
    until(failed, lambda found: not any(found))
    cluster.set_policy("ha", "^mirrored", {"ha-mode": "exactly", "ha-params": 1})
    named = {"name": "mirrored.critical", "readable_name": "queue 'mirrored.critical' in vhost '/'"}
    named |= {"type": "classic", "virtual_host": "/"}
    until(failed, lambda found: found == [[], [named], []])
    assert [api("GET", path)[0] for api in apis] == [200, 503, 200]
    cluster.clear_policy("ha")
    for name in ("plain.critical", "mirrored.critical"):
        cluster.delete_queue(name)


def test_every_node_shows_how_far_a_copy_is(cluster, apis):
    """The HTTP API has what the replicas of a mirrored queue report of their copies, and the metrics of the master's
    node have the sums (CL-90).
    """
    cluster.broker(1).declare_queue("copied", durable=True)
    for _ in range(3):
        cluster.broker(1).publish(b"x", "copied", delivery_mode=2)
    manual = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "manual"}
    cluster.set_policy("copied", "^copied$", manual)

    def shown():
        rows = [api.get("/api/queues/%2F/copied") for api in apis]
        return [[each["stage"] for each in row.get("synchronisation") or ()] for row in rows]

    until(shown, lambda found: found == [["waiting"]] * NODES)
    scrape = Api(ports(cluster.broker(1))["http/prometheus"], user=None)
    assert 'warren_ring_copying{vhost="/",queue="copied"} 0' in scrape.raw("GET", "/metrics/per-object")[1].decode()
    cluster.set_policy("copied", "^copied$", {**manual, "ha-sync-mode": "automatic"})
    until(shown, lambda found: found == [[]] * NODES)
    assert len(cluster.queue("copied").in_sync) == 2
    cluster.clear_policy("copied")
    cluster.delete_queue("copied")


def test_the_metrics_of_the_leading_node_have_the_rings(cluster, apis):
    """The metrics of the queue's master node say how many members the ring of a mirrored queue has, and how many are
    not in sync (CM-268, CM-375).
    """
    cluster.set_policy("ring", "^ringed", {"ha-mode": "exactly", "ha-params": 2})
    cluster.broker(1).declare_queue("ringed.metrics", durable=True)
    until(lambda: len(cluster.queue("ringed.metrics").in_sync), lambda count: count == 2)
    (row,) = apis[0].get("/api/rings")
    assert (row["vhost"], row["queue"], len(row["members"]), row["dead"]) == ("/", "ringed.metrics", 2, [])
    assert apis[0].get("/api/rings/%2F") == [row]
    scrapes = [Api(ports(cluster.broker(index))["http/prometheus"], user=None) for index in range(NODES)]
    labels = '{vhost="/",queue="ringed.metrics"}'
    lines = {f"warren_ring_members{labels} 2", f"warren_ring_unsynchronised{labels} 0"}

    def shown():
        texts = [each.raw("GET", "/metrics/per-object")[1].decode().splitlines() for each in scrapes]
        return [len(lines.intersection(text)) for text in texts]

    until(shown, lambda found: found == [0, 2, 0])
    before = broadcasts(scrapes[1])
    cluster.broker(1).publish(b"x", "ringed.metrics")
    until(lambda: broadcasts(scrapes[1]), lambda count: count > before)
    assert broadcasts(scrapes[0]) == broadcasts(scrapes[2]) == 0, "the master of a queue measures its ring"
    before = changes(scrapes[1])
    cluster.set_policy("ring", "^ringed", {"ha-mode": "exactly", "ha-params": 1})
    until(lambda: changes(scrapes[1]), lambda count: count == before + 1)
    assert changes(scrapes[0]) == changes(scrapes[2]) == 0, "a node counts the rings that it leads"
    cluster.clear_policy("ring")
    cluster.delete_queue("ringed.metrics")


def broadcasts(scrape):
    lines = scrape.raw("GET", "/metrics")[1].decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("warren_ring_broadcast_seconds_count ")))


def changes(scrape):
    lines = scrape.raw("GET", "/metrics")[1].decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("warren_ring_view_changes_total ")))


def test_a_queue_is_declared_on_the_chosen_node(cluster, apis):
    """`node` in the body of a PUT chooses the node of the queue, whichever node answers (CM-289)."""
    for index in range(NODES):
        node = cluster.broker(index).settings.node_name
        assert apis[0]("PUT", f"/api/queues/%2F/placed{index}", {"durable": True, "node": node})[0] == 201
        assert apis[0].get(f"/api/queues/%2F/placed{index}")["node"] == node
        cluster.delete_queue(f"placed{index}")


def test_the_overview_has_the_sockets_of_all_nodes(cluster, apis):
    """The overview lists the sockets of all nodes for AMQP and for other nodes, and those of the answering node for
    HTTP (CM-270).
    """
    names = [cluster.broker(index).settings.node_name for index in range(NODES)]

    def nodes_with(protocol):
        return [row["node"] for row in apis[0].get("/api/overview")["listeners"] if row["protocol"] == protocol]

    for protocol in ("amqp", "clustering"):
        until(lambda protocol=protocol: nodes_with(protocol), lambda found: found == sorted(names))
    rows = apis[0].get("/api/overview")["listeners"]
    assert {row["node"] for row in rows if row["protocol"].startswith("http")} == {names[0]}


def test_the_listener_for_other_nodes_is_checked(apis):
    """The checks of listeners know the port on which a node listens for others, as RabbitMQ's do (CM-310)."""
    path = "/api/health/checks"
    assert apis[0].get(f"{path}/protocol-listener/clustering") == {"status": "ok", "protocol": "clustering"}
    (port,) = {
        row["port"]
        for row in apis[0].get("/api/overview")["listeners"]
        if row["protocol"] == "clustering" and row["node"] == "warren1@localhost"
    }
    assert apis[0].get(f"{path}/port-listener/{port}") == {"status": "ok", "port": port}


def test_a_queue_that_moves_is_an_event(cluster, apis):
    """Each node shows as an event that a mirrored queue has another master (CM-390)."""
    cluster.set_policy("ha", "^moved$", {"ha-mode": "nodes", "ha-params": [cluster.broker(0).settings.node_name]})
    cluster.broker(0).declare_queue("moved", durable=True)
    names = [cluster.broker(index).settings.node_name for index in range(2)]
    for api in apis:
        # A node shows a move only if it knew where the queue was before.
        until(lambda api=api: api.get("/api/queues/%2F/moved")["node"] == names[0])
    cluster.set_policy("ha", "^moved$", {"ha-mode": "nodes", "ha-params": [names[1]]})
    wanted = f"node '{names[1]}' leads queue 'moved' in virtual host '/', and no longer node '{names[0]}'"
    for api in apis:
        until(lambda api=api: wanted in [row["text"] for row in api.get("/api/recent-events")])
    cluster.clear_policy("ha")
    cluster.delete_queue("moved")


def test_masters_are_spread_after_the_answer(cluster, apis):
    """POST /api/rebalance/queues is answered at once, and moves masters afterwards until each node has as many."""
    cluster.set_policy("ha", "^spread", {"ha-mode": "all"})
    names = [f"spread{number}" for number in range(6)]
    for name in names:
        cluster.broker(0).declare_queue(name, durable=True)
    for name in names:
        until(lambda name=name: len(cluster.queue(name).in_sync), lambda count: count == NODES)
    assert apis[0]("POST", "/api/rebalance/queues", {}) == (204, None)
    nodes = [cluster.broker(index).settings.node_name for index in range(NODES)]

    def led():
        homes = [cluster.queue(name).node for name in names]
        return [homes.count(node) for node in nodes]

    until(led, lambda counts: counts == [2, 2, 2])
    cluster.clear_policy("ha")
    for name in names:
        cluster.delete_queue(name)


def test_one_action_synchronises_all_mirrors(cluster, apis):
    """With `ha-sync-mode: manual` the action `sync` has every mirror copy the queue, also one that has to begin anew
    because another one has joined the ring before it (CM-165).
    """
    cluster.broker(0).declare_queue("filled", durable=True)
    for number in range(50):
        assert cluster.broker(0).publish(b"%d" % number, "filled", delivery_mode=2)
    cluster.set_policy("ha", "^filled$", {"ha-mode": "all", "ha-sync-mode": "manual"})

    def stages():
        return [
            each["stage"] for each in cluster.broker(0)._node.operate("show_ring", name="filled", vhost="/")["members"]
        ]

    until(stages, lambda found: found == ["following", "waiting", "waiting"])
    assert apis[0]("POST", "/api/queues/%2F/filled/actions", {"action": "sync"}) == (204, None)
    until(lambda: len(cluster.queue("filled").in_sync), lambda count: count == NODES)
    cluster.clear_policy("ha")
    cluster.delete_queue("filled")
