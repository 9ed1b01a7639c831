"""The prefetch size of basic.qos on a broker whose setting `qos_prefetch_size` is true (QP-117)."""

import os

import pytest

from warren import Broker
from warren.amqp import methods as m

from ..wire import table

if "WARREN_TEST_URL" in os.environ:
    pytest.skip("RabbitMQ refuses every prefetch size", allow_module_level=True)


@pytest.fixture(scope="module")
def broker():
    with Broker(port=0, data_dir=False, qos_prefetch_size=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(broker):
    return broker.url


@pytest.fixture
def connect(url, connect):
    return lambda: connect(to=url)


def filled(channel, name, *sizes):
    channel.queue(name)
    for number, size in enumerate(sizes):
        channel.publish(str(number).ljust(size), name)
    channel.expect_ready(name, len(sizes))
    return name


def numbers(channel, count):
    return [int(body) for body in channel.bodies(count)]


def test_later_consumers_hold_no_more_bytes(channel, name):
    """A consumer that comes after basic.qos holds no more bytes than the window. A message that fits is delivered; a
    larger one waits until the consumer holds nothing.
    """
    queue = filled(channel, name, 40, 60, 1, 500, 1)
    channel.call(m.BasicQos(100, 0))
    channel.consume(queue)
    assert numbers(channel, 2) == [0, 1]
    assert channel.quiet(queue)
    channel.ack(1)
    assert numbers(channel, 1) == [2]
    assert channel.quiet(queue)
    channel.ack(3, multiple=True)
    assert numbers(channel, 1) == [3]
    assert channel.quiet(queue)
    channel.ack(4)
    assert numbers(channel, 1) == [4]


def test_the_smaller_limit_counts(channel, name):
    queue = filled(channel, name, 40, 40, 40)
    channel.call(m.BasicQos(1000, 0))
    channel.consume(queue, arguments={"x-max-unacked-bytes": 50})
    assert numbers(channel, 1) == [0]
    assert channel.quiet(queue)


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize(("value", "letter"), [("many", "longstr"), ([], "array"), (1.5, "double")])
def test_a_limit_of_another_type_is_refused(channel, name, size, value, letter):
    """A consumer's limit that is no integer is refused with 406, with a prefetch size and without."""
    channel.queue(name)
    channel.call(m.BasicQos(size, 0))
    channel.refuses(
        406,
        f"invalid arg 'x-max-unacked-bytes' for queue '{name}' in vhost '/': \"expected integer, got {letter}\"",
        m.BasicConsume(queue=name, arguments=table({"x-max-unacked-bytes": value})),
    )


def test_count_and_size_hold_together(channel, name):
    queue = filled(channel, name, 1, 1, 1)
    channel.call(m.BasicQos(1000, 2))
    channel.consume(queue)
    assert numbers(channel, 2) == [0, 1]
    assert channel.quiet(queue)


def test_qos_without_a_size_ends_the_limit_for_later_consumers(channel, name):
    queue = filled(channel, name, 60, 60, 60)
    channel.call(m.BasicQos(100, 0))
    channel.call(m.BasicQos(0, 0))
    channel.consume(queue)
    assert numbers(channel, 3) == [0, 1, 2]


def test_consumers_without_acknowledgements_hold_nothing(channel, name):
    queue = filled(channel, name, 60, 60, 60)
    channel.call(m.BasicQos(100, 0))
    channel.consume(queue, no_ack=True)
    assert numbers(channel, 3) == [0, 1, 2]


def test_a_channel_cannot_have_one(channel):
    text = "prefetch_size!=0 (7) with global=true: only each consumer can have a limit of bytes"
    channel.refuses(540, text, m.BasicQos(7, 0, True))
