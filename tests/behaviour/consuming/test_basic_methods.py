"""Checks of basic.*, confirm.*, tx.* and channel.*: their order, codes and texts (amqp-broker section 7).

They also cover AB-52 to AB-61, AB-105 to AB-107, AB-118 and AB-119.
"""

import pytest

from warren.amqp import methods as m
from warren.amqp.fields import Table
from warren.amqp.properties import Properties, encode_properties

from ..wire import table


def properties(**known):
    headers = known.pop("headers", None)
    return encode_properties(Properties(headers=None if headers is None else table(headers), **known))


# --- consume, cancel, get, qos ---


@pytest.mark.parametrize("method", [m.BasicConsume, m.BasicGet, m.QueuePurge])
def test_absent_queue(channel, name, method):
    """amqp-broker section 7: a method that names an absent queue is refused with 404."""
    channel.refuses(404, f"no queue '{name}' in vhost '/'", method(queue=name))


def test_consumer_tag_may_be_used_once(client, name):
    """The consumer tag is checked before the queue, and another channel may use the same tag (amqp-broker section 7,
    AB-119).
    """
    channel = client.channel()
    channel.queue(name)
    channel.consume(name, "t")
    client.channel().consume(name, "t")
    channel.refuses(530, "attempt to reuse consumer tag 't'", m.BasicConsume(queue=f"{name}-absent", consumer_tag="t"))


def test_consumer_tag_is_free_after_cancel(channel, name):
    """AB-119: a consumer tag can be used again after basic.cancel."""
    channel.queue(name)
    channel.consume(name, "t")
    channel.cancel("t")
    assert channel.consume(name, "t") == "t"


def test_generated_consumer_tags(channel, name):
    """AB-82, AB-119: the broker gives each consumer without a tag a tag of its own."""
    channel.queue(name)
    tags = {channel.consume(name) for _ in range(3)}
    assert len(tags) == 3
    assert all(tag.startswith("amq.ctag-") and len(tag) == 31 for tag in tags)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-priority": "high"}, "'x-priority' for {}: \"expected integer, got longstr\""),
        ({"x-cancel-on-ha-failover": 1}, "'x-cancel-on-ha-failover' for {}: {{unacceptable_type,signedint}}"),
        ({"x-stream-offset": "first"}, "'x-stream-offset' for {} of queue type rabbit_classic_queue"),
    ],
)
def test_refused_consumer_arguments(channel, name, arguments, text):
    """AB-118: an invalid consumer argument is refused with 406, and the text names it."""
    channel.queue(name)
    text = "invalid arg " + text.format(f"queue '{name}' in vhost '/'")
    channel.refuses(406, text, m.BasicConsume(queue=name, arguments=table(arguments)))


def test_accepted_consumer_arguments(channel, name):
    """AB-118: unknown arguments and no-local are ignored."""
    channel.queue(name)
    channel.consume(
        name, arguments={"x-priority": -3, "x-cancel-on-ha-failover": True, "x-else": "?"}, no_local=True, no_ack=True
    )
    channel.publish("own", name)
    assert channel.delivery().body == b"own"


def test_nowait_consume_and_cancel(channel, name):
    """AB-60: basic.consume and basic.cancel with nowait take effect and are not answered."""
    channel.queue(name)
    channel.send(m.BasicConsume(queue=name, consumer_tag="t", no_ack=True, nowait=True))
    channel.publish("1", name)
    assert channel.delivery().method.consumer_tag == "t"
    channel.send(m.BasicCancel("t", nowait=True))
    assert channel.declare(name).consumer_count == 0
    assert not channel.pending


def test_cancel_of_an_unknown_tag(channel):
    """basic.cancel of an unknown tag is answered with cancel-ok (amqp-broker section 7)."""
    assert channel.call(m.BasicCancel("unknown")) == m.BasicCancelOk("unknown")


def test_get_ok_counts_the_messages_left(channel, name):
    """amqp-broker section 7, AB-138: get-ok counts the ready messages."""
    channel.queue(name)
    for body in ("a", "b", "c"):
        channel.publish(body, name)
    assert [channel.get(name).method.message_count for _ in range(3)] == [2, 1, 0]
    channel.send(m.BasicGet(queue=name))
    assert channel.wait().method == m.BasicGetEmpty("")


def test_prefetch_size_is_not_implemented(channel):
    """amqp-broker section 7: a prefetch size other than 0 is refused with 540."""
    channel.refuses(540, "prefetch_size!=0 (7)", m.BasicQos(7, 0))


@pytest.mark.parametrize("method", [m.BasicRecover(requeue=False), m.BasicRecoverAsync(requeue=False)])
def test_recover_without_requeue_is_not_implemented(channel, method):
    """amqp-broker section 7: basic.recover with requeue=false is refused with 540."""
    channel.refuses(540, "requeue=false", method)


