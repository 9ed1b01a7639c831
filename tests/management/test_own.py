"""Endpoints of the API that RabbitMQ does not have: streams of events, routes of messages, and flow."""

import asyncio
import http.client
import json
from types import SimpleNamespace
from urllib.parse import quote

import pika
import pytest

from warren import Broker
from warren.management.handlers.events import EventStreams

from .conftest import PATIENCE, Api, ports, until


class Stream:
    """An open stream of server-sent events, the answers to GETs of several paths."""

    def __init__(self, api, *paths):
        self.connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
        query = "&".join(f"get={quote(path, safe='')}" for path in paths)
        self.connection.request("GET", f"/api/events?{query}", headers=api.headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        assert self.answer.getheader("content-type").startswith("text/event-stream")

    def next(self, number):
        """Read until the next event of the path with this number, and return its data."""
        event = None
        while True:
            line = self.answer.readline().decode()
            assert line, "the stream has ended"
            if line.startswith("event: "):
                event = int(line.removeprefix("event: "))
            elif line.startswith("data: ") and event == number:
                return json.loads(line.removeprefix("data: "))

    def close(self):
        self.connection.close()


@pytest.fixture
def stream(api):
    streams = []

    def open_stream(*paths, of=api):
        streams.append(Stream(of, *paths))
        return streams[-1]

    yield open_stream
    for each in streams:
        each.close()


def test_a_stream_sends_what_is_and_then_what_changes(stream, api, broker):
    """A stream sends the answer to each path at once, and again when it has changed (CM-268, CM-387)."""
    events = stream("whoami", "queues/%2F?columns=name,messages")
    assert events.next(0) == {"name": "guest", "tags": ["administrator"]}
    assert "streamed" not in str(events.next(1))
    broker.declare_queue("streamed")
    while {"name": "streamed", "messages": 0} not in (rows := events.next(1)):
        assert isinstance(rows, list)
    broker.publish(b"x", "streamed")
    while {"name": "streamed", "messages": 1} not in events.next(1):
        pass


def test_a_stream_gives_nobody_more_than_a_get(stream, user):
    """In a stream each path is refused exactly as a GET of it would be (CM-228, CM-268)."""
    events = stream("nodes", "users", "nosuch", "events?get=whoami", of=user("management"))
    assert events.next(0) == {"error": "not_authorised", "reason": "Not monitor user"}
    assert events.next(1) == {"error": "not_authorised", "reason": "Not administrator user"}
    assert events.next(2)["error"] == "Object Not Found"
    assert events.next(3)["error"] == "bad_request"


def test_streams_of_one_user_share_the_answers_of_an_interval(monkeypatch):
    """With a thousand open streams every other request waited 7 s for its answer. Streams of different users share
    nothing (CM-268, CM-387).
    """
    asked = []

    async def shown(call, path):
        asked.append((call.user.name, path))
        await asyncio.sleep(0)
        return f"{call.user.name} {path} {call.state.history.tick}"

    monkeypatch.setattr("warren.management.handlers.events._shown", shown)
    streams = EventStreams()
    history = SimpleNamespace(tick=1)

    def call(name, **headers):
        user = SimpleNamespace(name=name, tags=frozenset())
        state = SimpleNamespace(history=history)
        return SimpleNamespace(user=user, state=state, request=SimpleNamespace(headers=headers))

    async def read(*calls):
        return await asyncio.gather(*[streams.shown(each, "queues") for each in calls])

    async def run():
        assert await read(call("a"), call("a"), call("b")) == ["a queues 1", "a queues 1", "b queues 1"]
        assert asked == [("a", "queues"), ("b", "queues")]
        await read(call("a", **{"x-vhost": "v"}))
        assert asked[2:] == [("a", "queues")]
        history.tick += 1
        assert await read(call("a"), call("a")) == ["a queues 2", "a queues 2"]
        assert asked[3:] == [("a", "queues")]

    asyncio.run(run())


def test_a_stream_ends_with_its_user(stream, api, user):
    client = user("management", name="leaver")
    events = stream("whoami", of=client)
    assert events.next(0)["name"] == "leaver"
    assert api("DELETE", "/api/users/leaver")[0] == 204
    while events.answer.readline():
        pass


def test_a_stream_without_paths_is_refused(api):
    assert api("GET", "/api/events")[0] == 400


def test_where_a_message_would_go(api, broker):
    """`/route` names the queues that a message would reach, by routing key or headers, and publishes
    nothing (CM-400).
    """
    for name in ("by-key", "by-header"):
        api("PUT", f"/api/queues/%2F/{name}", {})
    api("POST", "/api/bindings/%2F/e/amq.topic/q/by-key", {"routing_key": "a.#"})
    api("POST", "/api/bindings/%2F/e/amq.headers/q/by-header", {"arguments": {"type": "x", "x-match": "all"}})
    assert api.get("/api/route/%2F/amq.topic?routing_key=a.b")["queues"] == ["by-key"]
    assert api.get("/api/route/%2F/amq.topic?routing_key=b") == {
        "exchange": "amq.topic",
        "routing_key": "b",
        "queues": [],
        "routed": False,
    }
    assert api.get("/api/route/%2F/amq.headers?header.type=x")["queues"] == ["by-header"]
    assert api.get("/api/route/%2F/amq.default?routing_key=by-key")["queues"] == ["by-key"]
    assert api("GET", "/api/route/%2F/nosuch?routing_key=b")[0] == 404
    assert api.get("/api/queues/%2F/by-key")["messages"] == 0


def test_nothing_holds_back_a_broker_without_clients(api):
    assert api.get("/api/flow") == []


def test_a_queue_shows_its_pace_and_its_lanes(api, broker):
    """A paced queue has `pace`, one with fair lanes `lanes`, a group its members, and other queues none of these
    (QP-71, QP-75, QP-108).
    """
    broker.set_policy("paced", "^paced$", {"pace-rate": 1, "pace-period-ms": 3_600_000}, apply_to="queues")
    broker.declare_queue("plain")
    broker.declare_queue("paced")
    broker.declare_queue("fair", arguments={"x-fair-by": "routing-key"})
    broker.declare_queue("group", arguments={"x-queue-type": "group", "x-group-members": ["plain"]}, durable=True)
    for name in ("paced", "paced", "fair"):
        broker.publish(b"x", name)
    pace = until(lambda: api.get("/api/queues/%2F/paced"), lambda row: row.get("pace", {}).get("waiting") == 2)["pace"]
    assert (pace["rate"], pace["period_ms"], pace["scope"], pace["held_total"]) == (1, 3_600_000, "queue", 2)
    lanes = until(lambda: api.get("/api/queues/%2F/fair"), lambda row: row.get("lanes"))["lanes"]
    assert [(lane["lane"], lane["length"]) for lane in lanes] == [("fair", 1)]
    assert until(lambda: api.get("/api/queues/%2F/group"), lambda row: row.get("group_members")) is not None
    assert not {"pace", "lanes", "group_members"} & api.get("/api/queues/%2F/plain").keys()
    for name in ("group", "plain", "paced", "fair"):
        broker.delete_queue(name)
    broker.clear_policy("paced")


def test_a_consumer_shows_what_it_waits_for(api, broker):
    """A consumer whose prefetch is used up has `blocked_by` of `prefetch` (QP-116)."""
    broker.declare_queue("held")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("held", lambda *_: None)
        (found,) = until(lambda: api.get("/api/consumers/%2F"))
        assert found["blocked_by"] == ""
        broker.publish(b"x", "held")
        until(lambda: api.get("/api/consumers/%2F")[0]["blocked_by"] == "prefetch")
    broker.delete_queue("held")


def test_a_queue_on_the_disk_shows_its_layers(tmp_path):
    """A lazy queue has its messages in `delta` and `q3`, and none of them in memory. The items of where messages are
    count persistent ones, transient ones that are on the disk alone, and bodies in memory (CM-154, CM-274, CM-349,
    CM-350).
    """
    settings = {"management": True, "management_port": 0, "prometheus_port": 0, "management_interval": 100}
    with Broker(data_dir=tmp_path, **settings) as broker:
        api = Api(ports(broker)["http"])
        broker.declare_queue("lazy", durable=True, arguments={"x-queue-mode": "lazy"})
        broker.declare_queue("eager", durable=True)
        for name in ("lazy", "eager"):
            for number in range(10):
                broker.publish(b"body", name, delivery_mode=1 + number % 2)

        def shown(name):
            row = api.get(f"/api/queues/%2F/{name}")
            return row.get("messages"), row.get("messages_ram"), row.get("messages_ready_ram"), row

        *_, row = until(lambda: shown("lazy"), lambda found: found[:3] == (10, 0, 0))
        status = row["backing_queue_status"]
        assert status["delta"][2] + status["q3"] == 10
        assert (status["q1"], status["q2"], status["q4"], status["delta"][:2]) == (0, 0, 0, ["delta", "undefined"])
        *_, row = until(lambda: shown("eager"), lambda found: found[:3] == (10, 10, 10))
        status = row["backing_queue_status"]
        assert (status["q1"] + status["q4"], status["delta"][2]) == (10, 0)
        metrics = Api(ports(broker)["http/prometheus"], user=None)
        for name, paged_out, in_memory in (("lazy", 5, 0), ("eager", 0, 10)):
            row = api.get(f"/api/queues/%2F/{name}")
            assert (row["messages_persistent"], row["message_bytes_persistent"]) == (5, 20)
            assert (row["messages_paged_out"], row["message_bytes_paged_out"]) == (paged_out, 4 * paged_out)
            assert (row["messages_ram"], row["message_bytes_ram"], row["message_bytes"]) == (
                in_memory,
                4 * in_memory,
                40,
            )
            assert row["memory"] == 20_000 + 104 * in_memory
            series = metrics.raw("GET", "/metrics/per-object")[1].decode().splitlines()
            labels = f'{{vhost="/",queue="{name}"}}'
            assert f"rabbitmq_queue_messages_ram_bytes{labels} {4 * in_memory}" in series
            assert f"rabbitmq_queue_messages_paged_out{labels} {paged_out}" in series
        sums = metrics.raw("GET", "/metrics")[1].decode().splitlines()
        assert {"rabbitmq_queue_messages_persistent 10", "rabbitmq_queue_messages_ram_bytes 40"} <= set(sums)


def test_a_queue_is_declared_on_a_node_of_the_cluster(api, broker):
    """`node` in the body chooses the node that declares a queue; one that does not run is refused (CM-289)."""
    node = broker.settings.node_name
    assert api("PUT", "/api/queues/%2F/placed", {"node": node})[0] == 201
    status, answer = api("PUT", "/api/queues/%2F/placed-elsewhere", {"node": "other@host"})
    assert (status, answer["reason"]) == (400, "node 'other@host' is not a running node of the cluster")
    broker.delete_queue("placed")


def test_a_group_has_the_messages_of_its_members(api, broker):
    """A group queue shows the sums of its members' messages, and none in memory, because it stores none (QP-76)."""
    for name in ("first", "second"):
        broker.declare_queue(name)
        broker.publish(b"body", name)
    broker.declare_queue("both", durable=True, arguments={"x-queue-type": "group", "x-group-pattern": "first|second"})
    row = until(lambda: api.get("/api/queues/%2F/both"), lambda row: row.get("messages") == 2)
    assert (row["messages_ready"], row["message_bytes"], row["messages_ram"]) == (2, 8, 0)
    for name in ("both", "first", "second"):
        broker.delete_queue(name)
