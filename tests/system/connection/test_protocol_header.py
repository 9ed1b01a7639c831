"""From TCP accept to connection.start (AB-1 to AB-4, AB-7 to AB-9)."""

from __future__ import annotations

import logging
import time

import pytest

from warren.amqp.constants import PROTOCOL_HEADER
from warren.amqp.fields import table_to_dict
from warren.amqp.methods import ConnectionStart

from ..wire import HungUp, Wire, text_of

REFUSED = {
    "AMQP 1.0": b"AMQP\x00\x01\x00\x00",
    "AMQP 1.0 over SASL": b"AMQP\x03\x01\x00\x00",
    "the 0-9 of 2006": b"AMQP\x01\x01\x00\x0a",
    "a wrong revision": b"AMQP\x00\x00\x09\x00",
    "a wrong prefix": b"BMQP\x00\x00\x09\x01",
    "lower case": b"amqp\x00\x00\x09\x01",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "zeros": bytes(8),
}


def test_nothing_is_sent_before_eight_octets(address):
    """The broker sends nothing before the eighth octet of the protocol header (AB-1)."""
    with Wire(address) as wire:
        for octet in PROTOCOL_HEADER[:7]:
            wire.send(bytes([octet]))
            with pytest.raises(TimeoutError):
                wire.frame(timeout=0.02)
        wire.send(PROTOCOL_HEADER[7:])
        wire.method(0, ConnectionStart)


@pytest.mark.parametrize("header", [PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09"], ids=["0-9-1", "0-9"])
def test_both_headers_of_0_9_are_answered_with_version_0_9(address, header):
    """The headers of 0-9 and 0-9-1 both get a connection.start with version 0-9 (AB-1, AB-7)."""
    with Wire(address) as wire:
        wire.send(header)
        start = wire.method(0, ConnectionStart)
        assert (start.version_major, start.version_minor) == (0, 9)


@pytest.mark.parametrize("header", REFUSED.values(), ids=REFUSED.keys())
def test_any_other_header_is_answered_with_ours_and_the_end(address, header, witness):
    """Any other header is answered with exactly the eight bytes of 0-9-1, and then the socket is closed (AB-1)."""
    with Wire(address) as wire:
        wire.send(header)
        assert wire.raw(8) == PROTOCOL_HEADER
        with pytest.raises((HungUp, ConnectionResetError)):
            wire.raw(1)
    witness.check()


def test_header_and_start_ok_may_come_in_one_segment(address):
    """Input that comes in one segment with the protocol header is handled (AB-1)."""
    with Wire(address) as wire:
        wire.send(PROTOCOL_HEADER + b"\x08\x00\x00\x00\x00\x00\x00\xce")
        wire.method(0, ConnectionStart)
        wire.send_start_ok()
        assert wire.on(0)


def test_a_health_check_is_no_connection_worth_a_warning(own, address, caplog):
    """A connection that closes before it has sent a byte, as health checks do, is not logged as a warning (AB-2)."""
    with caplog.at_level(logging.DEBUG):
        caplog.clear()
        Wire(address).hang_up()
        own.wait_idle()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_client_that_leaves_in_the_handshake_is_worth_a_warning(own, address, caplog):
    """A client that leaves in the handshake after it has sent something is logged as a warning (AB-2)."""
    with Wire.started(address):
        pass
    own.wait_idle()
    assert any("starting" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("step", ["accepted", "header", "start-ok", "tune-ok"])
def test_a_handshake_that_is_not_finished_in_time_is_dropped(start_broker, step):
    """A client that does not finish the handshake in time is dropped without a frame, however far it has
    come (AB-3).
    """
    address = start_broker(handshake_timeout=150).address
    began = time.monotonic()
    if step == "accepted":
        wire = Wire(address)
    elif step == "header":
        wire = Wire.started(address)
    elif step == "start-ok":
        wire, _ = Wire.tuning(address)
    else:
        wire = Wire.opening(address)
    with wire:
        wire.expect_hang_up()
    assert 0.1 < time.monotonic() - began < 8


def test_the_handshake_timer_does_not_touch_a_running_connection(start_broker):
    """The timer of the handshake does not end a connection that is running (AB-3)."""
    address = start_broker(handshake_timeout=100).address
    with Wire.open(address) as wire:
        with Wire.started(address) as late:
            late.expect_hang_up()  # opened after `wire`, so that the timer of `wire` has fired as well
        wire.open_channel(1)
        wire.close()


def test_connections_and_channels_have_rabbitmq_s_names(own, address):
    """A connection is named `peer -> local`, and a channel by its connection and number in parentheses (AB-4)."""
    with Wire.open(address, connection_name="orders") as wire:
        wire.open_channel(7)
        host, port = wire.sock.getsockname()
        (row,) = [row for row in own.connections() if row.peer_port == port]
        assert row.name == f"{host}:{port} -> {address[0]}:{address[1]}"
        assert row.client_properties["connection_name"] == "orders"
        assert f"{row.name} (7)" in [channel.name for channel in own.channels()]


def test_server_properties_tell_clients_what_they_look_for(address):
    """The server properties have what clients look for: kombu decides by product and version how to use `global` (AB-7,
    AB-8).
    """
    with Wire(address) as wire:
        wire.send(PROTOCOL_HEADER)
        start = wire.method(0, ConnectionStart)
    table = start.server_properties
    assert text_of(table, "product") == "RabbitMQ"
    assert (3, 3) <= tuple(int(part) for part in text_of(table, "version").split(".")[:2]) < (4, 0)
    assert {"platform", "copyright", "information", "cluster_name"} <= {
        name for name, letter, _ in table if letter == "S"
    }
    assert table_to_dict(table)["capabilities"] == {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "authentication_failure_close": True,
        "per_consumer_qos": True,
        "direct_reply_to": True,
    }
    assert set(start.mechanisms.split(b" ")) == {b"PLAIN", b"AMQPLAIN"}
    assert start.locales == b"en_US"


def test_configured_server_properties_replace_and_add(start_broker):
    """AB-9: configured properties replace the broker's own, and each key occurs once."""
    target = start_broker(
        server_properties={"product": "Ours", "team": "a"}, cluster_name="c1", auth_mechanisms=("PLAIN",)
    )
    with Wire(target.address) as wire:
        wire.send(PROTOCOL_HEADER)
        start = wire.method(0, ConnectionStart)
    names = [name for name, _, _ in start.server_properties]
    assert len(names) == len(set(names))
    assert [text_of(start.server_properties, key) for key in ("product", "team", "cluster_name")] == ["Ours", "a", "c1"]
    assert start.mechanisms == b"PLAIN"
