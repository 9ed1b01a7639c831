"""What consumers of a stream get, and what a stream refuses. RabbitMQ 3.10 passes these tests, too."""

import time

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import Table, table_to_dict

from ...wire import Refused, table

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def stream(client, name):
    """`stream(n)` declares a stream and publishes the messages 0 to n - 1, each confirmed before the next."""

    def make(messages=0, **arguments):
        channel = client.channel()
        channel.queue(name, {**STREAM, **arguments}, durable=True)
        channel.confirm()
        publish(channel, name, range(messages))
        return name

    yield make
    if not client.socket._closed:
        client.channel().delete(name)


def publish(channel, queue, numbers, first=1):
    for at, number in enumerate(numbers, first):
        channel.publish(str(number), queue)
        assert channel.confirms(at, at) == ([at], [])


@pytest.fixture
def reader(client):
    """`reader(queue, offset, prefetch)` consumes on a channel of its own."""

    def make(queue, offset=None, prefetch=100, **flags):
        channel = client.channel()
        channel.qos(prefetch)
        arguments = offset if isinstance(offset, Table) else {} if offset is None else {"x-stream-offset": offset}
        channel.consume(queue, arguments=arguments, **flags)
        return channel

    return make


def offset(event):
    return table_to_dict(event.headers)["x-stream-offset"]


def read(channel, count):
    events = channel.deliveries(count)
    assert all(event.body == b"%d" % offset(event) for event in events)
    return [offset(event) for event in events]


# -- where a consumer begins


@pytest.mark.parametrize(
    ("begin", "first"), [("first", 0), ("last", 9), (4, 4), (9, 9), (-1, 0), ("1h", 0), ("2Y", 0), ("300s", 0)]
)
def test_where_a_consumer_begins(stream, reader, begin, first):
    queue = stream(10)
    assert read(reader(queue, begin), 10 - first) == list(range(first, 10))


@pytest.mark.parametrize("begin", [None, "next"])
def test_from_the_next_message_on(client, stream, reader, begin):
    queue = stream(5)
    waiting = reader(queue, begin)
    waiting.quiet(queue)
    channel = client.channel()
    channel.confirm()
    publish(channel, queue, [5, 6])
    assert read(waiting, 2) == [5, 6]


def test_from_an_offset_that_comes_later(client, stream, reader):
    queue = stream(5)
    waiting = reader(queue, 7)
    channel = client.channel()
    channel.confirm()
    publish(channel, queue, range(5, 9))
    assert read(waiting, 2) == [7, 8]


def test_from_a_time_on(client, stream, reader):
    """A consumer may begin at a time in AMQP's whole seconds; with one in the future it gets only later messages."""
    queue = stream(5)
    now = int(time.time())
    while int(time.time()) < now + 2:
        time.sleep(0.05)
    channel = client.channel()
    channel.confirm()
    publish(channel, queue, range(5, 8))
    assert read(reader(queue, Table([("x-stream-offset", "T", now + 2)])), 3) == [5, 6, 7]
    assert read(reader(queue, Table([("x-stream-offset", "T", now - 3600)])), 8) == list(range(8))
    late = reader(queue, Table([("x-stream-offset", "T", now + 3600)]))
    publish(channel, queue, [8], 4)
    assert read(late, 1) == [8]


@pytest.mark.parametrize("digits", [12, 310, 5000])
def test_an_age_that_no_message_has(client, stream, reader, digits):
    """An interval or a `x-max-age` may have any number of digits. It means that no message is too old."""
    age = f"{'9' * digits}Y"
    queue = stream(**{"x-max-age": age, "x-stream-max-segment-size-bytes": 1})
    channel = client.channel()
    channel.confirm()
    for number in range(3):
        channel.publish(b"%d" % number, queue)
        assert channel.confirms(number + 1, number + 1) == ([number + 1], [])
    assert read(reader(queue, age), 3) == [0, 1, 2]


@pytest.mark.parametrize("value", ["0s", "1x", "5"])
def test_an_offset_that_is_none(client, stream, value):
    queue = stream()
    channel = client.channel()
    channel.qos(1)
    text = f"invalid arg 'x-stream-offset' for queue '{queue}' in vhost '/': "
    channel.refuses(
        406,
        text + f'{{invalid_stream_offset_arg,{{longstr,"{value}"}}}}',
        m.BasicConsume(queue=queue, arguments=table({"x-stream-offset": value})),
    )


# -- what a consumer gets


def test_each_consumer_reads_everything(stream, reader):
    """Each consumer reads everything: acknowledged messages stay and can be read again, and an exclusive consumer does
    not keep others out.
    """
    queue = stream(10)
    for channel in [reader(queue, "first", exclusive=True) for _ in range(3)]:
        assert read(channel, 10) == list(range(10))
        channel.ack(0, multiple=True)
    assert read(reader(queue, "first"), 10) == list(range(10))


