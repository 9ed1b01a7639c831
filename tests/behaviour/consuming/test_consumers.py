"""Consumers: order, priorities, exclusivity, cancelling (AB-119 to AB-123). Prefetch is in test_prefetch.py."""

import pytest

from warren.amqp import methods as m


def tags(events):
    return [event.method.consumer_tag for event in events]


@pytest.fixture
def turns(channel, name):
    """`turns(count)` publishes `count` messages and returns the consumers that get them, in order."""
    channel.queue(name)

    def turns(count):
        for number in range(count):
            channel.publish(str(number), name)
        events = channel.deliveries(count)
        assert [event.body for event in events] == [str(number).encode() for number in range(count)]
        return tags(events)

    return turns


def test_consume_ok_precedes_the_first_delivery(channel, name):
    """AB-119: consume-ok comes first although messages are ready."""
    channel.queue(name)
    for number in range(50):
        channel.publish(str(number), name)
    channel.send(m.BasicConsume(queue=name, consumer_tag="t", no_ack=True))
    assert channel.wait().method == m.BasicConsumeOk("t")
    assert len(channel.bodies(50)) == 50


def test_round_robin(channel, name, turns):
    """AB-122: three consumers receive messages in turn, always in the same order."""
    for tag in "abc":
        channel.consume(name, tag, no_ack=True)
    got = turns(9)
    assert got[:3] == got[3:6] == got[6:]
    assert sorted(got[:3]) == ["a", "b", "c"]


def test_round_robin_of_a_backlog(channel, name):
    """AB-122: round robin holds also when many messages are ready at once."""
    channel.queue(name)
    for number in range(90):
        channel.publish(str(number), name)
    channel.expect_ready(name, 90)
    channel.qos(1)
    for tag in "abc":
        channel.consume(name, tag)
    first = channel.deliveries(3)
    assert sorted(tags(first)) == ["a", "b", "c"]
    assert [event.body for event in first] == [b"0", b"1", b"2"]
    for event in first:
        channel.ack(event.tag)
    assert [event.body for event in channel.deliveries(3)] == [b"3", b"4", b"5"]


def test_round_robin_over_runs_of_unlike_messages(client, name):
    """AB-122: three channels take a backlog at once; the second run begins in the middle of a round."""
    channels = [client.channel() for _ in range(3)]
    channels[0].queue(name)
    for channel in channels:
        channel.qos(3)
        channel.consume(name)
    for number in range(9):
        channels[0].publish(str(number), name)
    held = [channel.deliveries(3)[-1].tag for channel in channels]
    for number in range(9, 17):
        channels[0].publish(str(number), name, content_type="a" if number < 14 else "b")
    channels[0].expect_ready(name, 8)
    with client.in_one_piece():
        for channel, tag in zip(channels, held, strict=True):
            channel.ack(tag, multiple=True)
    got = [channel.bodies(count) for channel, count in zip(channels, (3, 3, 2), strict=True)]
    assert sorted(int(body) for bodies in got for body in bodies) == list(range(9, 17))
    assert all(bodies == sorted(bodies, key=int) for bodies in got)


def test_higher_priority_first(channel, name, turns):
    """QP-64, AB-122: lower priorities get messages only while all higher ones are full; negative ones are below the
    default.
    """
    channel.qos(1)
    channel.consume(name, "low", {"x-priority": -1})
    channel.consume(name, "mid")
    channel.consume(name, "high", {"x-priority": 10})
    assert turns(3) == ["high", "mid", "low"]
    channel.ack(1)
    channel.publish("again", name)
    assert channel.delivery().method.consumer_tag == "high"
    channel.ack(3)
    channel.ack(4)
    channel.publish("once more", name)
    assert channel.delivery().method.consumer_tag == "high"


def test_round_robin_within_a_priority(channel, name, turns):
    """QP-64, AB-122: consumers with the highest priority receive messages in turn, and the one below them receives
    none.
    """
    channel.consume(name, "low", no_ack=True)
    for tag in "ab":
        channel.consume(name, tag, {"x-priority": 5}, no_ack=True)
    got = turns(6)
    assert got[:2] == got[2:4] == got[4:] and sorted(got[:2]) == ["a", "b"]


def test_exclusive_consumer(client, name):
    """An exclusive consumer must be the first and stays the only one; basic.get is possible beside it (AB-121)."""
    text = f"queue '{name}' in vhost '/' in exclusive use"
    channel = client.channel()
    channel.queue(name)
    channel.consume(name, "alone", exclusive=True)
    client.channel().refuses(403, text, m.BasicConsume(queue=name))
    client.channel().refuses(403, text, m.BasicConsume(queue=name, exclusive=True))
    assert client.channel().get(name) is None
    channel.cancel("alone")
    channel.consume(name, "first")
    client.channel().refuses(403, text, m.BasicConsume(queue=name, exclusive=True))
    client.channel().consume(name, "second")


