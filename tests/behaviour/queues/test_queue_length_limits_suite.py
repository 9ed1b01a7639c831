"""queue_length_limits_SUITE: a test for each case (AB-99 to AB-102), and the rest of amqp-broker section 9.3."""

import pytest

DROP_HEAD = [{}, {"x-overflow": "drop-head"}]


@pytest.mark.parametrize("overflow", DROP_HEAD, ids=["max_length_default", "max_length_drop_head"])
def test_max_length(channel, name, overflow):
    """Limit 1: the newest survives, and its publishers are confirmed (AB-100)."""
    channel.queue(name, {"x-max-length": 1, **overflow})
    channel.confirm()
    for body in ("msg1", "msg2", "msg3"):
        channel.publish(body, name)
    assert channel.confirms(1, 3) == ([1, 2, 3], [])
    assert channel.get_all(name) == [b"msg3"]


@pytest.mark.parametrize("overflow", DROP_HEAD, ids=["max_length_bytes_default", "max_length_bytes_drop_head"])
def test_max_length_bytes(channel, name, overflow):
    """100 bytes, bodies of 80: the newest survives (AB-99, AB-100)."""
    channel.queue(name, {"x-max-length-bytes": 100, **overflow})
    channel.confirm()
    for letter in "abc":
        channel.publish(letter * 80, name)
    assert channel.confirms(1, 3) == ([1, 2, 3], [])
    assert channel.get_all(name) == [b"c" * 80]


@pytest.mark.parametrize(
    ("limit", "size"),
    [({"x-max-length": 1}, 4), ({"x-max-length-bytes": 100}, 80)],
    ids=["max_length_reject_confirm", "max_length_bytes_reject_confirm"],
)
def test_reject_confirm(channel, name, limit, size):
    """The oldest survives, refused publishes are nacked; after a get publishing works again (AB-101)."""
    channel.queue(name, {**limit, "x-overflow": "reject-publish"})
    channel.confirm()
    for number, letter in enumerate("abc", 1):
        channel.publish(letter * size, name)
        assert channel.confirms(number, number) == (([1], []) if number == 1 else ([], [number]))
    assert channel.get_all(name) == [b"a" * size]
    channel.publish("d" * size, name)
    assert channel.confirms(4, 4) == ([4], [])
    assert channel.get_all(name) == [b"d" * size]


@pytest.mark.parametrize(
    ("limit", "size"),
    [({"x-max-length": 1}, 4), ({"x-max-length-bytes": 100}, 80)],
    ids=["max_length_drop_publish", "max_length_bytes_drop_publish"],
)
def test_drop_publish(channel, name, limit, size):
    """Without confirms a full queue drops new messages silently (AB-101)."""
    channel.queue(name, {**limit, "x-overflow": "reject-publish"})
    for letter in "abc":
        channel.publish(letter * size, name)
    assert channel.get_all(name) == [b"a" * size]
    channel.publish("d" * size, name)
    assert channel.get_all(name) == [b"d" * size]


