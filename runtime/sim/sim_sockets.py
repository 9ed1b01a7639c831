"""`SimSockets`: the sockets and descriptors of a simulated machine.

A connection is two `SimSocket`s, one at either end, which keep the data that has arrived and was not read. Data that is
in flight over the link counts as unread as well, so a sender can be ahead of the receiver by the receiver's `capacity`.
The behaviour of TCP that a broker meets is there:

    a read returns part of the data       wherever the chooser cuts it
    a write takes part of the data        when the other end does not read
    a close ends the stream               after all data; if data was left unread, it resets the connection instead
    data for a closed socket              is answered with a reset; data that had arrived before can still be read
    a machine without power               answers nothing until its next boot

A new descriptor gets the lowest free number, as from a kernel, so that a process that uses a closed descriptor meets
the socket that got its number next.
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
    from .network import NetworkLink
    from .sim_base import SimBase
    from .world import SimWorld

#: 0 to 2 are the standard streams.
FIRST_FD = 3

#: The port that the first listening socket without a port of its own gets.
FIRST_FREE_PORT = 32_768


def _error(code: int) -> OSError:
    # OSError makes an instance of the subclass for the code, such as BlockingIOError.
    return OSError(code, os.strerror(code))


class SimSocket:
    """One end of a connection. It calls `changed` when its readiness may have changed."""

    def __init__(
        self,
        world: SimWorld,
        name: str,
        local: tuple[str, int],
        remote: tuple[str, int],
        capacity: int,
        link: NetworkLink,
    ) -> None:
        self.name = name
        self.fd = -1
        #: See `network.Pipe`, for data on its way to this end.
        self.last_arrival = 0.0
        self.changed: Callable[[], None] = _ignore
        self.is_closed = False
        self.is_reset = False
        #: The system of actors that has accepted the connection; None at the client's end.
        self.base: SimBase | None = None
        self.peer: SimSocket = self
        self._world = world
        self._local, self._remote = local, remote
        self._capacity = capacity
        #: The link to the peer.
        self._link = link
        self._unread = bytearray()
        #: Bytes in flight to this end.
        self._in_flight = 0
        #: Whether the end of the stream has arrived.
        self._has_ended = False
        #: False while a connection that a process makes is not established.
        self._is_connected = True

    def readiness(self) -> int:
        """The poller's mask of what this end is ready for."""
        if self.is_reset:
            return READ | WRITE | HANG_UP
        if not self._is_connected:
            return 0
        return (READ if self._unread or self._has_ended else 0) | (WRITE if self.peer.room() > 0 else 0)

    def room(self) -> int:
        """Bytes that the other end may still send."""
        return self._capacity - self._in_flight - len(self._unread)

    # -- called by processes -----------------------------------------------------------------------

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

    def recv_into(self, buffer: memoryview) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

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
        peer._in_flight += len(sent)
        world.record((world.time, "send", self.name, sent))
        self._link.carry(peer, peer._arrived, sent)
        self.changed()
        return len(sent)

    def sendmsg(self, buffers: Any) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        """End the stream in order, or reset the connection if data is left unread."""
        if not self.is_closed:
            self._link.carry(self.peer, self.peer._was_reset if self._unread else self.peer._ended)
            self.vanish()

    def abort(self) -> None:
        """Reset the connection."""
        if not self.is_closed:
            self._link.carry(self.peer, self.peer._was_reset)
            self.vanish()

    def vanish(self) -> None:
        """Close this end without notifying the other."""
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
        """Ignored: no option has a meaning here."""

    def getsockopt(self, level: int, option: int) -> int:
        """Why the connection was not made; 0 if it was, or may still be."""
        return errno.ECONNREFUSED if self.is_reset and not self._is_connected else 0

    # -- connecting --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to connect for a process: the socket is neither readable nor writable before the other side answers."""
        self._is_connected = False

    def connect_to(self, accepted: bool, peer: SimSocket) -> None:
        """Take the answer to an attempt to connect: `peer` waits to be accepted at the other end, or was refused."""
        if accepted:
            self.peer, peer.peer = peer, self
            self._is_connected = True
            if self.is_closed:
                self._link.carry(peer, peer._was_reset)
        else:
            self.is_reset = True
        self.changed()

    # -- arrivals ----------------------------------------------------------------------------------

    def _arrived(self, data: bytes) -> None:
        self._in_flight -= len(data)
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


def _ignore() -> None:
    """Do nothing: stands for `changed` as long as nothing watches the socket."""


class SimListening:
    """A listening socket with the connections that wait to be accepted."""

    def __init__(self, sockets: SimSockets, address: tuple[str, int], backlog: int) -> None:
        self.fd = -1
        self._sockets = sockets
        self._address = address
        self._backlog = backlog
        self._waiting: deque[SimSocket] = deque()

    def readiness(self) -> int:
        return READ if self._waiting else 0

    def connected(self, sock: SimSocket) -> bool:
        """Add the connection of a client; False if the backlog is full."""
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
        """Close the waiting connections without notifying their clients, because the machine lost power."""
        for sock in self._waiting:
            sock.vanish()


class SimSockets:
    """The descriptors of one system of actors. It is both its `sockets.Sockets` and its `poller.Watches`."""

    def __init__(self, base: SimBase) -> None:
        self.owners: dict[int, tuple[Any, int]] = {}
        #: Descriptors that are watched and ready, in the order in which they became so.
        self.active: dict[int, None] = {}
        self.open: dict[int, SimSocket | SimListening] = {}
        #: Listening sockets by port.
        self.listening: dict[int, SimListening] = {}
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

    def connect(self, family: int, address: tuple[Any, ...]) -> SimSocket:
        """The host of the address is the name of a machine."""
        machine = self._base.machine
        self._last_free_port += 1
        sock = self._base.world.connect_machines(machine, self._last_free_port, address[0], address[1])
        self.own(sock)
        return sock

    def own(self, sock: SimSocket) -> None:
        """Give a connection that was accepted, or that a process makes, a descriptor."""
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
        """Close the descriptor, which ends its watch as well; False if it was closed before."""
        if self.open.pop(fd, None) is None:
            return False
        self.active.pop(fd, None)
        known = self.owners.pop(fd, None)
        if known is not None:
            known[0].fds -= {fd}
        return True

    def end(self, has_power: bool) -> None:
        """Close all descriptors, because their process has died. Without power the other ends are not notified."""
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
            known[0].fds -= {fd}
        self.owners[fd] = (owner, mask)
        owner.fds |= {fd}
        self.changed(fd)

    def unwatch(self, owner: Any, fd: int) -> None:
        known = self.owners.get(fd)
        if known is not None and known[0] is owner:
            del self.owners[fd]
            owner.fds -= {fd}
            self.active.pop(fd, None)

    def changed(self, fd: int) -> None:
        """Make `fd` active if it is watched and ready, otherwise inactive."""
        owner, sock = self.owners.get(fd), self.open.get(fd)
        if owner is not None and sock is not None and sock.readiness() & (owner[1] | HANG_UP):
            self.active.setdefault(fd)
        else:
            self.active.pop(fd, None)
