"""The exchanges `amq.rabbitmq.event` and `amq.rabbitmq.log`.

The expected names and headers are those that the plugin `rabbitmq_event_exchange` and the log exchange of RabbitMQ
3.10.8 send, except for the differences that `actors/events` lists.
"""

import logging
import time

import pytest
from thespian.actors import ActorExitRequest

from warren import Broker, SettingsError
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp import methods as m
from warren.amqp.fields import table_to_dict

EVENTS = "amq.rabbitmq.event"
LOG = "amq.rabbitmq.log"


@pytest.fixture
def watched(own_broker):
    return own_broker(event_exchange_vhost="/", log_exchange_vhost="/")


class Watch:
    """A consumer of events or of the log."""

    def __init__(self, channel, exchange, pattern):
        self.channel = channel
        channel.qos(0)
        queue = channel.queue(exclusive=True)
        channel.consume(queue, no_ack=True)
        channel.bind(queue, exchange, pattern)

    def until(self, last):
        """Wait for an event of this name, and return the names and fields of all events up to and including it."""
        found = []
        while not found or found[-1][0] != last:
            event = self.channel.delivery()
            found.append((event.method.routing_key, table_to_dict(event.headers)))
        return found

    def one(self, wanted):
        """Wait for the next event of this name, skipping others, and return its fields."""
        return self.until(wanted)[-1][1]


@pytest.fixture
def watch(watched, connect):
    """`watch(pattern)` begins to watch events, or messages of another exchange."""
    return lambda pattern="#", exchange=EVENTS: Watch(connect(to=watched.url).channel(), exchange, pattern)


@pytest.fixture
def channel(watched, connect):
    return connect(to=watched.url).channel()


@pytest.fixture
def on_disk(own_broker, connect, tmp_path):
    """A channel of a broker with a data directory, and a `Watch` of its events."""
    url = own_broker(data_dir=tmp_path, event_exchange_vhost="/").url
    return connect(to=url).channel(), Watch(connect(to=url).channel(), EVENTS, "#")


def fields(event):
    """The fields of an event, without its time."""
    return {name: value for name, value in event[1].items() if name != "timestamp_in_ms"}


def test_a_queue_its_bindings_and_its_consumers(watch, channel):
    events = watch("#")
    channel.exchange("ex1", "topic", arguments={"x-a": 5}, durable=True)
    channel.queue("q1", {"x-max-length": 10}, durable=True)
    channel.bind("q1", "ex1", "a.b", {"z": "1"})
    channel.qos(7)
    channel.consume("q1", "tag", {"x-priority": 3})
    channel.cancel("tag")
    channel.delete("q1")
    found = [event for event in events.until("queue.deleted") if not event[0].startswith(("channel.", "connection."))]
    by = {"user_who_performed_action": "guest"}
    binding = {
        "vhost": "/",
        "source_name": "ex1",
        "source_kind": "exchange",
        "destination_name": "q1",
        "destination_kind": "queue",
        "routing_key": "a.b",
        "arguments": {"z": "1"},
        **by,
    }
    names = [name for name, _ in found]
    # The first event that a watcher gets is that of its own binding.
    assert names == [
        "binding.created",
        "exchange.created",
        "queue.created",
        "binding.created",
        "consumer.created",
        "consumer.deleted",
        "binding.deleted",
        "queue.deleted",
    ]
    assert fields(found[1]) == {
        "name": "ex1",
        "vhost": "/",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"x-a": 5},
        **by,
    }
    assert fields(found[2]) == {
        "name": "q1",
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "owner_pid": "",
        "arguments": {"x-max-length": 10},
        **by,
    }
    assert fields(found[3]) == fields(found[6]) == binding
    created = fields(found[4])
    assert created.pop("channel").startswith("<warren@localhost.")
    assert created == {
        "consumer_tag": "tag",
        "queue": "q1",
        "vhost": "/",
        "exclusive": False,
        "ack_required": True,
        "prefetch_count": 7,
        "arguments": {"x-priority": 3},
        **by,
    }
    assert fields(found[5])["consumer_tag"] == "tag"
    assert fields(found[7]) == {"name": "q1", "vhost": "/", **by}


@pytest.mark.parametrize("durable", [False, True])
def test_who_deleted_a_queue_is_named_for_its_bindings_too(on_disk, durable):
    channel, events = on_disk
    channel.queue("q1", durable=durable)
    channel.bind("q1", "amq.direct", "a")
    channel.delete("q1")
    found = {name: event["user_who_performed_action"] for name, event in events.until("queue.deleted")}
    assert found["binding.deleted"] == found["queue.deleted"] == "guest"


