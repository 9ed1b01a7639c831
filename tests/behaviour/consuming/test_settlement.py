"""Delivery tags, acknowledgement, requeueing, recovery (AB-130 to AB-137)."""

import pytest

from warren.amqp import methods as m


@pytest.fixture
def held(channel, name):
    """Five delivered, unacknowledged messages with the tags 1 to 5."""
    channel.queue(name)
    channel.consume(name, "t")
    for letter in "abcde":
        channel.publish(letter, name)
    assert [event.tag for event in channel.deliveries(5)] == [1, 2, 3, 4, 5]
    channel.cancel("t")
    return name


def bodies(*letters):
    return [letter.encode() for letter in letters]


def test_delivery_tags_count_deliveries_and_gets(channel, name):
    """AB-130: no-ack deliveries use up tags as well; each channel counts its own."""
    channel.queue(name)
    for number in range(6):
        channel.publish(str(number), name)
    assert [channel.get(name, no_ack=number == 1).tag for number in range(3)] == [1, 2, 3]
    channel.consume(name, no_ack=True)
    assert [event.tag for event in channel.deliveries(3)] == [4, 5, 6]
    channel.close()
    other = channel.client.channel()
    assert other.get(name).tag == 1


@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_multiple_settles_all_up_to_its_tag(channel, held, settle):
    """AB-132: the tag itself is included."""
    if settle == "ack":
        channel.ack(3, multiple=True)
    else:
        channel.nack(3, multiple=True, requeue=False)
    channel.nack(0, multiple=True, requeue=True)
    assert channel.get_all(held) == bodies("d", "e")


def test_tag_0_with_multiple_settles_everything(channel, held):
    """AB-132: an ack of tag 0 with multiple acknowledges every message of the channel."""
    channel.ack(0, multiple=True)
    channel.close()
    assert channel.client.channel().ready(held) == 0


@pytest.mark.parametrize("tag", [0, 6, 2, 1 << 63])
def test_only_outstanding_tags_can_be_settled(channel, held, tag):
    """Only outstanding tags can be settled: not 0, not a tag that was not used yet, and not one that is settled
    (AB-132).
    """
    channel.ack(2)
    channel.refuses(406, f"unknown delivery tag {tag}", m.BasicAck(tag))
    channel.client.channel().expect_ready(held, 4)


def test_multiple_needs_an_outstanding_tag(channel, held):
    """AB-132: a multiple ack of a tag that was acknowledged before is refused with 406."""
    channel.ack(3)
    channel.refuses(406, "unknown delivery tag 3", m.BasicAck(3, multiple=True))


def test_no_ack_tags_cannot_be_settled(channel, name):
    """AB-132: an ack of a message that was delivered without acknowledgement is refused with 406."""
    channel.queue(name)
    channel.publish("m", name)
    channel.get(name, no_ack=True)
    channel.refuses(406, "unknown delivery tag 1", m.BasicAck(1))


def test_tags_belong_to_their_channel(client, channel, held):
    """AB-133: an ack on another channel is refused with 406."""
    other = client.channel()
    other.refuses(406, "unknown delivery tag 1", m.BasicAck(1))


def test_single_tags_in_any_order(channel, held):
    """AB-132: tags can be acknowledged and requeued one by one in any order."""
    for tag in (3, 1, 5):
        channel.ack(tag)
    channel.nack(4, requeue=True)
    channel.nack(2, requeue=True)
    assert channel.get_all(held) == bodies("b", "d")


def test_requeued_messages_return_to_their_places(channel, held):
    """AB-134: requeued messages return in front of later ones and in the order of publishing, whatever the order of
    nacks."""
    channel.publish("f", held)
    for tag in (4, 2, 5):
        channel.nack(tag, requeue=True)
    channel.reject(1, requeue=True)
    events = [channel.get(held) for _ in range(5)]
    assert [event.body for event in events] == bodies("a", "b", "d", "e", "f")
    assert [event.method.redelivered for event in events] == [True, True, True, True, False]
    channel.nack(0, multiple=True, requeue=True)
    assert channel.get_all(held) == bodies("a", "b", "c", "d", "e", "f")


