"""Channels: opening, closing, exceptions, pipelining (AB-51 to AB-61)."""

from __future__ import annotations

import pytest

from warren.amqp.constants import FRAME_BODY, FRAME_HEADER
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)

from ..oracle import deviates
from ..wire import Wire, assert_reply, publish_frames

CLOSE = ChannelClose(200, "done", 0, 0)
FAULTY = QueueDeclare(queue="no-such-queue", passive=True)
NOT_FOUND = "NOT_FOUND - no queue 'no-such-queue' in vhost '/'"


def expect_exception(wire: Wire, number: int = 1, answer: bool = True) -> None:
    """Read, and perhaps answer, the channel exception of FAULTY."""
    assert_reply(wire.method(number, ChannelClose), 404, NOT_FOUND, (50, 10))
    if answer:
        wire.send_method(number, ChannelCloseOk())


# -- opening ---


@pytest.mark.parametrize("number", [1, 2, 256, 2047, 2048, 65535])
def test_any_number_but_0_may_be_opened(wire, number):
    """Every number from 1 to 65535 opens if channel_max allows it, and open-ok has an empty id (AB-52, AB-22)."""
    assert wire.call(number, ChannelOpen("ignored"), ChannelOpenOk).channel_id == b""


def test_a_second_open_is_a_channel_error(channel):
    """channel.open on an open channel ends the connection with 504 (AB-52)."""
    channel.send_method(1, ChannelOpen())
    channel.expect_close(504, "CHANNEL_ERROR - second 'channel.open' seen", (20, 10))


@pytest.mark.parametrize(
    "method",
    [QueueDeclare(), CLOSE, ChannelCloseOk(), BasicAck(1, True), TxSelect(), BasicDeliver()],
    ids=lambda method: method.NAME,
)
def test_any_first_method_but_open_is_a_channel_error(wire, method):
    """Any first method on a channel but channel.open ends the connection with 504, a method with content only when that
    has arrived (AB-52, AB-58).
    """
    wire.send_method(1, method)
    if method.HAS_CONTENT:
        wire.send_frame(FRAME_HEADER, 1, b"\0\x3c" + bytes(12))
    wire.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'", (method.CLASS_ID, method.METHOD_ID))


def test_a_publish_on_a_number_that_is_not_open_is_a_channel_error(wire):
    """A publish on a channel that is not open ends the connection with 504 (AB-52)."""
    wire.publish(5, b"x", routing_key="nowhere")
    wire.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'", (60, 40))


def test_many_channels_are_opened_in_one_go(wire):
    """Many channels may be opened without waiting for the answers, and each opens on its number (AB-56)."""
    numbers = range(1, 201)
    wire.send(b"".join(method_frame(number, ChannelOpen()) for number in numbers))
    for number in numbers:
        wire.method(number, ChannelOpenOk)
    wire.send(b"".join(method_frame(number, CLOSE) for number in numbers))
    for number in numbers:
        wire.method(number, ChannelCloseOk)


# -- the client's close ---


def test_at_close_ok_messages_are_back_and_the_number_is_free(channel):
    """At close-ok unacknowledged messages are ready again, as redelivered, and the number may be opened (AB-53)."""
    channel.open_channel(2)
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    for _ in range(5):
        for number in range(3):
            channel.publish(1, b"%d" % number, routing_key=queue)
        channel.call(1, BasicConsume(queue=queue), BasicConsumeOk)
        for number in range(3):
            assert not channel.method(1, BasicDeliver).redelivered
            assert channel.content(1)[1] == b"%d" % number
        channel.call(1, CLOSE, ChannelCloseOk)
        for number in range(3):
            assert channel.call(2, BasicGet(queue=queue, no_ack=True), BasicGetOk).redelivered
            assert channel.content(2)[1] == b"%d" % number
        assert channel.call(1, ChannelOpen(), ChannelOpenOk)


