"""What requests that write change, and what health checks answer when something is wrong."""

import asyncio
import json
import logging
from dataclasses import fields, replace

import pika
import pytest

from warren.actors.channel import direct_client
from warren.actors.management.config import Config
from warren.management.app import application
from warren.management.copy.node_state import NodeState

from .conftest import until

GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}


def message(key, payload="x", **properties):
    return {"properties": properties, "routing_key": key, "payload": payload, "payload_encoding": "string"}


def bad(reason):
    return 400, {"error": "bad_request", "reason": reason}


@pytest.fixture
def queue(api):
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    assert api("PUT", "/api/queues/%2F/written", {"arguments": arguments})[0] == 201
    yield "written"
    api("DELETE", "/api/queues/%2F/written")


def test_a_message_that_the_queue_refuses(api, queue):
    """A publish that the queue refuses because of its length limit is 400 (CM-300)."""
    path = "/api/exchanges/%2F/amq.default/publish"
    assert api("POST", path, message(queue)) == (200, {"routed": True})
    assert api("POST", path, message(queue)) == bad("Unable to publish message. Check queue limits.")


@pytest.mark.parametrize("mode", ["", "ack_requeue", 1, None])
def test_an_unknown_ack_mode(api, queue, mode):
    """An unknown ack mode is 400, where RabbitMQ answers with 500 (CM-302, CM-426)."""
    assert api("POST", f"/api/queues/%2F/{queue}/get", {**GET, "ackmode": mode}) == bad(["unknown_ackmode", mode])


def test_values_of_json_become_types_of_amqp(api, broker, queue):
    """A client gets headers with the types of AMQP that belong to those of JSON, and a Base64 payload as bytes; `get`
    returns a payload that is not UTF-8 as Base64 (CM-295, CM-301, CM-302).
    """
    # The double is a whole number, because pika truncates the doubles that it decodes.
    values = {"n": 3, "big": 1 << 40, "f": 2.0, "t": "ž", "b": True, "l": [1, "a"], "d": {"k": None}}
    body = {**message(queue, headers=values, delivery_mode="2"), "payload": "/wA=", "payload_encoding": "base64"}
    assert api("POST", "/api/exchanges/%2F/amq.default/publish", body) == (200, {"routed": True})
    (found,) = api("POST", f"/api/queues/%2F/{queue}/get", GET)[1]
    assert found["properties"] == {"headers": values, "delivery_mode": 2}
    assert (found["payload"], found["payload_encoding"], found["payload_bytes"]) == ("/wA=", "base64", 2)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        _, properties, payload = connection.channel().basic_get(queue, auto_ack=True)
    assert (properties.headers, properties.delivery_mode, payload) == (values, 2, b"\xff\x00")


def test_whoever_adds_a_virtual_host_may_use_it(api, user):
    """The user who adds a virtual host, by PUT or by an import, gets all permissions in it; a second PUT or import by
    another user grants that user none (CM-297, CM-314).
    """
    other = user("administrator", name="founder")
    for name, add in (
        ("put", lambda client: client("PUT", "/api/vhosts/put", None)),
        ("imported", lambda client: client("POST", "/api/definitions", {"vhosts": [{"name": "imported"}]})),
    ):
        assert add(other)[0] in (201, 204)
        assert add(api)[0] == 204
        rows = api.get(f"/api/vhosts/{name}/permissions")
        assert rows == [{"user": "founder", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}]
        assert api("DELETE", f"/api/vhosts/{name}")[0] == 204


@pytest.mark.parametrize("fields", [{}, {"password_hash": ""}, {"password": ""}])
def test_a_user_without_a_password_cannot_log_in(api, fields):
    """A user who was added without a password or with an empty one cannot log in (CM-287)."""
    assert api("PUT", "/api/users/locked", {"tags": "administrator", **fields})[0] == 201
    for password in ("", "x"):
        assert api.as_user(f"locked:{password}")("GET", "/api/whoami")[0] == 401
    assert api("DELETE", "/api/users/locked")[0] == 204


def test_an_export_has_a_name_and_needs_a_login(api):
    """`download` gives the export a file name without characters that would break the header. A login in the address is
    not accepted, because it would be in logs and in the history of browsers (CM-312).
    """
    assert api("GET", "/api/definitions?download=a%22b%0d%0a.json")[0] == 200
    assert api.answer_headers["content-disposition"] == 'attachment; filename="ab.json"'
    assert api.as_user(None)("GET", "/api/definitions?auth=Z3Vlc3Q6Z3Vlc3Q%3D")[0] == 401


