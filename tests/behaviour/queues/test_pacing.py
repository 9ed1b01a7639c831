"""A queue that a policy paces, seen by clients."""

import time

import pika
import pytest

from warren import Broker

PATIENCE = 300.0


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def channel(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def pace(broker, name, **keys):
    definition = {f"pace-{key.replace('_', '-')}": value for key, value in keys.items()}
    broker.set_policy(name, f"^{name}$", definition, apply_to="queues")


def test_burst_is_spread(broker, channel):
    """20 messages that come together take 0.4 s at 50 a second (QP-90)."""
    pace(broker, "spread", rate=50)
    channel.queue_declare("spread")
    began = time.monotonic()
    for number in range(20):
        channel.basic_publish("", "spread", b"%d" % number)
    got = []
    channel.basic_consume("spread", lambda ch, method, props, body: got.append(int(body)), auto_ack=True)
    while len(got) < 20 and time.monotonic() < began + PATIENCE:
        channel.connection.process_data_events(time_limit=1)
    assert got == list(range(20))
    assert time.monotonic() - began > 0.37


def test_message_that_would_wait_too_long_is_refused(broker, channel):
    """A message that would wait too long is refused: here at one an hour, with a longest wait of a minute (QP-102)."""
    pace(broker, "refusing", rate=1, period_ms=3_600_000, max_wait_ms=60_000, overflow="nack")
    channel.queue_declare("refusing")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "refusing", b"body")
    assert channel.queue_declare("refusing", passive=True).method.message_count == 0


def test_message_that_would_wait_too_long_becomes_a_dead_letter(broker, channel):
    """With the overflow `dead-letter`, a message that would wait too long becomes a dead letter with the reason `paced`
    (QP-102).
    """
    definition = {
        "pace-rate": 1,
        "pace-period-ms": 3_600_000,
        "pace-overflow": "dead-letter",
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "late",
    }
    broker.set_policy("dying", "^dying$", definition, apply_to="queues")
    channel.queue_declare("dying")
    channel.queue_declare("late")
    channel.basic_publish("", "dying", b"body")
    deadline = time.monotonic() + PATIENCE
    while (found := channel.basic_get("late", auto_ack=True))[0] is None and time.monotonic() < deadline:
        time.sleep(0.02)
    _, properties, body = found
    assert body == b"body"
    assert properties.headers["x-death"][0]["reason"] == "paced"


def test_each_group_of_consumers_has_the_rate(broker, channel):
    """Two consumers of one consumer group share one message an hour and its burst of 3; another consumer group has its
    own.
    """
    pace(broker, "grouped", rate=1, period_ms=3_600_000, burst=3, scope="group")
    channel.queue_declare("grouped")
    got = {"a1": 0, "a2": 0, "b": 0}

    def count(ch, method, props, body):
        got[method.consumer_tag] += 1

    for tag in got:
        arguments = {"x-consumer-group": tag[0]}
        channel.basic_consume("grouped", count, auto_ack=True, consumer_tag=tag, arguments=arguments)
    for _ in range(10):
        channel.basic_publish("", "grouped", b"body")
    channel.connection.process_data_events(time_limit=0.2)
    assert got == {"a1": 0, "a2": 0, "b": 0}, "a clock begins with the present"
    pace(broker, "grouped", rate=10, period_ms=1000, scope="group")
    deadline = time.monotonic() + PATIENCE
    while sum(got.values()) < 10 and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=1)
    assert got["a1"] + got["a2"] == pytest.approx(5, abs=1)
    assert got["b"] == pytest.approx(5, abs=1)


def test_name_of_a_group_is_a_text(channel):
    channel.queue_declare("strict")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="x-consumer-group"):
        channel.basic_consume("strict", lambda *_: None, arguments={"x-consumer-group": 1})


def test_get_is_not_paced(broker, channel):
    pace(broker, "got", rate=1, period_ms=3_600_000)
    channel.queue_declare("got")
    channel.basic_publish("", "got", b"body")
    assert channel.basic_get("got", auto_ack=True)[2] == b"body"


def test_policy_in_force_at_once(broker, channel):
    """A queue that waits for its next slot delivers as soon as the policy is gone."""
    pace(broker, "held", rate=1, period_ms=3_600_000)
    channel.queue_declare("held")
    channel.basic_publish("", "held", b"body")
    got = []
    channel.basic_consume("held", lambda ch, method, props, body: got.append(body), auto_ack=True)
    channel.connection.process_data_events(time_limit=0.1)
    assert got == []
    broker.clear_policy("held")
    deadline = time.monotonic() + PATIENCE
    while not got and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=1)
    assert got == [b"body"]
