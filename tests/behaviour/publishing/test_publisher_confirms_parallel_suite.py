"""publisher_confirms_parallel_SUITE: a test for each of its single-node cases (AB-110 to AB-112), and AB-113."""

import pytest

from warren.amqp import methods as m


@pytest.fixture
def confirming(channel, name):
    """A channel in confirm mode, on which durable queue `name` is declared."""
    channel.queue(name, durable=True)
    channel.confirm()
    return channel


def test_publisher_confirms(confirming, name):
    """A confirmed message is in the queue (AB-111)."""
    confirming.publish("msg1", name, delivery_mode=2)
    assert confirming.confirms(1, 1) == ([1], [])
    assert confirming.ready(name) == 1


def test_publisher_confirms_with_deleted_queue(confirming, client, name):
    """Deleting the queue confirms outstanding publishes positively (AB-111)."""
    with client.in_one_piece():
        for _ in range(10):
            confirming.publish("msg", name, delivery_mode=2)
        confirming.send(m.QueueDelete(queue=name))
    assert confirming.confirms(1, 10) == (list(range(1, 11)), [])


def test_confirm_select_ok(channel):
    """AB-60: confirm.select is answered."""
    assert channel.call(m.ConfirmSelect()) == m.ConfirmSelectOk()


def test_confirm_nowait(channel, name):
    """select-ok is omitted (AB-60)."""
    channel.send(m.ConfirmSelect(nowait=True))
    channel.publish("m", name)
    assert channel.wait().method == m.BasicAck(1, False)


def test_confirm_ack(confirming, name):
    """The first ack has tag 1 (AB-110)."""
    confirming.publish("msg1", name, delivery_mode=2)
    assert confirming.wait().method == m.BasicAck(1, False)


def test_confirm_acks(confirming, name):
    """Tags 1 to 4 are covered by single or multiple acks (AB-110, AB-113)."""
    for number in range(4):
        confirming.publish(f"msg{number}", name, delivery_mode=2)
    assert confirming.confirms(1, 4) == ([1, 2, 3, 4], [])


def test_confirm_after_mandatory_bug(channel, name):
    """A routable mandatory publish before confirm.select does not disturb later confirms (AB-110)."""
    channel.queue(name)
    channel.publish("msg1", name, mandatory=True)
    channel.confirm()
    channel.publish("msg2", name)
    assert channel.wait().method == m.BasicAck(1, False)


def test_a_second_confirm_select_does_not_begin_anew(channel, name):
    """Delivery tags go on; RabbitMQ 3.10 does the same (AB-110)."""
    channel.queue(name)
    for tag in (1, 2):
        channel.confirm()
        channel.publish("msg", name)
        assert channel.wait().method == m.BasicAck(tag, False)


def test_confirm_mandatory_unroutable(channel, name):
    """The return comes first, then the ack (AB-112)."""
    channel.confirm()
    channel.publish("msg1", name, mandatory=True)
    assert isinstance(channel.wait().method, m.BasicReturn)
    assert channel.wait().method == m.BasicAck(1, False)


def test_confirms_of_unroutable_messages_keep_the_order_of_returns(channel, name):
    """AB-112, AB-113: each publish is confirmed before the next one is returned."""
    channel.confirm()
    with channel.client.in_one_piece():
        for body, mandatory in (("1", False), ("2", True), ("3", True), ("4", False)):
            channel.publish(body, f"{name}-absent", mandatory=mandatory)
    received = [channel.wait() for _ in range(6)]
    assert [event.body or (event.tag, event.method.multiple) for event in received] == [
        (1, False),
        b"2",
        (2, False),
        b"3",
        (3, False),
        (4, False),
    ]


def test_confirm_unroutable_message(channel, name):
    """An unroutable message is acked without a return (AB-111)."""
    channel.confirm()
    channel.publish("msg1", name)
    assert channel.wait().method == m.BasicAck(1, False)
    assert not channel.pending


