"""The proxies between nodes behave as documented. If they did not, the tests of clusters would test nothing."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator

import pytest

from warren.tests.cluster_system.link_proxy import LinkProxies, _share, free_ports

#: Seconds that a test waits for something that takes microseconds on an idle machine.
LONG = 30.0
#: Seconds after which bytes that have not arrived count as held back.
QUIET = 0.15


class Node:
    """A socket that listens, in the place of a node."""

    def __init__(self, name: str, proxies: LinkProxies) -> None:
        self.name = name
        self.proxies = proxies
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(LONG)
        proxies.node_up(name, self.listener.getsockname())

    def dial(self, other: Node) -> socket.socket:
        client = socket.create_connection(self.proxies.address(self.name, other.name), LONG)
        client.settimeout(LONG)
        return client

    def accept(self) -> socket.socket:
        accepted, _ = self.listener.accept()
        accepted.settimeout(LONG)
        return accepted

    def link(self, other: Node) -> tuple[socket.socket, socket.socket]:
        """A connection to another node: this node's end, and the other's."""
        here = self.dial(other)
        return here, other.accept()


@pytest.fixture
def proxies() -> Iterator[LinkProxies]:
    with LinkProxies("abc") as proxies:
        yield proxies


@pytest.fixture
def nodes(proxies) -> Iterator[list[Node]]:
    nodes = [Node(name, proxies) for name in "abc"]
    yield nodes
    for node in nodes:
        node.listener.close()


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = end.recv(count - len(data))
        assert part, f"the connection ended after {data!r}"
        data += part
    return data


def is_quiet(end: socket.socket) -> bool:
    end.settimeout(QUIET)
    try:
        end.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        end.settimeout(LONG)
    return False


def test_bytes_pass_both_ways_in_order(nodes):
    """A megabyte passes unchanged in each direction."""
    a, b, _ = nodes
    here, there = a.link(b)
    data = bytes(range(256)) * 4096
    for sender, receiver in ((here, there), (there, here)):
        sent = 0
        got = b""
        while len(got) < len(data):
            if sent < len(data):
                sent += sender.send(data[sent : sent + 50_000])
            got += received(receiver, min(50_000, len(data) - len(got)))
        assert got == data


def test_the_end_of_a_connection_passes_on(nodes):
    """When one side closes its end, the other side reads the end of the connection after the last byte."""
    a, b, _ = nodes
    here, there = a.link(b)
    here.sendall(b"last")
    here.close()
    assert (received(there, 4), there.recv(1)) == (b"last", b"")


def test_a_cut_holds_both_directions_until_it_is_healed(nodes, proxies):
    """A cut lets nothing pass in either direction and keeps the connection open; the bytes arrive after it, and the
    connections of other pairs of nodes work meanwhile.
    """
    a, b, c = nodes
    here, there = a.link(b)
    other, others_end = a.link(c)
    proxies.cut("a", "b")
    here.sendall(b"from a")
    there.sendall(b"from b")
    other.sendall(b"to c")
    assert received(others_end, 4) == b"to c"
    assert is_quiet(here) and is_quiet(there)
    proxies.heal()
    assert (received(there, 6), received(here, 6)) == (b"from a", b"from b")


def test_a_connection_opened_in_a_cut_reaches_the_node_afterwards(nodes, proxies):
    """A connection that is opened during a cut is established after the cut, as if its SYN had been lost meanwhile."""
    a, b, _ = nodes
    proxies.cut("b", "a")
    here = a.dial(b)
    here.sendall(b"hello")
    b.listener.settimeout(QUIET)
    with pytest.raises(TimeoutError):
        b.listener.accept()
    b.listener.settimeout(LONG)
    proxies.heal()
    assert received(b.accept(), 5) == b"hello"


def test_a_muted_node_is_not_heard_and_hears(nodes, proxies):
    """A muted direction is cut, whichever side opened the connection, and the other direction works."""
    a, b, _ = nodes
    for here, there in (a.link(b), b.link(a)[::-1]):
        proxies.mute("a", "b")
        here.sendall(b"x")
        there.sendall(b"y")
        assert received(here, 1) == b"y"
        assert is_quiet(there)
        proxies.heal()
        assert received(there, 1) == b"x"


def test_a_slow_direction_delays_and_keeps_the_order(nodes, proxies):
    """A slow direction delivers later and in order; the other direction is not slowed."""
    a, b, _ = nodes
    here, there = a.link(b)
    proxies.slow("a", "b", delay=0.3)
    began = time.monotonic()
    here.sendall(b"1")
    here.sendall(b"2")
    there.sendall(b"quick")
    assert received(here, 5) == b"quick"
    assert received(there, 2) == b"12"
    assert time.monotonic() - began >= 0.3


def test_a_rate_bounds_the_bytes_of_a_direction(nodes, proxies):
    """100,000 bytes at 400,000 a second take a quarter of a second."""
    a, b, _ = nodes
    here, there = a.link(b)
    proxies.slow("a", "b", delay=0, rate=400_000)
    began = time.monotonic()
    here.sendall(bytes(100_000))
    received(there, 100_000)
    assert time.monotonic() - began >= 0.2


def test_a_node_that_is_down_refuses_until_it_is_up(nodes, proxies):
    """A node that is down refuses connections at once, unlike a node behind a cut, and has the same address when it is
    up again.
    """
    a, b, _ = nodes
    address = proxies.address("a", "b")
    for _ in range(3):
        proxies.node_down("b")
        with pytest.raises(ConnectionRefusedError):
            a.dial(b)
        proxies.node_up("b", b.listener.getsockname())
        assert proxies.address("a", "b") == address
        here, there = a.link(b)
        here.sendall(b"again")
        assert received(there, 5) == b"again"


def test_broken_connections_are_reset_at_both_ends(nodes, proxies):
    """Both ends of a broken connection read a reset, and new connections work at once."""
    a, b, _ = nodes
    ends = [*a.link(b), *b.link(a)]
    assert proxies.connections("a", "b") == 2
    assert proxies.break_connections("a", "b") == 2
    for end in ends:
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    here, there = a.link(b)
    here.sendall(b"new")
    assert received(there, 3) == b"new"


def test_no_port_is_given_to_two_nodes_of_this_process_or_another():
    ours = free_ports(50) + free_ports(50)
    claim, others = _share.__wrapped__()  # another claim, as a second process would have it
    claim.close()
    assert len(set(ours)) == 100
    assert set(ours).isdisjoint(itertools.islice(others, 300))
