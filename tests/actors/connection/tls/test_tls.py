"""TLS without a node: files and their faults, names in certificates, and the transport between two sockets."""

from __future__ import annotations

import random
import socket
import ssl

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from warren.actors.connection.output import SocketOutput
from warren.actors.connection.tls.tls_context import TlsError, distinguished_name, server_context, user_name
from warren.actors.connection.tls.tls_transport import UNASKED_MAX, TlsTransport
from warren.settings import Settings

AUTHORITY = trustme.CA()
SERVER = AUTHORITY.issue_cert("localhost")


@pytest.fixture
def files(tmp_path):
    """Paths of PEM files, by their content."""
    paths = {
        name: str(tmp_path / f"{name}.pem")
        for name in ("cert", "key", "both", "ca", "other_key", "locked_key", "text", "missing")
    }
    SERVER.cert_chain_pems[0].write_to_path(paths["cert"])
    SERVER.private_key_pem.write_to_path(paths["key"])
    SERVER.private_key_and_cert_chain_pem.write_to_path(paths["both"])
    AUTHORITY.cert_pem.write_to_path(paths["ca"])
    AUTHORITY.issue_cert("localhost").private_key_pem.write_to_path(paths["other_key"])
    key = serialization.load_pem_private_key(SERVER.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    for name, octets in (("locked_key", locked), ("text", b"hello")):
        with open(paths[name], "wb") as file:
            file.write(octets)
    return paths


# -- files ---


@pytest.mark.parametrize(("cert", "key"), [("cert", "key"), ("both", None), ("both", "both")])
def test_certificate_and_key_in_one_file_or_two(files, cert, key):
    context = server_context(Settings(tls_port=0, tls_cert_file=files[cert], tls_key_file=key and files[key]))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2 and context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("cert", "key", "ca", "setting", "text"),
    [
        (
            "missing",
            None,
            None,
            "tls_cert_file",
            "cannot be read: No such file or directory; give a file that the broker's user may read",
        ),
        ("cert", "missing", None, "tls_key_file", "cannot be read"),
        ("both", None, "missing", "tls_ca_file", "cannot be read"),
        ("text", "key", None, "tls_cert_file", "holds no certificate; give one in PEM format"),
        ("cert", "text", None, "tls_key_file", "holds no private key; give one in PEM format"),
        ("cert", None, None, "tls_cert_file", "holds no private key; set tls_key_file"),
        ("cert", "other_key", None, "tls_key_file", "is not the key of the certificate in tls_cert_file"),
        ("cert", "locked_key", None, "tls_key_file", "holds an encrypted key"),
        ("both", None, "text", "tls_ca_file", "holds no certificates"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_reason_and_way_out(files, cert, key, ca, setting, text):
    settings = Settings(
        tls_port=0, tls_cert_file=files[cert], tls_key_file=key and files[key], tls_ca_file=ca and files[ca]
    )
    with pytest.raises(TlsError) as caught:
        server_context(settings)
    path = {
        "tls_cert_file": settings.tls_cert_file,
        "tls_key_file": settings.tls_key_file,
        "tls_ca_file": settings.tls_ca_file,
    }[setting]
    assert str(caught.value).startswith(f"setting '{setting}' is {path!r}: it {text}")


# -- names ---

CERTIFICATE = {
    "subject": (
        (("countryName", "CH"),),
        (("organizationName", "Müller, Söhne"),),
        (("commonName", "guest"), ("userId", "7")),
    ),
    "subjectAltName": (("IP Address", "10.0.0.1"), ("DNS", "guest.example"), ("DNS", "other.example")),
}


@pytest.mark.parametrize(
    ("certificate", "login_from", "name"),
    [
        (CERTIFICATE, "distinguished_name", "CN=guest+UID=7,O=Müller\\, Söhne,C=CH"),
        (CERTIFICATE, "common_name", "guest"),
        (CERTIFICATE, "subject_alternative_name", "guest.example"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, "common_name", "a,b"),
        ({"subject": ()}, "distinguished_name", None),
        ({"subject": ((("countryName", "CH"),),)}, "common_name", None),
        ({"subjectAltName": (("IP Address", "10.0.0.1"),)}, "subject_alternative_name", None),
    ],
)
def test_the_user_of_a_certificate(certificate, login_from, name):
    """`ssl_cert_login_from` decides which name in the certificate is the user (AB-13)."""
    assert user_name(certificate, login_from) == name


@pytest.mark.parametrize(
    ("value", "written"),
    [("#a", "\\#a"), (" a ", "\\ a\\ "), (" ", "\\ "), ('a"+;<>\\', 'a\\"\\+\\;\\<\\>\\\\'), ("a\0", "a\\00")],
)
def test_a_distinguished_name_is_escaped(value, written):
    """RFC 4514 section 2.4: special characters are escaped, so that no value can pass for two attributes."""
    assert distinguished_name({"subject": ((("commonName", value),),)}) == f"CN={written}"


# -- the transport ---


class Pair:
    """A transport and its client, connected by sockets with the smallest buffers that the kernel allows.

    The client's TLS runs in memory as well; `turn` moves it on.
    """

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        for sock in (self.ours, self.theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        SERVER.configure_cert(server)
        AUTHORITY.configure_trust(client)
        self.transport = TlsTransport(self.ours, server)
        self.inward, self.outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.inward, self.outward, server_hostname="localhost")
        self.unsent = b""

    def turn(self, action=None):
        """Have the client read its socket, run `action`, and write what the socket takes.

        Returns the result of `action`, or None if TLS needs more input first.
        """
        try:
            self.inward.write(self.theirs.recv(5_000))
        except BlockingIOError:
            pass
        result = None
        try:
            result = action() if action else None
        except ssl.SSLWantReadError:
            pass
        self.unsent += self.outward.read()
        try:
            self.unsent = self.unsent[self.theirs.send(self.unsent) :] if self.unsent else b""
        except BlockingIOError:
            pass
        return result

    def shake_hands(self):
        for _ in range(1000):
            self.turn(self.client.do_handshake)
            if self.transport.is_ready and self.client.version():
                self.transport.flush()
                self.turn(self.client.do_handshake)
                return
            if not self.transport.is_ready:
                self.transport.handshake()
            self.transport.flush()
        raise AssertionError("no end of the handshake")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.close()
        self.theirs.close()


@pytest.mark.parametrize("seed", range(5))
def test_octets_pass_both_ways_in_order_and_written_means_written(seed):
    """Bytes pass in order both ways, and are reported as written when the socket has them, although sockets take little
    at a time and pieces have all sizes, some larger than CHUNK.
    """
    draw = random.Random(seed)
    with Pair() as pair:
        pair.shake_hands()
        output = SocketOutput(pair.transport)
        to_client, to_server, at_client, at_server = b"", b"", b"", b""
        for _ in range(40):
            for _ in range(draw.choice((0, 1, 1, 30))):
                piece = draw.randbytes(draw.choice((1, 50, 5_000, 200_000 if draw.random() < 0.1 else 20)))
                to_client += piece
                output.put(piece)
            output.write()
            assert output.size == len(to_client) - output.total_written
            piece = draw.randbytes(draw.choice((1, 3_000, 40_000)))
            to_server += piece
            pair.turn(lambda octets=piece: pair.client.write(octets))
        for _ in range(5_000):
            at_client += pair.turn(lambda: pair.client.read(1 << 20)) or b""
            output.write()
            try:
                at_server += pair.transport.recv(16_384)
            except BlockingIOError:
                pass
            if (len(at_client), len(at_server)) == (len(to_client), len(to_server)):
                break
        assert at_client == to_client and at_server == to_server
        assert not output.size and not pair.transport.has_unsent


def test_data_and_close_notify_in_one_read():
    """When data and close_notify arrive in one read, the data is returned first and then the end, although the socket
    itself is not closed.
    """
    with Pair() as pair:
        pair.shake_hands()
        pair.turn(lambda: pair.client.write(b"last words"))
        pair.turn(pair.client.unwrap)
        assert pair.transport.recv(16_384) == b"last words"
        assert pair.transport.is_ended
        assert pair.transport.recv(16_384) == b""


def test_closing_says_close_notify():
    with Pair() as pair:
        pair.shake_hands()
        pair.transport.close()
        assert pair.turn(lambda: pair.client.read(100)) == b""


def test_a_forged_record_is_an_error():
    with Pair() as pair:
        pair.shake_hands()
        pair.theirs.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ssl.SSLError):
            pair.transport.recv(16_384)


def test_answers_of_tls_that_are_not_read_are_bounded():
    """A client that requests key updates and does not read the answers cannot make the broker keep them without a
    bound. Python's ssl cannot request them, so the test writes the answers into TLS's output itself.
    """
    with Pair() as pair:
        pair.shake_hands()
        pair.transport._outgoing.write(bytes(UNASKED_MAX))
        assert not pair.transport.flush()
        pair.transport._outgoing.write(bytes(UNASKED_MAX + 1))
        pair.turn(lambda: pair.client.write(b"x"))
        with pytest.raises(ConnectionAbortedError, match="does not read the answers"):
            pair.transport.recv(16_384)
