"""`Handshake`: a connection between two nodes until its greeting is over (`greeting`)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

from .frames import MAX_GREETING_FRAME, FrameReader
from .greeting import Acceptor, Connector, Step


class Handshake:
    """Drives one side of a greeting over a non-blocking socket. `advance` is called when the socket is ready."""

    def __init__(self, sock: Any, side: Acceptor | Connector, address: str) -> None:
        self.sock = sock
        self.fd: int = sock.fileno()
        self.side = side
        #: Of the other side, for the log.
        self.address = address
        #: Bytes that the socket has not taken yet. A connector begins, as soon as it is connected.
        self.unsent = side.hello() if isinstance(side, Connector) else b""
        self._is_connecting = isinstance(side, Connector)

    @property
    def is_connected(self) -> bool:
        """Whether the other side has taken the connection."""
        return not self._is_connecting

    @property
    def wants_write(self) -> bool:
        return bool(self.unsent)

    @property
    def reader(self) -> FrameReader:
        """After the greeting: has what has come behind it."""
        return self.side.reader

    def advance(self) -> Step | None:
        """Go on as far as the socket allows. Returns the step that ends the greeting.

        Raises OSError if the connection breaks, or was not made.
        """
        if self._is_connecting:
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._is_connecting = False
        self._flush()
        try:
            data = self.sock.recv(MAX_GREETING_FRAME)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError("the other side has closed the connection during the greeting")
        step = self.side.feed(data)
        self.unsent += step.reply
        if step.refused is not None:
            with suppress(OSError):
                self._flush()
            return step
        self._flush()
        return None if step.greeted is None else step

    def _flush(self) -> None:
        if self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            except BlockingIOError:
                pass