def test_the_life_of_a_connection(watched, watch, connect):
    events = watch("#")
    client = connect(to=watched.url)
    channel = client.channel()
    channel.queue("mine", exclusive=True)
    channel.consume("mine", "tag")
    client.close()
    found = events.until("connection.closed")
    names = [name for name, _ in found]
    assert names[:3] == ["binding.created", "user.authentication.success", "connection.created"]
    assert names[3:] == [
        "channel.created",
        "queue.created",
        "consumer.created",
        "consumer.deleted",
        "channel.closed",
        "queue.deleted",
        "connection.closed",
    ]
    login, created, opened, closed = (fields(found[index]) for index in (1, 2, 3, -1))
    assert (login["name"], login["auth_mechanism"], login["peer_host"]) == ("guest", "PLAIN", "127.0.0.1")
    assert (created["user"], created["vhost"], created["protocol"]) == ("guest", "/", "{0,9,1}")
    assert created["client_properties"]["capabilities"]["basic.nack"] is True
    assert created["name"] == closed["name"] == login["connection_name"]
    assert opened["connection"] == created["pid"] == closed["pid"] == fields(found[4])["owner_pid"]
    assert (opened["number"], opened["name"]) == (1, f"{created['name']} (1)")


def test_a_connection_that_is_lost(watched, watch, connect):
    events = watch("#")
    client = connect(to=watched.url)
    client.channel().consume(client.channel().queue("mine", exclusive=True), "tag")
    client.abort()
    names = [name for name, _ in events.until("connection.closed")]
    assert sorted(names[-5:]) == ["channel.closed", "channel.closed", "connection.closed", "consumer.deleted"] + [
        "queue.deleted"
    ]


def test_every_message_is_stamped_and_persistent(watch, channel):
    events = watch("queue.created")
    begin = time.time()
    channel.queue("q1", exclusive=True)
    event = events.channel.delivery()
    assert event.body == b"" and event.method.exchange == EVENTS
    assert event.properties.delivery_mode == 2
    assert int(begin) <= event.properties.timestamp <= time.time()
    stamp = table_to_dict(event.headers)["timestamp_in_ms"]
    assert begin * 1000 - 1 <= stamp <= time.time() * 1000


def test_a_consumer_of_a_deleted_queue_is_deleted(watch, channel):
    events = watch("consumer.*")
    channel.queue("q1", exclusive=True)
    channel.consume("q1", "tag")
    channel.delete("q1")
    assert [name for name, _ in events.until("consumer.deleted")] == ["consumer.created", "consumer.deleted"]


def test_a_refused_login(watched, watch, connect):
    events = watch("user.#")
    with pytest.raises(ConnectionError):
        connect(to=watched.url.replace("guest:guest", "guest:letmein"))
    failure = events.one("user.authentication.failure")
    assert failure["name"] == "guest"
    assert failure["error"] == "user 'guest' gave a wrong password"
    assert "letmein" not in str(failure)


def test_what_operators_change(watched, watch):
    events = watch("#")
    watched.create_vhost("v1")
    watched.add_user("ann", "secret", tags=["management"])
    watched.change_password("ann", "secret-2")
    watched.set_user_tags("ann", [])
    watched.set_user_limits("ann", {"max-connections": 4})
    watched.set_permissions("ann", vhost="v1")
    watched.set_topic_permissions("ann", "amq.topic", vhost="v1")
    watched.set_policy("p1", "^a", {"max-length": 5}, vhost="v1")
    watched.clear_policy("p1", vhost="v1")
    watched.set_policy("op1", "^a", {"max-length": 6}, operator=True, vhost="v1")
    watched.clear_policy("op1", operator=True, vhost="v1")
    watched.set_vhost_limits({"max-queues": 4}, vhost="v1")
    watched.clear_permissions("ann", vhost="v1")
    watched.delete_user("ann")
    watched.set_alarm("memory", True)
    watched.set_alarm("memory", False)
    watched.delete_vhost("v1")
    found = events.until("vhost.deleted")
    assert "secret" not in str(found)
    said = {name: fields((name, value)) for name, value in found if not name.startswith(("exchange.", "binding."))}
    assert [name for name, _ in found].count("exchange.created") == 7
    by = {"user_who_performed_action": "rmq-cli"}
    ann, policy = {"name": "ann", **by}, {"pattern": "^a", "priority": 0, "apply-to": "queues"}
    assert said["vhost.created"] == {
        "name": "v1",
        "tracing": False,
        "cluster_state": {"warren@localhost": "running"},
        **by,
    }
    assert said["user.created"] == said["user.password.changed"] == said["user.deleted"] == ann
    assert said["user.tags.set"] == {"tags": [], **ann}
    assert said["user.limits.set"] == {"name": "limits", "username": "ann", "max-connections": 4, **by}
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    # The first permission is that of the default user in the new virtual host.
    assert [fields(event) for event in found if event[0] == "permission.created"] == [
        {"user": "guest", "vhost": "v1", **rights, **by},
        {"user": "ann", "vhost": "v1", **rights, **by},
    ]
    del rights["configure"]
    assert said["topic.permission.created"] == {"user": "ann", "vhost": "v1", "exchange": "amq.topic", **rights, **by}
    assert [fields(event)["name"] for event in found if event[0] == "policy.set"] == ["p1", "op1"]
    assert said["policy.set"] == {"name": "op1", "vhost": "v1", "definition": {"max-length": 6}, **policy, **by}
    assert said["policy.cleared"] == {"name": "p1", "vhost": "v1", **by}
    assert said["operator.policy.cleared"] == {"name": "op1", "vhost": "v1", **by}
    parameters = [fields(event) for event in found if event[0] == "parameter.set"]
    assert [(each["component"], each["name"]) for each in parameters] == [
        ("operator_policy", "op1"),
        ("vhost-limits", "limits"),
    ]
    assert parameters[1]["value"] == {"max-queues": 4}
    assert said["vhost.limits.set"] == {"name": "limits", "vhost": "v1", "max-queues": 4, **by}
    assert said["alarm.set"] == said["alarm.cleared"] == {"source": "memory", "node": "warren@localhost"}
    assert said["permission.deleted"]["vhost"] == "v1"


