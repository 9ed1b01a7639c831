"""`Listener`: one listening socket, and the parent of the connections that came in by it."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from typing import Any

from ...runtime.errors import ProcessError
from ...runtime.process import Process
from ..node.context import NodeContext
from . import Connection
from .tls_connection import TlsConnection
from .tls_context import TlsError, server_context

log = logging.getLogger("warren.listener")

ACCEPTS_PER_TURN = 64  # so that a flood of new clients cannot starve those who are served already
PAUSE = 0.2  # s without accepting when the node is out of descriptors or memory

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenError(ProcessError):
    """The address cannot be listened on; the text says why and what to do, `errno` which of the system's reasons it was, `port` which port."""

    def __init__(self, text: str, errno: int | None, port: int) -> None:
        super().__init__(text, errno, port)
        self.errno = errno
        self.port = port

    def __str__(self) -> str:
        return str(self.args[0])


class Listener(Process):
    """
    ('start', context, host, port, tls)     -> (host, port) listened on; ListenError, TlsError. Port 0 is chosen by the system; with `tls` clients must speak TLS
    ('sibling', listener)                   another listener of the node, whose connections count for `connection_max` too; told once, and only if there is one
    ('connections_elsewhere', count)        from it: how many it has now
    ('connections',)                        -> the addresses of the connections, a tuple
    ('stop_accepting',)                     -> True; clients that try from now on are refused
    ('close_connections', code, text)       -> True when all are gone; tells each to ('force_close', code, text)
    """

    reply_errors = (ListenError, TlsError)

    def __init__(self) -> None:
        super().__init__()
        self.socket: Any = None
        self.connections: dict[str, Any] = {}
        self.awaiting_end: list[Any] = []  # who asked for close_connections
        self.tls: ssl.SSLContext | None = None
        self.sibling: Any = None
        self.elsewhere = 0  # connections of the sibling

    async def on_start(
        self, sender: Any, context: NodeContext, host: str, port: int, tls: bool = False
    ) -> tuple[str, int]:
        self.context = context
        if tls:
            try:
                self.tls = await self.run_blocking(server_context, context.settings)
            except TlsError:
                self.stop("cannot speak TLS")
                raise
        try:
            candidates = await self.run_blocking(self.sockets.resolve, host, port)
            family, endpoint = candidates[0]
            self.socket = self.sockets.listen(family, endpoint, context.settings.backlog)
        except OSError as error:
            self.stop("cannot listen")
            raise ListenError(_explain(error, host, port), error.errno, port) from None
        self.watch(self.socket.fileno())
        bound: tuple[Any, ...] = self.socket.getsockname()
        return bound[0], bound[1]

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
                    # The client stays in the backlog and the descriptor readable: without a pause this would spin.
                    log.warning("cannot accept: %s; trying again in %s s", error.strerror, PAUSE)
                    self.unwatch(listening.fileno())
                    self.start_timer(PAUSE, "accept")
                    return
                log.info("a client left before it was accepted: %s", error.strerror)
                continue
            self._start_connection(client, peer)

    def _start_connection(self, client: Any, peer: tuple[Any, ...]) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = client.getsockname()
        except OSError as error:
            log.info("a client left while it was accepted: %s", error.strerror)
            client.close()
            return
        address = self.createActor(Connection if self.tls is None else TlsConnection)
        self.connections[address.actorAddressString] = address
        limit = self.context.settings.connection_max
        is_refused = limit is not None and len(self.connections) + self.elsewhere > limit
        start = ("start", self.context, client.detach(), peer[:2], local[:2], is_refused)
        self.send(address, start if self.tls is None else (*start, self.tls))
        self._tell_sibling()

    def on_sibling(self, sender: Any, listener: Any) -> None:
        self.sibling = listener
        self._tell_sibling()

    def on_connections_elsewhere(self, sender: Any, count: int) -> None:
        self.elsewhere = count

    def _tell_sibling(self) -> None:
        if self.sibling is not None:
            self.send(self.sibling, ("connections_elsewhere", len(self.connections)))

    def on_timer(self, payload: Any) -> None:
        if self.socket is not None:
            self.watch(self.socket.fileno())

    def on_child_exited(self, address: Any) -> None:
        self.connections.pop(address.actorAddressString, None)
        self._tell_sibling()
        self._answer_if_empty()

    def on_connections(self, sender: Any) -> tuple[Any, ...]:
        return tuple(self.connections.values())

    def on_stop_accepting(self, sender: Any) -> bool:
        self._close_socket()
        return True

    def on_close_connections(self, sender: Any, code: int, text: str) -> None:
        for address in self.connections.values():
            self.send(address, ("force_close", code, text))
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


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen on {host}:{port}: the port is in use by another program, perhaps another broker; "
            "stop it, or choose another port (0 takes any free one)"
        )
    if error.errno == errno.EACCES:
        return f"cannot listen on {host}:{port}: ports below 1024 need special rights; choose a port from 1024 up"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {host}:{port}: this machine has no such address; 0.0.0.0 listens on all it has"
    return f"cannot listen on {host}:{port}: {error.strerror}"
