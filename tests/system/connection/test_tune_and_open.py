"""Negotiation, connection.open, and methods in the wrong state (AB-5, AB-6, AB-19 to AB-22, AB-27, AB-39)."""

from __future__ import annotations

import time

import pytest

from warren.amqp.constants import FRAME_BODY, FRAME_HEARTBEAT, FRAME_METHOD
from warren.amqp.fields import table_from
from warren.amqp.methods import (
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    QueueDeclare,
)

from ..oracle import deviates
from ..wire import SLOW_DROP, Wire

TUNE_OK = (10, 30)

REFUSED_TUNE = {
    (2047, 4095, 60): "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
    (2047, 1, 60): "negotiated frame_max = 1 is lower than the minimum allowed value (4096)",
    (2047, 131073, 60): "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
    (2047, 0, 60): "negotiated frame_max = 0 is higher than the maximum allowed value (131072)",
    (2048, 131072, 60): "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
    (65535, 131072, 60): "negotiated channel_max = 65535 is higher than the maximum allowed value (2047)",
    (0, 131072, 60): "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
    (0, 1, 60): "negotiated frame_max = 1 is lower than the minimum allowed value (4096)",
}


@deviates("it writes the text to its log only, and drops after 3 s")
@pytest.mark.parametrize(
    ("values", "text"),
    REFUSED_TUNE.items(),
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_tune_ok_beyond_the_limits_is_not_allowed(address, values, text):
    """A tune-ok beyond the broker's limits gets 530 with a text that names the first violation; frame_max is checked
    first (AB-20, AB-21).
    """
    wire, _ = Wire.tuning(address)
    with wire:
        wire.send_method(0, ConnectionTuneOk(*values))
        wire.expect_close(530, f"NOT_ALLOWED - {text}", TUNE_OK)


@pytest.mark.parametrize("values", [(1, 4096, 0), (2047, 131072, 65535), (1, 4096, 1)])
def test_values_within_the_limits_are_used_as_they_are(address, values):
    """A tune-ok within the broker's limits is accepted, and the connection works (AB-20)."""
    wire, _ = Wire.tuning(address)
    with wire:
        wire.send_method(0, ConnectionTuneOk(*values))
        wire.call(0, ConnectionOpen("/"), ConnectionOpenOk)
        wire.open_channel(1)
        wire.close()


def test_the_broker_offers_what_it_is_configured_with(start_broker):
    """The broker offers the limits that it is configured with, and accepts 0 (no limit) from a client only if it has no
    limit itself (AB-19, AB-21).
    """
    wire, tune = Wire.tuning(start_broker(channel_max=0, frame_max=0, heartbeat=0).address)
    with wire:
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (0, 0, 0)
        wire.send_method(0, ConnectionTuneOk(0, 0, 0))
        wire.call(0, ConnectionOpen("/"), ConnectionOpenOk)
        wire.open_channel(65535)
        wire.close()


def test_the_number_of_channels_is_limited_not_their_numbers(address):
    """The number of open channels is limited, and not the highest channel number; the refusal names no method, as in
    RabbitMQ (AB-22).
    """
    with Wire.open(address, channel_max=2) as wire:
        wire.open_channel(65535)
        wire.open_channel(3000)
        wire.send_method(1, ChannelOpen())
        wire.expect_close(530, "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)")


def test_a_closed_channel_makes_room_for_another(address):
    """A closed channel makes room for another, because only open ones count (AB-22)."""
    with Wire.open(address, channel_max=1) as wire:
        for number in (1, 2, 9):
            wire.open_channel(number)
            wire.call(number, ChannelClose(200, "", 0, 0), ChannelCloseOk)
        wire.close()


@pytest.mark.parametrize("vhost", ["nowhere", "", "/ ", "a" * 200])
def test_an_unknown_virtual_host_is_not_allowed(address, vhost):
    """connection.open with an unknown virtual host gets 530, with the name without quotes in the text (AB-27)."""
    with Wire.opening(address) as wire:
        wire.send_method(0, ConnectionOpen(vhost))
        wire.expect_close(530, f"NOT_ALLOWED - vhost {vhost} not found", (10, 40))


def test_a_node_with_as_many_connections_as_it_may_have_refuses_more(start_broker):
    """A node with `connection_max` connections refuses connection.open, and one that ends makes room (AB-27)."""
    broker = start_broker(connection_max=1)
    address = broker.address
    with Wire.open(address) as first:
        with Wire.opening(address) as second:
            second.send_method(0, ConnectionOpen("/"))
            second.expect_close(530, "NOT_ALLOWED - connection refused: node connection limit (1) is reached", (10, 40))
        first.close()
    broker.embedded.wait_idle()
    with Wire.open(address) as third:
        third.close()


def test_open_ok_has_no_known_hosts_and_ignores_capabilities_and_insist(address):
    """open-ok has an empty `known_hosts`, and the deprecated fields of open change nothing (AB-27)."""
    with Wire.opening(address) as wire:
        assert wire.call(0, ConnectionOpen("/", "anything", True), ConnectionOpenOk).known_hosts == ""


UNEXPECTED = {
    "running: open": ("running", ConnectionOpen("/"), 504, "unexpected method in connection state running"),
    "running: tune-ok": ("running", ConnectionTuneOk(1, 4096, 0), 504, "unexpected method in connection state running"),
    "running: close-ok": ("running", ConnectionCloseOk(), 504, "unexpected method in connection state running"),
    "running: queue.declare": ("running", QueueDeclare(), 504, "unexpected method in connection state running"),
    "running: basic.publish": ("running", BasicPublish(), 504, "unexpected method in connection state running"),
    "running: blocked": ("running", ConnectionBlocked("no"), 504, "unexpected method in connection state running"),
    "running: tune": ("running", ConnectionTune(1, 1, 1), 504, "unexpected method in connection state running"),
    "opening: tune-ok": ("opening", ConnectionTuneOk(1, 4096, 0), 504, "unexpected method in connection state opening"),
    "opening: close": ("opening", ConnectionClose(200, "", 0, 0), 504, "unexpected method in connection state opening"),
}


@pytest.mark.parametrize(("state", "method", "code", "text"), UNEXPECTED.values(), ids=UNEXPECTED.keys())
def test_a_method_that_does_not_belong_on_channel_0_is_a_channel_error(address, witness, state, method, code, text):
    """A method that does not belong on channel 0 gets a close with the ids of that method (AB-5)."""
    with (Wire.open if state == "running" else Wire.opening)(address) as wire:
        wire.send_method(0, method)
        wire.expect_close(code, f"CHANNEL_ERROR - {text}", (method.CLASS_ID, method.METHOD_ID))
    witness.check()


def test_a_frame_on_a_channel_while_opening_is_unexpected(address):
    """A frame on a channel before connection.open-ok gets connection.close, as unexpected (AB-6, AB-38)."""
    with Wire.opening(address) as wire:
        wire.send_method(1, ChannelOpen())
        wire.expect_close(505, "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>")


def test_errors_before_opening_are_answered_with_silence(address, witness):
    """Before connection.open, any error but a refused negotiation is answered with 3 s of silence, and then the socket
    is closed (AB-5, AB-6, AB-38).

    One test for all cases, so that they wait at the same time.
    """
    waiting = []
    for faults in (
        lambda wire: wire.send_method(0, ConnectionTuneOk(1, 4096, 0)),
        lambda wire: wire.send_method(0, ConnectionOpen("/")),
        lambda wire: wire.send_method(0, ConnectionSecureOk(b"x")),
        lambda wire: wire.send_method(1, ChannelOpen()),
        lambda wire: wire.send_frame(FRAME_BODY, 0, b"x"),
        lambda wire: wire.send_frame(FRAME_HEARTBEAT, 1),
        lambda wire: wire.send_frame(FRAME_METHOD, 0, b"\0\x0a\0\x0b\0\0\0\x09cut short"),
        lambda wire: wire.send_frame(FRAME_METHOD, 0, bytes(5000)),
        lambda wire: wire.send(b"\x01\0\0\0\0\0\x04\0\x0a\0\x0b\xcf"),
        lambda wire: wire.send(b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"),
    ):
        starting = Wire.started(address)
        faults(starting)
        tuning, _ = Wire.tuning(address)
        if faults.__code__.co_names != ("send_method", "ConnectionTuneOk"):
            faults(tuning)
            waiting.append(tuning)
        waiting.append(starting)
    late, _ = Wire.tuning(address)
    late.send_method(0, ConnectionStartOk())
    waiting.append(late)
    began = time.monotonic()
    witness.check()
    for wire in waiting:
        with wire:
            wire.expect_hang_up()
        assert time.monotonic() - began > SLOW_DROP - 0.5
    assert time.monotonic() - began < SLOW_DROP + 2


def test_before_tune_ok_frames_up_to_4096_octets_are_accepted(address):
    """Before tune-ok frames with payloads of up to 4,096 octets are accepted (AB-39)."""
    with Wire.started(address) as wire:
        filler = 4096 - len(ConnectionStartOk(table_from({"filler": ""}), "PLAIN", b"\0guest\0guest", "en_US").encode())
        start_ok = ConnectionStartOk(table_from({"filler": "x" * filler}), "PLAIN", b"\0guest\0guest", "en_US")
        assert len(start_ok.encode()) == 4096
        wire.call(0, start_ok, ConnectionTune)


def test_heartbeats_in_the_handshake_are_welcome(address):
    """Heartbeats during the handshake are accepted: AB-6 refuses frames of other channels only."""
    with Wire.started(address) as wire:
        wire.send_frame(FRAME_HEARTBEAT, 0)
        wire.send_start_ok()
        wire.method(0, ConnectionTune)
        wire.send_frame(FRAME_HEARTBEAT, 0)
        wire.send_method(0, ConnectionTuneOk(1, 4096, 0))
        wire.send_frame(FRAME_HEARTBEAT, 0)
        wire.call(0, ConnectionOpen("/"), ConnectionOpenOk)
        wire.call(1, ChannelOpen(), ChannelOpenOk)