def test_acknowledgements_give_credit(stream, reader):
    """Each acknowledgement makes room for one more delivery, in whatever order they come."""
    queue = stream(10)
    channel = reader(queue, "first", prefetch=3)
    events = channel.deliveries(3)
    assert channel.quiet(queue)
    channel.ack(events[2].tag)
    assert read(channel, 1) == [3]
    channel.ack(events[1].tag, multiple=True)
    assert read(channel, 2) == [4, 5]
    assert channel.quiet(queue)


def test_a_delivery_is_never_flagged_as_redelivered(client, stream, reader):
    queue = stream(2)
    first = reader(queue, "first")
    assert not any(event.method.redelivered for event in first.deliveries(2))
    first.close()
    assert not any(event.method.redelivered for event in reader(queue, "first").deliveries(2))


def test_a_message_is_delivered_as_it_was_published(client, stream, reader):
    """A message is delivered as it was published, but for a header with the name of the offset, which is replaced. No
    message expires.
    """
    queue = stream()
    channel = client.channel()
    exchange = channel.exchange(f"{queue}-x", "topic", auto_delete=True)
    channel.bind(queue, exchange, "a.*")
    channel.confirm()
    channel.publish(
        "0", "a.b", exchange, headers={"x-stream-offset": 77, "n": 1}, expiration="1", priority=3, delivery_mode=1
    )
    channel.publish("1", "a.c", exchange)
    channel.confirms(1, 2)
    first, second = reader(queue, "first").deliveries(2)
    assert table_to_dict(first.headers) == {"n": 1, "x-stream-offset": 0}
    assert (first.properties.expiration, first.properties.priority, first.properties.delivery_mode) == ("1", 3, 1)
    assert (first.method.exchange, first.method.routing_key) == (exchange, "a.b")
    assert table_to_dict(second.headers) == {"x-stream-offset": 1}
    assert second.method.routing_key == "a.c"


def test_large_messages(client, stream, reader):
    """Messages larger than a frame, and larger than what a queue's index stores, are delivered whole."""
    queue = stream()
    channel = client.channel()
    channel.confirm()
    bodies = [b"a" * 300_000, b"b" * 5_000, b"c", b"d" * 5_000]
    for body in bodies:
        channel.publish(body, queue)
    channel.confirms(1, 4)
    assert reader(queue, "first").bodies(4) == bodies
    assert reader(queue, 2).bodies(2) == bodies[2:]


def test_consumers_of_one_channel(client, stream):
    queue = stream(6)
    channel = client.channel()
    channel.qos(10)
    tags = {channel.consume(queue, arguments={"x-stream-offset": at}): at for at in (0, 2, 4)}
    found = {tag: [] for tag in tags}
    for event in channel.deliveries(12):
        found[event.method.consumer_tag].append(offset(event))
        channel.ack(event.tag)
    assert found == {tag: list(range(at, 6)) for tag, at in tags.items()}


def test_cancel(client, stream):
    queue = stream(3)
    channel = client.channel()
    channel.qos(1)
    tag = channel.consume(queue, arguments={"x-stream-offset": "first"})
    event = channel.delivery()
    channel.cancel(tag)
    channel.ack(event.tag)
    assert channel.quiet(queue)


def test_the_end_of_a_stream_cancels_its_consumers(client, stream, name, reader):
    queue = stream(1)
    channel = reader(queue)
    assert client.channel().delete(queue) == 0, "as RabbitMQ answers, whatever the stream has"
    assert isinstance(channel.wait(m.BasicCancel).method, m.BasicCancel)


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_flags_of_delete_are_ignored(client, stream, reader, flag):
    queue = stream(1)
    reader(queue)
    client.channel().delete(queue, **{flag: True})
    with pytest.raises(Refused, match="404"):
        client.channel().ready(queue)


def test_a_channel_wide_prefetch(connect, stream):
    """A stream refuses a channel-wide prefetch, which does not count as the consumer's own."""
    queue = stream()
    for prefetch, code, text in (
        (0, 406, f"consumer prefetch count is not set for 'queue '{queue}' in vhost '/''"),
        (10, 540, f"queue '{queue}' in vhost '/' does not support global qos"),
    ):
        channel = connect().channel()
        channel.qos(prefetch)
        channel.qos(100, global_=True)
        channel.refuses(code, text, m.BasicConsume(queue=queue))