def test_requeued_message_keeps_headers_and_properties(channel, name):
    """AB-134: a requeued message comes back redelivered, with the same headers and properties."""
    channel.queue(name)
    channel.publish("m", name, headers={"n": 1}, message_id="id", priority=3)
    first = channel.get(name)
    channel.reject(first.tag, requeue=True)
    second = channel.get(name)
    assert second.properties == first.properties
    assert (first.method.redelivered, second.method.redelivered) == (False, True)


def test_redelivered_is_of_the_queue_not_of_the_consumer(client, channel, held):
    """The redelivered flag belongs to the message, whichever consumer gets it (AB-131)."""
    channel.nack(1, requeue=True)
    assert client.channel().get(held).method.redelivered


def test_recover_requeues_everything(channel, held):
    """AB-137: messages of basic.get are requeued too; tags continue to count (AB-130), and the old tags are unknown."""
    channel.publish("f", held)
    channel.get(held)
    channel.call(m.BasicRecover(True))
    channel.consume(held, "again")
    events = channel.deliveries(6)
    assert [event.body for event in events] == bodies("a", "b", "c", "d", "e", "f")
    assert [event.tag for event in events] == [7, 8, 9, 10, 11, 12]
    assert all(event.method.redelivered for event in events)
    channel.refuses(406, "unknown delivery tag 1", m.BasicAck(1))


def test_recover_delivers_to_the_same_consumer_again(channel, name):
    """AB-137: after basic.recover the only consumer receives the message again, redelivered."""
    channel.queue(name)
    channel.consume(name)
    channel.publish("m", name)
    assert not channel.delivery().method.redelivered
    channel.call(m.BasicRecover(True))
    assert channel.delivery().method.redelivered


@pytest.mark.parametrize("end", ["close", "error", "connection", "death"])
def test_end_of_a_channel_requeues(connect, name, end):
    """However a channel ends, its unacknowledged messages are requeued (AB-135)."""
    client = connect()
    channel = client.channel()
    channel.queue(name)
    for letter in "abc":
        channel.publish(letter, name)
    channel.consume(name)
    channel.deliveries(2)
    channel.ack(1)
    if end == "close":
        channel.close()
    elif end == "error":
        channel.refuses(406, "unknown delivery tag 99", m.BasicAck(99))
    elif end == "connection":
        client.close()
    else:
        client.abort()
    other = connect().channel()
    other.consume(name)
    events = other.deliveries(2)
    assert [event.body for event in events] == bodies("b", "c")
    assert events[0].method.redelivered


def test_nothing_is_redelivered_to_a_channel_that_is_closing(client, name):
    """AB-53, AB-54: no delivery comes after close-ok, nor to the next channel with the same number."""
    channel = client.channel(9)
    channel.queue(name)
    channel.consume(name)
    for number in range(300):
        channel.publish(str(number), name)
    channel.delivery()
    channel.close()
    channel = client.channel(9)
    assert channel.quiet(name)
    assert channel.ready(name) == 300


def test_settling_a_lot_at_once(channel, name):
    """A multiple settlement may settle more deliveries than one batch has, with gaps between them (AB-132, AB-134)."""
    channel.queue(name)
    channel.consume(name, "t")
    with channel.client.in_one_piece():
        for number in range(3000):
            channel.publish(str(number), name)
    channel.deliveries(3000)
    channel.cancel("t")
    with channel.client.in_one_piece():
        for tag in range(1, 3001, 3):
            channel.ack(tag)
        channel.nack(0, multiple=True, requeue=True)
    assert channel.get_all(name) == [str(number).encode() for number in range(3000) if number % 3]