def test_recover_async_has_no_answer(channel, name):
    """amqp-broker section 7: basic.recover-async requeues the messages and is not answered."""
    channel.queue(name)
    channel.publish("1", name)
    channel.get(name)
    channel.send(m.BasicRecoverAsync(requeue=True))
    assert channel.get(name).method.redelivered
    assert not channel.pending


@pytest.mark.parametrize(
    "method", [m.BasicAck(1), m.BasicAck(0), m.BasicNack(3, True), m.BasicReject(9, True), m.BasicAck(1, True)]
)
def test_unknown_delivery_tag(channel, method):
    """amqp-broker section 7, AB-132: settling a delivery tag that the channel does not have is refused with 406."""
    channel.refuses(406, f"unknown delivery tag {method.delivery_tag}", method)


@pytest.mark.parametrize("method", [m.BasicAck(0, True), m.BasicNack(0, True, True)])
def test_multiple_0_with_nothing_outstanding(channel, method):
    """AB-132: settling everything succeeds although nothing is unacknowledged."""
    channel.send(method)
    channel.qos(0)


# --- publish ---


def publish_refused(channel, code, text, exchange="", **known):
    channel.refuses(code, text, m.BasicPublish(exchange=exchange), b"body", properties(**known))


def test_immediate_is_not_implemented(channel, name):
    """`immediate` is refused with 540, which is checked before the exchange (AB-105)."""
    channel.refuses(540, "immediate=true", m.BasicPublish(exchange=name, immediate=True), b"body")


def test_publish_to_an_absent_exchange(channel, name):
    """A publish to an absent exchange is refused with 404, which is checked before the user-id (AB-105)."""
    publish_refused(channel, 404, f"no exchange '{name}' in vhost '/'", name, user_id="nobody")


def test_publish_to_an_internal_exchange(channel, name):
    """A publish to an internal exchange is refused with 403, which is checked before the user-id. Other exchanges may
    route into it (AB-67).
    """
    channel.exchange(name, "fanout", internal=True)
    publish_refused(channel, 403, f"cannot publish to internal exchange '{name}' in vhost '/'", name, user_id="nobody")


def test_reply_to_is_found_before_user_id(channel):
    """AB-105, AB-141: of two faults in a publish, the missing reply consumer is reported before the wrong user id."""
    publish_refused(
        channel, 406, "fast reply consumer does not exist", reply_to="amq.rabbitmq.reply-to", user_id="nobody"
    )