def test_auto_delete_runs_before_close_ok(channel, name):
    """An auto-delete queue whose last consumer was on the channel is gone when close-ok arrives (AB-53)."""
    channel.open_channel(2)
    channel.call(1, QueueDeclare(queue=name, auto_delete=True), QueueDeclareOk)
    channel.call(1, BasicConsume(queue=name), BasicConsumeOk)
    channel.call(1, CLOSE, ChannelCloseOk)
    channel.send_method(2, QueueDeclare(queue=name, passive=True))
    assert channel.method(2, ChannelClose).reply_code == 404


def test_open_right_behind_close_is_a_second_open(channel):
    """channel.open directly behind channel.close is a second open, because the number is free when close-ok comes and
    not earlier (AB-52, AB-53).
    """
    channel.send(method_frame(1, CLOSE), method_frame(1, ChannelOpen()))
    found = channel.frame()
    if found.payload != ChannelCloseOk().encode():  # close-ok may have been sent already
        channel.waiting.appendleft(found)
    channel.expect_close(504, "CHANNEL_ERROR - second 'channel.open' seen", (20, 10))


# -- channel exceptions ---


def test_an_exception_ends_the_channel_and_spares_the_others(channel):
    """A channel exception closes its channel only, and the number may be opened again (AB-54, AB-51)."""
    channel.open_channel(2)
    channel.send_method(1, FAULTY)
    expect_exception(channel)
    channel.call(2, QueueDeclare(exclusive=True), QueueDeclareOk)
    channel.open_channel(1)
    channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)


def test_frames_in_flight_behind_an_exception_are_discarded(channel):
    """Frames that are in flight behind a channel exception are discarded: methods, publishes, contents that the close
    cuts, and even a second error (AB-54).
    """
    channel.open_channel(2)
    queue = channel.call(2, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    channel.send(
        method_frame(1, FAULTY),
        publish_frames(1, b"lost", queue) * 3,
        method_frame(1, QueueDeclare(exclusive=True)),
        method_frame(1, FAULTY),
        method_frame(1, BasicAck(99)),
    )
    expect_exception(channel, answer=False)
    channel.send(publish_frames(1, b"lost", queue), method_frame(1, QueueDeclare()), method_frame(1, ChannelCloseOk()))
    channel.open_channel(1)
    channel.call(1, BasicGet(queue=queue), BasicGetEmpty)


@deviates("what was taken with basic.get comes back a little later")
def test_the_cleanup_comes_before_the_close(channel):
    """When the client reads channel.close after an exception, its messages are back in the queue (AB-54)."""
    channel.open_channel(2)
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    channel.publish(1, b"x", routing_key=queue)
    channel.call(1, BasicGet(queue=queue), BasicGetOk)
    channel.content(1)
    channel.send_method(1, FAULTY)
    expect_exception(channel, answer=False)
    assert channel.call(2, BasicGet(queue=queue), BasicGetOk).redelivered


def test_deliveries_and_confirms_stop_with_an_exception(channel):
    """After channel.close no delivery and no confirm comes on that channel (AB-54)."""
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    channel.open_channel(2)
    channel.call(2, ConfirmSelect())
    channel.call(2, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
    channel.send(method_frame(2, FAULTY), publish_frames(2, b"x", queue) * 10)
    expect_exception(channel, 2, answer=False)
    for _ in range(10):
        channel.publish(1, b"y", routing_key=queue)
    channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)
    assert not channel.waiting
    channel.send_method(2, ChannelCloseOk())
    channel.open_channel(2)


@pytest.mark.parametrize("pipelined", [True, False], ids=["in one segment", "after our close"])
def test_crossing_closes(channel, pipelined):
    """If the closes of client and broker cross, each is answered with close-ok, and then the number is free (AB-54)."""
    if pipelined:
        channel.send(method_frame(1, FAULTY), method_frame(1, CLOSE))
        expect_exception(channel, answer=False)
    else:
        channel.send_method(1, FAULTY)
        expect_exception(channel, answer=False)
        channel.send_method(1, CLOSE)
    channel.method(1, ChannelCloseOk)
    channel.send_method(1, ChannelCloseOk())
    channel.open_channel(1)
    channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk)


