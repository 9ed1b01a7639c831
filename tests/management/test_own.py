"""Endpoints of the API that RabbitMQ does not have: streams of events, routes of messages, and flow."""

import http.client
import json
from urllib.parse import quote

import pytest

from .conftest import PATIENCE


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