def test_confirm_nack(confirming, inside, name):
    """One of two target queues crashes at the publish: the client gets one nack and no ack (AB-111)."""
    other = confirming.queue(f"{name}-other", durable=True)
    for queue in (name, other):
        confirming.bind(queue, "amq.direct", name)
    inside.crash_at_publish(name)
    confirming.publish("msg1", name, "amq.direct", delivery_mode=2)
    assert confirming.confirms(1, 1) == ([], [1])
    inside.broker.wait_idle()
    confirming.qos(0)
    assert not confirming.pending


# --- grouping (AB-113): every method below has been handled when the next reply comes ---


def test_numbers_begin_at_confirm_select(channel, name):
    """AB-110: earlier publishes have no number; a second confirm.select does not restart the count."""
    channel.publish("uncounted", name)
    channel.confirm()
    channel.publish("1", name)
    channel.confirms(1, 1)
    channel.confirm()
    channel.publish("2", name)
    assert channel.confirms(2, 2) == ([2], [])


def test_multiple_never_covers_what_is_unconfirmed(confirming, client, inside, name):
    """AB-113: while publish 2 waits for its queue, publish 1 and later ones are confirmed."""
    slow = client.channel().queue(f"{name}-slow")
    with inside.paused(slow):
        for target in (name, slow, name, name):
            confirming.publish("m", target)
        inside.broker.wait_idle()
        confirming.qos(0)
        methods = [event.method for event in confirming.pending]
        assert all(not method.multiple for method in methods if method.delivery_tag > 2)
        assert sorted(method.delivery_tag for method in methods) == [1, 3, 4]
        for _ in methods:
            confirming.wait(m.BasicAck)
    assert confirming.wait().method == m.BasicAck(2, False)


def test_multiple_never_covers_the_opposite_outcome(confirming, client, name):
    """An ack with multiple covers no nacked number, also if acks and nacks leave in one write (AB-113)."""
    full = client.channel().queue(f"{name}-full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    targets = [name, name, full, name, full, full, name, name, full, name]
    with client.in_one_piece():
        for target in targets:
            confirming.publish("m", target)
    refused = [5, 6, 9]
    assert confirming.confirms(1, 10) == ([number for number in range(1, 11) if number not in refused], refused)


def test_many_publishes_take_few_acks(confirming, client, name):
    """A long sequence of confirmed publishes is one multiple ack (AB-113)."""
    with client.in_one_piece():
        for _ in range(1000):
            confirming.publish("m", name)
    confirming.confirms(1, 999)
    confirming.qos(0)
    assert len(confirming.pending) <= 1


def test_each_queue_of_several_must_confirm(confirming, client, inside, name):
    """AB-111: a message to two queues is confirmed only when the slower one has it."""
    slow = confirming.queue(f"{name}-slow")
    for queue in (name, slow):
        confirming.bind(queue, "amq.direct", name)
    with inside.paused(slow):
        confirming.publish("m", name, "amq.direct")
        inside.broker.wait_idle()
        confirming.qos(0)
        assert not confirming.pending
    assert confirming.wait().method == m.BasicAck(1, False)


@pytest.mark.parametrize("properties", [{}, {"delivery_mode": 2}, {"expiration": "0"}])
@pytest.mark.parametrize("consumer", [None, True, False])
def test_confirmed_whatever_becomes_of_the_message(confirming, client, name, properties, consumer):
    """A message is confirmed whether it is kept, delivered with or without ack, or expires at once (AB-111)."""
    if consumer is not None:
        client.channel().consume(name, no_ack=consumer)
    confirming.publish("m", name, **properties)
    assert confirming.confirms(1, 1) == ([1], [])


def test_confirms_of_a_closing_channel_are_not_sent_on_its_number_again(confirming, client, name):
    """AB-54: the next channel with the same number counts from 1."""
    with client.in_one_piece():
        for _ in range(100):
            confirming.publish("m", name)
        confirming.send(m.ChannelClose(200, "bye"))
    confirming.wait(m.ChannelCloseOk)
    again = client.channel(confirming.number)
    again.qos(0)
    assert not again.pending
    again.confirm()
    again.publish("m", name)
    assert again.wait().method == m.BasicAck(1, False)
