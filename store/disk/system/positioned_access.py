"""Reading a descriptor at an offset while another thread appends to it: pread and writev, or lseek under a lock.

Linux reads at an offset without moving the descriptor's position, so readers and the writer need no lock. The twin, for
systems without these calls (Windows), moves the position. So a lock keeps other threads from moving it again between
the lseek of one thread and its read or write.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from ....portable import IS_PORTABLE

#: IOV_MAX of Linux: the most buffers that one writev takes.
MAX_WRITEV_BUFFERS = 1024

#: Windows translates line ends unless a file is opened as binary; other systems have no such flag.
BINARY = getattr(os, "O_BINARY", 0)


class PositionedAccess:
    """A descriptor opened with O_APPEND, by pread and writev."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def append(self, buffers: Sequence[bytes]) -> None:
        """Write all `buffers`, in order, at the end of the file."""
        for start in range(0, len(buffers), MAX_WRITEV_BUFFERS):
            pieces = buffers[start : start + MAX_WRITEV_BUFFERS]
            self.append_rest(pieces, os.writev(self._fd, pieces))

    def append_rest(self, pieces: Sequence[bytes], written: int) -> None:
        """Write the rest of `pieces`, after a call that has written only their first `written` bytes."""
        if written < sum(map(len, pieces)):
            # A short write happens at the edge of a full disk or above 2 GiB. The next write raises, or finishes.
            _write_fully(self._fd, memoryview(b"".join(pieces))[written:])

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, size, offset)
        if len(data) == size:
            return data
        pieces = [data]
        while data:
            offset += len(data)
            size -= len(data)
            data = os.pread(self._fd, size, offset) if size else b""
            pieces.append(data)
        return b"".join(pieces)


class SeekingAccess:
    """The portable twin: lseek, read and write, one thread at a time."""

    __slots__ = ("_fd", "_lock")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def append(self, buffers: Sequence[bytes]) -> None:
        """As `PositionedAccess.append`."""
        self.append_rest(buffers, 0)

    def append_rest(self, pieces: Sequence[bytes], written: int) -> None:
        """As `PositionedAccess.append_rest`."""
        with self._lock:
            os.lseek(self._fd, 0, os.SEEK_END)
            _write_fully(self._fd, memoryview(b"".join(pieces))[written:])

    def read(self, offset: int, size: int) -> bytes:
        """As `PositionedAccess.read`."""
        pieces = []
        with self._lock:
            os.lseek(self._fd, offset, os.SEEK_SET)
            while size and (data := os.read(self._fd, size)):
                pieces.append(data)
                size -= len(data)
        return b"".join(pieces)


def _write_fully(fd: int, rest: memoryview) -> None:
    while rest:
        rest = rest[os.write(fd, rest) :]


#: The class that this process uses.
Access = SeekingAccess if IS_PORTABLE else PositionedAccess
