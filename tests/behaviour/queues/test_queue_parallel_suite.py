"""queue_parallel_SUITE: a test for each of its cases about classic queues."""

import pytest

from warren.amqp import methods as m


@pytest.fixture
def queue(channel, name):
    return channel.queue(name, durable=True)


@pytest.fixture
def expect(broker, channel, queue):
    """`expect(ready, unacked)` waits for these counts in the listing (AB-176). For another broker than warren it waits
    for `ready` in the answer to a declare.
    """

    def expect(ready, unacked):
        if broker is None:
            channel.expect_ready(queue, ready)
            return
        broker.wait_idle()
        info = broker.queue(queue)
        assert (info.messages_ready, info.messages_unacknowledged, info.messages) == (ready, unacked, ready + unacked)

    return expect


def publish(channel, queue, *bodies):
    for body in bodies:
        channel.publish(body, queue, delivery_mode=2)
    channel.expect_ready(queue, len(bodies))


def test_publish(channel, queue, expect):
    """One publish: 1 ready, 0 unacknowledged."""
    publish(channel, queue, "msg1")
    expect(1, 0)


def test_consume(channel, queue, expect):
    """A get leaves it unacknowledged; the channel's close makes it ready (AB-135)."""
    publish(channel, queue, "msg1")
    other = channel.client.channel()
    other.get(queue)
    expect(0, 1)
    other.close()
    expect(1, 0)


def test_consume_first_empty(channel, queue, expect):
    """A get on the empty queue, then publish and a no-ack get work (AB-138)."""
    assert channel.get(queue) is None
    publish(channel, queue, "msg1")
    assert channel.get(queue, no_ack=True).body == b"msg1"
    expect(0, 0)


def test_consume_from_empty_queue(channel, queue):
    """A get on an empty queue is answered with get-empty (AB-138)."""
    assert channel.get(queue) is None


def test_consume_and_autoack(channel, queue, expect):
    """A no-ack get removes at once (AB-138)."""
    publish(channel, queue, "msg1")
    channel.get(queue, no_ack=True)
    expect(0, 0)
    channel.close()
    assert channel.client.channel().ready(queue) == 0


def test_subscribe(channel, queue, expect):
    """A delivery is not redelivered; the channel's close requeues it (AB-131, AB-135)."""
    publish(channel, queue, "msg1")
    other = channel.client.channel()
    other.consume(queue)
    assert not other.delivery().method.redelivered
    expect(0, 1)
    other.close()
    expect(1, 0)


def test_subscribe_consumers(channel, queue, broker):
    """The listing shows tag, ack required, prefetch and arguments (AB-175)."""
    if broker is None:
        pytest.skip("uses the embedded broker's listing")
    channel.qos(10)
    channel.consume(queue, "ctag", {"x-arg": "v", "x-priority": 2})
    (info,) = [info for info in broker.consumers() if info.queue_name == queue]
    assert (info.consumer_tag, info.ack_required, info.prefetch_count, info.exclusive) == ("ctag", True, 10, False)
    assert dict(info.arguments) == {"x-arg": "v", "x-priority": 2}
    assert (info.active, info.activity_status) == (True, "up")


def test_subscribe_with_autoack(channel, queue, expect):
    """No-ack deliveries remove at once (AB-132)."""
    publish(channel, queue, "msg1", "msg2")
    channel.consume(queue, no_ack=True)
    assert channel.bodies(2) == [b"msg1", b"msg2"]
    expect(0, 0)


def test_consume_and_ack(channel, queue, expect):
    """An ack after a get empties the queue (AB-132)."""
    publish(channel, queue, "msg1")
    channel.ack(channel.get(queue).tag)
    channel.qos(0)
    expect(0, 0)


def test_consume_and_multiple_ack(channel, queue, expect):
    """A multiple ack after several gets empties the queue (AB-132)."""
    publish(channel, queue, "msg1", "msg2", "msg3")
    tags = [channel.get(queue).tag for _ in range(3)]
    expect(0, 3)
    channel.ack(tags[-1], multiple=True)
    channel.qos(0)
    expect(0, 0)


@pytest.mark.parametrize("multiple", [False, True])
def test_subscribe_and_ack(channel, queue, expect, multiple):
    """subscribe_and_ack and subscribe_and_multiple_ack (AB-132)."""
    publish(channel, queue, "msg1", "msg2", "msg3")
    channel.consume(queue)
    events = channel.deliveries(3)
    expect(0, 3)
    for event in events[-1:] if multiple else events:
        channel.ack(event.tag, multiple)
    channel.qos(0)
    expect(0, 0)


