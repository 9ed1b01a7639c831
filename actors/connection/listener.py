"""`Listener`: one listening socket, and the parent of the connections that it accepts."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from typing import Any

from thespian.actors import ActorAddress

from ...runtime.contract import Address, Sender
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from ..context.node_context import NodeContext
from ..context.starting import ToNewConnection, ToNewListener, to_new_connection
from ..contracts.connection import SocketAddress, ToConnection, ToListener, to_connection, to_listener
from . import Connection
from .tls.tls_connection import TlsConnection
from .tls.tls_context import TlsError, server_context

log = logging.getLogger("warren.listener")

#: Clients accepted in one turn, so that a flood of new clients does not delay the connected ones. One takes 0.2 ms.
ACCEPTS_PER_TURN = 8

#: Seconds without accepting when the node is out of descriptors or memory.
PAUSE = 0.2

#: An address as the system gives it; with a flow and a scope for IPv6.
_SystemAddress = tuple[str, int] | tuple[str, int, int, int]

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenError(ProcessError):
    """The listener cannot use its address. The text has the reason and the way out; `errno` is the system's."""

    def __init__(self, text: str, errno: int | None, port: int) -> None:
        super().__init__(text, errno, port)
        self.errno = errno
        self.port = port

    def __str__(self) -> str:
        return str(self.args[0])


class Listener(Process):
    contract = ToNewListener
    reply_errors = (ListenError, TlsError)

    def __init__(self) -> None:
        super().__init__()
        #: The listening socket; None before `start`, and when the listener accepts no more.
        self.socket: Any = None
        #: Where it listens; None before `start`.
        self.address: SocketAddress | None = None
        self.connections: dict[str, Address[ToConnection]] = {}
        #: The unanswered `close_connections`.
        self.awaiting_end: list[Sender] = []
        self.tls_context: ssl.SSLContext | None = None
        self.sibling: Address[ToListener] | None = None
        #: How many connections the sibling has, which is the node's other listener: `connection_max` bounds the sum of
        #: both.
        self.elsewhere = 0

    async def on_start(
        self, sender: Sender, context: NodeContext, host: str, port: int, tls: bool = False
    ) -> SocketAddress:
        self.context = context
        if tls:
            try:
                self.tls_context = await self.run_blocking(server_context, context.settings)
            except TlsError:
                self.stop("cannot speak TLS")
                raise
        try:
            self.address = await self._listen(host, port)
        except ListenError:
            self.stop("cannot listen")
            raise
        return self.address

    async def _listen(self, host: str, port: int) -> SocketAddress:
        try:
            candidates = await self.run_blocking(self.sockets.resolve, host, port)
            family, endpoint = candidates[0]
            self.socket = self.sockets.listen(family, endpoint, self.context.settings.backlog)
        except OSError as error:
            raise ListenError(_explain(error, host, port), error.errno, port) from None
        self.watch(self.socket.fileno())
        return _host_and_port(self.socket.getsockname())

    async def on_reload_certificate(self, sender: Sender) -> str:
        if self.tls_context is None:
            return ""
        try:
            self.tls_context = await self.run_blocking(server_context, self.context.settings)
        except TlsError as error:
            log.error("the certificate in use stays, because the new one cannot be used: %s", error)
            return str(error)
        log.info("the certificate is loaded again; clients that connect from now on get it")
        return ""

    async def on_accept_again(self, sender: Sender) -> bool:
        if self.socket is None and self.address is not None:
            await self._listen(*self.address)
        return True

    def on_readable(self, fd: int) -> None:
        listening = self.socket
        if listening is None:
            return
        for _ in range(ACCEPTS_PER_TURN):
            try:
                client, peer = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    # The client stays in the backlog, so the descriptor stays readable: without a pause the loop would
                    # spin.
                    log.warning("cannot accept a client: %s; trying again in %s s", error.strerror, PAUSE)
                    self.unwatch(listening.fileno())
                    self.start_timer(PAUSE, "accept")
                    return
                log.info("a client hung up before it was accepted: %s", error.strerror)
                continue
            self._start_connection(client, peer)

    def _start_connection(self, client: socket.socket, peer: _SystemAddress) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = client.getsockname()
        except OSError as error:
            log.info("a client hung up while it was accepted: %s", error.strerror)
            client.close()
            return
        address: Address[ToNewConnection] = self.createActor(Connection if self.tls_context is None else TlsConnection)
        self.connections[address.actorAddressString] = address
        limit = self.context.settings.connection_max
        is_refused = limit is not None and len(self.connections) + self.elsewhere > limit
        start = to_new_connection.start(
            self.context, client.detach(), _host_and_port(peer), _host_and_port(local), is_refused, self.tls_context
        )
        self.send(address, start)
        self._notify_sibling()

    def on_sibling(self, sender: Sender, listener: Address[ToListener]) -> None:
        self.sibling = listener
        self._notify_sibling()

    def on_connections_elsewhere(self, sender: Sender, count: int) -> None:
        self.elsewhere = count

    def _notify_sibling(self) -> None:
        if self.sibling is not None:
            self.send(self.sibling, to_listener.connections_elsewhere(len(self.connections)))

    def on_timer(self, payload: str) -> None:
        """Accept clients again, because the pause is over."""
        if self.socket is not None:
            self.watch(self.socket.fileno())

    def on_child_exited(self, address: ActorAddress) -> None:
        self.connections.pop(address.actorAddressString, None)
        self._notify_sibling()
        self._answer_if_empty()

    def on_connections(self, sender: Sender) -> tuple[Address[ToConnection], ...]:
        return tuple(self.connections.values())

    def on_stop_accepting(self, sender: Sender) -> bool:
        self._close_socket()
        return True

    def on_close_connections(self, sender: Sender, code: int, text: str) -> None:
        for address in self.connections.values():
            self.send(address, to_connection.force_close(code, text))
        self.awaiting_end.append(sender)
        self._answer_if_empty()

    def on_exit(self) -> None:
        self._close_socket()

    def _answer_if_empty(self) -> None:
        if not self.connections:
            for sender in self.awaiting_end:
                self.reply(sender, True)
            self.awaiting_end.clear()

    def _close_socket(self) -> None:
        if self.socket is not None:
            self.unwatch(self.socket.fileno())
            self.socket.close()
            self.socket = None


def _host_and_port(address: _SystemAddress) -> SocketAddress:
    """A socket address without the flow and scope of IPv6."""
    return address[0], address[1]


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen on {host}:{port}: the port is in use by another program, perhaps another broker; "
            "stop it, or choose another port (0 takes any free one)"
        )
    if error.errno == errno.EACCES:
        return f"cannot listen on {host}:{port}: ports below 1024 need special rights; choose port 1024 or above"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {host}:{port}: this machine has no such address; 0.0.0.0 listens on all its addresses"
    return f"cannot listen on {host}:{port}: {error.strerror}"
