"""Expiry of messages by queue TTL and expiration (AB-94 to AB-98). A dead letter shows when a message expired, so no
test sleeps.
"""

from time import monotonic

import pytest


@pytest.fixture
def mortal(channel, name):
    """`mortal(...)` declares a queue whose dead letters are delivered to this channel under the consumer tag `dead`."""

    def make(**arguments):
        channel.queue(f"{name}-dead")
        channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead", **arguments})
        channel.consume(f"{name}-dead", "dead", no_ack=True)
        return name

    return make


def expired(channel, count):
    """The next `count` dead letters."""
    events = channel.deliveries(count)
    assert all(event.method.consumer_tag == "dead" for event in events)
    return [event.body for event in events]


def test_queue_ttl(channel, mortal):
    """AB-94, AB-95: messages expire in order and never early."""
    queue = mortal(**{"x-message-ttl": 40})
    begun = monotonic()
    channel.publish("a", queue)
    channel.publish("b", queue)
    assert expired(channel, 2) == [b"a", b"b"]
    assert 0.040 <= monotonic() - begun < 5
    assert channel.ready(queue) == 0


@pytest.mark.parametrize(("ttl", "expiration"), [(60_000, "30"), (30, "60000"), (None, "30")])
def test_the_smaller_of_queue_ttl_and_expiration_counts(channel, mortal, ttl, expiration):
    """AB-94: the queue's TTL and the message's expiration both apply, and the smaller one decides."""
    queue = mortal(**({} if ttl is None else {"x-message-ttl": ttl}))
    begun = monotonic()
    channel.publish("m", queue, expiration=expiration)
    assert expired(channel, 1) == [b"m"]
    assert monotonic() - begun >= 0.030


def test_only_the_head_expires(channel, mortal):
    """AB-95: a short-lived message behind a long-lived one stays and counts until it is the head."""
    queue = mortal()
    channel.publish("long", queue)
    channel.publish("short", queue, expiration="1")
    channel.publish("bell", queue, expiration="60")
    channel.expect_ready(queue, 3)
    assert channel.get(queue, no_ack=True).body == b"long"
    assert expired(channel, 2) == [b"short", b"bell"]


def test_expired_message_behind_the_head_still_counts(channel, mortal, name):
    """AB-95: an expired message counts as ready until it becomes the head."""
    queue = mortal()
    channel.queue(
        f"{name}-clock",
        {"x-message-ttl": 60, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"},
    )
    channel.publish("long", queue)
    channel.publish("short", queue, expiration="10")
    channel.publish("60 ms are over", f"{name}-clock")
    assert expired(channel, 1) == [b"60 ms are over"]
    assert channel.ready(queue) == 2


def test_each_message_expires_at_its_own_time(channel, mortal):
    """The timer is set again for each new head, so each message expires at its own time (AB-95)."""
    queue = mortal()
    begun = monotonic()
    for number in (20, 40, 60):
        channel.publish(str(number), queue, expiration=str(number))
    assert expired(channel, 1) == [b"20"]
    assert expired(channel, 2) == [b"40", b"60"]
    assert monotonic() - begun >= 0.060


def test_many_messages_expire_in_order(channel, mortal):
    """AB-95: messages expire in order, also if they are more than the queue expires in one step."""
    queue = mortal(**{"x-message-ttl": 20})
    with channel.client.in_one_piece():
        for number in range(1500):
            channel.publish(str(number), queue)
    assert expired(channel, 1500) == [str(number).encode() for number in range(1500)]


def test_unacknowledged_messages_do_not_expire(channel, mortal, name):
    """AB-97: a message requeued after its time expires at the head and is not delivered."""
    queue = mortal(**{"x-message-ttl": 50})
    channel.queue(
        f"{name}-clock",
        {"x-message-ttl": 80, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"},
    )
    channel.publish("held", queue)
    held = channel.get(queue)
    channel.publish("80 ms are over", f"{name}-clock")
    assert expired(channel, 1) == [b"80 ms are over"]
    channel.nack(held.tag, requeue=True)
    assert expired(channel, 1) == [b"held"]
    assert channel.get(queue) is None


def test_requeued_message_keeps_its_expiry(channel, mortal):
    """AB-94, AB-134: a requeue does not restart the time of a message."""
    queue = mortal(**{"x-message-ttl": 60})
    begun = monotonic()
    channel.publish("m", queue)
    channel.nack(channel.get(queue).tag, requeue=True)
    assert expired(channel, 1) == [b"m"]
    assert monotonic() - begun >= 0.060


def test_ttl_0_without_dead_letter_exchange(channel, name):
    """AB-96: without a dead-letter exchange a message with TTL 0 is dropped and confirmed."""
    channel.queue(name, {"x-message-ttl": 0})
    channel.confirm()
    channel.publish("1", name, mandatory=True)
    assert channel.confirms(1, 1) == ([1], [])
    assert channel.get(name) is None
    assert not channel.pending


def test_ttl_0_with_dead_letter_exchange(channel, mortal):
    """AB-96: with a dead-letter exchange a message with TTL 0 is dead-lettered."""
    queue = mortal(**{"x-message-ttl": 0})
    channel.publish("1", queue)
    assert expired(channel, 1) == [b"1"]


@pytest.mark.parametrize("no_ack", [True, False])
@pytest.mark.parametrize("by", ["queue", "message"])
def test_ttl_0_delivers_to_a_ready_consumer(channel, name, no_ack, by):
    """AB-96: a message with TTL 0 goes to a consumer that can take it, and does not expire."""
    channel.queue(name, {"x-message-ttl": 0} if by == "queue" else {})
    channel.consume(name, no_ack=no_ack)
    for body in ("1", "2", "3"):
        channel.publish(body, name, expiration="0" if by == "message" else None)
    assert channel.bodies(3) == [b"1", b"2", b"3"]


def test_expiration_0_behind_others_waits_to_become_the_head(channel, name):
    """A message with expiration 0 behind others is kept and counted until it becomes the head, and then is delivered to
    nobody (AB-95).
    """
    channel.queue(name)
    channel.publish("a", name)
    channel.publish("b", name, expiration="0")
    channel.publish("c", name)
    channel.expect_ready(name, 3)
    event = channel.get(name, no_ack=True)
    assert (event.body, event.method.message_count) == (b"a", 1)
    assert channel.get_all(name) == [b"c"]


def test_ttl_0_is_not_kept_for_a_consumer_that_is_full(channel, mortal):
    """AB-96: if the only consumer is at its prefetch limit, the message expires at once."""
    queue = mortal(**{"x-message-ttl": 0})
    channel.qos(1)
    channel.consume(queue, "full")
    channel.publish("taken", queue)
    assert channel.delivery().body == b"taken"
    channel.publish("expired", queue)
    assert expired(channel, 1) == [b"expired"]


def test_expiration_is_delivered_unchanged(channel, name):
    """AB-98: a consumer receives the expiration as published, even with a plus sign or leading zeros."""
    channel.queue(name)
    for text in ("60000", "0060000", "+60000"):
        channel.publish("m", name, expiration=text)
        assert channel.get(name, no_ack=True).properties.expiration == text


def test_expired_messages_free_length(channel, mortal):
    """AB-95, AB-101: expired messages make room for new ones in a queue with a length limit."""
    queue = mortal(**{"x-max-length": 1, "x-overflow": "reject-publish", "x-message-ttl": 30})
    channel.confirm()
    channel.publish("1", queue)
    assert channel.confirms(1, 1) == ([1], [])
    assert expired(channel, 1) == [b"1"]
    channel.publish("2", queue)
    assert channel.confirms(2, 2) == ([2], [])
