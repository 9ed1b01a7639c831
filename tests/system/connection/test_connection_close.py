"""How connections end: by the client, by the broker, or lost (AB-28 to AB-32)."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from warren.amqp.constants import FRAME_BODY, PROTOCOL_HEADER
from warren.amqp.frames import frame, method_frame
from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ChannelClose,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionStart,
    QueueDeclare,
    QueueDeclareOk,
)

from ..wire import HungUp, Wire, assert_reply, publish_frames

CLOSE = ConnectionClose(200, "bye", 0, 0)
SHUTDOWN = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
FAULT = frame(FRAME_BODY, 1, b"x")  # comes where a method is expected


def fail(wire: Wire) -> None:
    """Make the broker close the connection; read connection.close, and do not answer it."""
    wire.send(FAULT)
    assert wire.method(0, ConnectionClose).reply_code == 505


def hold_everything(wire: Wire, name: str) -> str:
    """Leave unacknowledged messages of queue `name` on three channels, a consumer, and an exclusive queue.

    Returns the name of the exclusive queue.
    """
    wire.open_channel(1)
    wire.call(1, QueueDeclare(queue=name), QueueDeclareOk)
    for number in range(4):
        wire.publish(1, b"%d" % number, routing_key=name)
    for channel in (1, 2, 3):
        if channel > 1:
            wire.open_channel(channel)
        wire.call(channel, BasicGet(queue=name), BasicGetOk)
        wire.content(channel)
    wire.call(3, BasicConsume(queue=name), BasicConsumeOk)
    wire.method(3, BasicDeliver)
    wire.content(3)
    return wire.call(2, QueueDeclare(exclusive=True), QueueDeclareOk).queue


def expect_given_back(other: Wire, name: str, exclusive: str) -> None:
    """All four messages of `name` are ready again, in order; the exclusive queue is gone."""
    for number in range(4):
        other.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk)
        assert other.content(1)[1] == b"%d" % number
    assert other.call(1, QueueDeclare(queue=name, passive=True), QueueDeclareOk).consumer_count == 0
    other.send_method(1, QueueDeclare(queue=exclusive, passive=True))
    close = other.method(1, ChannelClose)
    assert_reply(close, 404, f"NOT_FOUND - no queue '{exclusive}' in vhost '/'", (50, 10))


@pytest.fixture
def other(address):
    """A second client, with a channel."""
    with Wire.open(address) as wire:
        wire.open_channel(1)
        yield wire


def test_when_close_ok_comes_everything_has_been_given_back(wire, other, name):
    """When a client reads close-ok, its messages have been requeued, its consumers cancelled and its exclusive queues
    deleted (AB-28).
    """
    exclusive = hold_everything(wire, name)
    wire.call(0, CLOSE, ConnectionCloseOk)
    expect_given_back(other, name, exclusive)


def test_when_the_broker_s_close_comes_everything_has_been_given_back(wire, other, name):
    """When a client reads the broker's connection.close, its messages have been requeued and its exclusive queues
    deleted (AB-29).
    """
    exclusive = hold_everything(wire, name)
    fail(wire)
    expect_given_back(other, name, exclusive)


@pytest.mark.parametrize("how", ["FIN", "RST"])
def test_a_lost_connection_gives_everything_back(own, wire, other, name, how):
    """After a connection is lost, its messages are requeued and its exclusive queues deleted soon, without anybody's
    waiting for it (AB-32).
    """
    exclusive = hold_everything(wire, name)
    if how == "RST":
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.hang_up()
    own.wait_idle()
    expect_given_back(other, name, exclusive)


def test_what_a_client_sent_before_it_hung_up_is_done(own, wire, other, name):
    """What a client sent before it hung up is done (AB-32)."""
    other.call(1, QueueDeclare(queue=name, exclusive=False, auto_delete=True), QueueDeclareOk)
    wire.open_channel(1)
    wire.send(b"".join(publish_frames(1, b"%d" % number, name) for number in range(50)))
    wire.hang_up()
    own.wait_idle()
    for number in range(50):
        other.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk)
        assert other.content(1)[1] == b"%d" % number


def test_after_the_client_s_close_only_close_is_heard(channel):
    """After its connection.close, whatever a client sends is ignored, faults included (AB-28, amqp-broker
    section 2.2).
    """
    channel.send(
        method_frame(0, CLOSE),
        method_frame(1, QueueDeclare()),
        FAULT,
        method_frame(0, QueueDeclare()),
        method_frame(0, ConnectionCloseOk()),
    )
    channel.method(0, ConnectionCloseOk)
    try:
        extra = channel.frame(timeout=0.2)
        raise AssertionError(extra)
    except (HungUp, TimeoutError):
        pass


def test_replies_to_methods_before_the_close_come_before_close_ok(channel):
    """Methods that the client sent before connection.close are answered before close-ok (AB-28, AB-56)."""
    channel.send(method_frame(1, QueueDeclare(exclusive=True)) * 3)
    channel.method(1, QueueDeclareOk)
    channel.method(1, QueueDeclareOk)
    channel.method(1, QueueDeclareOk)
    channel.call(0, CLOSE, ConnectionCloseOk)


def test_the_client_hangs_up_after_close_ok(channel, own):
    """After close-ok the socket stays open until the client hangs up, so that close-ok is not lost (AB-28)."""
    port = channel.sock.getsockname()[1]
    channel.call(0, CLOSE, ConnectionCloseOk)
    with pytest.raises(TimeoutError):
        channel.frame(timeout=0.1)
    channel.hang_up()
    own.wait_idle()
    assert port not in [row.peer_port for row in own.connections()]


def test_a_client_that_stays_after_close_ok_is_hung_up_on(address):
    """A client that stays after close-ok is hung up on after a wait of one heartbeat interval at most (AB-28)."""
    with Wire.open(address, heartbeat=1) as wire:
        wire.call(0, CLOSE, ConnectionCloseOk)
        began = time.monotonic()
        wire.expect_hang_up()
        assert time.monotonic() - began > 0.7


def test_a_client_that_does_not_answer_our_close_is_hung_up_on(address):
    """A client that does not answer the broker's connection.close is hung up on after the same wait, whatever else it
    sends (AB-29).
    """
    with Wire.open(address, heartbeat=1) as wire:
        wire.open_channel(1)
        fail(wire)
        began = time.monotonic()
        wire.send_method(1, QueueDeclare())
        wire.expect_hang_up()
        assert time.monotonic() - began > 0.7


def test_close_ok_ends_it_at_once(channel):
    """A client's close-ok ends a connection that the broker closes at once; what came before it is ignored (AB-29)."""
    fail(channel)
    channel.send(
        method_frame(1, QueueDeclare()), FAULT, method_frame(2, QueueDeclare()), method_frame(0, QueueDeclare())
    )
    channel.send_method(0, ConnectionCloseOk())
    channel.expect_hang_up()