def test_definitions_come_in_a_form_as_well(api):
    """Definitions may be sent as a multipart form with the field `file`, as RabbitMQ's page does (CM-260)."""
    document = json.dumps({"global_parameters": [{"name": "formed", "value": {"a": 1}}]})
    lines = ["--cut", 'Content-Disposition: form-data; name="file"; filename="d.json"', "", document, "--cut--", ""]
    form = {"content-type": "multipart/form-data; boundary=cut"}
    assert api("POST", "/api/definitions", "\r\n".join(lines), headers=form)[0] == 204
    assert api.get("/api/global-parameters/formed")["value"] == {"a": 1}
    assert api("POST", "/api/definitions", "--cut--", headers=form)[0] == 400
    api("DELETE", "/api/global-parameters/formed")


@pytest.mark.parametrize("vhosts", [True, 3.5, "text", [3], [{"name": ["x"]}], [{"name": {}}], {"name": "x"}])
def test_definitions_with_odd_virtual_hosts_are_refused(api, vhosts):
    """Some of them were a 500 (CM-233, CM-315)."""
    for path in ("/api/definitions", "/api/all-configuration"):
        status, answer = api("POST", path, {"vhosts": vhosts})
        assert status == 400 and answer["error"] == "bad_request", (vhosts, answer)


@pytest.mark.parametrize("text", [b'{"parameters": NaN}', b'{"\\ud800": 1}', b"[]", b"{", b"[" * 100_000])
def test_a_form_is_checked_as_a_body_is(api, text):
    """Also for numbers and texts that JSON cannot have, which the next export could not write (CM-315)."""
    form = b'--x\r\ncontent-disposition: form-data; name="file"; filename="d"\r\n\r\n' + text + b"\r\n--x--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for body, given in ((form, headers), (text, {})):
        assert api("POST", "/api/definitions", body, given) == bad("failed_to_parse_json")


def test_an_alarm_fails_the_checks_at_once(api, broker):
    """An alarm fails the health checks at once, and the list of nodes shows it without waiting for the next interval
    (CM-310, CM-430).
    """
    broker.set_alarm("memory", True)
    try:
        alarm = {"node": broker.settings.node_name, "resource": "memory"}
        for name, place in (("alarms", "in the cluster"), ("local-alarms", "on the node")):
            failed = {"status": "failed", "reason": f"There are alarms in effect {place}", "alarms": [alarm]}
            assert api("GET", f"/api/health/checks/{name}") == (503, failed)
        assert api.get("/api/nodes")[0]["mem_alarm"]
    finally:
        broker.set_alarm("memory", False)
    assert api("GET", "/api/health/checks/alarms") == (200, {"status": "ok"})


def test_listeners_are_checked_by_port_and_protocol(api, broker):
    """The checks of listeners answer for a port and for a protocol, and a failure names the missing port and those that
    listen (CM-310).
    """
    path = "/api/health/checks"
    assert api.get(f"{path}/port-listener/{broker.port}") == {"status": "ok", "port": broker.port}
    assert api.get(f"{path}/protocol-listener/http") == {"status": "ok", "protocol": "http"}
    assert api.get(f"{path}/protocol-listener/AMQP091") == {"status": "ok", "protocol": "amqp"}
    status, found = api("GET", f"{path}/protocol-listener/clustering")
    assert (status, found["missing"], found["protocols"][0]) == (503, "clustering", "amqp"), "the node is alone"
    status, found = api("GET", f"{path}/port-listener/1")
    assert (status, found["missing"]) == (503, 1) and broker.port in found["ports"]


def test_a_virtual_host_is_traced(api, broker):
    """PUT of a virtual host begins and ends its tracing, and leaves it as it is if the body does not say (CM-297)."""
    for body, is_traced in (({"tracing": True}, True), ({}, True), ({"tracing": "false"}, False)):
        assert api("PUT", "/api/vhosts/traced", body)[0] in (201, 204)
        assert api.get("/api/vhosts/traced")["tracing"] is is_traced
    assert api("PUT", "/api/vhosts/traced", {"tracing": "perhaps"})[1]["reason"] == ["not_boolean", "perhaps"]
    assert api("DELETE", "/api/vhosts/traced")[0] == 204


def test_the_aliveness_test_leaves_no_message(api, broker, user):
    """The aliveness test leaves its queue without a message, and later requests show that. If the user may publish and
    not read, it fails with 401, and its message expires (CM-311, CM-435).
    """
    for _ in range(20):
        # A copy of the node that was made while the message was in the queue must not answer the next request.
        assert api.get("/api/aliveness-test/%2F") == {"status": "ok"}
        assert api.get("/api/queues/%2F/aliveness-test")["messages"] == 0
    user("management", name="onlooker")
    api("PUT", "/api/permissions/%2F/onlooker", {"configure": ".*", "write": ".*", "read": ""})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        # A consumer gets the message at once, so that it cannot expire before it is looked at.
        left = []
        connection.channel().basic_consume("aliveness-test", lambda *delivery: left.append(delivery[2]), auto_ack=True)
        assert api.as_user("onlooker:pw")("GET", "/api/aliveness-test/%2F")[0] == 401
        until(lambda: connection.process_data_events(0.1) or left)
        assert left[0].expiration == "10000"
    broker.delete_queue("aliveness-test")