def test_a_virtual_host_that_fails(watched, watch):
    watched.create_vhost("v1")
    events = watch("vhost.*")
    base = watched._node._base

    def fail():
        cells = base.cells.values()
        newest = [cell.address for cell in cells if isinstance(getattr(cell, "actor", None), VhostSupervisor)][-1]
        base.enqueue(newest, newest, ActorExitRequest())

    base.call(fail)
    assert fields(("vhost.down", events.one("vhost.down"))) == {
        "name": "v1",
        "node": "warren@localhost",
        "user_who_performed_action": "rmq-internal",
    }


def test_what_the_broker_does_by_itself(watch, channel):
    events = watch("queue.*")
    channel.queue("q1", auto_delete=True)
    channel.consume("q1", "tag")
    channel.cancel("tag")
    assert events.one("queue.deleted")["user_who_performed_action"] == "rmq-internal"


def test_lines_of_the_log(watched, watch):
    info, errors = watch("info", LOG), watch("error", LOG)
    logger = logging.getLogger("warren.test")
    logger.setLevel(logging.DEBUG)
    try:
        logger.debug("too low")
        logger.info("first line\nof %s", "two")
        logger.error("second")
    finally:
        logger.setLevel(logging.NOTSET)
    line = next(event for event in iter(info.channel.delivery, None) if b"first line" in event.body)
    assert line.method.routing_key == "info"
    assert line.body.endswith(b" INFO    warren.test: first line\\nof two\n")
    assert line.properties.content_type == "text/plain"
    assert table_to_dict(line.headers) == {"node": "warren@localhost"}
    assert line.properties.delivery_mode is None and line.properties.timestamp <= time.time()
    line = next(event for event in iter(errors.channel.delivery, None) if b"second" in event.body)
    assert line.method.routing_key == "error"


def test_exchanges_are_internal_and_exist_only_where_settings_say(own_broker):
    plain = own_broker()
    assert not any(each.name in (EVENTS, LOG) for each in plain.exchanges())
    watched = own_broker(event_exchange_vhost="watched", log_exchange_vhost="/")
    found = {(each.vhost, each.name): each for each in watched.exchanges() + watched.exchanges("watched")}
    assert {key for key in found if key[1] in (EVENTS, LOG)} == {("watched", EVENTS), ("/", LOG)}
    exchange = found["watched", EVENTS]
    assert (exchange.type, exchange.durable, exchange.internal) == ("topic", True, True)
    # The exchange was deleted with its virtual host, and is created again with it.
    watched.delete_vhost("watched")
    watched.create_vhost("watched")
    assert EVENTS in [each.name for each in watched.exchanges("watched")]


def test_a_client_may_not_publish_there(channel):
    publish = m.BasicPublish(0, EVENTS, "key", False, False)
    channel.refuses(403, f"cannot publish to internal exchange '{EVENTS}' in vhost '/'", publish, b"x")


def test_a_durable_queue_stays_bound(own_broker, connect, tmp_path):
    settings = {"event_exchange_vhost": "/", "data_dir": tmp_path / "data"}
    broker = own_broker(**settings)
    channel = connect(to=broker.url).channel()
    channel.queue("audit", durable=True)
    channel.bind("audit", EVENTS, "user.created")
    broker.stop()
    broker = own_broker(**settings)
    broker.add_user("ann", "secret")
    connect(to=broker.url).channel().expect_ready("audit", 1)


def test_an_empty_name_is_refused():
    with pytest.raises(SettingsError, match="event_exchange_vhost.*must be a text that is not empty"):
        Broker(event_exchange_vhost="")
