"""Browsing the messages of a queue by number, without taking any (CM-407)."""

from urllib.parse import quote

import pika
import pytest

from warren import Broker

from .conftest import Api, ports


@pytest.fixture
def queue(broker, request):
    name = f"browsed <{request.node.name}>"
    broker.declare_queue(name, durable=True)
    yield name
    broker.delete_queue(name)


@pytest.fixture
def path(queue):
    return f"/api/messages/%2F/by-number/{quote(queue, safe='')}"


@pytest.fixture
def channel(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        yield connection.channel()


def numbers(found):
    return [each["number"] for each in found["messages"]]


def test_messages_are_shown_by_number_and_stay(api, broker, queue, path):
    for number in range(5):
        broker.publish(f"body {number}", queue, headers={"n": number}, content_type="text/plain", delivery_mode=2)
    found = api.get(path)
    assert (found["first"], found["next"], found["more_from"]) == (0, 5, None)
    assert numbers(found) == [0, 1, 2, 3, 4]
    assert found["messages"][3] == {
        "number": 3,
        "state": "ready",
        "channel": "",
        "redelivered": False,
        "exchange": "",
        "routing_key": queue,
        "properties": {"content_type": "text/plain", "delivery_mode": 2, "headers": {"n": 3}},
        "payload_bytes": 6,
        "payload": "body 3",
        "payload_encoding": "string",
    }
    assert api.get(path) == found
    got = broker.get(queue)
    assert (got.body, got.redelivered) == (b"body 0", False)
    assert (api.get(path)["first"], numbers(api.get(path))) == (1, [1, 2, 3, 4])


def test_one_goes_on_where_the_answer_ended(api, broker, queue, path):
    for number in range(250):
        broker.publish(str(number), queue)
    seen, at = [], 0
    while at is not None:
        found = api.get(f"{path}?first={at}&count=100")
        assert len(found["messages"]) <= 100
        seen += [int(each["payload"]) for each in found["messages"]]
        at = found["more_from"]
    assert seen == list(range(250))
    assert numbers(api.get(f"{path}?first=248")) == [248, 249]
    assert api.get(f"{path}?first=250") == {"first": 0, "next": 250, "more_from": None, "messages": []}


def test_messages_that_a_client_holds_are_marked(api, channel, queue, path):
    for number in range(4):
        channel.basic_publish("", queue, str(number).encode())
    held = [channel.basic_get(queue)[0].delivery_tag for _ in range(2)]
    channel.basic_ack(held[0])
    channel.connection.process_data_events(0)
    channel.queue_declare(queue, passive=True)
    found = api.get(path)
    assert [(each["number"], each["state"]) for each in found["messages"]] == [
        (1, "unacked"),
        (2, "ready"),
        (3, "ready"),
    ]
    assert [bool(each["channel"]) for each in found["messages"]] == [True, False, False]


def test_bodies_are_cut_and_encoded(api, broker, queue, path):
    broker.publish("ž" * 10, queue)
    broker.publish(b"\xff\x00", queue)
    text, binary = api.get(f"{path}?truncate=5")["messages"]
    assert (text["payload"], text["payload_encoding"], text["payload_bytes"]) == ("žž", "string", 20)
    assert (binary["payload"], binary["payload_encoding"]) == ("/wA=", "base64")
    assert api.get(f"{path}?encoding=base64&truncate=2")["messages"][0]["payload"] == "xb4="


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("count=0", "count must be from 1 to 100, not 0"),
        ("count=101", "count must be from 1 to 100, not 101"),
        ("count=many", "many"),
        ("first=-1", "numbers of messages begin at 0, not at -1"),
        ("truncate=1048577", "truncate must be from 0 to 1048576 bytes"),
        ("encoding=rot13", "Unsupported encoding"),
    ],
)
def test_wrong_parameters_are_refused(api, path, query, reason):
    status, value = api("GET", f"{path}?{query}")
    assert status == 400 and reason in str(value["reason"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-max-priority": 3}, "orders its messages by priority or lane"),
        ({"x-queue-type": "stream"}, "is a stream"),
        ({"x-fair-by": "header:tenant"}, "orders its messages by priority or lane"),
    ],
)
def test_a_queue_without_one_order_of_numbers_is_refused(api, arguments, reason):
    assert api("PUT", "/api/queues/%2F/other", {"durable": True, "arguments": arguments})[0] == 201
    try:
        status, value = api("GET", "/api/messages/%2F/by-number/other")
        assert status == 400 and reason in value["reason"] and "queue 'other' in vhost '/'" in value["reason"]
    finally:
        assert api("DELETE", "/api/queues/%2F/other")[0] == 204


def test_a_queue_that_does_not_exist_is_not_found(api):
    assert api("GET", "/api/messages/%2F/by-number/nosuch")[0] == 404
    assert api("GET", "/api/messages/nosuch/by-number/nosuch")[0] == 404


def test_the_user_needs_permission_to_read(api, broker, user, queue, path):
    broker.publish("secret", queue)
    reader = user("management", name="browser")
    assert reader.get(path)["messages"][0]["payload"] == "secret"
    rights = {"configure": ".*", "write": ".*", "read": "^other$"}
    assert api("PUT", "/api/permissions/%2F/browser", rights)[0] == 204
    assert reader("GET", path) == (401, {"error": "not_authorised", "reason": "Access refused."})
    stranger = user("monitoring", vhost=None)
    assert stranger("GET", path)[0] == 401


def test_operators_leave_a_queue_in_memory_running(broker):
    """`peek` and `reclaim_quorum_memory` leave a queue running whose broker has no data directory; both crashed it
    once, and its messages were lost.
    """
    broker.declare_queue("peeked", durable=True, arguments={"x-queue-type": "quorum"})
    broker.publish("one", "peeked")
    shown = broker._node.operate("peek", name="peeked", vhost="/", position=1)
    assert shown["payload (max 64 bytes)"] == "one"
    broker._node.operate("reclaim_quorum_memory", name="peeked", vhost="/")
    assert broker.queue("peeked").messages == 1
    broker.delete_queue("peeked")


def test_an_exclusive_queue_is_locked(api, channel):
    channel.queue_declare("mine alone", exclusive=True)
    status, value = api("GET", "/api/messages/%2F/by-number/mine%20alone")
    assert status == 400 and "cannot obtain exclusive access to locked queue" in value["reason"]


def test_messages_on_the_disk_are_read(tmp_path):
    """After a restart a lazy queue is browsed by the numbers that its messages had before, although bodies and index
    are on disk only.
    """
    settings = {"data_dir": str(tmp_path), "management": True, "management_port": 0, "prometheus_port": 0}
    with Broker(**settings) as broker:
        broker.declare_queue("kept", durable=True, arguments={"x-queue-mode": "lazy"})
        for number in range(300):
            broker.publish(f"{number} ".ljust(5_000, "x"), "kept", delivery_mode=2)
        for _ in range(10):
            broker.get("kept")
    with Broker(**settings) as broker:
        api = Api(ports(broker)["http"])
        found = api.get("/api/messages/%2F/by-number/kept?first=150&count=100&truncate=4")
        assert numbers(found) == list(range(150, 250)) and found["more_from"] == 250
        assert found["messages"][7]["payload"] == "157 " and found["messages"][7]["payload_bytes"] == 5_000
        assert numbers(api.get("/api/messages/%2F/by-number/kept?count=2")) == [10, 11]