@pytest.mark.parametrize("multiple", [False, True])
def test_subscribe_and_requeue_nack(channel, queue, expect, multiple):
    """subscribe_and_requeue_nack and …_multiple_nack: messages are delivered again with redelivered true (AB-134)."""
    publish(channel, queue, "msg1", "msg2", "msg3")
    channel.consume(queue)
    events = channel.deliveries(3)
    for event in events[-1:] if multiple else events:
        channel.nack(event.tag, multiple, requeue=True)
    again = channel.deliveries(3)
    assert sorted(event.body for event in again) == [b"msg1", b"msg2", b"msg3"]
    assert all(event.method.redelivered for event in again)
    channel.ack(again[-1].tag, multiple=True)
    channel.qos(0)
    expect(0, 0)


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("by", ["subscribe", "consume"])
def test_nack(channel, queue, expect, by, multiple):
    """subscribe_and_nack, consume_and_nack and their multiple forms: without requeue messages are removed (AB-136)."""
    publish(channel, queue, "msg1", "msg2", "msg3")
    if by == "subscribe":
        channel.consume(queue)
    tags = (
        [event.tag for event in channel.deliveries(3)]
        if by == "subscribe"
        else [channel.get(queue).tag for _ in range(3)]
    )
    for tag in tags[-1:] if multiple else tags:
        channel.nack(tag, multiple, requeue=False)
    channel.qos(0)
    expect(0, 0)


@pytest.mark.parametrize("multiple", [False, True])
def test_consume_and_requeue_nack(channel, queue, expect, multiple):
    """consume_and_requeue_nack and …_multiple_nack: messages from gets become ready again (AB-134)."""
    publish(channel, queue, "msg1", "msg2", "msg3")
    tags = [channel.get(queue).tag for _ in range(3)]
    for tag in tags[-1:] if multiple else tags:
        channel.nack(tag, multiple, requeue=True)
    channel.qos(0)
    expect(3, 0)


def test_basic_cancel(channel, queue, expect):
    """After a cancel no consumer is listed, deliveries may still be acknowledged, and later publishes stay ready
    (AB-120).
    """
    publish(channel, queue, "msg1")
    channel.consume(queue, "ctag")
    tag = channel.delivery().tag
    channel.cancel("ctag")
    assert channel.declare(queue, durable=True).consumer_count == 0
    expect(0, 1)
    publish(channel, queue, "msg2", "msg3")
    expect(2, 1)
    channel.ack(tag)
    channel.qos(0)
    expect(2, 0)


def test_purge(channel, queue, expect):
    """Purge counts and removes ready messages only."""
    publish(channel, queue, "msg1", "msg2")
    channel.get(queue)
    expect(1, 1)
    assert channel.purge(queue) == 1
    expect(0, 1)


def test_purge_no_consumer(channel, queue, expect):
    """Purge returns 2 and leaves the queue empty."""
    publish(channel, queue, "msg1", "msg2")
    assert channel.purge(queue) == 2
    expect(0, 0)


def test_basic_recover(channel, queue, expect):
    """basic.recover requeues the message of a get (AB-137)."""
    publish(channel, queue, "msg1")
    channel.get(queue)
    expect(0, 1)
    channel.call(m.BasicRecover(True))
    expect(1, 0)


def test_delete_immediately(channel, queue, inside):
    """delete_immediately_by_resource and …_by_pid_succeeds (AB-179): afterwards passive declare is C404."""
    inside.delete_immediately(queue)
    inside.broker.wait_idle()
    channel.refuses(404, f"no queue '{queue}' in vhost '/'", m.QueueDeclare(queue=queue, passive=True))


def test_trigger_message_store_compaction(channel, queue):
    """12,000 messages of 5 kB, most of the middle acknowledged: the rest is delivered in order."""
    channel.consume(queue, "ctag")
    kept = []
    for start in range(0, 12_000, 500):
        numbers = range(start, start + 500)
        with channel.client.in_one_piece():
            for number in numbers:
                channel.publish(number.to_bytes(4, "big") * 1250, queue, delivery_mode=2)
        events = channel.deliveries(500)
        if 3000 <= start < 9000:
            for event in events[:-1]:
                channel.ack(event.tag)
            numbers = numbers[-1:]
        kept += numbers
    channel.cancel("ctag")
    channel.call(m.BasicRecover(True))
    assert [int.from_bytes(body[:4], "big") for body in channel.get_all(queue)] == kept


@pytest.mark.parametrize("targets", [1, 2])
def test_extra_bcc_option(channel, queue, inside, targets):
    """extra_bcc_option and extra_bcc_option_multiple_2: the extra queue gets one copy, however many targets name it
    (AB-79).
    """
    extra = channel.queue(f"{queue}-extra")
    names = [queue, channel.queue(f"{queue}-2", durable=True)][:targets]
    for target in names:
        channel.bind(target, "amq.direct", queue)
        inside.give_extra_queue(target, extra)
    channel.publish("msg1", queue, "amq.direct")
    assert [channel.get_all(target) for target in [*names, extra]] == [[b"msg1"]] * (targets + 1)


def test_extra_bcc_option_multiple_1(channel, queue, inside):
    """Of two targets one has an extra queue: it gets one copy (AB-79)."""
    extra, second = channel.queue(f"{queue}-extra"), channel.queue(f"{queue}-2")
    for target in (queue, second):
        channel.bind(target, "amq.direct", queue)
    inside.give_extra_queue(second, extra)
    channel.publish("msg1", queue, "amq.direct")
    assert [channel.get_all(target) for target in (queue, second, extra)] == [[b"msg1"]] * 3
