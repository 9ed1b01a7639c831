"""The rules of quorum queues, and messages that are returned too often. RabbitMQ 3.10 passes these tests, too."""

import pytest

from warren import Broker
from warren.amqp import methods as m
from warren.amqp.fields import table_to_dict

from ...wire import table

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def quorum(channel, name):
    """`quorum(...)` declares a quorum queue, and a queue for its dead letters."""

    def make(**arguments):
        return channel.queue(name, {**QUORUM, **arguments}, durable=True)

    yield make
    channel.call(m.QueueDelete(queue=name))


def count(event):
    """The header x-delivery-count, or None."""
    return None if event.headers is None else table_to_dict(event.headers).get("x-delivery-count")


def test_a_delivery_that_is_not_the_first_has_its_count(channel, quorum):
    """A delivery that is not the first has the header x-delivery-count, in the place of a publisher's header of that
    name; the publisher's other headers stay.
    """
    queue = quorum()
    channel.consume(queue)
    channel.publish("a", queue, headers={"n": 1, "x-delivery-count": 77})
    first = channel.delivery()
    assert not first.method.redelivered
    for returns in (1, 2, 3):
        channel.nack(channel_tag(first))
        first = channel.delivery()
        assert first.method.redelivered and count(first) == returns and table_to_dict(first.headers)["n"] == 1


def channel_tag(event):
    return event.method.delivery_tag


def test_get_has_the_count_from_the_first_time_on(channel, quorum):
    queue = quorum()
    channel.publish("a", queue)
    channel.expect_ready(queue, 1)
    for returns in (0, 1, 2):
        found = channel.get(queue)
        assert count(found) == returns and found.method.redelivered == bool(returns)
        channel.nack(channel_tag(found))
        channel.expect_ready(queue, 1)


def test_each_way_back_counts(client, channel, quorum):
    """A nack, a reject, basic.recover and the end of the channel each count as one return."""
    queue = quorum()
    channel.publish("a", queue)
    for number, give_back in enumerate(
        (
            lambda other, tag: other.nack(tag),
            lambda other, tag: other.reject(tag),
            lambda other, tag: other.call(m.BasicRecover(requeue=True)),
            lambda other, tag: None,
        )
    ):
        other = client.channel()
        channel.expect_ready(queue, 1)
        found = other.get(queue)
        assert count(found) == number
        give_back(other, channel_tag(found))
        other.close()
    channel.expect_ready(queue, 1)
    assert count(channel.get(queue)) == 4


def test_a_message_beyond_the_delivery_limit_is_dead_lettered(channel, quorum, name):
    """A message beyond the delivery limit is dead-lettered with the reason delivery_limit and without its count. Other
    messages are not affected.
    """
    grave = channel.queue(f"{name}-dead")
    queue = quorum(**{"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave})
    channel.consume(grave, "dead", no_ack=True)
    channel.qos(1)
    channel.consume(queue, "live")
    channel.publish("poison", queue)
    channel.publish("good", queue)
    deaths, returned, done = [], 0, False
    while not deaths or not done:
        event = channel.delivery()
        if event.method.consumer_tag == "dead":
            deaths.append(event)
        elif event.body == b"good":
            channel.ack(channel_tag(event))
            done = True
        else:
            returned += 1
            channel.nack(channel_tag(event))
    assert returned == 3 and [event.body for event in deaths] == [b"poison"]
    headers = table_to_dict(deaths[0].headers)
    assert headers["x-first-death-reason"] == "delivery_limit" and "x-delivery-count" not in headers
    [death] = headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", queue, 1)


def test_without_dead_letter_exchange_it_is_dropped(channel, quorum):
    queue = quorum(**{"x-delivery-limit": 0})
    channel.fill(queue, "a", "b")
    found = channel.get(queue)
    channel.nack(channel_tag(found))
    channel.expect_ready(queue, 1)
    assert channel.get(queue).body == b"b"


def test_transient_messages_are_as_safe_as_persistent_ones(tmp_path):
    """A quorum queue stores transient messages like persistent ones, and delivers them with the delivery mode with
    which they were published.
    """
    with Broker(port=0, data_dir=tmp_path) as broker:
        broker.declare_queue("q", durable=True, arguments=QUORUM)
        broker.declare_queue("classic", durable=True)
        for queue in ("q", "classic"):
            broker.publish(b"kept", queue)
    with Broker(port=0, data_dir=tmp_path) as broker:
        message = broker.get("q")
        assert message.body == b"kept"
        assert broker.get("classic") is None


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
    """Flags that a quorum queue cannot have are refused with 406 (AB-91)."""
    text = f"invalid property '{text}' for queue '{name}' in vhost '/'"
    channel.refuses(406, text, m.QueueDeclare(queue=name, arguments=table(QUORUM), **flags))


def test_an_existing_queue_keeps_its_type(client, quorum, name):
    quorum()
    text = (
        f"inequivalent arg 'x-queue-type' for queue '{name}' in vhost '/': received none but current is the value "
        "'quorum' of type 'longstr'"
    )
    client.channel().refuses(406, text, m.QueueDeclare(queue=name, durable=True))


@pytest.mark.parametrize("flag", ["if-unused", "if-empty"])
def test_a_conditional_delete_is_refused(connect, quorum, name, flag):
    quorum()
    text = (
        f"cannot delete queue '{name}' in vhost '/'. queue.delete operations with {flag} flag set are not supported "
        "by quorum queues"
    )
    method = m.QueueDelete(queue=name, **{flag.replace("-", "_"): True})
    connect().channel().refuses(540, text, method)


def test_global_prefetch_is_refused(connect, quorum, name):
    quorum()
    other = connect().channel()
    other.qos(5, global_=True)
    other.refuses(540, f"queue '{name}' in vhost '/' does not support global qos", m.BasicConsume(queue=name))


def test_single_active_consumer(client, quorum, name):
    """With a single active consumer basic.get is refused; an exclusive consumer is not (AB-124)."""
    quorum(**{"x-single-active-consumer": True})
    text = (
        f"cannot obtain access to locked queue '{name}' in vhost '/'. basic.get operations are not supported by quorum "
        "queues with single active consumer"
    )
    client.channel().refuses(405, text, m.BasicGet(queue=name))
    assert client.channel().consume(name, "mine", exclusive=True) == "mine"
