"""Deduplication as an ordinary client sees it (SP-30), with pika."""

import json
import time
from contextlib import suppress

import pika
import pytest

from warren import BrokerError

DEDUPLICATE = "x-warren-deduplicate"


@pytest.fixture
def channel(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if channel.is_closed:
        channel = connection.channel()
    for queue in ("q", "once", "all", "later"):
        channel.queue_delete(queue)
    channel.exchange_delete("events")
    connection.close()


def publish(channel, body, exchange="", key="q", **properties):
    channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True)


def drained(channel, queue="q"):
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_the_broker_announces_it(channel):
    assert "deduplicate" in channel.connection._impl.server_properties["warren_features"]


def test_a_message_that_is_published_again_is_kept_once(channel):
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    publish(channel, b"1", message_id="1")
    publish(channel, b"2", message_id="2")
    publish(channel, b"1 again", message_id="1")
    publish(channel, b"1 as header", headers={"x-warren-dedup": "1"}, message_id="2")
    publish(channel, b"no id")
    publish(channel, b"no id")
    assert drained(channel) == [b"1", b"2", b"1 as header", b"no id", b"no id"]


def test_each_queue_that_a_message_reaches_decides_by_itself(channel):
    channel.exchange_declare("events", "fanout")
    channel.queue_declare("once", durable=True, arguments={DEDUPLICATE: 100})
    channel.queue_declare("all", durable=True)
    for queue in ("once", "all"):
        channel.queue_bind(queue, "events")
    for _ in range(2):
        publish(channel, b"x" * 10_000, "events", "", message_id="1")
    assert (len(drained(channel, "once")), len(drained(channel, "all"))) == (1, 2)


def test_dead_letters_are_no_duplicates(channel):
    """A message that a consumer rejects comes back by way of a queue that delays it."""
    channel.queue_declare(
        "q",
        durable=True,
        arguments={DEDUPLICATE: 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "later"},
    )
    back = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    channel.queue_declare("later", durable=True, arguments={DEDUPLICATE: 100, **back})
    publish(channel, b"1", message_id="1")
    for _ in range(3):
        method, _, body = next(channel.consume("q", inactivity_timeout=10))
        assert body == b"1"
        channel.basic_reject(method.delivery_tag, requeue=False)


def set_window(own, window, operator=False):
    own.set_policy("once", "^q$", {"deduplicate": window}, apply_to="queues", operator=operator)


@pytest.fixture
def policies(own):
    yield own
    for operator in (False, True):
        with suppress(BrokerError):
            own.clear_policy("once", operator=operator)


def window(channel):
    """The window that the catalogue shows."""
    body = next(
        channel.consume("amq.warren.catalogue", True, arguments={"x-warren-queues": ["q"]}, inactivity_timeout=9)
    )[2]
    channel.cancel()
    return json.loads(body)[0]["dedup"]


def await_window(channel, size):
    """A policy reaches its queues a moment after it was set."""
    deadline = time.monotonic() + 30
    while window(channel) != size:
        assert time.monotonic() < deadline, "the queue does not follow its policy"


def test_a_policy_has_a_queue_deduplicate(channel, policies):
    channel.queue_declare("q", durable=True)
    publish(channel, b"before", message_id="1")
    set_window(policies, 100)
    await_window(channel, 100)
    for body in (b"1", b"1 again"):
        publish(channel, body, message_id="1")
    policies.clear_policy("once")
    await_window(channel, 0)
    publish(channel, b"after", message_id="1")
    assert drained(channel) == [b"before", b"1", b"after"]


def test_the_smallest_of_argument_policy_and_operator_policy_counts(channel, policies):
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    set_window(policies, 50)
    await_window(channel, 50)
    set_window(policies, 200)
    await_window(channel, 100)
    set_window(policies, 20, operator=True)
    await_window(channel, 20)
    policies.clear_policy("once", operator=True)
    await_window(channel, 100)


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_policy_that_deduplicates_does_not_apply_to_other_types(channel, policies, kind):
    set_window(policies, 100)
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": kind})
    assert window(channel) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({DEDUPLICATE: 0}, "expected a number of messages from 1 to 10000000, got 0"),
        ({DEDUPLICATE: 10_000_001}, "expected a number of messages from 1 to 10000000, got 10000001"),
        ({DEDUPLICATE: "many"}, "expected integer, got longstr"),
        ({DEDUPLICATE: 10, "x-warren-shards": 2}, "leave out one of the two arguments"),
        ({DEDUPLICATE: 10, "x-queue-type": "stream"}, "x-warren-deduplicate"),
        ({DEDUPLICATE: 10, "x-queue-type": "quorum"}, "x-warren-deduplicate"),
    ],
)
def test_wrong_arguments_are_refused(channel, arguments, text):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=text) as refused:
        channel.queue_declare("q", durable=True, arguments=arguments)
    assert refused.value.reply_code == 406


def test_a_declaration_with_another_window_is_refused(channel):
    channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 100})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent arg 'x-warren-deduplicate'"):
        channel.queue_declare("q", durable=True, arguments={DEDUPLICATE: 101})
