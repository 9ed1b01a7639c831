"""Tracing (AB-81): copies of publishes and deliveries at `amq.rabbitmq.trace`.

The expected headers are those that RabbitMQ 3.10.8 sends.
"""

import pytest

from warren import BrokerError
from warren.amqp import methods as m
from warren.amqp.fields import Table
from warren.amqp.properties import Properties

TRACE = "amq.rabbitmq.trace"


@pytest.fixture
def traced(own_broker):
    return own_broker()


@pytest.fixture
def channel(traced, connect):
    return connect(to=traced.url).channel()


@pytest.fixture
def traces(traced, connect):
    """Switch tracing on. `traces(count)` returns all copies made so far, and asserts that there are `count`."""
    watcher = connect(to=traced.url).channel()
    queue = watcher.queue(exclusive=True)
    watcher.bind(queue, TRACE, "#")
    traced.trace(True)
    return lambda count: watcher.take(queue, count)


def longstrs(*texts):
    return tuple(("S", text.encode()) for text in texts)


def test_a_publish_is_copied(traced, channel, traces, name):
    """AB-81: the copy has the content, exchange, routing keys, user and target queues of the publish."""
    channel.queue(name)
    channel.publish(
        "body",
        name,
        headers={"a": 1, "CC": ["nowhere"], "BCC": ["secret"]},
        content_type="text/plain",
        delivery_mode=2,
        timestamp=1_700_000_000,
    )
    (copy,) = traces(1)
    assert (copy.method.exchange, copy.method.routing_key, copy.body) == (TRACE, "publish.", b"body")
    properties = Table(
        [
            ("content_type", "S", b"text/plain"),
            ("headers", "F", Table([("a", "I", 1), ("CC", "A", longstrs("nowhere"))])),
            ("delivery_mode", "I", 2),
            ("timestamp", "I", 1_700_000_000),
        ]
    )
    (connection,) = [
        info.name
        for info in traced.connections()
        if info.name.split(" -> ")[0].endswith(str(channel.client.socket.getsockname()[1]))
    ]
    assert copy.properties == Properties(
        headers=Table(
            [
                ("exchange_name", "S", b""),
                ("routing_keys", "A", longstrs(name, "nowhere", "secret")),
                ("properties", "F", properties),
                ("node", "S", b"warren@localhost"),
                ("vhost", "S", b"/"),
                ("connection", "S", connection.encode()),
                ("channel", "I", 1),
                ("user", "S", b"guest"),
                ("routed_queues", "A", longstrs(name)),
            ]
        )
    )


def test_a_publish_that_reaches_no_queue_is_copied(channel, traces):
    """AB-81: an unroutable message is copied under the name of its exchange, with no target queue."""
    channel.publish("lost", "key", "amq.topic")
    (copy,) = traces(1)
    assert copy.method.routing_key == "publish.amq.topic"
    assert copy.headers.get("exchange_name") == ("S", b"amq.topic")
    assert copy.headers.get("routed_queues") == ("A", ())


def test_deliveries_are_copied(channel, traces, name):
    """AB-81: messages of basic.deliver and basic.get are copied under the queue's name, with the redelivered flag."""
    channel.queue(name)
    channel.fill(name, "body")
    channel.nack(channel.get(name).tag)
    channel.consume(name, "tag")
    channel.delivery()
    copies = traces(3)
    assert [copy.method.routing_key for copy in copies] == ["publish.", f"deliver.{name}", f"deliver.{name}"]
    assert [copy.body for copy in copies] == [b"body"] * 3
    assert [copy.headers.get("redelivered") for copy in copies] == [None, ("I", 0), ("I", 1)]
    assert [entry[0] for entry in copies[1].headers] == [
        "exchange_name",
        "routing_keys",
        "properties",
        "node",
        "redelivered",
        "vhost",
        "connection",
        "channel",
        "user",
    ]


def test_copies_of_a_run_come_in_order_on_any_channel(traced, connect, traces, name):
    """AB-81: copies keep the order of many publishes at once, with bodies of several frames, on a second channel."""
    client = connect(to=traced.url, frame_max=4096)
    channel = client.channel(7)
    channel.queue(name)
    channel.consume(name, no_ack=True)
    bodies = [str(number).encode() * 3000 for number in range(30)]
    with client.in_one_piece():
        for body in bodies:
            channel.publish(body, name)
    assert channel.bodies(30) == bodies
    copies = traces(60)
    for key in ("publish.", f"deliver.{name}"):
        assert [copy.body for copy in copies if copy.method.routing_key == key] == bodies
    assert {copy.headers.get("channel") for copy in copies} == {("I", 7)}


@pytest.mark.parametrize(
    ("timestamp", "letter"), [(2**31, "l"), (2**63 - 1, "l"), (2**63, "T"), (2**64 - 1, "T")], ids=str
)
def test_any_timestamp_is_copied(channel, traces, name, timestamp, letter):
    """A timestamp has 64 bits and no sign. One that no long can hold once crashed the channel that published it, and
    those of all consumers that it was delivered to.
    """
    channel.queue(name)
    channel.publish("body", name, timestamp=timestamp)
    channel.get(name)
    for copy in traces(2):
        _, properties = copy.properties.headers.get("properties")
        assert properties.get("timestamp") == (letter, timestamp)


def test_the_trace_exchange_is_not_traced(traced, channel, traces):
    """AB-81: copies, and publishes to the trace exchange, are not copied; the embedding program's calls are."""
    traced.declare_queue("q")
    traced.publish(b"body", "q")
    assert [copy.headers.get("user") for copy in traces(1)] == [("S", b"direct")]
    assert traces(0) == []


def test_a_publish_in_a_transaction_is_copied_before_the_commit(channel, traces):
    """AB-81: the publish is traced, whether it is committed or rolled back."""
    channel.call(m.TxSelect())
    channel.publish("body", "nowhere")
    channel.call(m.TxRollback())
    assert [copy.body for copy in traces(1)] == [b"body"]


def test_a_name_too_long_for_a_key(channel, traces):
    """AB-81: the copy's routing key is cut to the length of a short string."""
    exchange = channel.exchange("x" * 255, "fanout")
    channel.publish("body", exchange=exchange)
    (copy,) = traces(1)
    assert copy.method.routing_key == "publish." + "x" * 247
    assert copy.headers.get("exchange_name") == ("S", exchange.encode())


def test_off_at_run_time(traced, channel, traces, name):
    """AB-81: switching tracing on and off takes effect on open channels at once."""
    channel.queue(name)
    for on in (True, False, True):
        traced.trace(on)
        channel.publish(str(on), name)
        channel.expect_ready(name, 1)
        channel.get(name, no_ack=True)
    assert [copy.body for copy in traces(4)] == [b"True"] * 4


def test_a_virtual_host_that_is_not_there(traced):
    with pytest.raises(BrokerError) as caught:
        traced.trace(True, vhost="nowhere")
    assert caught.value.code == 530
