"""Decodes blocks: many messages in the body of one delivery, as the broker builds them (`store/block.py`).

Numbers are little-endian, and each table begins at a multiple of 8:

    head, 64 bytes  `WBK1` | u32 flags | u64 first | u64 next | u32 messages | u32 runs | u32 origins
                    | u32 bytes of origins | u64 bytes of contents | u64 0 | u32 CRC-32 | u32 0
    runs, 40 each   u64 first number | i64 arrived | i64 expires | u32 messages | u32 origin | u32 flags | u32 0
    origins         u32 length of the rest | u16 length, exchange | u16 count, then u8 length, key each | u8 priority
                    | u32 length, property flags and values
    sizes           a u32 for each content; only one if flag 1 of the head says that all are equal
    contents        one behind the other

The checksum is that of the head, with 0 in its place, and of the tables.
"""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import numpy as np

from .messages import Messages, RunDescription

MAGIC = b"WBK1"
HEAD = struct.Struct("<4sIQQIIIIQQII")
RUN = np.dtype(
    [
        ("first", "<u8"),
        ("arrived", "<i8"),
        ("expires", "<i8"),
        ("count", "<u4"),
        ("origin", "<u4"),
        ("flags", "<u4"),
        ("zero", "<u4"),
    ]
)
#: The offset of the checksum in the head.
_CHECKSUM_AT = 56
#: Flag of a head: all contents have one size. Flags of a run: its messages may have been delivered before, and each has
#: properties of its own.
EQUAL_SIZES, REDELIVERED, OWN_PROPERTIES = 1, 1, 4


class BadBlock(Exception):
    """The bytes are not a valid block; the text is the reason."""


def decode_block(data: Any, headers_only: bool = False) -> Messages:
    """The messages of a block; their contents are not copied. Raises BadBlock."""
    view = memoryview(data)
    if len(view) < HEAD.size:
        raise BadBlock(f"a block of {len(view)} bytes is shorter than its head")
    magic, flags, first, after, count, runs, origins, origin_bytes, content_bytes, _, checksum, _ = HEAD.unpack_from(
        view
    )
    if magic != MAGIC:
        raise BadBlock(f"a block begins with {bytes(magic)!r}")
    sizes = 1 if flags & EQUAL_SIZES and count else count
    runs_at = HEAD.size
    origins_at = _aligned(runs_at + runs * RUN.itemsize)
    sizes_at = _aligned(origins_at + origin_bytes)
    contents_at = _aligned(sizes_at + 4 * sizes)
    if contents_at + content_bytes != len(view):
        raise BadBlock(f"a block has {len(view):,} bytes, and its head states {contents_at + content_bytes:,}")
    head = bytes(view[:_CHECKSUM_AT]) + bytes(8)
    if crc32(view[HEAD.size : contents_at], crc32(head)) != checksum:
        raise BadBlock("the checksum of a block's head and tables is wrong")
    table = np.frombuffer(view[runs_at : runs_at + runs * RUN.itemsize], RUN)
    counts = table["count"].astype(np.int64)
    if int(counts.sum()) != count:
        raise BadBlock(f"the runs of a block have {int(counts.sum()):,} messages, and its head states {count:,}")
    numbers = np.repeat(table["first"].astype(np.int64) - (np.cumsum(counts) - counts), counts) + np.arange(count)
    if count and (int(numbers[0]) < first or int(numbers[-1]) >= after or not (np.diff(numbers) > 0).all()):
        raise BadBlock(f"the numbers of a block's messages do not ascend within [{first}, {after})")
    found = _origins(view[origins_at : origins_at + origin_bytes], origins)
    stated = np.frombuffer(view[sizes_at : sizes_at + 4 * sizes], "<u4").astype(np.int64)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.broadcast_to(stated, count) if sizes == 1 else stated, out=bounds[1:])
    if int(bounds[-1]) != content_bytes:
        raise BadBlock(f"the contents of a block take {int(bounds[-1]):,} bytes, and its head states {content_bytes:,}")
    described = [_run(row, found) for row in table.tolist()]
    return Messages(first, after, numbers, view[contents_at:], bounds, described, headers_only)


def _run(row: tuple[int, ...], origins: list[tuple[str, tuple[str, ...], bytes]]) -> RunDescription:
    _, arrived, expires, count, place, flags, _ = row
    if place >= len(origins):
        raise BadBlock(f"a run names origin {place} of {len(origins)}")
    exchange, keys, properties = origins[place]
    shared = None if flags & OWN_PROPERTIES else properties
    return RunDescription(count, exchange, keys, bool(flags & REDELIVERED), arrived, expires, shared)


def _aligned(position: int) -> int:
    return -(-position // 8) * 8


def _origins(view: memoryview, count: int) -> list[tuple[str, tuple[str, ...], bytes]]:
    """Exchange, routing keys and encoded properties of each origin."""
    found = []
    at = 0
    try:
        for _ in range(count):
            (length,) = struct.unpack_from("<I", view, at)
            rest = view[at + 4 : at + 4 + length]
            if len(rest) < length:
                raise BadBlock("an origin of a block is cut off")
            at += 4 + length
            (size,) = struct.unpack_from("<H", rest)
            exchange = _name(rest[2 : 2 + size])
            place = 2 + size
            (keys_left,) = struct.unpack_from("<H", rest, place)
            place += 2
            keys = []
            for _ in range(keys_left):
                keys.append(_name(rest[place + 1 : place + 1 + rest[place]]))
                place += 1 + rest[place]
            (size,) = struct.unpack_from("<I", rest, place + 1)  # behind the priority
            properties = bytes(rest[place + 5 : place + 5 + size])
            if len(properties) < size:
                raise BadBlock("an origin of a block is cut off")
            found.append((exchange, tuple(keys), properties))
    except (struct.error, IndexError):
        raise BadBlock("an origin of a block is cut off") from None
    return found


def _name(encoded: memoryview) -> str:
    """A name as Arrow can hold it: bytes that are not UTF-8 become the replacement character."""
    return bytes(encoded).decode("utf-8", "replace")
