"""Connections to the cluster port by nodes that may not link and by strangers, and malformed input.

Each time the log of the side that can act on it says what is wrong, the connection leaves nothing behind, and good
nodes can still connect.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct

import pytest

from warren.cluster.links.contract import to_links
from warren.cluster.links.encoding.frames import frame_head, msgpack_frame
from warren.cluster.links.links import MOST_GREETING

from .nodes import WAIT, Node, to_peer, until, until_linked


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "warren.links")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "warren.links"]


def refused(node):
    return [event[2] for event in node.look("events") if event[0] == "refused"]


def until_refused(one, sentence, log):
    """Wait until `one` is refused with this sentence, which must be in its own log and in that of the other node."""
    until(lambda: any(sentence in text for text in refused(one)), f"{refused(one)}")
    until(lambda: sum(sentence in line for line in log()) >= 2, f"{log()}")
    assert "up" not in [event[0] for event in one.look("events")]


def connected_to(node):
    return socket.create_connection(node.place, timeout=WAIT)


def until_closed(sock):
    """Read until the node closes the connection, and return what it has sent."""
    answer = b""
    try:
        while data := sock.recv(65_536):
            answer += data
    except ConnectionResetError:
        pass
    return answer


# -- other nodes -----------------------------------------------------------------------------------------


def test_another_secret(node, log):
    a, b = node("a"), node("b", secret="another secret, long enough too")
    a.set_peers(b)
    until_refused(a, "has another secret", log)


def test_another_cluster(node, log):
    a, b = node("a"), node("b")
    a.set_membership(cluster_id="one")
    b.set_membership(cluster_id="two")
    a.set_peers(b)
    until_refused(a, "b@h belongs to another cluster (two) than a@h (one)", log)


@pytest.mark.parametrize("connector", [0, 1])
def test_no_member(node, log, connector):
    """A node that is no member is refused, whichever side connects."""
    a, b = nodes = node("a"), node("b")
    a.set_membership(cluster_id="one", members={"a@h": "id-a", "c@h": "id-c"})
    b.set_membership(cluster_id="one")
    nodes[connector].set_peers(nodes[1 - connector])
    until_refused(nodes[connector], "b@h is no member of the cluster of a@h", log)


def test_a_setting_that_must_be_the_same_on_all_nodes(node, log):
    """Nodes with different `net_ticktime` refuse each other: a lease that one node grants must have ended before
    another node declares its holder down (CL-51).
    """
    a, b = node("a"), node("b")
    a.set_membership(facts={"settings": {"net_ticktime": 2.0}})
    b.set_membership(facts={"settings": {"net_ticktime": 10.0}})
    b.set_peers(a)
    until_refused(b, "net_ticktime is 10.0 on b@h and 2.0 on a@h; give it the same value", log)


def test_a_member_with_another_data_directory(node, log):
    a, b = node("a"), node("b", node_id="fresh")
    a.set_membership(cluster_id="one", members={"a@h": "id-a", "b@h": "id-b"})
    b.set_peers(a)
    until_refused(b, "b@h is a member with another data directory", log)


def test_a_feature_that_is_missing(node, log):
    a, b = node("a"), node("b")
    a.set_membership(cluster_id="one", required=frozenset({"teleport"}))
    b.set_peers(a)
    until_refused(b, "b@h lacks the features teleport", log)


def test_oneself(node, log):
    a = node("a")
    a.tell_links(to_links.set_peers({"b@h": a.place}))
    until_refused(a, "a@h has reached itself", log)


def test_two_nodes_of_one_name(node, log):
    a, other = node("a"), node("a", incarnation="2", node_id="another")
    a.tell_links(to_links.set_peers({"b@h": other.place}))
    until_refused(a, "two nodes are named a@h", log)


def test_a_wrong_address(node, log):
    a, c = node("a"), node("c")
    a.tell_links(to_links.set_peers({"b@h": c.place}))
    until_refused(a, "c@h answers at the address of b@h", log)


def test_a_fresh_node_may_ask_where_it_belongs(node):
    a, b = node("a"), node("b")
    a.set_membership(cluster_id="one", members={"a@h": "id-a"}, facts={"build": "1.2"})
    b.set_peers(a)
    until_linked(a, b)


def test_a_refused_node_is_admitted_as_soon_as_it_may_be(node):
    a, b = node("a"), node("b")
    a.set_membership(cluster_id="one", members={"a@h": "id-a"})
    b.set_membership(cluster_id="one")
    b.set_peers(a)
    until(lambda: refused(b), "it is not refused")
    a.set_membership(cluster_id="one", members={"a@h": "id-a", "b@h": "id-b"})
    until_linked(a, b)


def test_a_port_without_a_listener(node):
    a = node("a")
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
    a.tell_links(to_links.set_peers({"b@h": place}))
    until(lambda: len(refused(a)) >= 4, "not refused")
    assert all(event[3] for event in a.look("events"))
    assert f"nobody listens on 127.0.0.1:{place[1]}" in a.rows()["b@h"]["reason"]


def test_a_name_that_nobody_knows(node):
    a = node("a")
    a.tell_links(to_links.set_peers({"b@h": ("no-such-host.invalid", 1)}))
    until(lambda: any("no-such-host.invalid is not known" in text for text in refused(a)), "not refused")


# -- strangers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request came"),
        (bytes.fromhex("16030100f4010000f00303"), "a TLS handshake came"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP client came"),
        (b"\xff" * 64, "no greeting of a warren node"),
        (frame_head(0, 2, 1_000_000) + b"{}", "no greeting of a warren node"),
        (msgpack_frame(3, 1), "no greeting of a warren node"),
    ],
    ids=["http", "tls", "amqp", "garbage", "large", "ping"],
)
def test_what_is_no_greeting(node, log, sent, sentence):
    a, b = node("a"), node("b")
    with connected_to(a) as sock:
        sock.sendall(sent)
        assert until_closed(sock) == b""
    until(lambda: any(sentence in line for line in log()), f"{log()}")
    b.set_peers(a)
    until_linked(a, b)


def test_a_port_scanner(node):
    """A connection that is closed at once leaves nothing behind."""
    a = node("a")
    for _ in range(30):
        connected_to(a).close()
    assert a.rows() == {}


def test_a_host_that_is_refused_again_and_again_waits(node, log):
    a = node("a")
    for _ in range(5):
        with connected_to(a) as sock:
            sock.sendall(b"\xff" * 64)
            until_closed(sock)
    with connected_to(a) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until_closed(sock)
    assert not any("HTTP" in line for line in log())
    assert len([line for line in log() if "no greeting" in line]) == 1


def test_connections_that_never_greet_do_not_keep_nodes_out(node):
    """However many connections send no greeting, nodes can connect: each new connection ends the oldest one."""
    a, b = node("a"), node("b")
    socks = [connected_to(a) for _ in range(MOST_GREETING + 60)]
    b.set_peers(a)
    until_linked(a, b)
    cell = a.base.cells[a.links.addressDetails]
    assert a.base.call(lambda: len(cell.actor.greeting)) <= MOST_GREETING
    for sock in socks:
        sock.close()
    until(lambda: a.base.call(lambda: not cell.actor.greeting), "they are still there")


HELLO = {
    "code": 1,
    "language": "PYTHON",
    "version": 1,
    "opaque": 0,
    "flag": 0,
    "remark": None,
    "extFields": {
        "node": "b@h",
        "id": "id-b",
        "incarnation": "9",
        "cluster": None,
        "versions": [1, 1],
        "features": [],
        "facts": {},
        "nonce": "00",
        "lane": "control",
        "workers": [0, 0],
        "session": "00" * 16,
    },
}


def greeting(**ext):
    header = json.dumps({**HELLO, "extFields": {**HELLO["extFields"], **ext}}).encode()
    return struct.pack(">II", 4 + len(header), len(header)) + header


@pytest.mark.parametrize(
    "ext",
    [
        {"node": "a/b"},
        {"node": "\n"},
        {"node": "b" * 300},
        {"node": 7},
        {"incarnation": "1-2"},
        {"versions": [1]},
        {"features": [1]},
        {"facts": []},
        {"lane": "fast"},
        {"session": "00"},
        {"cluster": 5},
    ],
    ids=str,
)
def test_a_greeting_with_a_wrong_field(node, log, ext):
    a = node("a")
    with connected_to(a) as sock:
        sock.sendall(greeting(**ext))
        assert until_closed(sock) == b""
    until(lambda: any("no greeting of a warren node" in line for line in log()), f"{log()}")


def test_a_recorded_greeting_proves_nothing(node, log):
    """A replayed greeting is refused, because the node's nonce is new for each connection and the old proof does not
    fit.
    """
    a = node("a")
    for _ in range(2):
        with connected_to(a) as sock:
            sock.sendall(greeting())
            challenge = sock.recv(65_536)
            assert b"nonce" in challenge
            auth = json.dumps({**HELLO, "code": 2, "extFields": {}}).encode()
            sock.sendall(struct.pack(">II", 4 + len(auth) + 32, len(auth)) + auth + challenge[-32:])
            assert b"has another secret" in until_closed(sock)
    assert a.rows() == {}


# -- a peer that sends nonsense --------------------------------------------------------------------------


def lanes_of(node, peer):
    """Copies of the sockets that the node itself uses for the lanes of this link."""
    cell = next(
        cell for cell in node.base.cells.values() if getattr(getattr(cell, "actor", None), "node", None) == peer
    )
    return [os.dup(fd) for fd in node.base.call(lambda: list(cell.actor.session.by_fd))]


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 100,
        frame_head(2, 1, 10_000_000),
        frame_head(1, 1, 1) + b"ab",
        frame_head(2, 1, 1) + b"\xc1a",
        msgpack_frame(300),
        msgpack_frame(300, ext={"i": "x"}),
        msgpack_frame(300, ext={"p": [1, 2]}),
        frame_head(0, 2, 0) + b"{}",
    ],
    ids=["garbage", "too large", "type", "header", "no body", "index", "part", "greeting"],
)
def test_malformed_input_ends_the_link(node, log, sent):
    """Malformed input ends the link with a line in the log, and the nodes make the link again."""
    a, b = node("a"), node("b")
    a.set_peers(b)
    until_linked(a, b)
    fds = lanes_of(a, "b@h")
    os.write(fds[1], sent)
    for fd in fds:
        os.close(fd)
    until(lambda: any("link to a@h: malformed input on the lane data" in line for line in log()), f"{log()}")
    until(lambda: [event[0] for event in b.look("events")] == ["up", "down", "up"], "it is not made again")
    until_linked(a, b)
    assert a.ask("inquire", "b@h", to_peer.name("ab")) == "ba"


def test_a_cut_anywhere_in_a_frame(node):
    """A frame that was cut off leaves no message behind, wherever the connection was cut."""
    a, b = node("a"), node("b")
    a.set_peers(b)
    for at in (1, 7, 9, 40, 60):
        until_linked(a, b)
        ups = len(b.look("events"))
        fds = lanes_of(a, "b@h")
        whole = bytes.fromhex("000000") + b"\x50" + bytes(80)
        os.write(fds[1], whole[: min(at, 4)])
        sock = socket.socket(fileno=fds[1])
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        os.close(fds[0])
        os.close(fds[2])
        until(lambda ups=ups: len(b.look("events")) > ups, "the end was not noticed")
    until_linked(a, b)
    assert b.look("numbers") == []


def test_nothing_is_left_of_nodes_that_end(node):
    """After two linked nodes have stopped, all their file descriptors are closed."""

    def open_files():
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    for _ in range(5):
        a, b = Node("a"), Node("b")
        a.set_peers(b)
        b.set_peers(a)
        until_linked(a, b)
        for one in (a, b):
            one.stop()
    assert open_files() <= before
