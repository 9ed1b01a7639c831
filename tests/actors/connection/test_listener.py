"""The listener: connections, addresses it cannot use, faults of accept, closing."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from warren.actors.connection import listener as listener_module
from warren.actors.connection.listener import Listener, ListenError
from warren.actors.context.node_context import NodeContext
from warren.routing.table import RoutingTable
from warren.runtime.errors import ProcessDown
from warren.runtime.machine.sockets import SystemSockets
from warren.runtime.process import Process
from warren.settings import Settings

WAIT = 300.0


class StubConnection(Process):
    """Stands for a connection: greets its client, and ends at `force_close` or when the client closes the socket."""

    def on_start(self, sender, context, fd, peer, local, is_refused, tls_context):
        self.socket = socket.socket(fileno=fd)
        self.peer, self.local = peer, local
        self.socket.setblocking(False)
        assert self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        self.socket.send(b"hello")
        self.watch(fd)

    def on_info(self, sender):
        return self.peer, self.local

    def on_readable(self, fd):
        if not self.socket.recv(100):
            self.stop()

    def on_force_close(self, sender, code, text):
        self.socket.send(f"{code} {text}".encode())
        if "stubborn" not in text:
            self.stop()

    def on_exit(self):
        self.unwatch(self.socket.fileno())
        self.socket.close()


class Flaky:
    """A listening socket whose `accept` raises the given errors before it works."""

    def __init__(self, real, *codes):
        self.real, self.codes, self.calls = real, list(codes), 0

    def accept(self):
        self.calls += 1
        if self.codes:
            code = self.codes.pop(0)
            raise OSError(code, os.strerror(code))
        return self.real.accept()

    def __getattr__(self, name):
        return getattr(self.real, name)


@pytest.fixture
def context():
    return NodeContext("n", Settings(), RoutingTable(), None, None, None)


@pytest.fixture
def listener(system, monkeypatch):
    monkeypatch.setattr(listener_module, "Connection", StubConnection)
    return system.createActor(Listener)


@pytest.fixture
def address(client, listener, context):
    return client.ask(listener, ("start", context, "127.0.0.1", 0), WAIT)


def connect(address):
    client = socket.create_connection(address, timeout=WAIT)
    assert client.recv(5) == b"hello"
    return client


def test_each_client_gets_a_connection(client, listener, address, eventually):
    """Each client gets a connection with its own addresses, which leaves the list when it ends."""
    clients = [connect(address) for _ in range(3)]
    connections = client.ask(listener, ("connections",), WAIT)
    addresses = {client.ask(connection, ("info",), WAIT) for connection in connections}
    assert addresses == {(one.getsockname(), address) for one in clients}
    clients[0].close()
    eventually(lambda: len(client.ask(listener, ("connections",), WAIT)) == 2)
    for one in clients[1:]:
        one.close()


def test_ipv6(client, listener, context):
    """The listener accepts IPv6 addresses."""
    try:
        host, port = client.ask(listener, ("start", context, "::1", 0), WAIT)
    except ListenError:
        pytest.skip("this machine has no IPv6")
    assert host == "::1"
    connect((host, port)).close()


def test_a_port_in_use_is_explained(client, system, listener, address, context):
    """The error for a port in use names address, port and reason; the listener ends."""
    other = system.createActor(Listener)
    with pytest.raises(ListenError, match=f"127.0.0.1:{address[1]}: the port is in use by another program"):
        client.ask(other, ("start", context, *address), WAIT)
    with pytest.raises(ProcessDown):
        client.ask(other, ("connections",), WAIT)
    connect(address).close()


@pytest.mark.parametrize(
    ("host", "text"),
    [("203.0.113.1", "this machine has no such address"), ("host.invalid", "cannot listen on host.invalid:0: ")],
)
def test_other_addresses_that_cannot_be_used(client, listener, context, host, text, monkeypatch):
    """The error for an unknown host or an address of another machine gives the reason."""
    if host.endswith(".invalid"):

        def unknown(self, host, port):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(SystemSockets, "resolve", unknown)
    with pytest.raises(ListenError, match=text):
        client.ask(listener, ("start", context, host, 0), WAIT)


def test_out_of_descriptors_pauses_and_goes_on(client, listener, context, monkeypatch):
    """When there are no free descriptors, the listener pauses between attempts to accept, and does not loop without
    pause.
    """
    sockets = []

    def flaky(*arguments):
        sockets.append(Flaky(real(*arguments), errno.EMFILE, errno.ENFILE))
        return sockets[0]

    real = SystemSockets.listen
    monkeypatch.setattr(SystemSockets, "listen", flaky)
    monkeypatch.setattr(listener_module, "PAUSE", 0.02)
    address = client.ask(listener, ("start", context, "127.0.0.1", 0), WAIT)
    connect(address).close()
    # two failures, the client, and the call that finds no other client
    assert sockets[0].calls == 4


def test_a_client_that_left_early_does_not_matter(client, listener, context, monkeypatch):
    """A client that resets before `accept` does not stop the listener."""
    real = SystemSockets.listen
    monkeypatch.setattr(SystemSockets, "listen", lambda *arguments: Flaky(real(*arguments), errno.ECONNABORTED))
    address = client.ask(listener, ("start", context, "127.0.0.1", 0), WAIT)
    connect(address).close()


def test_stop_accepting(client, listener, address):
    """After `stop_accepting` clients are refused, and connections stay."""
    one = connect(address)
    assert client.ask(listener, ("stop_accepting",), WAIT) is True
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=WAIT)
    assert len(client.ask(listener, ("connections",), WAIT)) == 1
    one.close()


def test_close_connections_waits_for_all(client, listener, address):
    """`close_connections` is answered when the last connection has ended."""
    clients = [connect(address) for _ in range(3)]
    assert client.ask(listener, ("close_connections", 320, "bye"), WAIT) is True
    assert [one.recv(100) for one in clients] == [b"320 bye"] * 3
    assert client.ask(listener, ("connections",), WAIT) == ()
    assert client.ask(listener, ("close_connections", 320, "bye"), WAIT) is True
    for one in clients:
        one.close()


def test_close_connections_waits_for_the_stubborn_too(client, listener, address, eventually):
    """`close_connections` waits also for a connection whose client answers late."""
    one = connect(address)
    client.tell(listener, ("close_connections", 320, "stubborn"))
    assert one.recv(100) == b"320 stubborn"
    assert len(client.ask(listener, ("connections",), WAIT)) == 1
    one.close()
    assert client.ask(listener, ("close_connections", 320, "stubborn"), WAIT) is True


def test_the_port_is_free_when_it_ends(client, system, listener, address, context):
    """Another listener can use the port after `stop_accepting`."""
    connect(address).close()
    client.ask(listener, ("stop_accepting",), WAIT)
    again = system.createActor(Listener)
    assert client.ask(again, ("start", context, *address), WAIT) == address
