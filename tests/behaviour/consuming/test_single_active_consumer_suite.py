"""single_active_consumer_SUITE: a test for each of its cases on classic queues (AB-124, AB-125)."""

import pytest

from warren.amqp import methods as m

TAGS = ("1", "2", "3")


@pytest.fixture
def queue(channel, name):
    return channel.queue(name, {"x-single-active-consumer": True})


def receivers(channel, count):
    """The consumers that got the next `count` messages."""
    return [event.method.consumer_tag for event in channel.deliveries(count)]


def publish(channel, queue, count):
    for number in range(count):
        channel.publish(str(number), queue)


def test_all_messages_go_to_one_consumer(channel, queue):
    """The first consumer gets all messages."""
    for tag in TAGS:
        channel.consume(queue, tag, no_ack=True)
    publish(channel, queue, 5)
    assert receivers(channel, 5) == ["1"] * 5
    assert channel.quiet(queue)


def test_fallback_to_another_consumer_when_first_one_is_cancelled(channel, queue):
    """After each cancel exactly one consumer takes over: the oldest."""
    for tag in TAGS:
        channel.consume(queue, tag, no_ack=True)
    for tag in TAGS:
        publish(channel, queue, 4)
        assert receivers(channel, 4) == [tag] * 4
        channel.cancel(tag)
    publish(channel, queue, 1)
    assert channel.quiet(queue)
    channel.consume(queue, "4", no_ack=True)
    assert receivers(channel, 1) == ["4"]


def test_fallback_to_another_consumer_when_first_one_is_cancelled_manual_acks(channel, queue):
    """Unacknowledged messages of the cancelled consumer can still be acked; the queue counts one consumer fewer."""
    for tag in TAGS:
        channel.consume(queue, tag)
    publish(channel, queue, 3)
    held = channel.deliveries(3)
    assert {event.method.consumer_tag for event in held} == {"1"}
    channel.cancel("1")
    assert channel.declare(queue, passive=True).consumer_count == 2
    publish(channel, queue, 2)
    assert receivers(channel, 2) == ["2", "2"]
    channel.ack(held[-1].tag, multiple=True)
    assert channel.quiet(queue)
    channel.close()
    assert channel.client.channel().ready(queue) == 2


def test_fallback_to_another_consumer_when_exclusive_consumer_channel_is_cancelled(client, channel, queue):
    """When the channel of the active consumer closes, another consumer takes over and gets its messages."""
    first = client.channel()
    first.consume(queue, "1")
    channel.consume(queue, "2")
    channel.consume(queue, "3")
    publish(channel, queue, 2)
    first.deliveries(2)
    first.close()
    events = channel.deliveries(2)
    assert [event.method.consumer_tag for event in events] == ["2", "2"]
    assert [event.body for event in events] == [b"0", b"1"]
    assert all(event.method.redelivered for event in events)


def test_amqp_exclusive_consume_fails_on_exclusive_consumer_queue(channel, queue):
    """A queue with a single active consumer refuses an exclusive consumer with 403, even if it has no consumers."""
    channel.refuses(403, f"queue '{queue}' in vhost '/' in exclusive use", m.BasicConsume(queue=queue, exclusive=True))


# --- the rest of AB-124 and AB-125 ---


def test_priority_does_not_displace_the_active_consumer(channel, queue):
    """A consumer with a higher priority does not displace the active one. Priority decides who is next, and then age
    (AB-124).
    """
    for tag, priority in (("1", 0), ("2", 1), ("3", 5), ("4", 5)):
        channel.consume(queue, tag, {"x-priority": priority}, no_ack=True)
    for tag in ("1", "3", "4", "2"):
        publish(channel, queue, 1)
        assert receivers(channel, 1) == [tag]
        channel.cancel(tag)


def test_nobody_else_receives_while_the_active_consumer_is_full(channel, queue):
    """AB-124: while the active consumer is at its limit, no other consumer receives a message."""
    channel.qos(1)
    channel.consume(queue, "1")
    channel.qos(0)
    channel.consume(queue, "2")
    publish(channel, queue, 3)
    event = channel.delivery()
    assert event.method.consumer_tag == "1"
    assert channel.quiet(queue)
    channel.ack(event.tag)
    assert receivers(channel, 1) == ["1"]


def test_cancelling_the_full_active_consumer_hands_over(channel, queue, broker):
    """AB-124: when the active consumer at its limit is cancelled, the next one receives the rest."""
    if broker is None:
        pytest.skip("a queue of RabbitMQ 3.10 crashes here")
    channel.qos(1)
    channel.consume(queue, "1")
    channel.qos(0)
    channel.consume(queue, "2")
    publish(channel, queue, 3)
    assert receivers(channel, 1) == ["1"]
    channel.cancel("1")
    assert receivers(channel, 2) == ["2", "2"]


def test_basic_get_is_allowed_on_a_classic_queue(channel, queue):
    """AB-124: basic.get takes messages from a queue with a single active consumer."""
    channel.qos(1)
    channel.consume(queue, "1")
    publish(channel, queue, 2)
    channel.delivery()
    while (event := channel.get(queue)) is None:
        pass
    assert event.body == b"1"


def test_listing_shows_the_active_consumer(channel, queue, broker):
    """AB-125: the listing shows which consumer is active and which ones wait."""
    if broker is None:
        pytest.skip("uses the embedded broker's listing")
    for tag in TAGS:
        channel.consume(queue, tag)
    channel.cancel("1")
    found = {
        info.consumer_tag: (info.active, info.activity_status)
        for info in broker.consumers()
        if info.queue_name == queue
    }
    assert found == {"2": (True, "single_active"), "3": (False, "waiting")}