def test_no_delivery_after_cancel_ok(channel, name):
    """AB-120: sent deliveries come before cancel-ok, all other messages stay in the queue, and unacknowledged
    deliveries stay with the channel."""
    channel.queue(name)
    channel.consume(name, "t")
    for number in range(500):
        channel.publish(str(number), name)
    channel.cancel("t")
    got = [event for event in channel.pending if isinstance(event.method, m.BasicDeliver)]
    assert channel.quiet(name) or len(
        [event for event in channel.pending if isinstance(event.method, m.BasicDeliver)]
    ) == len(got)
    channel.expect_ready(name, 500 - len(got))
    if got:
        channel.ack(got[-1].tag, multiple=True)
    channel.ack(0, multiple=True)
    assert [event.body for event in got] + channel.get_all(name) == [str(number).encode() for number in range(500)]


@pytest.mark.parametrize("before", ["ack", "publish"])
def test_what_is_sent_before_a_cancel_is_done_before_it(channel, name, before):
    """Of an ack or publish and a basic.cancel in one write, the ack or publish takes effect first: the consumer gets
    one more message, and then cancel-ok.
    """
    channel.queue(name)
    channel.qos(1)
    if before == "ack":
        channel.fill(name, "1", "2")
    channel.consume(name, "t")
    tag = channel.delivery().tag if before == "ack" else 0
    with channel.client.in_one_piece():
        if before == "ack":
            channel.ack(tag)
        else:
            channel.publish("2", name)
        channel.send(m.BasicCancel("t"))
    assert channel.wait().body == b"2"
    assert channel.wait().method == m.BasicCancelOk("t")


@pytest.mark.parametrize("method", [m.BasicGet(), m.QueuePurge()], ids=["get", "purge"])
def test_what_is_sent_before_a_get_or_purge_is_done_before_it(channel, name, method):
    """An ack that is sent before a get or a purge takes effect first: the consumer has room then, so it gets the next
    message.
    """
    channel.queue(name)
    channel.qos(1)
    channel.fill(name, "1", "2", "3")
    channel.consume(name, "t")
    tag = channel.delivery().tag
    with channel.client.in_one_piece():
        channel.ack(tag)
        channel.send(method)
    answer = channel.wait(m.BasicGetOk, m.QueuePurgeOk)
    assert answer.body == b"3" or answer.method == m.QueuePurgeOk(1)
    assert channel.delivery().body == b"2"


DROPPING = [
    ({"x-message-ttl": 0}, {}),
    ({}, {"expiration": "0"}),
    ({"x-max-length": 0}, {}),
    ({"x-max-length": 1}, {}),
    ({"x-max-length-bytes": 0}, {}),
]


@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize("modes", [(False, True), (True, False, False)])
@pytest.mark.parametrize(("arguments", "properties"), DROPPING)
def test_what_would_be_dropped_reaches_a_consumer_that_can_take_it(
    client, channel, name, arguments, properties, modes, is_persistent
):
    """Before a message is dropped, its delivery is tried, whether all consumers acknowledge or only some (AB-96,
    AB-100).
    """
    channel.queue(name, arguments, durable=is_persistent)
    for number, no_ack in enumerate(modes):
        channel.consume(name, str(number), no_ack=no_ack)
    other = client.channel()
    other.confirm()
    with client.in_one_piece():
        for number in range(6):
            other.publish(str(number), name, delivery_mode=2 if is_persistent else 1, **properties)
    acked, nacked = other.confirms(1, 6)
    assert (sorted(acked), nacked) == (list(range(1, 7)), [])
    events = channel.deliveries(6)
    assert [event.body for event in events] == [b"%d" % number for number in range(6)]
    assert {event.method.consumer_tag for event in events} == {str(number) for number in range(len(modes))}
    other.delete(name)


@pytest.mark.parametrize("limit", [2, 10])
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(("arguments", "properties"), DROPPING)
def test_what_would_be_dropped_is_delivered_as_far_as_the_limit_of_the_channel_allows(
    client, channel, name, arguments, properties, consumers, limit
):
    """Before messages are dropped, the channel grants as many deliveries as its limit leaves (AB-96,
    AB-100, AB-127).
    """
    channel.queue(name, arguments)
    channel.qos(limit, global_=True)
    for number in range(consumers):
        channel.consume(name, str(number))
    other = client.channel()
    other.confirm()
    for number in range(6):
        other.publish(str(number), name, **properties)
        other.confirms(number + 1, number + 1)
    events = channel.deliveries(min(limit, 6))
    assert [event.body for event in events] == [b"%d" % number for number in range(len(events))]
    assert channel.quiet(name)
    for event in events:
        channel.ack(event.tag)
    channel.qos(limit, global_=True)  # the answer to basic.qos shows that the acks are handled
    other.publish("again", name, **properties)
    assert channel.delivery().body in (b"again", b"5")


