"""`TlsTransport`: what a connection uses of a socket, with TLS between it and the socket.

TLS runs in memory (`ssl.MemoryBIO`), the socket carries octets only. That keeps it to four rules:

- `recv` reads the socket once and decrypts all it got, so that nothing readable is left where epoll cannot see it.
- `send` encrypts up to CHUNK octets and reports them as written only when their ciphertext is with the kernel. Until then it raises BlockingIOError; the
  caller, who keeps the octets at the head of its queue meanwhile, has therefore the same picture of what went out as with a plain socket.
- What TLS itself has to say (alerts, answers to key updates) goes out with the next `flush`; `has_unsent` says that one is due.
- Memory is bounded: one read, one record that is not complete, the ciphertext of one CHUNK, and UNASKED_MAX of TLS's own.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from .output import Transport
from .read_size import ReadSize

RECORD = 16 * 1024  # octets of plaintext in one TLS record, at most
CHUNK = 4 * RECORD  # octets of plaintext encrypted at a time
UNASKED_MAX = 256 * 1024  # octets: a client that has key updates answered and does not read them gets no further


class TlsTransport:
    """The server's side of TLS on a non-blocking socket.

    `recv`, `send`, `sendmsg` and `close` are those of a non-blocking socket; what goes wrong in TLS is `ssl.SSLError`, an OSError. Call them after `handshake` has returned True.
    """

    __slots__ = (
        "heard_anything",
        "is_ended",
        "is_ready",
        "_incoming",
        "_outgoing",
        "_pledged",
        "_read_size",
        "_sock",
        "_tls",
        "_unsent",
    )

    def __init__(self, sock: Transport, context: ssl.SSLContext) -> None:
        self.heard_anything = False  # the client sent an octet
        self.is_ready = False  # the handshake is done
        self.is_ended = False  # the client sends no more: close_notify, or the end of the TCP stream
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: Any = b""  # ciphertext taken out of `_outgoing`
        self._pledged = 0  # octets of the caller's that are encrypted and not reported as written
        self._read_size = ReadSize()  # of ciphertext

    # -- the handshake -----------------------------------------------------------------------------------------------------------------------

    def handshake(self) -> bool:
        """Goes on with the handshake as far as the socket's input allows; True when it is done. Raises OSError when it fails, after the alert that tells the client why."""
        try:
            self._read_socket()
        except BlockingIOError:
            return False
        if self.is_ended:
            raise ConnectionResetError("the client closed the TCP connection")
        try:
            self._tls.do_handshake()
            self.is_ready = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            with suppress(OSError):
                self.flush()
            raise
        self.flush()
        return self.is_ready

    @property
    def certificate(self) -> dict[str, Any]:
        """The client's, as `ssl.SSLObject.getpeercert` has it; empty if it showed none."""
        return self._tls.getpeercert() or {}

    @property
    def protocol(self) -> str:
        return self._tls.version() or ""

    @property
    def cipher(self) -> str:
        cipher = self._tls.cipher()
        return cipher[0] if cipher else ""

    # -- input -------------------------------------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """The plaintext of one read of the socket, b"" at the end of the stream. How much is read follows from what the client sends, whatever `size` is:
        ciphertext is never as long as what it stands for, so the caller cannot tell from the answer whether there was more."""
        # After the handshake there may be octets that came with its last ones, and none in the socket.
        if not self._incoming.pending and not self.is_ended:
            self._read_socket()
        pieces = []
        try:
            while not self.is_ended:
                piece = self._tls.read(RECORD)
                pieces.append(piece)
                self.is_ended = not piece
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.is_ended = True
        if self._outgoing.pending:
            self.flush()
            if self._outgoing.pending > UNASKED_MAX:
                raise ConnectionAbortedError("the client asks for new keys and does not read the answers")
        data = b"".join(pieces)
        if not data and not self.is_ended:
            raise BlockingIOError
        return data

    def _read_socket(self) -> None:
        data = self._sock.recv(self._read_size.octets)
        size = len(data)
        if not size:
            self.is_ended = True
            return
        self.heard_anything = True
        self._incoming.write(data)
        self._read_size.got(size)

    # -- output ------------------------------------------------------------------------------------------------------------------------------

    def send(self, data: Any) -> int:
        """Octets of `data` that are with the kernel now. After a BlockingIOError the next call must begin with the same octets."""
        if not self._pledged:
            self._pledged = self._tls.write(data if len(data) <= CHUNK else memoryview(data)[:CHUNK])
        if not self.flush():
            raise BlockingIOError
        count, self._pledged = self._pledged, 0
        return count

    def sendmsg(self, buffers: Iterable[Any]) -> int:
        """As `send`, of the buffers one after the other."""
        if self._pledged:
            return self.send(b"")
        pieces, room = [], CHUNK
        for buffer in buffers:
            pieces.append(buffer if len(buffer) <= room else memoryview(buffer)[:room])
            room -= len(pieces[-1])
            if not room:
                break
        return self.send(b"".join(pieces))

    @property
    def has_unsent(self) -> bool:
        """Whether there is ciphertext that the kernel has not taken."""
        return bool(self._unsent) or self._outgoing.pending > 0

    def flush(self) -> bool:
        """Gives ciphertext to the kernel; True when all is gone. Raises OSError when the connection is."""
        while True:
            if not self._unsent:
                self._unsent = self._outgoing.read()
                if not self._unsent:
                    return True
            try:
                count = self._sock.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = memoryview(self._unsent)[count:]

    def close(self) -> None:
        """Says close_notify if the client still takes it, and closes the socket without waiting for the client's."""
        with suppress(OSError):
            if self.is_ready:
                with suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
            self.flush()
        self._sock.close()