def test_the_messages_of_aliveness_tests_are_not_in_the_rates(api):
    """A load balancer tests once a second, so that an idle broker would never look idle (CM-311)."""

    def counts():
        shown = api.get("/api/overview"), api.get("/api/exchanges/%2F/amq.default")
        return [
            {name: value for name, value in each.get("message_stats", {}).items() if not name.endswith("_details")}
            for each in shown
        ]

    api("PUT", "/api/queues/%2F/counted")
    body = {"properties": {}, "routing_key": "counted", "payload": "1", "payload_encoding": "string"}
    assert api("POST", "/api/exchanges/%2F/amq.default/publish", body) == (200, {"routed": True})
    before = until(counts, lambda found: found[1].get("publish_in"))
    assert api.get("/api/aliveness-test/%2F") == {"status": "ok"}
    assert counts() == before
    assert api.get("/api/queues/%2F/aliveness-test")["message_stats"]["publish"] == 1
    api("DELETE", "/api/queues/%2F/counted")
    api("DELETE", "/api/queues/%2F/aliveness-test")
    assert api("GET", "/api/aliveness-test/nowhere")[0] == 404


def test_an_empty_broker_has_totals_of_0(api):
    """An idle broker's overview has totals of 0, where RabbitMQ has none before the first sample (CM-270)."""
    totals = api.get("/api/overview")["queue_totals"]
    assert {name: totals[name] for name in ("messages", "messages_ready", "messages_unacknowledged")} == {
        "messages": 0,
        "messages_ready": 0,
        "messages_unacknowledged": 0,
    }


@pytest.mark.parametrize("change", [("PUT", "/api/vhosts/audited", 201), ("DELETE", "/api/vhosts/audited", 204)])
def test_each_change_is_a_line_of_the_log(api, caplog, change):
    """Each change through the API is one line of the log: user, address, method, path and status (CM-296)."""
    method, path, status = change
    caplog.set_level(logging.INFO, "warren")
    assert api(method, path)[0] == status
    until(lambda: f"user 'guest' from 127.0.0.1: {method} {path} -> {status}" in caplog.text)


@pytest.mark.parametrize("path", ["queues/%2F", "exchanges/%2F", "vhosts", "users", "policies/%2F", "parameters/c/%2F"])
def test_a_name_that_is_no_text_is_refused(api, path):
    """Nothing is created whose name is not UTF-8, because clients could hardly show or delete it (CM-231)."""
    body = {"tags": "", "password": "p", "pattern": "x", "definition": {"max-length": 1}, "value": 1}
    assert api("PUT", f"/api/{path}/%FF", body) == bad("a name in the path is not UTF-8")


def test_a_name_with_a_line_break_is_a_name(api):
    """A user whose name has a line break is created, read and deleted like any other (CM-231)."""
    path = "/api/users/two%0Alines"
    assert api("PUT", path, {"tags": "", "password": "p"})[0] == 201
    assert api.get(path)["name"] == "two\nlines"
    assert api("DELETE", path)[0] == 204


LONG = "x" * 256


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", f"/api/queues/%2F/{LONG}", {}, "queue.declare: queue"),
        ("PUT", f"/api/exchanges/%2F/{LONG}", {}, "exchange.declare: exchange"),
        ("POST", "/api/bindings/%2F/e/amq.topic/q/written", {"routing_key": LONG}, "queue.bind: routing_key"),
        ("POST", "/api/exchanges/%2F/amq.topic/publish", message(LONG), "basic.publish: routing_key"),
    ],
)
def test_what_does_not_fit_a_short_string_is_refused(api, queue, method, path, body, field):
    """A name or a routing key of more than 255 bytes is refused, and nothing is created (CM-233)."""
    assert api(method, path, body) == bad(f"{field} has 256 bytes; at most 255 are allowed")
    assert not any(LONG in (row["name"], row.get("routing_key")) for row in api.get("/api/queues"))
    assert [row["routing_key"] for row in api.get("/api/bindings/%2F")] == [queue]
    assert all(row["name"] != LONG for row in api.get("/api/exchanges"))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("routing_key", 5, ["not_string", "routing_key"]),
        ("properties", {"headers": {"a": "half a pair: \ud800"}}, "not_json"),
    ],
)
def test_a_message_with_a_wrong_value_is_refused(api, field, value, reason):
    """A routing key that is no text is refused, and so is a text that has half of a surrogate pair (CM-233, CM-300)."""
    body = {**message("x"), field: value}
    assert api("POST", "/api/exchanges/%2F/amq.topic/publish", body) == bad(reason)


