"""The bodies that are published: each says which it is, and shows whether it is whole.

>H publisher   >I number   >I CRC-32 of both, the length and the rest   the rest: some of a block of random octets
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

# Of both sides of what is embedded in the queue index (below 4,096 octets with properties), and of a body frame's limit, which is 131,072 here: no body needs two.
_SIZES = ((40, LEAST, 100), (34, 100, 3_900), (8, 3_900, 4_300), (16, 4_300, 20_000), (2, 20_000, MOST))
_WEIGHTS = [weight for weight, _, _ in _SIZES]


class Key(NamedTuple):
    """Which message: every publisher of every life of the broker has a number of its own, and counts."""

    publisher: int
    number: int


def size(chooser: random.Random) -> int:
    _, least, most = chooser.choices(_SIZES, _WEIGHTS)[0]
    return chooser.randint(least, most)


def body(key: Key, octets: int) -> bytes:
    start = key.number & 4095
    head, rest = HEAD.pack(*key), _FILLING[start : start + octets - LEAST]
    return head + CHECK.pack(_checksum(head, rest)) + rest


def read(octets: bytes) -> Key | None:
    """Which message it is; None if these octets are none that `body` made."""
    if len(octets) < LEAST:
        return None
    head, rest = octets[: HEAD.size], octets[LEAST:]
    if CHECK.unpack_from(octets, HEAD.size)[0] != _checksum(head, rest):
        return None
    return Key(*HEAD.unpack(head))


def _checksum(head: bytes, rest: bytes) -> int:
    return zlib.crc32(rest, zlib.crc32(head + CHECK.pack(len(rest))))
