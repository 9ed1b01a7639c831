"""Connections over TLS: the same broker behind them, login by certificate (AB-13), and clients with faulty TLS."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import threading
import time
from typing import Any

import pika
import pytest
import trustme

from warren import Broker, StartError
from warren.amqp.constants import PROTOCOL_HEADER
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionStart,
    ConnectionTune,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.cli.node_client import NodeClient, Target

from ..wire import SLOW_DROP, TIMEOUT, HungUp, Wire, publish_frames
from ..witness import Witness

MIB = 1 << 20
REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile."
)


class Authority:
    """A certificate authority for the test run, the broker's certificate, and those of clients."""

    def __init__(self, folder: Any) -> None:
        self.ca = trustme.CA()
        self.files = {"tls_cert_file": str(folder / "broker.pem"), "tls_ca_file": str(folder / "ca.pem")}
        self.ca.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
            self.files["tls_cert_file"]
        )
        self.ca.cert_pem.write_to_path(self.files["tls_ca_file"])

    def client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def start_tls(start_broker, authority):
    """Starts a broker with TLS."""

    def start(**settings: Any) -> Broker:
        return start_broker(**{"tls_port": 0, **authority.files, **settings}).embedded

    return start


@pytest.fixture
def broker_tls(start_tls) -> Broker:
    return start_tls()


def tls_wire(context: ssl.SSLContext) -> type[Wire]:
    """A Wire over TLS."""

    class TlsWire(Wire):
        def __init__(self, address: tuple[str, int]) -> None:
            super().__init__(address)
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")

    return TlsWire


def address(broker: Broker) -> tuple[str, int]:
    assert broker.tls_port is not None
    return broker.host, broker.tls_port


def pika_connection(broker: Broker, context: ssl.SSLContext, **parameters: Any) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(*address(broker), ssl_options=pika.SSLOptions(context, "localhost"), **parameters)
    )


def external(broker: Broker, context: ssl.SSLContext, **start_ok: Any) -> Wire:
    """Connect, log in by EXTERNAL with a response that means nothing, and return the client."""
    wire = tls_wire(context)(address(broker))
    wire.send(PROTOCOL_HEADER)
    assert wire.method(0, ConnectionStart).mechanisms == b"PLAIN EXTERNAL"
    wire.send_start_ok(mechanism="EXTERNAL", response=b"nobody", **start_ok)
    return wire


# -- the same broker ---


def test_pika_publishes_and_gets(broker_tls, authority):
    """1 MB both ways, and 10,000 small messages with confirms; a client without TLS gets the same."""
    connection = pika_connection(broker_tls, authority.client())
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    large = os.urandom(MIB)
    channel.basic_publish("", "q", large)
    assert channel.basic_get("q", auto_ack=True)[2] == large
    # pika would wait for each confirm
    for number in range(10_000):
        channel.basic_publish("", "q", str(number))
    plain = pika.BlockingConnection(pika.URLParameters(broker_tls.url))
    assert [plain_get(plain, "q") for _ in range(3)] == [b"0", b"1", b"2"]
    connection.close()
    plain.close()


def plain_get(connection: pika.BlockingConnection, queue: str) -> bytes:
    channel = connection.channel()
    return channel.basic_get(queue, auto_ack=True)[2]


def test_ten_thousand_confirmed_and_consumed(broker_tls, authority):
    with tls_wire(authority.client()).open(address(broker_tls)) as wire:
        wire.open_channel(1)
        wire.call(1, ConfirmSelect(), ConfirmSelectOk)
        queue = wire.call(1, QueueDeclare(auto_delete=True), QueueDeclareOk).queue
        for _ in range(100):
            wire.send(*(publish_frames(1, b"x" * 50, queue) for _ in range(100)))
        while wire.method(1, BasicAck).delivery_tag < 10_000:
            pass
        wire.call(1, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
        for _ in range(10_000):
            wire.on(1)
            wire.content(1)
        wire.close()


def test_urls_and_listings(broker_tls, authority):
    assert broker_tls.tls_url == f"amqps://guest:guest@127.0.0.1:{broker_tls.tls_port}/%2F"
    with (
        tls_wire(authority.client()).open(address(broker_tls)) as secure,
        Wire.open((broker_tls.host, broker_tls.port)) as plain,
    ):
        ports = {f":{broker_tls.tls_port}", f":{broker_tls.port}"}
        assert {re.search(r":\d+$", info.name)[0] for info in broker_tls.connections()} == ports
        assert broker_tls.close_connections("both") == 2
        for wire in (secure, plain):
            wire.expect_close(320, "CONNECTION_FORCED - both")


def test_without_tls_port_there_is_none(start_broker):
    embedded = start_broker().embedded
    assert embedded.tls_port is None
    with pytest.raises(RuntimeError, match="set tls_port"):
        _ = embedded.tls_url


def test_a_file_that_cannot_be_used_is_found_at_the_start(authority, tmp_path):
    with pytest.raises(StartError, match=r"setting 'tls_cert_file' is '.*missing.pem': it cannot be read"):
        Broker(tls_port=0, tls_cert_file=str(tmp_path / "missing.pem")).start()


def test_a_taken_tls_port_is_found_at_the_start(broker_tls, authority):
    with pytest.raises(StartError, match=f"{broker_tls.tls_port}: the port is in use"):
        Broker(tls_port=broker_tls.tls_port, **authority.files).start()


def test_connections_of_both_ports_count_for_the_limit(start_tls, authority):
    limited = start_tls(connection_max=1)
    with Wire.open((limited.host, limited.port)):
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="node connection limit"):
            pika_connection(limited, authority.client())


