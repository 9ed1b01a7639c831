"""What a turn costs that handles one message with as many headers as fit into a frame."""

from __future__ import annotations

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import table_from
from warren.amqp.frames import build_content, method_frame
from warren.amqp.properties import Properties, encode_properties

from .metered_broker import broker, client, metered_broker

# Importing the fixtures makes them available in this module.
__all__ = ["broker", "client", "metered_broker"]

#: How many headers the message has.
MANY = 9_000


@pytest.fixture
def turns(metered_broker):
    """The meter without the bound of the other tests: these tests compare turns by their number of headers."""
    metered_broker[1].forget()
    return metered_broker[1]


@pytest.fixture
def channel(client):
    channel = client.channel()
    channel.confirm()
    return channel


def publish(channel, exchange, key, **more):
    headers = table_from({**{f"h{number:04}": number for number in range(MANY)}, **more})
    content = build_content(channel.number, encode_properties(Properties(headers=headers)), b"x", 131_072)
    channel.client.write(method_frame(channel.number, m.BasicPublish(0, exchange, key)) + content)
    channel.wait(m.BasicAck)


def assert_delivered(channel, queue="q"):
    assert channel.get_all(queue) == [b"x"]
    channel.delete(queue)


def test_headers_that_decide_nothing_are_not_decoded(channel, turns):
    """Reading them costs a call each, in the connection."""
    channel.queue("q")
    publish(channel, "", "q")
    assert turns.most.calls < 1.1 * MANY, turns.most
    assert_delivered(channel)


def test_headers_are_decoded_once_for_a_headers_exchange(channel, turns):
    """Only those are compared that a binding has among its arguments."""
    channel.queue("q")
    channel.exchange("x", "headers")
    channel.bind("q", "x", arguments={"h0007": 7})
    publish(channel, "x", "")
    assert turns.most.calls < 3.1 * MANY, turns.most
    assert_delivered(channel)
    channel.call(m.ExchangeDelete(exchange="x"))


def test_headers_are_decoded_once_for_further_routing_keys(channel, turns):
    channel.queue("q")
    publish(channel, "", "elsewhere", CC=["q"])
    assert turns.most.calls < 3.1 * MANY, turns.most
    assert_delivered(channel)


def test_headers_of_a_dead_letter_are_sorted_once(channel, turns):
    """They are decoded, changed, sorted and encoded, which takes 8 ms for a hundred kilobytes of headers."""
    channel.queue("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 0}
    channel.queue("q", arguments=arguments)
    publish(channel, "", "q")
    assert turns.most.calls < 17 * MANY, turns.most
    channel.delete("q")
    assert_delivered(channel, "dead")
