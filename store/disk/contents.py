"""`Contents`: the bytes of a small file, which was read with one call.

A start reads the files of ten thousand small queues. A system call takes as long as decoding all that such a file
contains, and longer if the thread must then wait for the interpreter, because another thread has taken it meanwhile.
"""

from __future__ import annotations

from typing import Protocol

#: A file of at most this many bytes is read with one call.
SMALL_FILE = 4096


class Readable(Protocol):
    """What readers of frames use of a file."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def size(self) -> int:
        """Bytes in the file."""


class Contents:
    """Reads from bytes in memory as from a file."""

    __slots__ = ("_bytes",)

    def __init__(self, content: bytes) -> None:
        self._bytes = content

    def read(self, offset: int, size: int) -> bytes:
        return self._bytes[offset : offset + size]

    def size(self) -> int:
        return len(self._bytes)