def test_crossing_closes_are_both_answered(channel):
    """A client's close that crosses the broker's gets close-ok, and the broker waits for its own (AB-30)."""
    fail(channel)
    channel.call(0, CLOSE, ConnectionCloseOk)
    with pytest.raises(TimeoutError):
        channel.frame(timeout=0.1)  # the broker still waits for its own close-ok
    channel.send_method(0, ConnectionCloseOk())
    channel.expect_hang_up()


def test_closes_that_cross_in_one_segment(channel):
    """A client's close that comes in one segment with the fault that it follows is answered (AB-30)."""
    channel.send(FAULT, method_frame(0, CLOSE))
    assert channel.method(0, ConnectionClose).reply_code == 505
    channel.method(0, ConnectionCloseOk)
    channel.send_method(0, ConnectionCloseOk())
    channel.expect_hang_up()


def test_a_second_close_is_answered_too(channel):
    """A second connection.close of a client is answered too (amqp-broker section 2.2)."""
    channel.send(method_frame(0, CLOSE) * 2)
    channel.method(0, ConnectionCloseOk)
    channel.method(0, ConnectionCloseOk)


def test_an_operator_s_reason_is_the_text(own, channel):
    """`close_connections` sends its reason to clients as the reply text of a 320 (AB-31)."""
    assert own.close_connections("maintenance") >= 1
    channel.expect_close(320, "CONNECTION_FORCED - maintenance")


def test_a_long_reason_is_cut(own, channel):
    """A reason of more than 255 bytes is cut to 252 bytes and three dots (AB-50)."""
    own.close_connections("é" * 300)
    close = channel.method(0, ConnectionClose)
    assert len(close.reply_text.encode()) <= 255
    assert close.reply_text.startswith("CONNECTION_FORCED - éé")
    assert close.reply_text.endswith("é...")


