"""Messages are moved from one queue to another."""

import json
import threading

import pika
import pytest

from warren import Broker

from .conftest import PATIENCE, Api, ports, until


@pytest.fixture
def queues(broker):
    """`queues("a", "b", **arguments of the last)` declares queues, and returns the path that moves from the first."""
    names = []

    def declare(*wanted, **arguments):
        for at, name in enumerate(wanted):
            broker.declare_queue(name, durable=True, arguments=arguments if at == len(wanted) - 1 else {})
            names.append(name)
        return f"/api/queues/%2F/{wanted[0]}/move"

    yield declare
    for name in names:
        broker.delete_queue(name)


def bodies(broker, queue):
    found = []
    while (message := broker.get(queue)) is not None:
        found.append(message.body)
    return found


def test_messages_are_moved_in_order_and_as_they_are(api, broker, queues):
    """A request moves as many messages as it asks for, the oldest first, and the next one goes on. Bodies, properties
    and headers stay as they are (CM-406).
    """
    path = queues("from", "to")
    properties = {"message_id": "m", "headers": {"x": 1}, "content_type": "text/plain", "priority": 3}
    for number in range(250):
        broker.publish(b"%d" % number, "from", delivery_mode=2, **properties)
    assert api("POST", path, {"destination": "to", "count": 120}) == (200, {"moved": 120, "left": 130})
    assert api("POST", path, {"destination": "to"}) == (200, {"moved": 130, "left": 0})
    assert api("POST", path, {"destination": "to", "count": "5"}) == (200, {"moved": 0, "left": 0})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        method, found, body = connection.channel().basic_get("to")
    assert (method.exchange, method.routing_key, body) == ("", "to", b"0")
    assert (found.message_id, found.headers, found.priority, found.delivery_mode) == ("m", {"x": 1}, 3, 2)
    until(lambda: api.get("/api/queues/%2F/to")["messages_ready"], lambda ready: ready == 250)
    assert bodies(broker, "to") == [b"%d" % number for number in range(250)]


def test_messages_that_clients_hold_stay(api, broker, queues):
    """A message that a consumer has and has not acknowledged is not moved."""
    path = queues("from", "to")
    for number in range(3):
        broker.publish(b"%d" % number, "from")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        assert connection.channel().basic_get("from")[2] == b"0"
        assert api("POST", path, {"destination": "to"})[1] == {"moved": 2, "left": 0}
    assert bodies(broker, "to") == [b"1", b"2"]
    until(lambda: api.get("/api/queues/%2F/from")["messages_ready"] == 1)


def test_large_messages_are_moved(api, broker, queues):
    """Bodies of several frames and more bytes than may be on their way arrive whole."""
    path = queues("from", "to")
    sent = [bytes([number]) * (3 << 20) for number in range(4)]
    for body in sent:
        broker.publish(body, "from")
    assert api("POST", path, {"destination": "to"})[1] == {"moved": 4, "left": 0}
    assert bodies(broker, "to") == sent


def test_a_queue_that_refuses_ends_the_move(api, broker, queues):
    """When the other queue refuses a message, the move ends, and all messages that it has not confirmed are in their
    places.
    """
    path = queues("from", "short", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    for number in range(300):
        broker.publish(b"%d" % number, "from")
    status, answer = api("POST", path, {"destination": "short"})
    assert (status, answer["error"]) == (400, "bad_request")
    kept, taken = bodies(broker, "from"), bodies(broker, "short")
    assert answer["reason"] == f"queue 'short' has refused a message; moved: {len(taken)}, left: {len(kept)}"
    assert kept == sorted(kept, key=int) and taken[:2] == [b"0", b"1"]
    assert sorted([*kept, *taken], key=int) == [b"%d" % number for number in range(300)]


def test_requests_that_cannot_be_fulfilled_are_refused(api, broker, queues):
    """A move needs two different queues that exist, and a count of 1 to 100,000."""
    path = queues("from", "to")
    broker.publish(b"x", "from")
    for body, status, reason in (
        ({}, 400, [{"key_missing": "destination"}]),
        ({"destination": 1}, 400, ["not_string", "destination"]),
        ({"destination": "from"}, 400, "Bad argument: the messages are in queue 'from' already"),
        ({"destination": "to", "count": 0}, 400, "Bad argument: the count 0 is not from 1 to 100000"),
        ({"destination": "to", "count": "x"}, 400, ["not_integer", "x"]),
        ({"destination": "nosuch"}, 404, "no queue 'nosuch' in vhost '/'"),
    ):
        found, answer = api("POST", path, body)
        assert found == status, answer
        assert answer["reason"] == reason or body == {}, answer
    assert api("POST", "/api/queues/%2F/nosuch/move", {"destination": "to"})[0] == 404
    assert bodies(broker, "from") == [b"x"]


def test_a_move_needs_the_permissions_of_a_client(api, broker, queues, user):
    """The user must be allowed to read the queue, and to publish to the default exchange."""
    path = queues("from", "to")
    broker.publish(b"x", "from")
    mover = user("management", name="mover")
    for write, read in (("", ".*"), (".*", "")):
        api("PUT", "/api/permissions/%2F/mover", {"configure": "", "write": write, "read": read})
        status, answer = mover("POST", path, {"destination": "to"})
        assert (status, answer["error"]) == (401, "not_authorised")
    until(lambda: api.get("/api/queues/%2F/from")["messages_ready"] == 1)
    api("PUT", "/api/permissions/%2F/mover", {"configure": "", "write": "^amq.default$", "read": "^from$"})
    assert mover("POST", path, {"destination": "to"}) == (200, {"moved": 1, "left": 0})


def test_no_confirmed_message_is_lost_when_the_broker_is_killed(tmp_path):
    """The broker is killed again and again while messages are moved, and each message is in one of the queues, or in
    both. The next move goes on.
    """
    settings = {"management": True, "management_port": 0, "prometheus_port": 0, "management_interval": 100}
    sent = [b"%d" % number for number in range(3_000)]
    broker = Broker(data_dir=tmp_path, **settings)
    with broker:
        for name in ("from", "to"):
            broker.declare_queue(name, durable=True)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            for body in sent:
                channel.basic_publish("", "from", body, pika.BasicProperties(delivery_mode=2))
            channel.confirm_delivery()
            channel.basic_publish("", "from", b"last", pika.BasicProperties(delivery_mode=2))
    for _ in range(3):
        with broker:
            api = Api(ports(broker)["http"])
            moved = threading.Thread(target=move_all, args=(api,))
            before = len_of(broker, "to")
            moved.start()
            until(lambda before=before: len_of(broker, "to") > before + 300)
            broker.kill()
            moved.join(PATIENCE)
    with broker:
        move_all(Api(ports(broker)["http"]))
        assert bodies(broker, "from") == []
        found = bodies(broker, "to")
    assert set(found) == {*sent, b"last"}
    assert len(found) < len(sent) + 3 * 110, "few messages came twice"


def len_of(broker, queue):
    return broker.queue(queue).messages


def move_all(api):
    try:
        api("POST", "/api/queues/%2F/from/move", {"destination": "to", "count": 100_000})
    except (OSError, json.JSONDecodeError, pika.exceptions.AMQPError):
        pass