# -- certificates ---


def test_a_required_certificate(start_tls, authority, caplog):
    """Without a certificate of the right authority the TLS handshake fails; the log has a line, and the broker
    continues."""
    strict = start_tls(tls_verify="required")
    with tls_wire(authority.client(authority.ca.issue_cert("guest"))).open(address(strict)) as wire:
        wire.close()
    for certificate, reason in (
        (None, "the client showed no certificate"),
        (trustme.CA().issue_cert("guest"), "the client's certificate was not accepted"),
    ):
        with pytest.raises((ssl.SSLError, ConnectionError, HungUp)):
            tls_wire(authority.client(certificate)).open(address(strict))
        assert eventually(lambda reason=reason: f"no TLS: {reason}" in caplog.text)
    Witness((strict.host, strict.port)).check()


@pytest.mark.parametrize(
    ("login_from", "user"),
    [
        ("distinguished_name", "CN=guest,OU=Diggers,O=Burrow"),
        ("common_name", "guest"),
        ("subject_alternative_name", "guest.example"),
    ],
)
def test_external(start_tls, authority, login_from, user, tmp_path):
    """With EXTERNAL, the name in the certificate is the user, and the response is ignored (AB-13)."""
    certificate = authority.ca.issue_cert(
        "guest.example", common_name="guest", organization_name="Burrow", organization_unit_name="Diggers"
    )
    control = str(tmp_path / "control")
    strict = start_tls(
        tls_verify="optional",
        auth_mechanisms=("PLAIN", "EXTERNAL"),
        ssl_cert_login_from=login_from,
        default_user=user,
        loopback_users=(),
        control_dir=control,
    )
    with external(strict, authority.client(certificate)) as wire:
        wire.method(0, ConnectionTune)
        with NodeClient(Target("warren@localhost", control_dir=control)) as node:
            (row,) = node.call(
                "list_connections", columns=["peer_cert_subject", "peer_cert_issuer", "peer_cert_validity"]
            )
    assert row["peer_cert_subject"] == "CN=guest,OU=Diggers,O=Burrow"
    assert row["peer_cert_issuer"].startswith("OU=Testing CA")
    begin, _, end = row["peer_cert_validity"].partition(" - ")
    assert begin.endswith("Z") and end.endswith("Z") and begin < "2026" < end
    # PLAIN still works
    plain = f"\0{user}\0guest".encode()
    with tls_wire(authority.client()).open(address(strict), response=plain) as wire:
        assert strict.connections()[-1].user == user
        wire.close()


@pytest.mark.parametrize(
    ("common_name", "reason"),
    [(None, "showed no certificate"), ("", "has no common name"), ("stranger", "user 'stranger' does not exist")],
)
def test_external_without_a_usable_name_is_a_refused_login(start_tls, authority, caplog, common_name, reason):
    """EXTERNAL is a refused login if the client has no certificate, one without a usable name, or one of an unknown
    user (AB-13, AB-17).
    """
    lax = start_tls(tls_verify="optional", auth_mechanisms=("PLAIN", "EXTERNAL"), ssl_cert_login_from="common_name")
    certificate = None if common_name is None else authority.ca.issue_cert("x.example", common_name=common_name or None)
    with external(lax, authority.client(certificate)) as wire:
        wire.expect_close(403, REFUSED)
    assert reason in caplog.text
    with external(lax, authority.client(certificate), capabilities={}) as silent:
        begun = time.monotonic()
        silent.expect_hang_up()
        assert time.monotonic() - begun > SLOW_DROP - 0.5


def test_external_is_not_offered_without_tls(start_tls):
    """Without TLS, EXTERNAL is not offered, and counts as not enabled (AB-13, AB-18)."""
    both = start_tls(auth_mechanisms=("PLAIN", "EXTERNAL"))
    with Wire((both.host, both.port)) as wire:
        wire.send(PROTOCOL_HEADER)
        assert wire.method(0, ConnectionStart).mechanisms == b"PLAIN"
        wire.send_start_ok(mechanism="EXTERNAL", response=b"")
        wire.expect_hang_up()


