"""The message store's files, `<n>.rdq`: records one behind the other, never changed once written (QS-28).

A record, numbers big-endian:

    u64 size | 16 bytes message id | u8 version 1 | u32 checksum | message | 0xFF
             `---------------------- size bytes ---------------------'

`size` counts neither itself nor the closing 0xFF, so a record takes `size + 9` bytes: its **total size**, which the index and all
sums use. The checksum is the CRC-32 of message id and message (D-19). A message is any bytes, none included.

A file is read in two ways:

- `read_message`: one record, whose place is known. Anything that is not exactly that record raises `DamagedRecord`.
- `scan`: all records from an offset on. It ends with the file, or with what is no whole record; `walk_records` goes on behind that, for recovery.

`<n>.rdt` is a file in the making (see `combine`); no scan reads it, and the next start deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ..disk.disk import File

SUFFIX = ".rdq"
ASIDE_SUFFIX = ".rdt"
VERSION = 1
ID_SIZE = 16
MARKER = b"\xff"
HEAD = Struct(">Q16sBI")
OVERHEAD = HEAD.size + len(MARKER)
"""A message's total size is its own plus this."""
OUTSIDE_SIZE = 9
"""Bytes of a record that its size field does not count."""
SCAN_BLOCK = 4 << 20
_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)


class DamagedRecord(Exception):
    """What stands at a place is not the record that was written there."""


class FoundRecord(NamedTuple):
    """A whole, undamaged record of a file."""

    message_id: bytes
    offset: int
    total_size: int


def file_name(number: int) -> str:
    """Of data file `number`."""
    return f"{number}{SUFFIX}"


def file_number(name: str) -> int | None:
    """The number of a data file's name, None for any other name."""
    return _number(name, SUFFIX)


def aside_number(name: str) -> int | None:
    """The same of a file in the making."""
    return _number(name, ASIDE_SUFFIX)


def _number(name: str, suffix: str) -> int | None:
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and _NUMBER.fullmatch(stem) else None


def record(message_id: bytes, message: bytes) -> tuple[bytes, bytes, bytes]:
    """A record as three buffers; the message is not copied."""
    return (
        HEAD.pack(len(message) + OVERHEAD - OUTSIDE_SIZE, message_id, VERSION, crc32(message, crc32(message_id))),
        message,
        MARKER,
    )


def parse_record(data: bytes, message_id: bytes) -> bytes:
    """The message in `data`, which must be exactly the record of `message_id`; raises DamagedRecord."""
    if len(data) < OVERHEAD:
        raise DamagedRecord(f"{len(data)} bytes are no record")
    size, found_id, version, checksum = HEAD.unpack_from(data)
    if size + OUTSIDE_SIZE != len(data) or found_id != message_id or version != VERSION or data[-1:] != MARKER:
        raise DamagedRecord("another record, or none")
    message = data[HEAD.size : -1]
    if crc32(message, crc32(message_id)) != checksum:
        raise DamagedRecord("the checksum is wrong")
    return message


def read_message(file: File, offset: int, total_size: int, message_id: bytes) -> bytes:
    """The message of the record at a known place; raises DamagedRecord, and OSError if the disk does."""
    data = file.read(offset, total_size)
    if len(data) != total_size:
        raise DamagedRecord("the file ends within")
    return parse_record(data, message_id)


def scan(file: File, offset: int = 0, block: int = SCAN_BLOCK) -> Iterator[FoundRecord]:
    """Whole records from `offset`, which is where a record begins, in blocks of `block` bytes; see the module for where it ends."""
    end = file.size()
    start, data = offset, b""
    while offset + OVERHEAD <= end:
        if offset + HEAD.size > start + len(data):
            start, data = offset, file.read(offset, block)
        size, message_id, version, _ = HEAD.unpack_from(data, offset - start)
        total_size = size + OUTSIDE_SIZE
        if total_size < OVERHEAD or offset + total_size > end or version != VERSION:
            return
        if offset + total_size > start + len(data):
            start, data = offset, file.read(offset, max(block, total_size))
        try:
            parse_record(data[offset - start : offset - start + total_size], message_id)
        except DamagedRecord:
            return
        yield FoundRecord(message_id, offset, total_size)
        offset += total_size
