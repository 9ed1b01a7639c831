"""The other end of a simulated connection: a plain object that is told what happens to it, and writes.

    class Greeter:
        def on_connected(self, stream): stream.write(b"hello")
        def on_data(self, stream, data): self.heard += data
        def on_lost(self, stream, reason): ...

    stream = world.connect("a", 5672, Greeter())

Everything a client is told is a step of the world, chosen like any other; what it writes from there, or from outside between two steps, is on its way at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..loop.poller import READ, WRITE

if TYPE_CHECKING:
    from .sim_sockets import SimSocket
    from .world import SimWorld

READ_SIZE = 262_144


class SimClient(Protocol):
    """What a scenario gives to `connect`."""

    def on_connected(self, stream: SimStream) -> Any: ...
    def on_data(self, stream: SimStream, data: bytes) -> Any: ...
    def on_lost(self, stream: SimStream, reason: str) -> Any:
        """`closed` or `reset` by the other side, or `refused`. Not called for what the client itself ended."""


class SimStream:
    """A client's end. `number` counts the streams of a world, `host` is the name under which links know it, `is_open` false after either side ended it."""

    def __init__(self, world: SimWorld, number: int, host: str, client: SimClient) -> None:
        self.number = number
        self.name = f"client-{number}"
        self.host = host
        self.client = client
        self.is_open = True
        self._world = world
        self._socket: SimSocket | None = None  # until the connection is there
        self._is_connected = False  # and the client knows it
        self._is_refused = False
        self._is_stalled = False
        self._unsent = bytearray()

    def write(self, data: bytes) -> None:
        """Send `data`, as fast as the other side reads; what it does not take yet waits here. Nothing happens after the end."""
        if self.is_open:
            self._unsent += data
            self._flush()

    def close(self) -> None:
        """Hang up in order. What still waits here is not sent."""
        self._end("close")
        if self._socket is not None:
            self._socket.close()

    def reset(self) -> None:
        """Hang up at once: the other side gets an error."""
        self._end("reset")
        if self._socket is not None:
            self._socket.abort()

    def stall(self, is_stalled: bool = True) -> None:
        """Stop reading, or go on."""
        self._is_stalled = is_stalled
        self._look()

    @property
    def unsent(self) -> int:
        """Octets that wait here because the other side does not read."""
        return len(self._unsent)

    def _end(self, how: str) -> None:
        if self.is_open:
            self.is_open = False
            self._world.record((self._world.time, "client", self.name, how))
            self._look()

    # -- what the world calls ----------------------------------------------------------------------

    def attach(self, sock: SimSocket) -> None:
        """The other side has room for the connection."""
        self._socket = sock
        sock.changed = self._look
        if self.is_open:
            self._look()
        else:
            sock.abort()

    def refuse(self) -> None:
        self._is_refused = True
        self._look()

    def turn(self) -> bool:
        """One thing that has happened to this end: the connection is there, or gone, or has octets or room. False if nothing has."""
        world, sock = self._world, self._socket
        if not self.is_open or not self._has_news():
            return False
        if sock is None:
            self._lose("refused")
        elif not self._is_connected:
            self._is_connected = True
            world.record((world.time, "client", self.name, "connected"))
            self.client.on_connected(self)
            self._flush()
        else:
            self._flush()
            if not self._is_stalled and sock.readiness() & READ:
                self._read(sock)
        return True

    def _read(self, sock: SimSocket) -> None:
        try:
            data = sock.recv(READ_SIZE)
        except OSError:
            self._lose("reset")
            return
        if data:
            self.client.on_data(self, data)
        else:
            self._lose("closed")
            sock.close()

    def _lose(self, reason: str) -> None:
        self.is_open = False
        self._world.record((self._world.time, "client", self.name, reason))
        self._look()
        self.client.on_lost(self, reason)

    def _flush(self) -> None:
        sock, unsent = self._socket, self._unsent
        if self._is_connected and sock is not None:
            while unsent and self.is_open and sock.readiness() & WRITE:
                try:
                    del unsent[: sock.send(unsent)]
                except OSError:
                    unsent.clear()  # the reset is there to be read as well
        self._look()

    def _look(self) -> None:
        """See whether the world has to come by."""
        self._world.set_active(self, self.is_open and self._has_news())

    def _has_news(self) -> bool:
        sock = self._socket
        if sock is None:
            return self._is_refused
        if not self._is_connected:
            return True
        ready = sock.readiness()
        return bool((ready & READ and not self._is_stalled) or (ready & WRITE and self._unsent))