# -- what a stream refuses


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-max-age": "1x"}, "invalid_max_age"),
        ({"x-max-age": "0s"}, "invalid_max_age"),
        ({"x-max-age": "1Y2M"}, "invalid_max_age"),
        ({"x-max-age": 5}, "{unacceptable_type,signedint}"),
        ({"x-max-length-bytes": -5}, "{value_negative,-5}"),
        ({"x-stream-max-segment-size-bytes": -1}, "{value_negative,-1}"),
        ({"x-stream-max-segment-size-bytes": "a"}, '"expected integer, got longstr"'),
        ({"x-initial-cluster-size": 0}, "{value_zero,0}"),
        ({"x-queue-leader-locator": "foo"}, "invalid_queue_locator_arg"),
    ],
)
def test_invalid_arguments(client, name, arguments, reason):
    [key] = arguments
    text = f"invalid arg '{key}' for queue '{name}' in vhost '/': {reason}"
    client.channel().refuses(
        406, text, m.QueueDeclare(queue=name, durable=True, arguments=table({**STREAM, **arguments}))
    )


@pytest.mark.parametrize(
    "key",
    [
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-master-locator",
        "x-delivery-limit",
        "x-quorum-initial-group-size",
        "x-max-in-memory-length",
        "x-dead-letter-strategy",
    ],
)
def test_arguments_of_other_types(client, name, key):
    text = f"invalid arg '{key}' for queue '{name}' in vhost '/' of queue type rabbit_stream_queue"
    client.channel().refuses(406, text, m.QueueDeclare(queue=name, durable=True, arguments=table({**STREAM, key: -1})))


def test_the_largest_segment(client, name):
    arguments = Table([("x-queue-type", "S", b"stream"), ("x-stream-max-segment-size-bytes", "l", 3_000_000_001)])
    text = "Exceeded max value for x-stream-max-segment-size-bytes"
    client.channel().refuses(406, text, m.QueueDeclare(queue=name, durable=True, arguments=arguments))


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"exclusive": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_flags(channel, name, flags, text):
    """Flags that a stream cannot have are refused with 406 (AB-91)."""
    text = f"invalid property '{text}' for queue '{name}' in vhost '/'"
    channel.refuses(406, text, m.QueueDeclare(queue=name, arguments=table(STREAM), **flags))


def test_every_argument_that_a_stream_accepts(stream, client):
    arguments = {
        "x-max-length-bytes": 1 << 40,
        "x-max-age": "7D",
        "x-stream-max-segment-size-bytes": 1 << 20,
        "x-initial-cluster-size": 1,
        "x-queue-leader-locator": "client-local",
        "x-unknown": 1,
    }
    queue = stream(**arguments)
    client.channel().queue(queue, {**STREAM, **arguments}, durable=True)
    text = (
        f"inequivalent arg 'x-max-length-bytes' for queue '{queue}' in vhost '/': received none but current is the "
        "value '1099511627776' of type 'long'"
    )
    client.channel().refuses(406, text, m.QueueDeclare(queue=queue, durable=True, arguments=table(STREAM)))


@pytest.mark.parametrize(
    ("prefetch", "no_ack", "code", "text"),
    [
        (0, False, 406, "consumer prefetch count is not set for '{}'"),
        (0, True, 406, "consumer prefetch count is not set for '{}'"),
        (5, True, 540, "automatic acknowledgement not supported by stream queues {}"),
    ],
)
def test_consumers_without_prefetch_or_acknowledgements(connect, stream, prefetch, no_ack, code, text):
    queue = stream()
    channel = connect().channel()
    channel.qos(prefetch)
    phrase = f"queue '{queue}' in vhost '/'"
    channel.refuses(code, text.format(phrase), m.BasicConsume(queue=queue, no_ack=no_ack))


@pytest.mark.parametrize("key", ["x-priority", "x-cancel-on-ha-failover"])
def test_arguments_of_other_consumers(client, stream, key):
    queue = stream()
    channel = client.channel()
    channel.qos(1)
    text = f"invalid arg '{key}' for queue '{queue}' in vhost '/' of queue type rabbit_stream_queue"
    channel.refuses(406, text, m.BasicConsume(queue=queue, arguments=table({key: 1})))


@pytest.mark.parametrize(
    ("method", "operation"), [(m.BasicGet, "basic.get"), (m.QueuePurge, "queue.purge")], ids=["get", "purge"]
)
def test_get_and_purge(connect, stream, method, operation):
    queue = stream(1)
    text = f"{operation} not supported by stream queues queue '{queue}' in vhost '/'"
    connect().channel().refuses(540, text, method(queue=queue))


@pytest.mark.parametrize("way", ["nack", "nack multiple", "reject", "reject without requeue"])
def test_a_stream_takes_nothing_back(connect, stream, way):
    queue = stream(2)
    channel = connect().channel()
    channel.qos(10)
    channel.consume(queue, arguments={"x-stream-offset": "first"})
    tag = channel.deliveries(2)[1].tag
    text = f"basic.nack and basic.reject not supported by stream queues queue '{queue}' in vhost '/'"
    methods = {
        "nack": m.BasicNack(tag),
        "nack multiple": m.BasicNack(tag, multiple=True),
        "reject": m.BasicReject(tag, requeue=True),
        "reject without requeue": m.BasicReject(tag, requeue=False),
    }
    channel.send(methods[way])
    channel.refuses(540, text)