@pytest.mark.parametrize("end", ["cancel", "close", "unlimited"])
def test_a_queue_goes_on_when_a_channel_ends_that_it_has_asked(client, channel, name, end):
    """A queue goes on when a channel ends that it has asked for a grant; a publish and the end of that channel are sent
    in one write.
    """
    channel.queue(name, {"x-message-ttl": 0})
    channel.qos(1, global_=True)
    channel.consume(name, "c")
    other = client.channel()
    other.confirm()
    with client.in_one_piece():
        other.publish("1", name)
        if end == "cancel":
            channel.send(m.BasicCancel("c"))
        elif end == "close":
            channel.send(m.ChannelClose(200, "bye"))
        else:
            channel.send(m.BasicQos(0, 0, True))
        other.publish("2", name)
    other.confirms(1, 2)
    other.consume(name, no_ack=True)
    if end == "unlimited":
        channel.cancel("c")
    other.publish("3", name)
    assert other.delivery().body == b"3"


def test_cancelled_consumer_leaves_the_rest_to_others(channel, name):
    """AB-120: a cancelled consumer receives nothing more; another gets the rest, and what the first one requeues."""
    channel.queue(name)
    channel.qos(1)
    channel.consume(name, "a")
    channel.consume(name, "b")
    for body in ("1", "2", "3"):
        channel.publish(body, name)
    held = {event.method.consumer_tag: event for event in channel.deliveries(2)}
    channel.cancel("a")
    channel.ack(held["b"].tag)
    last = channel.delivery()
    assert (last.method.consumer_tag, last.body) == ("b", b"3")
    channel.nack(held["a"].tag, requeue=True)
    channel.ack(last.tag)
    again = channel.delivery()
    assert (again.method.consumer_tag, again.method.redelivered, again.body) == ("b", True, held["a"].body)


def test_deliveries_carry_exchange_and_key_of_the_publish(channel, name):
    """A delivery has the exchange of the publish, and of several routing keys the first (AB-131)."""
    channel.queue(name)
    channel.bind(name, "amq.topic", f"{name}.#")
    channel.consume(name, "t")
    channel.publish("m", f"{name}.a", "amq.topic", headers={"CC": [f"{name}.b"]})
    assert channel.delivery().method == m.BasicDeliver("t", 1, False, "amq.topic", f"{name}.a")


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_bodies_are_cut_to_the_consumers_frame_max(connect, name, frame_max):
    """Bodies are cut into frames by the consumer's frame_max, not the publisher's (AB-44)."""
    publisher = connect(frame_max=131_072).channel()
    publisher.queue(name)
    consumer = connect(frame_max=frame_max).channel(3)
    consumer.client.frame_max = 4096
    consumer.consume(name, no_ack=True)
    bodies = [bytes([number]) * size for number, size in enumerate((0, 1, 4088, 4089, 100_000, 300_000))]
    for body in bodies:
        publisher.publish(body, name, message_id="kept")
    assert consumer.bodies(len(bodies)) == bodies


def test_consumers_on_one_channel_of_two_queues(channel, name):
    """AB-119, AB-130: delivery tags count over all consumers of the channel."""
    for suffix in "ab":
        channel.queue(f"{name}-{suffix}")
        channel.consume(f"{name}-{suffix}", suffix)
    for suffix in "abab":
        channel.publish(suffix, f"{name}-{suffix}")
        event = channel.delivery()
        assert event.method.consumer_tag == suffix
    assert event.tag == 4


def test_a_client_that_does_not_read_leaves_messages_to_others(connect, name):
    """AB-122: a consumer whose channel has 200 unsent deliveries is set aside, whatever its priority; no message is
    lost."""
    publisher, deaf, other = (connect().channel() for _ in range(3))
    publisher.queue(name)
    deaf.consume(name, "deaf", {"x-priority": 10}, no_ack=True)
    other.consume(name, "other", no_ack=True)
    body, count = bytes(50_000), 600
    for number in range(count):
        publisher.publish(number.to_bytes(2, "big") + body, name)
    got = [int.from_bytes(event.body[:2], "big") for event in other.deliveries(50)]
    left = {deaf: [], other: got}
    while sum(map(len, left.values())) < count:
        for channel, numbers in left.items():
            channel.client.receive(0)
            for _ in channel.pending:
                numbers.append(int.from_bytes(channel.delivery().body[:2], "big"))
    assert sorted(left[deaf] + left[other]) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in left.values())
