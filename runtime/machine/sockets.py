"""Sockets, as processes get them from their host.

`SystemSockets` gives the machine's, `sim.sim_sockets.SimSockets` simulated ones:

    found = await self.run_blocking(self.sockets.resolve, host, port)
    listening = self.sockets.listen(*found[0], backlog)    has accept() -> (socket, peer), getsockname, fileno, close
    fd = accepted.detach()                                 because messages carry numbers, not sockets
    sock = self.sockets.adopt(fd)                          has recv, send, sendmsg, close
    sock = self.sockets.connect(*found[0])                 the same, when it is connected

All sockets are non-blocking, raise OSError, and otherwise behave like the standard library's.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from ...portable import IS_PORTABLE

#: An endpoint to listen on: the address family, and the address that `bind` takes.
Endpoint = tuple[int, tuple[Any, ...]]

#: The family of Unix sockets; None on a system without them.
_UNIX = getattr(socket, "AF_UNIX", None)

#: Bytes after which `JoiningSocket` adds no further buffer to what it sends.
JOINED_MAX = 262_144


class Sockets(Protocol):
    """The network that a process can use."""

    def resolve(self, host: str, port: int) -> list[Endpoint]:
        """The endpoints to listen on for `host` (empty: all addresses), best first. Waits for a name server."""

    def listen(self, family: int, address: tuple[Any, ...], backlog: int) -> Any:
        """A listening socket. Port 0 is any free one. The address of a Unix socket is `(path,)`."""

    def adopt(self, fd: int) -> Any:
        """The stream socket with the descriptor `fd`."""

    def connect(self, family: int, address: tuple[Any, ...]) -> Any:
        """A stream socket that connects to `address`. It becomes writable when it is connected or has failed.

        `getsockopt(SOL_SOCKET, SO_ERROR)` is 0 then, or the errno with which it has failed. Raises OSError if it fails
        at once.
        """


class _ListeningSocket(socket.socket):
    """Stops listening when it is closed, even if a process that was forked meanwhile has the descriptor too."""

    def close(self) -> None:
        # Some systems refuse to shut down a socket that is not connected.
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        super().close()


class SystemSockets:
    """The operating system's sockets."""

    def resolve(self, host: str, port: int) -> list[Endpoint]:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return [(family, address) for family, _, _, _, address in found]

    def listen(self, family: int, address: tuple[Any, ...], backlog: int) -> socket.socket:
        listening = _ListeningSocket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            _own_the_port(listening)
            if family == socket.AF_INET6:
                # `::` means all addresses, those of IPv4 too, whatever the system's default is.
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # A Unix socket is bound to its path alone, which is the only part of such an address here.
            listening.bind(address[0] if family == _UNIX else address)
            listening.listen(backlog)
        except OSError:
            listening.close()
            raise
        return listening

    def adopt(self, fd: int) -> socket.socket:
        sock = _StreamSocket(fileno=fd)
        sock.setblocking(False)
        return sock

    def connect(self, family: int, address: tuple[Any, ...]) -> socket.socket:
        sock = _StreamSocket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(address)
        except BlockingIOError:
            pass  # it goes on connecting
        except OSError:
            sock.close()
            raise
        return sock


class JoiningSocket(socket.socket):
    """Portable twin of `socket.socket` for Windows, which has no sendmsg: it joins the buffers and sends the result."""

    def sendmsg(self, buffers: Iterable[Any]) -> int:  # type: ignore[override]
        pieces, size = [], 0
        for piece in buffers:
            pieces.append(piece)
            size += len(piece)
            if size >= JOINED_MAX:
                # A slow reader takes only a part, and the next call would join all the rest once more.
                break
        return self.send(b"".join(pieces))


_StreamSocket: type[socket.socket] = JoiningSocket if IS_PORTABLE else socket.socket


def _own_the_port(listening: socket.socket) -> None:
    """Let a broker that starts again bind its port although connections of the last one linger in TIME_WAIT."""
    if sys.platform == "win32":
        # On Windows SO_REUSEADDR would let another program listen on the same port, and TIME_WAIT hinders nobody.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