def test_user_id_must_be_the_users_own(channel, name):
    """The user-id of a message must be the name of the user who publishes it, which is checked before the expiration
    (AB-106).
    """
    channel.queue(name)
    channel.publish("mine", name, user_id="guest")
    assert channel.get(name).properties.user_id == "guest"
    publish_refused(
        channel,
        406,
        "user_id property set to 'nobody' but authenticated user was 'guest'",
        user_id="nobody",
        expiration="soon",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_integer"),
        ("soon", "no_integer"),
        ("12s", '{leftover_string,"s"}'),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_expiration_must_be_a_number(channel, text, reason):
    """An expiration that is no number, or out of range, is refused with 406, which is checked before CC (AB-98)."""
    publish_refused(channel, 406, f"invalid expiration '{text}': {reason}", expiration=text, headers={"CC": "x"})


def test_delivery_mode_is_1_or_2(channel):
    """AB-107: a delivery mode of 3 is refused with 406."""
    publish_refused(channel, 406, "invalid message: {delivery_mode_unknown,3}", delivery_mode=3)


@pytest.mark.parametrize(
    ("header", "value", "type"), [("CC", "x", "longstr"), ("BCC", 5, "signedint"), ("CC", None, "void")]
)
def test_cc_and_bcc_must_be_arrays(channel, header, value, type):
    """CC and BCC must be arrays, which is checked before the delivery mode (AB-75)."""
    publish_refused(
        channel,
        406,
        f'invalid message: {{unacceptable_type_in_header,"{header}",{type}}}',
        headers={header: value},
        delivery_mode=3,
    )


def test_publish_failing_takes_no_confirm_number(client, name):
    """The publish that fails is not confirmed and takes no number; those before it are confirmed (AB-110)."""
    channel = client.channel()
    channel.queue(name)
    channel.confirm()
    with client.in_one_piece():
        channel.publish("1", name)
        channel.publish("2", "", f"{name}-absent")
    channel.refuses(404, f"no exchange '{name}-absent' in vhost '/'")
    assert all(event.method.delivery_tag == 1 for event in channel.pending)
    other = client.channel()
    other.expect_ready(name, 1)


# --- confirm and tx ---


def test_confirm_and_tx_exclude_one_another(client):
    """amqp-broker section 7: a channel cannot have both modes; selecting the same mode twice succeeds."""
    channel = client.channel()
    channel.confirm()
    channel.confirm()
    channel.refuses(406, "cannot switch from confirm to tx mode", m.TxSelect())
    channel = client.channel()
    channel.call(m.TxSelect())
    channel.call(m.TxSelect())
    channel.refuses(406, "cannot switch from tx to confirm mode", m.ConfirmSelect())


@pytest.mark.parametrize("method", [m.TxCommit(), m.TxRollback()])
def test_not_transactional(channel, method):
    """amqp-broker section 7: tx.commit and tx.rollback without tx.select are refused with 406."""
    channel.refuses(406, "channel is not transactional", method)


# --- channel and access ---


def test_access_request(channel):
    """AB-61: access.request is granted with ticket 1."""
    assert channel.call(m.AccessRequest("/data", True, False, True, True, True)) == m.AccessRequestOk(1)


def test_channel_flow(client):
    """AB-57: channel.flow with active=true is answered; active=false is refused with 540."""
    channel = client.channel()
    assert channel.call(m.ChannelFlow(True)) == m.ChannelFlowOk(True)
    channel.refuses(540, "active=false", m.ChannelFlow(False))


def test_second_channel_open(channel):
    """AB-52: channel.open on an open channel is refused with 504."""
    channel.refuses(504, "second 'channel.open' seen", m.ChannelOpen())


def test_first_method_must_be_channel_open(client):
    """AB-52: any other first method on a channel closes the connection with 504."""
    client.send(7, m.BasicQos())
    client.events[7] = client.events[0].__class__()
    with pytest.raises(Exception, match="504 CHANNEL_ERROR - expected 'channel.open'"):
        client.wait(7)


@pytest.mark.parametrize("method", [m.BasicConsumeOk("t"), m.QueueDeclareOk("q", 0, 0), m.BasicCancelOk("t")])
def test_methods_that_make_no_sense_from_a_client(channel, method):
    """AB-58: methods that only a server may send are refused with 503."""
    channel.refuses(503, "unimplemented method", method)


def test_replies_come_in_the_order_of_the_methods(client, name):
    """AB-56: replies come in the order of the methods, however many are sent at once."""
    channel = client.channel()
    with client.in_one_piece():
        channel.send(m.QueueDeclare(queue=name))
        channel.send(m.BasicQos(0, 10))
        channel.send(m.BasicGet(queue=name))
        channel.send(m.ExchangeDeclare(exchange=name, type="topic"))
        channel.send(m.QueueBind(queue=name, exchange=name))
        channel.send(m.ConfirmSelect())
        channel.send(m.QueuePurge(queue=name))
        channel.send(m.BasicConsume(queue=name, consumer_tag="t"))
    replies = [type(channel.wait().method) for _ in range(8)]
    assert replies == [
        m.QueueDeclareOk,
        m.BasicQosOk,
        m.BasicGetEmpty,
        m.ExchangeDeclareOk,
        m.QueueBindOk,
        m.ConfirmSelectOk,
        m.QueuePurgeOk,
        m.BasicConsumeOk,
    ]


def test_messages_are_back_when_close_ok_comes(client, name):
    """When channel.close-ok comes, the channel's messages are back in the queue, and its number can be used again
    (AB-53).
    """
    channel = client.channel(5)
    channel.queue(name)
    for body in ("a", "b", "c"):
        channel.publish(body, name)
    channel.consume(name)
    channel.deliveries(3)
    channel.close()
    channel = client.channel(5)
    assert channel.declare(name) == m.QueueDeclareOk(name, 3, 0)


def test_number_is_free_after_a_channel_error(client, name):
    """After a channel error, everything that was sent on that channel is discarded, and its number can be used again
    (AB-54).
    """
    channel = client.channel(6)
    channel.queue(name)
    with client.in_one_piece():
        channel.send(m.BasicAck(77))
        channel.publish("discarded", name)
        channel.send(m.QueueDelete(queue=name))
    channel.refuses(406, "unknown delivery tag 77")
    channel = client.channel(6)
    assert channel.declare(name, passive=True).message_count == 0


def test_crossing_close_is_answered(client, name):
    """When both sides send channel.close, the broker answers the client's with close-ok, and the number is free when
    the client has answered as well (AB-54).
    """
    channel = client.channel(4)
    with client.in_one_piece():
        channel.send(m.BasicAck(77))
        channel.send(m.ChannelClose(200, "bye"))
    first, second = channel.wait().method, channel.wait().method
    assert {type(first), type(second)} == {m.ChannelClose, m.ChannelCloseOk}
    channel.send(m.ChannelCloseOk())
    client.channel(4).qos(1)


def test_unknown_table_letters_do_not_reach_the_queue(channel, name):
    """The type letters of header values are kept, and an unknown letter closes the connection before the message
    reaches a queue (AB-47).
    """
    channel.queue(name)
    headers = Table(
        [
            ("a", "I", 1),
            ("b", "l", 1),
            ("c", "s", 1),
            ("d", "b", 1),
            ("e", "f", 0.5),
            ("f", "d", 0.5),
            ("g", "T", 1),
            ("h", "x", b"x"),
            ("i", "S", b"x"),
        ]
    )
    channel.publish("typed", name, headers=headers)
    assert channel.get(name).headers == headers