def test_max_length_drop_publish_requeue(channel, name):
    """Requeueing into a full queue keeps both messages, the requeued one first (AB-102)."""
    channel.queue(name, {"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.publish("msg1", name)
    held = channel.get(name)
    channel.publish("msg2", name)
    channel.expect_ready(name, 1)
    channel.nack(held.tag, requeue=True)
    assert channel.get_all(name) == [b"msg1", b"msg2"]


# --- the rest of amqp-broker section 9.3 ------------------------------------------------------------


def test_length_counts_ready_messages_only(channel, name):
    """Unacknowledged messages do not count in the length (AB-99)."""
    channel.queue(name, {"x-max-length": 2})
    channel.publish("1", name)
    channel.publish("2", name)
    channel.get(name)
    channel.publish("3", name)
    assert channel.get_all(name) == [b"2", b"3"]


def test_bytes_count_bodies_only(channel, name):
    """Only bodies count in the length in bytes, not headers (AB-99)."""
    channel.queue(name, {"x-max-length-bytes": 10})
    channel.publish("12345", name, headers={"long": "x" * 100})
    channel.publish("67890", name, headers={"long": "x" * 100})
    assert channel.get_all(name) == [b"12345", b"67890"]


def test_either_limit_overflows(channel, name):
    """AB-99: with both limits, each one alone drops messages."""
    channel.queue(name, {"x-max-length": 2, "x-max-length-bytes": 10})
    for body in ("a" * 3, "b" * 3, "c" * 3):
        channel.publish(body, name)
    assert channel.get_all(name) == [b"bbb", b"ccc"]
    channel.publish("d" * 6, name)
    channel.publish("e" * 6, name)
    assert channel.get_all(name) == [b"eeeeee"]


@pytest.mark.parametrize("limit", [{"x-max-length": 0}, {"x-max-length-bytes": 2}])
def test_new_message_itself_may_be_dropped(channel, name, limit):
    """A new message may be dropped itself, by a limit of 0 or because it is larger than the limit in bytes; it is
    confirmed (AB-100).
    """
    channel.queue(name, limit)
    channel.confirm()
    channel.publish("abc", name)
    assert channel.confirms(1, 1) == ([1], [])
    assert channel.get(name) is None


def test_limit_0_hands_over_to_a_ready_consumer(channel, name):
    """With a limit of 0 a message goes directly to a ready consumer, and so is never in the queue (AB-100, AB-123)."""
    channel.queue(name, {"x-max-length": 0})
    channel.consume(name, no_ack=True)
    channel.publish("1", name)
    assert channel.delivery().body == b"1"


def test_reject_publish_refuses_though_a_consumer_is_ready(channel, name):
    """With reject-publish the limit is checked before a message could go to a ready consumer (AB-101)."""
    channel.queue(name, {"x-max-length": 0, "x-overflow": "reject-publish"})
    channel.consume(name, no_ack=True)
    channel.confirm()
    channel.publish("1", name)
    assert channel.confirms(1, 1) == ([], [1])
    assert channel.quiet(name)


def test_requeue_may_drop_heads(channel, name):
    """AB-102: under drop-head a requeue may exceed the limit too."""
    channel.queue(name, {"x-max-length": 1})
    channel.publish("1", name)
    held = channel.get(name)
    channel.publish("2", name)
    channel.expect_ready(name, 1)
    channel.nack(held.tag, requeue=True)
    assert channel.get_all(name) == [b"2"]


def test_end_of_a_channel_may_drop_heads(client, name):
    """The messages that a channel's end requeues may exceed the limit, and then the head is dropped (AB-102)."""
    channel, other = client.channel(), client.channel()
    channel.queue(name, {"x-max-length": 2})
    channel.publish("1", name)
    channel.get(name)
    other.fill(name, "2", "3")
    channel.close()
    assert other.get_all(name) == [b"2", b"3"]


def test_refusal_by_one_queue_nacks_the_message(channel, name):
    """A message that one queue refuses is nacked, although another queue has taken it (AB-111)."""
    channel.exchange(name, "fanout")
    channel.queue(f"{name}-full", {"x-max-length": 0, "x-overflow": "reject-publish"})
    channel.queue(f"{name}-open")
    channel.bind(f"{name}-full", name)
    channel.bind(f"{name}-open", name)
    channel.confirm()
    channel.publish("1", "", name)
    assert channel.confirms(1, 1) == ([], [1])
    assert channel.get_all(f"{name}-open") == [b"1"]


def test_a_run_of_publishes_fills_up_to_the_limit(channel, name):
    """AB-101: of publishes that arrive together the first are kept, and the rest are refused."""
    channel.queue(name, {"x-max-length": 7, "x-overflow": "reject-publish"})
    channel.confirm()
    with channel.client.in_one_piece():
        for number in range(20):
            channel.publish(f"{number:02}", name)
    assert channel.confirms(1, 20) == (list(range(1, 8)), list(range(8, 21)))
    assert channel.get_all(name) == [f"{number:02}".encode() for number in range(7)]


def test_a_run_of_publishes_drops_all_but_the_last(channel, name):
    """AB-100: of publishes that arrive together the last are kept."""
    channel.queue(name, {"x-max-length-bytes": 6})
    with channel.client.in_one_piece():
        for number in range(20):
            channel.publish(f"{number:02}", name)
    assert channel.get_all(name) == [b"17", b"18", b"19"]


def test_an_ack_makes_room_for_the_publish_behind_it(channel, name):
    """An ack lets the consumer have the head at once, so that the next publish does not drop it (AB-100, AB-129)."""
    channel.queue(name, {"x-max-length": 1})
    channel.qos(1)
    channel.consume(name)
    channel.publish("1", name)
    tag = channel.delivery().tag
    channel.fill(name, "2")
    with channel.client.in_one_piece():
        channel.ack(tag)
        channel.publish("3", name)
    delivery = channel.delivery()
    assert delivery.body == b"2"
    channel.ack(delivery.tag)
    assert channel.delivery().body == b"3"


def test_an_ack_lets_a_full_queue_take_the_publish_behind_it(channel, name):
    """With reject-publish the publish behind an ack is not refused, because the head has gone to the consumer (AB-101,
    AB-129).
    """
    channel.queue(name, {"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.qos(1)
    channel.consume(name)
    channel.publish("1", name)
    tag = channel.delivery().tag
    channel.fill(name, "2")
    channel.confirm()
    with channel.client.in_one_piece():
        channel.ack(tag)
        channel.publish("3", name)
    assert channel.confirms(1, 1) == ([1], [])


def test_an_ack_makes_room_for_the_requeue_behind_it(channel, name):
    """What an ack lets the consumer have does not count when a requeue behind the ack meets the limit (AB-102,
    AB-129).
    """
    channel.queue(name, {"x-max-length": 1})
    channel.qos(1)
    channel.consume(name)
    channel.publish("1", name)
    held = channel.delivery()
    channel.fill(name, "2")
    got = channel.get(name)
    channel.fill(name, "3")
    with channel.client.in_one_piece():
        channel.ack(held.tag)
        channel.nack(got.tag, requeue=True)
    assert channel.delivery().body == b"3"
    assert channel.get_all(name) == [b"2"]