def test_a_connection_exception_of_a_channel_has_its_method(channel):
    """An error of a channel that ends the whole connection names the method at fault (AB-55)."""
    channel.open_channel(2)
    channel.send_method(2, ChannelFlow(False))
    channel.expect_close(540, "NOT_IMPLEMENTED - active=false", (20, 20))


def test_numbers_may_be_used_again_and_again(wire):
    """A channel number may be used three hundred times, whichever side closes the channel (AB-53, AB-54)."""
    for turn in range(300):
        wire.open_channel(7)
        if turn % 2:
            wire.call(7, CLOSE, ChannelCloseOk)
        else:
            wire.send_method(7, FAULTY)
            expect_exception(wire, 7)


def test_open_may_follow_close_ok_in_one_segment(channel):
    """channel.open may follow the client's close-ok in one segment: the number is free as soon as the client has
    answered (AB-54).
    """
    for _ in range(20):
        channel.send_method(1, FAULTY)
        expect_exception(channel, answer=False)
        channel.send(
            method_frame(1, ChannelCloseOk()),
            method_frame(1, ChannelOpen()),
            method_frame(1, QueueDeclare(exclusive=True)),
        )
        channel.method(1, ChannelOpenOk)
        channel.method(1, QueueDeclareOk)


# -- methods ---


def test_replies_come_in_the_order_of_the_methods(channel):
    """Replies come in the order of the methods: fast ones wait for slow ones (AB-56)."""
    asked = [
        QueueDeclare(exclusive=True),
        BasicQos(0, 5),
        ChannelFlow(True),
        AccessRequest(),
        ExchangeDeclare(exchange="amq.direct", type="direct", passive=True),
    ]
    channel.send(b"".join(method_frame(1, method) for method in asked * 20))
    for _ in range(20):
        found = [
            channel.method(1, answer).NAME for answer in (QueueDeclareOk, BasicQosOk, ChannelFlowOk, AccessRequestOk)
        ]
        assert channel.on(1).payload == b"\0\x28\0\x0b", found


def test_deliveries_flow_while_methods_are_answered(channel):
    """Deliveries go on while methods are answered, and get and publish keep their order (AB-56)."""
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    channel.send(
        *[
            publish_frames(1, b"%d" % number, queue) + method_frame(1, BasicGet(queue=queue, no_ack=True))
            for number in range(50)
        ]
    )
    for number in range(50):
        channel.method(1, BasicGetOk)
        assert channel.content(1)[1] == b"%d" % number


def test_nothing_but_close_may_come_while_a_commit_is_pending(channel):
    """AB-56: the commit may be done or not when the next method arrives, so either outcome is right."""
    channel.call(1, TxSelect(), TxSelectOk)
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    channel.send(publish_frames(1, b"x", queue), method_frame(1, TxCommit()), method_frame(1, BasicQos(0, 1)))
    found = channel.frame()
    if found.channel == 0:
        channel.waiting.appendleft(found)
        channel.expect_close(504, "CHANNEL_ERROR - unexpected command while processing 'tx.commit'", (60, 10))
    else:
        assert found.payload == TxCommitOk().encode()
        channel.method(1, BasicQosOk)


@pytest.mark.parametrize("active", [True, False])
def test_channel_flow(channel, active):
    """`active=true` is answered with flow-ok, `active=false` refused with 540 (AB-57)."""
    if active:
        assert channel.call(1, ChannelFlow(True), ChannelFlowOk).active is True
    else:
        channel.send_method(1, ChannelFlow(False))
        channel.expect_close(540, "NOT_IMPLEMENTED - active=false", (20, 20))


def test_a_ticket_is_always_1_and_never_asked_for(channel):
    """access.request gets ticket 1, and methods accept any ticket (AB-61)."""
    assert channel.call(1, AccessRequest("/data", True, True, True, True, True), AccessRequestOk).ticket == 1
    channel.call(1, QueueDeclare(ticket=77, exclusive=True), QueueDeclareOk)


