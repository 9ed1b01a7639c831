"""Direct reply-to (AB-140 to AB-143)."""

import pytest

from warren.amqp import methods as m

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def server(connect, name):
    """A channel of another connection that consumes requests from queue `name`."""
    channel = connect().channel()
    channel.queue(name)
    channel.consume(name, no_ack=True)
    return channel


@pytest.fixture
def asked(channel, server, name):
    """The reply name of a request that `channel` made."""
    channel.consume(REPLY_TO, "replies", no_ack=True)
    channel.publish("request", name, reply_to=REPLY_TO)
    return server.delivery().properties.reply_to


def test_request_and_reply_across_connections(channel, server, asked):
    """A reply has the next delivery tag of its channel and does not use it up (AB-141, AB-142)."""
    assert asked.startswith(REPLY_TO + ".") and len(asked) < 200
    server.publish("one", asked)
    server.publish(b"x" * 200_000, asked, correlation_id="c")
    first, second = channel.deliveries(2)
    assert first.method == m.BasicDeliver("replies", 1, False, "", asked)
    assert second.method == m.BasicDeliver("replies", 1, False, "", asked)
    assert (first.body, second.body, second.properties.correlation_id) == (b"one", b"x" * 200_000, "c")


def test_reply_name_stays_the_same(channel, server, asked, name):
    """AB-141: the name stays the same for the life of the consumer; another channel gets another name."""
    channel.publish("again", name, reply_to=REPLY_TO)
    assert server.delivery().properties.reply_to == asked
    other = channel.client.channel()
    other.consume(REPLY_TO, no_ack=True)
    other.publish("mine", name, reply_to=REPLY_TO)
    assert server.delivery().properties.reply_to != asked


def test_other_reply_to_values_are_left_alone(channel, server, name):
    """A reply-to is replaced only if it is exactly `amq.rabbitmq.reply-to` (AB-141)."""
    for text in ("amq.rabbitmq.reply-to.mine", "amq.rabbitmq.reply-t", "queue"):
        channel.publish("request", name, reply_to=text)
        assert server.delivery().properties.reply_to == text


def test_a_reply_is_not_routed(channel, server, asked):
    """A mandatory reply is delivered and returned as well, because it is not routed to a queue (AB-142)."""
    server.publish("reply", asked, mandatory=True)
    assert channel.delivery().body == b"reply"
    assert server.wait().method == m.BasicReturn(312, "NO_ROUTE", "", asked)


def test_a_reply_is_confirmed(channel, server, asked):
    """AB-111: replies are confirmed like unroutable messages."""
    server.confirm()
    server.publish("reply", asked)
    assert server.confirms(1, 1) == ([1], [])
    assert channel.delivery().body == b"reply"


def test_reply_by_carbon_copy(channel, server, asked, name):
    """AB-75, AB-142: keys in CC reach reply consumers as well as queues."""
    server.publish("both", name, headers={"CC": [asked]})
    assert channel.delivery().body == b"both"
    assert server.delivery().body == b"both"


def test_only_the_default_exchange_replies(channel, server, asked):
    """AB-142: a reply reaches the requester through the default exchange only."""
    server.publish("lost", asked, "amq.direct")
    server.publish("found", asked)
    assert channel.delivery().body == b"found"


def test_wrong_keys_vanish(channel, server, asked, broker):
    """A key with a changed last letter reaches no consumer. In warren neither does a name without a key, which closes
    the publishing channel in RabbitMQ 3.10 (AB-142).
    """
    wrong = [asked[:-1] + ("A" if asked[-1] != "A" else "B")]
    if broker:
        wrong += [asked[:-4], REPLY_TO + ".", REPLY_TO + ".x", REPLY_TO + ".x.y", asked.replace(".", "")]
    for key in wrong:
        server.publish("lost", key)
    server.publish("found", asked)
    assert channel.delivery().body == b"found"
    assert not channel.pending


def test_replies_vanish_with_their_channel(channel, server, asked, connect):
    """AB-142, AB-143: when the requester's channel is closed, a mandatory reply is returned, and its queue name does
    not exist.
    """
    channel.close()
    server.publish("lost", asked, mandatory=True)
    assert isinstance(server.wait().method, m.BasicReturn)
    server.refuses(404, f"no queue '{asked}' in vhost '/'", m.QueueDeclare(queue=asked, passive=True))


def test_cancelling_ends_it(channel, server, asked, name):
    """After its cancel the channel may consume replies again, with the same consumer tag or another (AB-143)."""
    channel.cancel("replies")
    server.publish("lost", asked)
    server.ready(name)
    channel.consume(REPLY_TO, "replies", no_ack=True)
    assert not channel.pending
    channel.publish("request", name, reply_to=REPLY_TO)
    server.publish("found", server.delivery().properties.reply_to)
    assert channel.delivery().body == b"found"


def test_needs_no_ack(channel):
    """AB-140: a reply consumer with acknowledgements is refused with 406."""
    channel.refuses(406, "reply consumer cannot acknowledge", m.BasicConsume(queue=REPLY_TO))


def test_one_consumer_per_channel(channel):
    """AB-140: a second reply consumer on a channel is refused with 406."""
    channel.consume(REPLY_TO, no_ack=True)
    channel.refuses(406, "reply consumer already set", m.BasicConsume(queue=REPLY_TO, no_ack=True))


def test_its_tag_is_taken(channel, name):
    """The consumer tag of a reply consumer is taken, like that of any other (amqp-broker section 7)."""
    channel.queue(name)
    channel.consume(name, "t")
    channel.refuses(
        530, "attempt to reuse consumer tag 't'", m.BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True)
    )


def test_publishing_needs_the_consumer_on_that_channel(channel, client, name):
    """AB-141: a request from a channel without a reply consumer is refused with 406, even if another one has it."""
    channel.consume(REPLY_TO, no_ack=True)
    other = client.channel()
    other.send(m.BasicPublish(routing_key=name), b"", b"\x02\x00" + bytes([len(REPLY_TO)]) + REPLY_TO.encode())
    other.refuses(406, "fast reply consumer does not exist")


def test_declaring_the_name(channel, server, asked):
    """AB-143: declaring a reply queue that has a consumer succeeds; with another key in its name it is not found."""
    assert server.declare(REPLY_TO) == m.QueueDeclareOk(REPLY_TO, 0, 1)
    assert server.declare(asked) == m.QueueDeclareOk(asked, 0, 1)
    assert server.declare(asked, passive=True) == m.QueueDeclareOk(asked, 0, 1)
    wrong = asked[:-1] + ("A" if asked[-1] != "A" else "B")
    server.refuses(404, f"no queue '{wrong}' in vhost '/'", m.QueueDeclare(queue=wrong))


def test_ack_of_a_reply_is_unknown(channel, server, asked):
    """AB-140, AB-142: replies cannot be acknowledged."""
    server.publish("reply", asked)
    tag = channel.delivery().tag
    channel.refuses(406, f"unknown delivery tag {tag}", m.BasicAck(tag))
