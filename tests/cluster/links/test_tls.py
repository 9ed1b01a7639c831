"""Links with TLS: both sides show certificates of the same authority, and nobody gets in without one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trustme

from warren import SettingsError
from warren.cluster.links.config import LinksError
from warren.cluster.links.contract import to_links

from .nodes import WAIT, Node, to_peer, until, until_linked


@pytest.fixture(scope="module")
def authorities():
    return trustme.CA(), trustme.CA()


@pytest.fixture
def files(tmp_path, authorities):
    """Settings of a node whose certificate comes from the first or from the second authority."""

    def settings(number):
        authority = authorities[number]
        certificate, trusted = tmp_path / f"{number}.pem", tmp_path / f"ca{number}.pem"
        authority.issue_cert("warren.example").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        authority.cert_pem.write_to_path(str(trusted))
        return {"cluster_tls_cert_file": str(certificate), "cluster_tls_ca_file": str(trusted)}

    return settings


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "warren.links")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "warren.links"]


def test_links_with_tls(node, files):
    """With TLS, large contents cross, and a link that ended is made again."""
    a, b = node("a", **files(0)), node("b", **files(0))
    a.set_peers(b)
    b.set_peers(a)
    until_linked(a, b)
    assert a.ask("inquire", "b@h", to_peer.take([b"x" * 3_000_000, b"y"])) == 3_000_001
    a.ask("tell", "b@h", range(500))
    until(lambda: b.look("numbers") == list(range(500)), "not all have come")
    b.stop()
    until(lambda: a.look("events")[-1][0] == "refused", "the end was not noticed")


def test_a_certificate_of_another_authority(node, files, log):
    a, b = node("a", **files(0)), node("b", **files(1))
    a.set_peers(b)
    until(lambda: any(event[0] == "refused" for event in a.look("events")), "it was not refused")
    until(lambda: any("certificate" in line for line in log()), f"{log()}")
    assert b.rows() == {}


def test_a_renewed_certificate_is_taken_without_a_restart(node, files, log):
    """Connections that are made later use what the files have by then. A file that cannot be used changes nothing
    (CL-7). Before, nodes whose certificates had expired could never be linked again, though the files were renewed.
    """
    own = files(1)
    a, b = node("a", **files(0)), node("b", **own)
    a.set_peers(b)
    b.set_peers(a)
    until(lambda: any(event[0] == "refused" for event in a.look("events")), "it was not refused")

    certificate = Path(own["cluster_tls_cert_file"])
    certificate.write_text("no certificate")
    reason = b.client.ask(b.links, to_links.reload_certificates(), WAIT)
    assert "setting 'cluster_tls_cert_file': the file cannot be used" in reason
    until(lambda: any("certificate for other nodes stays" in line for line in log()), f"{log()}")

    for key, path in files(0).items():
        Path(own[key]).write_bytes(Path(path).read_bytes())
    assert b.client.ask(b.links, to_links.reload_certificates(), WAIT) == ""
    until_linked(a, b)


def test_a_node_without_tls_reloads_nothing(node):
    a = node("a")
    assert a.client.ask(a.links, to_links.reload_certificates(), WAIT) == ""


@pytest.mark.parametrize(("secured", "sentence"), [(0, "no link with the node at"), (1, "a TLS handshake came")])
def test_tls_on_one_side_only(node, files, log, secured, sentence):
    """If only one side uses TLS, the log of the side that was connected to says what to do."""
    plain = node("b")
    with_tls = node("a", **files(0))
    connector, other = (plain, with_tls) if secured == 0 else (with_tls, plain)
    connector.set_peers(other)
    until(lambda: any(event[0] == "refused" for event in connector.look("events")), "it was not refused")
    until(lambda: any(sentence in line and "cluster_tls_*" in line for line in log()), f"{log()}")
    assert other.rows() == {}


@pytest.mark.parametrize("key", ["cluster_tls_cert_file", "cluster_tls_ca_file"])
def test_a_file_that_cannot_be_used(files, tmp_path, key):
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(LinksError, match=f"setting '{key}': the file cannot be used"):
        Node("a", **{**files(0), key: str(broken)})


def test_a_certificate_needs_authorities(files):
    with pytest.raises(SettingsError, match="cluster_tls_ca_file"):
        Node("a", cluster_tls_cert_file=files(0)["cluster_tls_cert_file"])
