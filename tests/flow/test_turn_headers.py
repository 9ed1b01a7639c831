"""The cost of a turn that handles one message with as many headers as fit into a frame."""

from __future__ import annotations

import functools

import pytest

from warren.actors.queue.master.dead_letters.dead_letterer import DeadLetterer
from warren.actors.queue.master.dead_letters.death_steps import FIRST_BATCH
from warren.amqp import methods as m
from warren.amqp.fields import Table, table_from
from warren.amqp.frames import build_content, method_frame
from warren.amqp.properties import Properties, encode_properties

from .metered_broker import broker, client, metered_broker

# An imported fixture is available in this module.
__all__ = ["broker", "client", "metered_broker"]

#: How many headers the message has.
MANY = 9_000
#: Calls that a turn makes however many headers the message has.
FEW = MANY // 10
#: How many messages die at the same time.
DYING = 100


@pytest.fixture
def turns(metered_broker):
    """The meter without the bound of other tests, because these tests compare turns by their number of headers."""
    metered_broker[1].forget()
    return metered_broker[1]


@pytest.fixture
def channel(client):
    channel = client.channel()
    channel.confirm()
    return channel


@functools.cache
def many_headers():
    return table_from({f"h{number:04}": number for number in range(MANY)})


def publish(channel, exchange, key, expiration=None, **more):
    headers = Table(many_headers() + table_from(more))
    content = build_content(
        channel.number, encode_properties(Properties(headers=headers, expiration=expiration)), b"x", 131_072
    )
    channel.client.write(method_frame(channel.number, m.BasicPublish(0, exchange, key)) + content)
    channel.wait(m.BasicAck)


def assert_delivered(channel, queue="q"):
    assert channel.get_all(queue) == [b"x"]
    channel.delete(queue)


def test_headers_that_decide_nothing_are_not_decoded(channel, turns):
    """Headers that nothing depends on are not decoded; the connection checks all of them with one call."""
    channel.queue("q")
    publish(channel, "", "q")
    assert turns.most.calls < FEW, turns.most
    assert_delivered(channel)


def test_a_headers_exchange_decodes_those_that_bindings_name(channel, turns):
    channel.queue("q")
    channel.exchange("x", "headers")
    channel.bind("q", "x", arguments={"h0007": 7})
    publish(channel, "x", "")
    assert turns.most.calls < FEW, turns.most
    assert_delivered(channel)
    channel.call(m.ExchangeDelete(exchange="x"))


def test_further_routing_keys_decode_no_other_headers(channel, turns):
    """With CC or BCC only these headers are decoded. BCC is cut out, and the others stay as they are."""
    channel.queue("q")
    channel.queue("p")
    publish(channel, "", "elsewhere", CC=["q"], BCC=["p"])
    assert turns.most.calls < FEW, turns.most
    for queue in "pq":
        channel.send(m.BasicGet(queue=queue))
        headers = channel.wait(m.BasicGetOk).headers
        assert headers.get("CC") == ("A", (("S", b"q"),)) and headers.get("BCC") is None
        assert [entry for entry in headers if entry[0] != "CC"] == list(many_headers())
        channel.delete(queue)


def test_a_death_decodes_no_other_headers(channel, turns):
    channel.queue("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 0}
    channel.queue("q", arguments=arguments)
    publish(channel, "", "q")
    assert turns.most.calls < FEW, turns.most
    channel.delete("q")
    channel.send(m.BasicGet(queue="dead"))
    headers = channel.wait(m.BasicGetOk).headers
    changed = ["x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"]
    assert [entry[0] for entry in headers][:4] == changed
    assert headers[4:] == many_headers()
    channel.delete("dead")


@pytest.mark.parametrize("way", ["expired", "rejected", "maxlen"])
def test_large_messages_die_a_few_in_a_turn(broker, channel, way):
    """Large messages die a few in a turn, because the broker copies each and searches its headers, which takes up to
    0.3 ms.
    """
    channel.queue("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue("q", arguments=arguments)
    if way == "expired":
        # The messages behind this one expire when it has left, and so all at once.
        channel.publish("head", "q")
        channel.wait(m.BasicAck)
    for number in range(DYING):
        publish(channel, "", "q", "1" if way == "expired" else None, number=number)
    if way == "rejected":
        channel.call(m.BasicConsume(queue="q"))
        for _ in range(DYING):
            last = channel.wait(m.BasicDeliver)
    sizes = []
    remove = DeadLetterer.remove

    def recorded(letterer, reason, messages):
        sizes.append(len(messages))
        return remove(letterer, reason, messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetterer, "remove", recorded)
        if way == "rejected":
            channel.send(m.BasicNack(last.method.delivery_tag, True, False))
        elif way == "expired":
            assert channel.get("q").body == b"head"
        else:
            broker.set_policy("die", "^q$", {"max-length": 0})
        while channel.call(m.QueueDeclare(queue="dead", passive=True)).message_count < DYING:
            pass
    assert sum(sizes) == DYING and max(sizes) <= 2 * FIRST_BATCH, sizes
    if way == "maxlen":
        broker.clear_policy("die")
    channel.delete("q")
    channel.delete("dead")
