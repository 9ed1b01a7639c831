"""consumer_timeout_SUITE: a test for each of its cases (AB-139)."""

import pytest

from warren.amqp import methods as m

from ..wire import CAPABILITIES

TIMEOUT = 60
TEXT = (
    "delivery acknowledgement on channel {} timed out. Timeout value used: 60 ms. "
    "This timeout value can be configured, see consumers doc guide to learn more"
)


@pytest.fixture
def impatient(own_broker):
    """The URL of a broker that waits 60 ms for acknowledgements."""
    return own_broker(consumer_timeout=TIMEOUT, channel_tick_interval=20).url


def times_out(channel, name):
    """Assert that the broker closes the channel without method ids, requeues the message, and leaves the connection
    open.
    """
    channel.refuses(406, TEXT.format(channel.number))
    again = channel.client.channel()
    event = again.get(name)
    assert (event.body, event.method.redelivered) == (b"msg", True)
    again.ack(event.tag)


def test_consumer_timeout(connect, impatient, name):
    """An unacknowledged delivery closes the channel after the timeout, not the connection."""
    channel = connect(to=impatient).channel()
    channel.queue(name)
    channel.consume(name)
    channel.publish("msg", name)
    assert channel.delivery().body == b"msg"
    times_out(channel, name)


def test_consumer_timeout_basic_get(connect, impatient, name):
    """An unacknowledged message of basic.get closes the channel after the timeout as well."""
    channel = connect(to=impatient).channel()
    channel.queue(name)
    channel.publish("msg", name)
    channel.get(name)
    times_out(channel, name)


def test_consumer_timeout_no_basic_cancel_capability(connect, impatient, name):
    """The channel is closed as well if its client lacks the capability for cancel notifications."""
    channel = connect(to=impatient, capabilities={**CAPABILITIES, "consumer_cancel_notify": False}).channel()
    channel.queue(name)
    channel.consume(name)
    channel.publish("msg", name)
    channel.delivery()
    times_out(channel, name)


def test_acknowledging_in_time_keeps_the_channel(connect, own_broker, impatient, name):
    """The timeout counts from the oldest unacknowledged delivery, and deliveries without acknowledgement do not count
    (AB-139). The expiry of a queue serves as the clock.
    """
    client = connect(to=impatient)
    channel, clock = client.channel(), client.channel()
    channel.queue(name)
    channel.publish("msg", name)
    channel.ack(channel.get(name).tag)
    channel.consume(name, no_ack=True)
    channel.publish("msg", name)
    channel.delivery()
    clock.queue(f"{name}-bell")
    clock.queue(
        f"{name}-clock",
        {"x-message-ttl": 3 * TIMEOUT, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-bell"},
    )
    clock.publish("ring", f"{name}-clock")
    clock.take(f"{name}-bell", 1)
    channel.qos(1)
    assert not [event for event in channel.pending if isinstance(event.method, m.ChannelClose)]


def test_timeout_can_be_off(connect, own_broker, name):
    """amqp-broker section 1: without a consumer timeout a message may stay unacknowledged for longer than others
    expire.
    """
    channel = connect(to=own_broker(consumer_timeout=None, channel_tick_interval=10).url).channel()
    channel.queue(f"{name}-dead")
    channel.queue(
        name, {"x-message-ttl": 60, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    )
    channel.publish("held", name)
    channel.publish("expires", name)
    held = channel.get(name)
    assert channel.take(f"{name}-dead", 1)[0].body == b"expires"
    channel.ack(held.tag)
    channel.qos(1)