def test_line_ends_are_removed_from_names_where_they_are_made(channel, name):
    """AB-59: CR and LF are removed in declare, delete, bind and unbind, not in publish, get, consume and purge."""
    assert channel.call(1, QueueDeclare(queue=f"{name}\r\n", exclusive=True), QueueDeclareOk).queue == name
    channel.call(1, ExchangeDeclare(exchange=f"\n{name}", type="fanout", auto_delete=True))
    channel.call(1, QueueBind(queue=f"\r{name}", exchange=f"{name}\n"))
    channel.publish(1, b"x", exchange=name)
    channel.call(1, BasicGet(queue=name), BasicGetOk)
    channel.content(1)
    channel.send_method(1, BasicGet(queue=f"{name}\r\n"))
    assert channel.method(1, ChannelClose).reply_code == 404
    channel.send_method(1, ChannelCloseOk())
    channel.open_channel(1)
    channel.send_method(1, QueuePurge(queue=f"{name}\n"))
    assert channel.method(1, ChannelClose).reply_code == 404
    channel.send_method(1, ChannelCloseOk())
    channel.open_channel(1)
    assert channel.call(1, QueueDelete(queue=f"{name}\n"), QueueDeleteOk).message_count == 1


def test_nowait_leaves_out_the_reply(channel, name):
    """Methods with `nowait` take effect and get no reply (AB-60)."""
    for method in (
        QueueDeclare(queue=name, exclusive=True, nowait=True),
        ExchangeDeclare(exchange=name, type="fanout", nowait=True),
        QueueBind(queue=name, exchange=name, nowait=True),
        ExchangeBind(destination=name, source="amq.fanout", nowait=True),
        ExchangeUnbind(destination=name, source="amq.fanout", nowait=True),
        BasicConsume(queue=name, consumer_tag="t", nowait=True),
        BasicCancel(consumer_tag="t", nowait=True),
        ConfirmSelect(nowait=True),
        QueuePurge(queue=name, nowait=True),
        ExchangeDelete(exchange=name, nowait=True),
        QueueDelete(queue=name, nowait=True),
    ):
        channel.send_method(1, method)
    channel.call(1, BasicQos(0, 1), BasicQosOk)


def test_errors_are_reported_with_nowait_too(channel):
    """A method with `nowait` that fails closes the channel as one without it does (AB-60)."""
    channel.send_method(1, QueueDeclare(queue="no-such-queue", passive=True, nowait=True))
    expect_exception(channel)


def test_a_reply_text_longer_than_a_short_string_is_cut(channel):
    """A reply text longer than a short string is cut: here the queue's name alone has 255 bytes (AB-50)."""
    channel.send_method(1, QueueDeclare(queue="q" * 255, passive=True))
    close = channel.method(1, ChannelClose)
    assert len(close.reply_text) == 255
    assert close.reply_text.startswith("NOT_FOUND - no queue 'qqqq")
    assert close.reply_text.endswith("qqq...")


def test_methods_on_one_channel_do_not_wait_for_a_content_on_another(channel):
    """Methods on one channel do not wait for a content on another, and neither do contents for one another (AB-45)."""
    channel.open_channel(2)
    queue = channel.call(2, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    header = b"\0\x3c\0\0" + (4).to_bytes(8, "big") + b"\0\0"
    steps = [
        lambda number: channel.send_method(number, BasicPublish(routing_key=queue)),
        lambda number: channel.send_frame(FRAME_HEADER, number, header),
        lambda number: channel.send_frame(FRAME_BODY, number, b"%d-" % number),
        lambda number: channel.send_frame(FRAME_BODY, number, b""),
        lambda number: channel.send_frame(FRAME_BODY, number, b"%d." % number),
    ]
    numbers = range(3, 8)
    for number in numbers:
        channel.open_channel(number)
    for step in steps:
        for number in numbers:
            step(number)
            channel.call(2, BasicQos(0, 1), BasicQosOk)
    for number in numbers:
        channel.call(number, BasicQos(0, 1), BasicQosOk)  # its publish has been handled
    bodies = set()
    for _ in numbers:
        channel.call(2, BasicGet(queue=queue, no_ack=True), BasicGetOk)
        bodies.add(channel.content(2)[1])
    assert bodies == {b"%d-%d." % (number, number) for number in numbers}
