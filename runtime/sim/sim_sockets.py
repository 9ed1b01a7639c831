"""Sockets and descriptors of a simulated machine.

A connection is two `SimSocket`s, one at either end, that keep what has arrived and was not read. What one sends is on its way over a link, and counts as
unread from then on: the sender gets no further than the receiver's `capacity`. TCP's ways that a broker can meet are there:

    a read brings part of what has arrived       wherever the chooser cuts it
    a write takes part of what it is given       when the other end does not read
    close                                        the end of the stream, after all octets; a reset, if something was left unread
    octets for a socket that was closed          are answered with a reset; what had arrived before that can still be read
    a machine without power                      answers nothing until it is up again

Numbers of descriptors are given out as kernels do, the lowest free one, so that a process that uses a closed one meets whoever got it next.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..loop.poller import HANG_UP, READ, WRITE
from ..machine.sockets import Endpoint

if TYPE_CHECKING:
    from .network import Link
    from .sim_base import SimBase
    from .world import SimWorld

FIRST_FD = 3
FIRST_FREE_PORT = 32_768


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))  # OSError makes the right subclass of it


class SimSocket:
    """One end of a connection. `changed` is called when it may have become readable or writable, or stopped being so."""

    def __init__(
        self, world: SimWorld, name: str, local: tuple[str, int], remote: tuple[str, int], capacity: int, link: Link
    ) -> None:
        self.name = name
        self.fd = -1
        self.last_arrival = 0.0  # of what is on its way to here
        self.changed: Callable[[], None] = _nobody
        self.is_closed = False
        self.is_reset = False
        self.base: SimBase | None = None  # whose it is, once accepted
        self.peer: SimSocket = self
        self._world = world
        self._local, self._remote = local, remote
        self._capacity = capacity
        self._link = link  # to the peer
        self._unread = bytearray()
        self._on_the_way = 0
        self._has_ended = False

    def readiness(self) -> int:
        if self.is_reset:
            return READ | WRITE | HANG_UP
        return (READ if self._unread or self._has_ended else 0) | (WRITE if self.peer.room() > 0 else 0)

    def room(self) -> int:
        """Octets that may still be sent to here."""
        return self._capacity - self._on_the_way - len(self._unread)

    # -- what a process calls ----------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        unread = self._unread
        if self.is_closed:
            raise _error(errno.EBADF)
        if not unread:
            if self.is_reset:
                raise _error(errno.ECONNRESET)
            if self._has_ended:
                return b""
            raise _error(errno.EAGAIN)
        world = self._world
        size = min(size, len(unread))
        if self.base is not None:
            size = world.cut(size)
        data = bytes(unread[:size])
        del unread[:size]
        world.record((world.time, "recv" if self.base is not None else "heard", self.name, data))
        self.changed()
        self.peer.changed()
        return data

    def send(self, data: Any) -> int:
        if self.is_closed:
            raise _error(errno.EBADF)
        if self.is_reset:
            raise _error(errno.EPIPE)
        peer, world = self.peer, self._world
        room = peer.room()
        if room <= 0:
            raise _error(errno.EAGAIN)
        sent = bytes(data[:room])
        peer._on_the_way += len(sent)
        world.record((world.time, "send", self.name, sent))
        self._link.carry(peer, peer._arrived, sent)
        self.changed()
        return len(sent)

    def sendmsg(self, buffers: Any) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        """Orderly if all was read, a reset if not."""
        if not self.is_closed:
            self._link.carry(self.peer, self.peer._was_reset if self._unread else self.peer._ended)
            self.vanish()

    def abort(self) -> None:
        """A reset, whatever was read."""
        if not self.is_closed:
            self._link.carry(self.peer, self.peer._was_reset)
            self.vanish()

    def vanish(self) -> None:
        """Nobody uses this end any more, and the other is not told."""
        self.is_closed = True
        self._unread.clear()
        if self.base is not None:
            self.base.sockets.release(self.fd)
        self.changed()

    def fileno(self) -> int:
        return -1 if self.is_closed else self.fd

    def detach(self) -> int:
        return self.fd

    def getsockname(self) -> tuple[str, int]:
        return self._local

    def getpeername(self) -> tuple[str, int]:
        return self._remote

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """None of them has a meaning here."""

    # -- what arrives ------------------------------------------------------------------------------

    def _arrived(self, data: bytes) -> None:
        self._on_the_way -= len(data)
        if not self.is_closed:
            self._unread += data
            self.changed()
        elif self.base is None or self.base.machine.is_up:
            self._link.carry(self.peer, self.peer._was_reset)

    def _ended(self) -> None:
        self._has_ended = True
        self.changed()

    def _was_reset(self) -> None:
        self.is_reset = True
        self.changed()


def _nobody() -> None:
    """Nobody wants to know yet."""


class SimListening:
    """A listening socket, and the connections that wait to be accepted."""

    def __init__(self, sockets: SimSockets, address: tuple[str, int], backlog: int) -> None:
        self.fd = -1
        self._sockets = sockets
        self._address = address
        self._backlog = backlog
        self._waiting: deque[SimSocket] = deque()

    def readiness(self) -> int:
        return READ if self._waiting else 0

    def connected(self, sock: SimSocket) -> bool:
        """A client has come; False if there is no room for it."""
        if len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(sock)
        self._sockets.changed(self.fd)
        return True

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self._waiting:
            raise _error(errno.EAGAIN)
        sock = self._waiting.popleft()
        self._sockets.changed(self.fd)
        self._sockets.own(sock)
        return sock, sock.getpeername()

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        if self._sockets.release(self.fd):
            self._sockets.listening.pop(self._address[1], None)
            for sock in self._waiting:
                sock.abort()
            self._waiting.clear()

    def vanish(self) -> None:
        """The machine lost power."""
        for sock in self._waiting:
            sock.vanish()


class SimSockets:
    """The descriptors of one system of actors: `sockets.Sockets`, and the poller of its base as well."""

    def __init__(self, base: SimBase) -> None:
        self.owners: dict[int, tuple[Any, int]] = {}
        self.active: dict[int, None] = {}  # watched and ready, in the order in which they became so
        self.open: dict[int, SimSocket | SimListening] = {}
        self.listening: dict[int, SimListening] = {}  # by port
        self._base = base
        self._last_free_port = FIRST_FREE_PORT - 1

    # -- sockets -----------------------------------------------------------------------------------

    def resolve(self, host: str, port: int) -> list[Endpoint]:
        return [(socket.AF_INET, (host or "0.0.0.0", port))]

    def listen(self, family: int, address: tuple[Any, ...], backlog: int) -> SimListening:
        host, port = address[:2]
        if not port:
            self._last_free_port += 1
            port = self._last_free_port
        if port in self.listening:
            raise _error(errno.EADDRINUSE)
        listening = self.listening[port] = SimListening(self, (host, port), backlog)
        listening.fd = self._add(listening)
        return listening

    def adopt(self, fd: int) -> SimSocket:
        found = self.open.get(fd)
        if not isinstance(found, SimSocket):
            raise _error(errno.EBADF)
        return found

    def own(self, sock: SimSocket) -> None:
        """A connection was accepted: it gets a descriptor."""
        sock.base = self._base
        fd = sock.fd = self._add(sock)
        sock.changed = lambda: self.changed(fd)

    def _add(self, sock: SimSocket | SimListening) -> int:
        fd = FIRST_FD
        while fd in self.open:
            fd += 1
        self.open[fd] = sock
        return fd

    def release(self, fd: int) -> bool:
        """The descriptor is closed, and with that nobody watches it any more; False if it was already."""
        if self.open.pop(fd, None) is None:
            return False
        self.active.pop(fd, None)
        known = self.owners.pop(fd, None)
        if known is not None:
            known[0].fds.discard(fd)
        return True

    def end(self, has_power: bool) -> None:
        """The process is gone: the kernel closes what was open, unless it is gone too."""
        for sock in list(self.open.values()):
            if has_power:
                sock.close()
            else:
                sock.vanish()
        self.open.clear()
        self.listening.clear()

    # -- watches -----------------------------------------------------------------------------------

    def watch(self, owner: Any, fd: int, mask: int) -> None:
        if not mask:
            self.unwatch(owner, fd)
            return
        if fd not in self.open:
            raise _error(errno.EBADF)
        known = self.owners.get(fd)
        if known is not None and known[0] is not owner:
            known[0].fds.discard(fd)
        self.owners[fd] = (owner, mask)
        owner.fds.add(fd)
        self.changed(fd)

    def unwatch(self, owner: Any, fd: int) -> None:
        known = self.owners.get(fd)
        if known is not None and known[0] is owner:
            del self.owners[fd]
            owner.fds.discard(fd)
            self.active.pop(fd, None)

    def changed(self, fd: int) -> None:
        """See whether `fd` is to be served."""
        owner, sock = self.owners.get(fd), self.open.get(fd)
        if owner is not None and sock is not None and sock.readiness() & (owner[1] | HANG_UP):
            self.active.setdefault(fd)
        else:
            self.active.pop(fd, None)
