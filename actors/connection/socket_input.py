"""`SocketInput`: reads the input of a connection from its socket and gives it to the frame reader.

The socket is read in pieces of up to 512 KiB, whose size `ReadSize` decides. A large body is read straight into its
place in the reader's `LargeContent`, so that no byte of it is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from ...amqp.parser.large_content import LargeContent
from ...amqp.parser.reader import FrameReader
from ..context.received_bytes import ReceivedBytes
from .output import Transport
from .read_size import READ_MIN, ReadSize

#: Bytes to read behind a content of more than `LARGE_FROM` bytes. They hold what comes before the next body, and little
#: of that body itself, which would have to be copied to its place. Smaller contents are read several at a time.
BETWEEN_LARGE = 4096
LARGE_FROM = 256 * 1024

#: The most bytes of a large body that one read receives, in about 0.5 ms: a turn has a few reads, and a socket may hold
#: several megabytes. If this were less than 1 MB, a body of 1 MB would take two system calls.
READ_LARGE = 2 << 20

#: Why the input has ended, for the log, where the client closed it in order.
CLOSED_BY_CLIENT = "the client closed the TCP connection"


class SocketInput:
    """The input side of one socket.

    sock          the socket, or TLS around it
    reader        gets what is read
    node_received counts the bytes of all connections of the node
    on_end        called with the reason when the input ends
    first         called with each piece until `pass_on` is called; returns the part of it that the reader gets

    `received` counts bytes, `reads` how often the socket had some.
    """

    __slots__ = (
        "_first",
        "_is_between_large",
        "_node_received",
        "_on_end",
        "_read_size",
        "_reader",
        "_recv_into",
        "_sock",
        "reads",
        "received",
    )

    def __init__(
        self,
        sock: Transport,
        reader: FrameReader,
        node_received: ReceivedBytes,
        on_end: Callable[[str], None],
        first: Callable[[bytes], bytes],
    ) -> None:
        self._sock = sock
        self._reader = reader
        self._node_received = node_received
        self._on_end = on_end
        self._first: Callable[[bytes], bytes] | None = first
        self._read_size = ReadSize()
        #: Reads into a buffer. None for TLS, which decrypts into pieces of its own.
        self._recv_into: Callable[[memoryview], int] | None = getattr(sock, "recv_into", None)
        self.received = self.reads = 0
        #: Whether the last thing that was read is the end of a large content, so that another one probably follows.
        self._is_between_large = False

    def pass_on(self) -> None:
        """Give the reader everything from now on."""
        self._first = None

    @property
    def is_filling(self) -> bool:
        """Whether a large body is arriving that can be read from the socket straight into its place."""
        return self._reader.large is not None and self._recv_into is not None

    def read(self) -> bool:
        """Give the reader what the socket has: the rest of a large content and a piece behind it, or one piece.

        Returns False if the socket has nothing, or if the input has ended.
        """
        large = self._reader.large
        if large is None or large.filled == large.size or self._recv_into is None:
            if not self._is_between_large:
                return self._read_piece(self._read_size.size)
            has_come = self._read_piece(BETWEEN_LARGE)
            self._is_between_large = not has_come
            return has_come
        if not self._read_into(large, self._recv_into):
            return False
        if large.filled == large.size:
            # An end of the input is left to the next read, because the content has not been handled yet.
            size = BETWEEN_LARGE if large.size > LARGE_FROM else self._read_size.size
            has_come = self._read_piece(size, may_end=False)
            self._is_between_large = size == BETWEEN_LARGE and not has_come
        return True

    def _read_into(self, large: LargeContent, recv_into: Callable[[memoryview], int]) -> bool:
        try:
            count = recv_into(large.room[:READ_LARGE])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._on_end(error.strerror or str(error))
            return False
        if not count:
            self._on_end(CLOSED_BY_CLIENT)
            return False
        self.received += count
        self._node_received.count += count
        self.reads += 1
        large.filled += count
        return True

    def _read_piece(self, size: int, may_end: bool = True) -> bool:
        try:
            data = self._sock.recv(size)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if may_end:
                self._on_end(error.strerror or str(error))
            return False
        if not data:
            if may_end:
                self._on_end(CLOSED_BY_CLIENT)
            return False
        received = len(data)
        self.received += received
        self._node_received.count += received
        self.reads += 1
        if size != BETWEEN_LARGE and (size > READ_MIN or received == size):
            self._read_size.adapt(received)
        if self._first is not None:
            data = self._first(data)
        self._reader.feed(data)
        return True
