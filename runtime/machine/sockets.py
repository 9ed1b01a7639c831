"""Sockets, as processes get them from their host: the operating system's here, simulated ones in `sim_sockets`.

    found = await self.run_blocking(self.sockets.resolve, host, port)       may ask a name server
    listening = self.sockets.listen(*found[0], backlog)                     .accept() -> (socket, peer), .getsockname(), .fileno(), .close()
    fd = accepted.detach()                                                  a number is what can be told to another process
    sock = self.sockets.adopt(fd)                                           .recv, .send, .sendmsg, .close

All are non-blocking, all raise OSError, and what they are is what the operating system's are.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

#: (address family, address to bind)
Endpoint = tuple[int, tuple[Any, ...]]


class Sockets(Protocol):
    def resolve(self, host: str, port: int) -> list[Endpoint]:
        """Where to listen for `host` (empty: everywhere), best first. Blocks."""

    def listen(self, family: int, address: tuple[Any, ...], backlog: int) -> Any:
        """A listening socket. Port 0 is any free one."""

    def adopt(self, fd: int) -> Any:
        """The stream socket that this descriptor is."""


class SystemSockets:
    """The operating system's."""

    def resolve(self, host: str, port: int) -> list[Endpoint]:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return [(family, address) for family, _, _, _, address in found]

    def listen(self, family: int, address: tuple[Any, ...], backlog: int) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # `::` means all addresses, those of IPv4 too, whatever the system's default is.
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.bind(address)
            listening.listen(backlog)
        except OSError:
            listening.close()
            raise
        return listening

    def adopt(self, fd: int) -> socket.socket:
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        return sock
