"""Message bodies that identify their message and have a checksum.

>H publisher   >I number   >I CRC-32 of both, the length and the rest   the rest: a slice of random bytes
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import NamedTuple

HEAD = struct.Struct(">HI")
CHECK = struct.Struct(">I")
#: Bytes of the shortest body.
LEAST = HEAD.size + CHECK.size
#: Bytes of the longest body.
MOST = 100_000

_FILLING = random.Random(1).randbytes(MOST + 4096)


class Key(NamedTuple):
    """Identifies a message: each channel that publishes has a number and counts its messages."""

    publisher: int
    number: int

    def __str__(self) -> str:
        return f"message {self.publisher}.{self.number}"


def body(key: Key, length: int) -> bytes:
    """A body of `length` bytes for the message."""
    start = key.number & 4095
    head, rest = HEAD.pack(*key), _FILLING[start : start + length - LEAST]
    return head + CHECK.pack(_checksum(head, rest)) + rest


def read(data: bytes) -> Key | None:
    """The key of a body; None if `body` did not make these bytes."""
    if len(data) < LEAST:
        return None
    head, rest = data[: HEAD.size], data[LEAST:]
    if CHECK.unpack_from(data, HEAD.size)[0] != _checksum(head, rest):
        return None
    return Key(*HEAD.unpack(head))


def _checksum(head: bytes, rest: bytes) -> int:
    return zlib.crc32(rest, zlib.crc32(head + CHECK.pack(len(rest))))
