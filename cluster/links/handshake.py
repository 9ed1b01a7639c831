"""`LinkHandshake`: a connection between two nodes until its greeting is over (`greeting`)."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from typing import Any, NamedTuple

from ...actors.connection.tls.tls_transport import TlsTransport
from .admission import MALFORMED, Refusal
from .encoding.frames import MAX_GREETING_FRAME, LinkFrameReader
from .greeting import Acceptor, Connector, Greeted, GreetingStep


class LinkHandshake:
    """Drives one side of a greeting over a non-blocking socket. `advance` is called when the socket is ready.

    With a `tls` context a TLS handshake comes before the greeting.
    """

    def __init__(self, sock: Any, side: Acceptor | Connector, address: str, tls: ssl.SSLContext | None) -> None:
        self.fd: int = sock.fileno()
        self._plain = sock
        self._tls = None if tls is None else TlsTransport(sock, tls, is_client=isinstance(side, Connector))
        self.sock: Any = sock if self._tls is None else self._tls
        self.side = side
        #: The address of the other side, for the log.
        self.address = address
        #: Bytes that the socket has not taken yet. The connector sends the first message of the greeting.
        self.unsent = side.hello() if isinstance(side, Connector) else b""
        self._is_connecting = isinstance(side, Connector)

    @property
    def is_connected(self) -> bool:
        """Whether the TCP connection is established."""
        return not self._is_connecting

    @property
    def wants_write(self) -> bool:
        waits_for_tls = self._tls is not None and not self._tls.is_ready
        return self._is_connecting or (bool(self.unsent) and not waits_for_tls) or self.has_tls_unsent

    @property
    def has_tls_unsent(self) -> bool:
        """Whether TLS itself has something to write."""
        return self._tls is not None and self._tls.has_unsent

    @property
    def reader(self) -> LinkFrameReader:
        """The reader of the greeting. The session must use it too: it may hold frames that came behind the greeting."""
        return self.side.reader

    def advance(self) -> GreetingStep | None:
        """Go on as far as the socket allows. Returns the step that ends the greeting, None before that.

        Raises OSError if the connection breaks or could not be established.
        """
        if self._is_connecting:
            error = self._plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._is_connecting = False
            if self._tls is not None:
                self._tls.begin()
        if self._tls is not None and not self._tls.is_ready:
            refused = self._tls_handshake(self._tls)
            if refused is not None:
                return refused
            if not self._tls.is_ready:
                return None
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

    def _tls_handshake(self, tls: TlsTransport) -> GreetingStep | None:
        try:
            tls.handshake()
        except ssl.SSLCertVerificationError as error:
            return GreetingStep(refused=Refusal(MALFORMED, f"its certificate is not accepted: {error.verify_message}"))
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            return GreetingStep(
                refused=Refusal(MALFORMED, f"no TLS: {reason}; set cluster_tls_* on all nodes or on none")
            )
        return None

    def _flush(self) -> None:
        if self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            except BlockingIOError:
                pass


class Connected(NamedTuple):
    """A connection whose greeting is over."""

    handshake: LinkHandshake
    greeted: Greeted
