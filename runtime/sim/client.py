"""`SimStream`: the client's end of a simulated connection. It calls methods of a plain object, the client.

    class Greeter:
        def on_connected(self, stream): stream.write(b"hello")
        def on_data(self, stream, data): self.received += data
        def on_lost(self, stream, reason): ...

    stream = world.connect("a", 5672, Greeter())

Each of these calls is a step of the world, chosen like any other. What a client writes, in such a call or between two
steps, leaves at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..loop.poller import READ, WRITE

if TYPE_CHECKING:
    from .sim_sockets import SimSocket
    from .world import SimWorld

#: Most bytes that one read of a client returns.
READ_SIZE = 262_144


class SimClient(Protocol):
    """The object that a scenario passes to `SimWorld.connect`."""

    def on_connected(self, stream: SimStream) -> Any: ...
    def on_data(self, stream: SimStream, data: bytes) -> Any: ...
    def on_lost(self, stream: SimStream, reason: str) -> Any:
        """The connection was `closed` or `reset` by the other side, or `refused`; not called if the client ended it."""


class SimStream:
    """The client's end of a connection.

    number     counts the streams of a world
    host       the name of the client's end of the link
    is_open    False once either side has ended the connection
    """

    def __init__(self, world: SimWorld, number: int, host: str, client: SimClient) -> None:
        self.number = number
        self.name = f"client-{number}"
        self.host = host
        self.client = client
        self.is_open = True
        self._world = world
        #: None until the connection is established.
        self._socket: SimSocket | None = None
        #: Whether the client has got `on_connected`.
        self._is_connected = False
        self._is_refused = False
        self._is_stalled = False
        self._unsent = bytearray()

    def write(self, data: bytes) -> None:
        """Send `data` as fast as the other side reads; the rest waits here. Does nothing after the end."""
        if self.is_open:
            self._unsent += data
            self._flush()

    def close(self) -> None:
        """Close the connection in order. Data that waits here is not sent."""
        self._end("close")
        if self._socket is not None:
            self._socket.close()

    def reset(self) -> None:
        """Reset the connection: the other side gets an error."""
        self._end("reset")
        if self._socket is not None:
            self._socket.abort()

    def stall(self, is_stalled: bool = True) -> None:
        """Stop reading, or read again if `is_stalled` is False."""
        self._is_stalled = is_stalled
        self._update()

    @property
    def unsent(self) -> int:
        """Bytes that wait here because the other side does not read."""
        return len(self._unsent)

    def _end(self, how: str) -> None:
        if self.is_open:
            self.is_open = False
            self._world.record((self._world.time, "client", self.name, how))
            self._update()

    # -- called by the world -----------------------------------------------------------------------

    def attach(self, sock: SimSocket) -> None:
        """Use this socket, because the other side has accepted the connection."""
        self._socket = sock
        sock.changed = self._update
        if self.is_open:
            self._update()
        else:
            sock.abort()

    def refuse(self) -> None:
        """Note that the other side has refused the connection."""
        self._is_refused = True
        self._update()

    def turn(self) -> bool:
        """Handle one event: the connection is established or lost, or has data or room. False if there is none."""
        world, sock = self._world, self._socket
        if not self.is_open or not self._has_event():
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
        self._update()
        self.client.on_lost(self, reason)

    def _flush(self) -> None:
        sock, unsent = self._socket, self._unsent
        if self._is_connected and sock is not None:
            while unsent and self.is_open and sock.readiness() & WRITE:
                try:
                    del unsent[: sock.send(unsent)]
                except OSError:
                    unsent.clear()  # the connection was reset, which the next read reports
        self._update()

    def _update(self) -> None:
        """Let the world call `turn` if there is an event to handle."""
        self._world.set_active(self, self.is_open and self._has_event())

    def _has_event(self) -> bool:
        sock = self._socket
        if sock is None:
            return self._is_refused
        if not self._is_connected:
            return True
        ready = sock.readiness()
        return bool((ready & READ and not self._is_stalled) or (ready & WRITE and self._unsent))
