"""How long a delivery may stay unacknowledged if its consumer or its queue has a timeout of its own (AB-139)."""

from __future__ import annotations

import pytest

from warren.amqp import methods as m

from ..wire import Refused

TIMEOUT = 60
LONG = 600_000


@pytest.fixture
def patient(own_broker):
    """A broker whose timeout is ten minutes, unless a consumer or a queue has another one."""
    return own_broker(consumer_timeout=LONG, channel_tick_interval=20)


def consumed(channel, name, arguments=None, of_queue=None):
    """Declare a queue, and get a message from it that is not acknowledged."""
    channel.queue(name, of_queue)
    channel.publish("msg", name)
    channel.consume(name, arguments=arguments)
    return channel.delivery()


def closes(channel, timeout=TIMEOUT):
    channel.refuses(
        406,
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {timeout} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more",
    )


def stays_open(channel, clock, milliseconds=4 * TIMEOUT):
    """Assert that no error comes in this time. The expiry of a message serves as the clock."""
    bell = clock.queue()
    arguments = {"x-message-ttl": milliseconds, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": bell}
    clock.publish("ring", clock.queue("", arguments))
    clock.take(bell, 1)
    channel.qos(1)
    assert not [event for event in channel.pending if isinstance(event.method, m.ChannelClose)]


def test_a_queue_may_have_a_timeout_of_its_own(connect, patient, name):
    channel = connect(to=patient.url).channel()
    consumed(channel, name, of_queue={"x-consumer-timeout": TIMEOUT})
    closes(channel)


def test_a_policy_gives_queues_a_timeout_at_once(connect, patient, name):
    client = connect(to=patient.url)
    channel = client.channel()
    consumed(channel, name)
    stays_open(channel, client.channel())
    patient.set_policy("impatient", f"^{name}$", {"consumer-timeout": TIMEOUT})
    closes(channel)


def test_a_consumer_may_have_a_timeout_of_its_own(connect, patient, name):
    channel = connect(to=patient.url).channel()
    consumed(channel, name, {"x-consumer-timeout": TIMEOUT})
    closes(channel)


def test_the_smaller_one_of_consumer_and_queue_counts(connect, patient, name):
    channel = connect(to=patient.url).channel()
    consumed(channel, name, {"x-consumer-timeout": TIMEOUT}, {"x-consumer-timeout": 2 * LONG})
    closes(channel)
    other = connect(to=patient.url).channel()
    consumed(other, f"{name}-2", {"x-consumer-timeout": 2 * LONG}, {"x-consumer-timeout": TIMEOUT})
    closes(other)


@pytest.mark.parametrize("longer", [LONG, 0])
def test_a_long_task_gets_more_time_than_others_on_the_same_channel(connect, own_broker, name, longer):
    """A delivery from a queue with a longer timeout, or with 0, which is none, does not end at the node's timeout.
    Later deliveries on the same channel do.
    """
    patient = own_broker(consumer_timeout=TIMEOUT, channel_tick_interval=20)
    client = connect(to=patient.url)
    channel = client.channel()
    consumed(channel, name, of_queue={"x-consumer-timeout": longer})
    stays_open(channel, client.channel())
    consumed(channel, f"{name}-short")
    closes(channel)


def test_a_queue_may_have_a_timeout_on_a_node_without_one(connect, own_broker, name):
    channel = connect(to=own_broker(consumer_timeout=None, channel_tick_interval=20).url).channel()
    consumed(channel, name, of_queue={"x-consumer-timeout": TIMEOUT})
    closes(channel)


def test_the_timeout_of_a_consumer_ends_with_it(connect, own_broker, name):
    """A consumer's own timeout ends with the consumer. The first check comes 1.5 s after the delivery, when the
    consumer is gone.
    """
    client = connect(to=own_broker(consumer_timeout=LONG, channel_tick_interval=1500).url)
    channel = client.channel()
    channel.queue(name)
    channel.publish("msg", name)
    tag = channel.consume(name, arguments={"x-consumer-timeout": 1})
    channel.delivery()
    channel.cancel(tag)
    stays_open(channel, client.channel(), 2000)


def test_an_overdue_delivery_is_found_behind_many_others(connect, own_broker, name):
    """An overdue delivery is found behind many others, which are checked in several turns."""
    patient = own_broker(consumer_timeout=LONG, channel_tick_interval=20, turn_messages=2)
    channel = connect(to=patient.url).channel()
    channel.queue(f"{name}-long", {"x-consumer-timeout": 0})
    channel.consume(f"{name}-long", "long")
    for _ in range(40):
        channel.publish("task", f"{name}-long")
        channel.delivery()
    consumed(channel, name, of_queue={"x-consumer-timeout": TIMEOUT})
    closes(channel)


@pytest.mark.parametrize(("value", "reason"), [(-1, "{value_negative,-1}"), ("soon", "expected integer, got longstr")])
def test_a_wrong_timeout_is_refused(connect, patient, name, value, reason):
    client = connect(to=patient.url)
    with pytest.raises(Refused) as refused:
        client.channel().queue(name, {"x-consumer-timeout": value})
    assert reason in refused.value.close.reply_text
    channel = client.channel()
    channel.queue(name)
    with pytest.raises(Refused) as refused:
        channel.consume(name, arguments={"x-consumer-timeout": value})
    assert reason in refused.value.close.reply_text
