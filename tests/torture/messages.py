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
LEAST = HEAD.size + CHECK.size
MOST = 100_000

_FILLING = random.Random(1).randbytes(MOST + 4096)

#: `(weight, least, most)` of sizes in bytes. They lie on both sides of 4,096, below which a message with its properties
#: is embedded in the queue index, and below the limit of a body frame, 131,072.
_SIZES = ((40, LEAST, 100), (34, 100, 3_900), (8, 3_900, 4_300), (16, 4_300, 20_000), (2, 20_000, MOST))
_WEIGHTS = [weight for weight, _, _ in _SIZES]


class Key(NamedTuple):
    """Identifies a message: each publisher of each life of the broker has its own number, and counts its messages."""

    publisher: int
    number: int


def size(chooser: random.Random) -> int:
    _, least, most = chooser.choices(_SIZES, _WEIGHTS)[0]
    return chooser.randint(least, most)


def body(key: Key, length: int) -> bytes:
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