@pytest.mark.parametrize("node", [["a"], 5, "other@host"])
def test_a_node_that_is_none_is_refused(api, node):
    """A queue is not declared on something that is no running node (CM-289)."""
    status, answer = api("PUT", "/api/queues/%2F/placed", {"node": node})
    wanted = f"node '{node}' is not a running node of the cluster" if isinstance(node, str) else ["not_string", "node"]
    assert (status, answer["reason"]) == (400, wanted)


def test_an_unexpected_error_is_an_object():
    """A request whose handler fails is answered with 500 and an object, as all errors are (CM-233)."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    config = Config(**{each.name: getattr(each, "default", None) for each in fields(Config)} | {"path_prefix": ""})
    scope = {"type": "http", "method": "GET", "path": "/api/whoami", "raw_path": b"/api/whoami", "query_string": b""}
    app = application(replace(config, cors_allow_origins=()), NodeState("n"), None, None)
    with pytest.raises(AttributeError):
        asyncio.run(app({**scope, "headers": [], "app": app}, receive, send))
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["error"] == "internal_server_error"


@pytest.mark.parametrize("key", ["default_queue_type", "defaultqueuetype"])
def test_the_default_queue_type_of_a_virtual_host_counts(api, key):
    """A queue that is PUT without a type gets the default type of its virtual host. The answer to GET may be PUT
    again, and an unknown type is 400 (AB-91, CM-281, CM-297).
    """
    assert api("PUT", "/api/vhosts/typed", {key: "quorum"})[0] == 201
    assert api.get("/api/vhosts/typed")["default_queue_type"] == "quorum"
    assert api("PUT", "/api/queues/typed/q", {"durable": True})[0] == 201
    assert api("PUT", "/api/queues/typed/q", {"durable": True})[0] == 204
    found = api.get("/api/queues/typed/q")
    assert (found["type"], found["arguments"]) == ("quorum", {"x-queue-type": "quorum"})
    status, reason = api("PUT", "/api/vhosts/typed", {key: "odd"})[:2]
    assert status == 400 and "invalid_queue_type" in str(reason)
    assert api("PUT", "/api/vhosts/typed", {key: "undefined"})[0] == 204
    assert api("PUT", "/api/vhosts/typed", api.get("/api/vhosts/typed"))[0] == 204
    assert api.get("/api/vhosts/typed")["default_queue_type"] == "undefined"
    assert api("DELETE", "/api/queues/typed/q")[0] == 204
    assert api("DELETE", "/api/vhosts/typed")[0] == 204


def test_large_messages_are_got_a_few_at_a_time(api, broker, monkeypatch):
    """What one request gets is in memory several times, so it gets no further message after `FETCHED_BYTES_MAX` bytes;
    `message_count` shows how many are left (CM-301).
    """
    monkeypatch.setattr(direct_client, "FETCHED_BYTES_MAX", 2_500)
    assert api("PUT", "/api/queues/%2F/large", {})[0] == 201
    for _ in range(5):
        broker.publish(bytes(1_000), "large")
    got = []
    while rows := api("POST", "/api/queues/%2F/large/get", {**GET, "count": 100, "ackmode": "ack_requeue_false"})[1]:
        got.append([row["message_count"] for row in rows])
    assert got == [[4, 3, 2], [1, 0]]
    assert api("DELETE", "/api/queues/%2F/large")[0] == 204


def test_definitions_of_one_virtual_host_change_nothing_else(api, broker):
    """A whole document may be imported into a single virtual host. Its users, virtual hosts and permissions are those
    of a whole node, so they are left alone (CM-313).
    """
    document = {
        "users": [{"name": "stranger", "password": "pw", "tags": "administrator"}],
        "vhosts": [{"name": "strange"}],
        "permissions": [{"user": "guest", "vhost": "strange", "configure": "", "write": "", "read": ""}],
        "global_parameters": [{"name": "strange", "value": 1}],
        "queues": [{"name": "of the document", "vhost": "strange", "durable": True}],
    }
    assert api("POST", "/api/definitions/%2F", document)[0] == 204
    assert api("DELETE", "/api/queues/%2F/of%20the%20document")[0] == 204
    assert broker.vhosts() == ["/"] and [row["name"] for row in api.get("/api/users")] == ["guest"]
    assert api.get("/api/permissions/%2F/guest")["configure"] == ".*"
    assert "strange" not in [row["name"] for row in api.get("/api/global-parameters")]
