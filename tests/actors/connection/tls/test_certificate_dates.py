"""The expiry that is read from a PEM file is the one that Python's ssl reads from a peer's certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest
import trustme

from warren.actors.connection.tls.certificate_dates import ends_of


def end_that_a_peer_sees(ca, certificate):
    """The expiry that `getpeercert` returns after a handshake in memory."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    certificate.configure_cert(server)
    ca.configure_trust(client)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends[1].getpeercert()["notAfter"]), UTC)


@pytest.mark.parametrize("end", [datetime(2031, 7, 9, 12, 30, 59, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC), None])
def test_the_end_is_that_which_a_peer_sees(end):
    """Both read the same expiry; a certificate writes its dates in another format from 2050 on."""
    ca = trustme.CA()
    certificate = ca.issue_cert("localhost", not_after=end) if end else ca.issue_cert("localhost")
    pem = certificate.private_key_and_cert_chain_pem.bytes().decode()
    assert ends_of(pem) == [end_that_a_peer_sees(ca, certificate)]
    assert end is None or ends_of(pem) == [end]


def test_a_file_has_any_number_of_certificates():
    one, other = trustme.CA(), trustme.CA()
    text = (one.cert_pem.bytes() + b"a comment\n" + other.cert_pem.bytes()).decode()
    assert len(ends_of(text)) == 2
    assert ends_of("no certificate") == []


def test_a_certificate_that_is_cut_off_is_an_error():
    der = ssl.PEM_cert_to_DER_cert(trustme.CA().cert_pem.bytes().decode())
    for size in (1, 3, 40, 150, len(der) - 1):
        with pytest.raises(ValueError):
            ends_of(ssl.DER_cert_to_PEM_cert(der[:size]))