@pytest.mark.parametrize("state", ["pre_init", "starting", "tuning", "opening"])
def test_before_running_a_forced_close_is_only_a_drop(start_broker, state):
    """A forced close before connection.open-ok closes the socket without a frame (AB-31)."""
    target = start_broker()
    if state == "pre_init":
        wire = Wire(target.address)
        target.embedded.wait_idle()
    elif state == "starting":
        wire = Wire(target.address)
        wire.send(PROTOCOL_HEADER)
        wire.method(0, ConnectionStart)
    else:
        wire = Wire.tuning(target.address)[0] if state == "tuning" else Wire.opening(target.address)
        target.embedded.wait_idle()
    with wire:
        target.embedded.close_connections()
        wire.expect_hang_up()


def test_stopping_the_broker_closes_every_connection(start_broker):
    """A stop sends 320 to every connection, ends the broker and frees the port (AB-31)."""
    target = start_broker()
    wires = [Wire.open(target.address) for _ in range(3)]
    wires[1].open_channel(1)
    stopping = threading.Thread(target=target.embedded.stop)
    stopping.start()
    for wire in wires:
        with wire:
            wire.expect_close(320, SHUTDOWN)
    stopping.join(60)
    assert not stopping.is_alive()
    with pytest.raises(ConnectionRefusedError):
        Wire(target.address)


def test_a_stopping_broker_does_not_wait_for_ever(start_broker):
    """A broker that stops waits neither for clients that do not answer nor for clients in the handshake (AB-31)."""
    target = start_broker(stop_timeout=100)
    mute, early, closing = Wire.open(target.address), Wire(target.address), Wire.open(target.address)
    closing.call(0, CLOSE, ConnectionCloseOk)
    began = time.monotonic()
    target.embedded.stop()
    assert time.monotonic() - began < 20
    assert_reply(mute.method(0, ConnectionClose), 320, SHUTDOWN, (0, 0))
    for wire in (mute, early, closing):
        with wire:
            wire.expect_hang_up()


def test_a_connection_closed_while_a_queue_is_asked(channel):
    """If a client closes behind a hundred pipelined methods that ask a queue, the close does not wait for each of them
    to fail (AB-28).
    """
    channel.send(method_frame(1, QueueDeclare(exclusive=True)) * 100, method_frame(0, CLOSE))
    replies = 0
    while (found := channel.frame()).channel == 1:
        replies += 1
    assert found.payload == ConnectionCloseOk().encode()
    assert replies <= 100


def test_a_closed_connection_s_number_of_messages_is_exact(wire, other, name):
    """A close in the middle of deliveries neither loses nor doubles a message (AB-28)."""
    other.call(1, QueueDeclare(queue=name), QueueDeclareOk)
    wire.open_channel(1)
    for number in range(500):
        other.publish(1, b"%d" % number, routing_key=name)
    wire.call(1, BasicConsume(queue=name), BasicConsumeOk)
    wire.method(1, BasicDeliver)
    wire.send_method(0, CLOSE)
    while (found := wire.frame()).channel != 0:
        pass
    assert found.payload == ConnectionCloseOk().encode()
    for number in range(500):
        other.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk)
        assert other.content(1)[1] == b"%d" % number
    other.call(1, BasicGet(queue=name), BasicGetEmpty)


def pipelined(name: str) -> bytes:
    """A declare, for which the channel has to wait, followed by publishes and another declare."""
    declare = method_frame(1, QueueDeclare(queue=name))
    return declare + publish_frames(1, b"first", name) + declare + publish_frames(1, b"second", name)


def expect_both(other: Wire, name: str) -> None:
    for body in (b"first", b"second"):
        other.call(1, BasicGet(queue=name, no_ack=True), BasicGetOk)
        assert other.content(1)[1] == body


def test_everything_before_the_close_is_done_and_answered(channel, other, name):
    """All methods that arrived before the close are handled, even those that wait behind others, and their replies come
    before close-ok (AB-28).
    """
    channel.send(pipelined(name), method_frame(0, CLOSE))
    channel.method(1, QueueDeclareOk)
    channel.method(1, QueueDeclareOk)
    channel.method(0, ConnectionCloseOk)
    expect_both(other, name)


def test_everything_before_a_fault_is_done(channel, other, name):
    """Publishes and declares that arrive together with a fault, and before it, take effect (AB-29)."""
    channel.send(pipelined(name), method_frame(1, BasicGet()), FAULT)
    while channel.frame().channel == 1:
        pass
    expect_both(other, name)


def test_everything_before_the_end_of_the_stream_is_done(own, channel, other, name):
    """Publishes and declares that a client sends before it shuts its socket take effect (AB-32)."""
    channel.send(pipelined(name))
    channel.sock.shutdown(socket.SHUT_WR)
    own.wait_idle()
    expect_both(other, name)
