"""`TlsTransport`: a non-blocking socket with TLS, with the methods of a plain socket that a connection uses.

TLS runs in memory (`ssl.MemoryBIO`); the socket carries ciphertext. Four rules keep the two in step:

- `recv` reads the socket once and decrypts everything it got, so that no plaintext is left where epoll cannot see it.
- `send` encrypts up to CHUNK bytes, and returns them as written only when the kernel has their ciphertext. Until then
  it raises BlockingIOError, and the caller keeps the bytes at the head of its output. So bytes count as written at the
  same moment as with a plain socket.
- Records without application data (alerts, answers to key updates) are sent by the next `flush`, see `has_unsent`.
- Memory is bounded: one read, one incomplete record, the ciphertext of one CHUNK, and UNASKED_MAX bytes of records
  without application data.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import suppress

from ..output import Buffer, Transport
from ..read_size import ReadSize
from .tls_context import Certificate

#: The most bytes of plaintext in one TLS record.
RECORD = 16 * 1024

#: Bytes of plaintext that are encrypted at a time.
CHUNK = 4 * RECORD

#: Most bytes of records without application data that may be unsent. A client that requests key updates and does not
#: read the answers exceeds this, and its connection is dropped.
UNASKED_MAX = 256 * 1024


class TlsTransport:
    """One side of TLS on a non-blocking socket: the server's, or with `is_client` the client's.

    `recv`, `send`, `sendmsg` and `close` are those of a non-blocking socket, to be called after `handshake` has
    returned True. Faults of TLS are `ssl.SSLError`, which is an OSError.
    """

    __slots__ = (
        "_encrypted",
        "_incoming",
        "_outgoing",
        "_read_size",
        "_sock",
        "_tls",
        "_unsent",
        "has_received",
        "is_ended",
        "is_ready",
    )

    def __init__(self, sock: Transport, context: ssl.SSLContext, is_client: bool = False) -> None:
        #: Whether the client has sent a byte.
        self.has_received = False
        #: Whether the handshake is done.
        self.is_ready = False
        #: Whether the client sends no more: it sent close_notify, or ended the TCP stream.
        self.is_ended = False
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not is_client)
        #: Ciphertext taken out of `_outgoing`.
        self._unsent: Buffer = b""
        #: Bytes of the caller's data that are encrypted, and that `send` has not returned as written yet.
        self._encrypted = 0
        #: How many bytes of ciphertext to read at a time.
        self._read_size = ReadSize()

    # -- the handshake ---

    def begin(self) -> None:
        """Send a client's first message. A server waits for it."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.flush()

    def handshake(self) -> bool:
        """Continue the handshake as far as the socket's input allows; True when it is done.

        Raises OSError if it fails, after an alert that gives the client the reason.
        """
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
    def certificate(self) -> Certificate:
        """The client's certificate as `ssl.SSLObject.getpeercert` returns it; empty if it showed none."""
        return self._tls.getpeercert() or {}

    @property
    def protocol(self) -> str:
        return self._tls.version() or ""

    @property
    def cipher(self) -> str:
        cipher = self._tls.cipher()
        return cipher[0] if cipher else ""

    # -- input ---

    def recv(self, size: int) -> bytes:
        """The plaintext of one read of the socket; b"" at the end of the stream.

        `size` is ignored, and a `ReadSize` of its own decides how much ciphertext is read: ciphertext is longer than
        its plaintext, so the caller could not see from the result whether the read was full.
        """
        # Input that came together with the end of the handshake is decrypted first; the socket may have no more.
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
                raise ConnectionAbortedError("the client requests new keys and does not read the answers")
        data = b"".join(pieces)
        if not data and not self.is_ended:
            raise BlockingIOError
        return data

    def _read_socket(self) -> None:
        data = self._sock.recv(self._read_size.size)
        size = len(data)
        if not size:
            self.is_ended = True
            return
        self.has_received = True
        self._incoming.write(data)
        self._read_size.adapt(size)

    # -- output ---

    def send(self, data: Buffer) -> int:
        """Send `data`; returns how many of its bytes the kernel has taken.

        After a BlockingIOError, the data of the next call must begin with the same bytes.
        """
        if not self._encrypted:
            self._encrypted = self._tls.write(data if len(data) <= CHUNK else memoryview(data)[:CHUNK])
        if not self.flush():
            raise BlockingIOError
        count, self._encrypted = self._encrypted, 0
        return count

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        """As `send`, for several buffers in their order."""
        if self._encrypted:
            return self.send(b"")
        pieces: list[Buffer] = []
        room = CHUNK
        for buffer in buffers:
            pieces.append(buffer if len(buffer) <= room else memoryview(buffer)[:room])
            room -= len(pieces[-1])
            if not room:
                break
        return self.send(b"".join(pieces))

    @property
    def has_unsent(self) -> bool:
        """Whether ciphertext waits that the kernel has not taken."""
        return bool(self._unsent) or self._outgoing.pending > 0

    def flush(self) -> bool:
        """Give ciphertext to the kernel; True if it has taken all. OSError if the connection has ended."""
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
        """Send close_notify if the socket still takes it, and close the socket without waiting for the client's."""
        with suppress(OSError):
            if self.is_ready:
                with suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
            self.flush()
        self._sock.close()