# -- clients that do TLS badly ---


def eventually(holds: Any) -> bool:
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def expect_end(client: socket.socket) -> bytes:
    """What the broker sent before it closed the socket; fails if it does not close it."""
    got = b""
    try:
        while piece := client.recv(4096):
            got += piece
    except ConnectionError:
        pass
    return got


@pytest.mark.parametrize(
    "octets", [PROTOCOL_HEADER, b"GET / HTTP/1.1\r\n\r\n", b"\x80", b"\x16\x03\x01\x00\x05hello", bytes(300_000)]
)
def test_octets_that_are_not_tls(broker_tls, authority, caplog, octets):
    """Octets that are not TLS make one line in the log and close the socket, and other clients are served."""
    caplog.set_level(logging.DEBUG, "warren")
    with socket.create_connection(address(broker_tls), TIMEOUT) as client:
        try:
            client.sendall(octets)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the broker hung up first
        assert b"AMQP" not in expect_end(client)
    assert eventually(lambda: not broker_tls.connections())
    lines = [record for record in caplog.records if record.name == "warren.connection"]
    assert len(lines) == 1 and "no TLS" in lines[0].getMessage()
    with tls_wire(authority.client()).open(address(broker_tls)) as wire:
        wire.close()


def test_a_client_that_sends_nothing_and_leaves_is_a_health_check(broker_tls, caplog):
    """A TCP connection to the TLS port that ends without a byte is not logged (AB-2)."""
    caplog.set_level(logging.INFO, "warren")
    socket.create_connection(address(broker_tls), TIMEOUT).close()
    broker_tls.wait_idle()
    assert eventually(lambda: not broker_tls.connections())
    assert not [record for record in caplog.records if record.name == "warren.connection"]


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01"])
def test_a_handshake_that_never_ends(start_tls, caplog, first):
    impatient = start_tls(ssl_handshake_timeout=200)
    begun = time.monotonic()
    with socket.create_connection(address(impatient), TIMEOUT) as client:
        client.sendall(first)
        assert expect_end(client) == b""
    assert time.monotonic() - begun > 0.15
    assert "the handshake took longer than 200 ms" in caplog.text


def test_tls_versions_before_1_2_are_refused(broker_tls, authority):
    old = authority.client()
    with pytest.warns(DeprecationWarning):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls_wire(old)(address(broker_tls))


def test_tls_1_2(broker_tls, authority):
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with tls_wire(context).open(address(broker_tls)) as wire:
        wire.close()


def test_close_notify_ends_a_connection_whose_socket_stays_open(broker_tls, authority):
    wire = tls_wire(authority.client()).open(address(broker_tls))
    assert eventually(lambda: len(broker_tls.connections()) == 1)
    raw = wire.sock.unwrap()
    assert eventually(lambda: not broker_tls.connections())
    raw.close()


def test_a_client_that_does_not_read_is_bounded(start_tls, authority):
    """A client that requests 64 MiB and does not read is bounded: what exceeds the limit and the buffers of the
    operating system stays in the queue, and comes when the client reads (FC-35).
    """
    small = start_tls(output_buffer_limit=MIB)
    body = bytes(MIB)
    small.declare_queue("q")
    with tls_wire(authority.client()).open(address(small)) as wire:
        wire.open_channel(1)
        for _ in range(64):
            small.publish(body, "q")
        for _ in range(64):
            wire.send_method(1, BasicGet(queue="q", no_ack=True))
            small.connections()  # a round trip, so that each get is a separate read
        assert "cannot write" in busy(small)
        assert small.queue("q").messages > 40
        for _ in range(64):
            wire.method(1, BasicGetOk)
            assert len(wire.content(1)[1]) == MIB
        wire.close()


def busy(broker: Broker) -> str:
    try:
        broker.wait_idle(0.2)
    except TimeoutError as error:
        return str(error)
    return ""


def test_stop_closes_properly(authority):
    """When the broker stops, running clients get 320 and close_notify, and a client in its TLS handshake is dropped."""
    with Broker(tls_port=0, stop_timeout=60_000, **authority.files) as stopping:
        wire = tls_wire(authority.client()).open(address(stopping))
        half = socket.create_connection(address(stopping), TIMEOUT)
        half.sendall(b"\x16\x03\x01")
        assert eventually(lambda: len(stopping.connections()) == 2)
        stopping.wait_idle(TIMEOUT)  # a socket that is closed before its bytes are read is reset
        thread = threading.Thread(target=stopping.stop)
        begun = time.monotonic()
        thread.start()
        wire.expect_close(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
        thread.join(TIMEOUT)
        assert time.monotonic() - begun < 30
        assert half.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(half.getpeername(), TIMEOUT)
