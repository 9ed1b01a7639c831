"""Tables and arrays that are nested in each other, in the headers of messages and in arguments (AB-46)."""

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import MAX_DEPTH, Table
from warren.amqp.properties import FLAG_HEADERS

from ..wire import Refused


def nested(levels, letter="F"):
    value = ("I", 7)
    for _ in range(levels):
        value = (letter, Table((("n", *value),)) if letter == "F" else (value,))
    return Table((("deep", *value),))


def only_deep(headers):
    return headers.without(*[name for name, _, _ in headers if name != "deep"])


@pytest.mark.parametrize("letter", "FA")
@pytest.mark.parametrize("levels", [200, MAX_DEPTH])
def test_deep_headers_arrive_as_they_are(channel, name, levels, letter):
    """Deeply nested headers arrive unchanged, also in a dead letter, whose headers the broker decodes, extends and
    encodes again.
    """
    headers = nested(levels, letter)
    dead = channel.queue(f"{name}-dead")
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.publish("m", name, headers=headers)
    event = channel.get(name)
    assert event.headers == headers
    channel.reject(event.tag, requeue=False)
    (event,) = channel.take(dead, 1)
    assert only_deep(event.headers) == headers
    channel.publish("m", name, headers=Table((*headers, ("CC", "A", (("S", dead.encode()),)))))
    (event,) = channel.take(dead, 1)
    assert only_deep(event.headers) == headers


def test_deep_values_in_the_records_of_deaths(channel, name):
    """A client may write x-death itself, and two equal entries are merged, whatever they contain."""
    dead = channel.queue(f"{name}-dead")
    channel.queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    entry = ("F", Table((("queue", *nested(MAX_DEPTH - 3, "A")[0][1:]),)))
    channel.publish("m", name, headers=Table((("x-death", "A", (entry, entry)),)))
    channel.reject(channel.get(name).tag, requeue=False)
    (event,) = channel.take(dead, 1)
    assert len(event.headers.get("x-death")[1]) == 2


def test_deep_headers_are_routed(channel, name):
    """A headers exchange compares deep values, and a binding with them can be made twice and removed."""
    channel.queue(name)
    channel.exchange(name, "headers")
    deep, other = nested(MAX_DEPTH, "A"), nested(MAX_DEPTH - 1, "A")
    for _ in range(2):
        channel.bind(name, name, "", deep)
    for headers in (deep, other):
        channel.publish("m", "", name, headers=headers)
    channel.expect_ready(name, 1)
    channel.call(m.QueueUnbind(queue=name, exchange=name, arguments=deep))
    channel.publish("m", "", name, headers=deep)
    channel.qos(0)
    assert channel.quiet(name)
    channel.expect_ready(name, 1)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 20_000])
def test_deeper_headers_are_refused(client, channel, witness, broker, name, levels):
    """Headers beyond the limit of nesting close the connection of that client with 502, and no other. RabbitMQ has no
    such limit.
    """
    if broker is None:
        pytest.skip("the limit is warren's")
    value = b"V"
    for _ in range(levels):
        value = b"A" + len(value).to_bytes(4, "big") + value
    headers = b"\x04deep" + value
    props = FLAG_HEADERS.to_bytes(2, "big") + len(headers).to_bytes(4, "big") + headers
    channel.send(m.BasicPublish(routing_key=name), b"m", props)
    with pytest.raises(Refused) as refused:
        channel.wait(m.ChannelCloseOk)
    close = refused.value.close
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (502, "SYNTAX_ERROR - field table: nested deeper than 512 levels")
    assert (close.class_id, close.method_id) == (60, 40)
    witness.qos(0)


@pytest.fixture
def witness(connect):
    """A channel of another client."""
    return connect().channel()
