"""The data files of a message store, `<n>.rdq`: consecutive records that never change once written (QS-28).

A record, numbers big-endian:

    u64 size | 16 bytes message id | u8 version 1 | u32 checksum | message | 0xFF
             `---------------------- size bytes ---------------------'

`size` counts neither itself nor the closing 0xFF, so a record takes `size + 9` bytes: its **total size**, which the
index and all sums use. The checksum is the CRC-32 of message id and message (D-19). A message may be empty.

A file is read in two ways:

- `read_message`: one record at a known place. It raises `DamagedRecord` if exactly that record is not there.
- `scan`: all records from an offset up to the first that is not whole. For recovery `walk_records` continues behind it.

`<n>.rdt` is a combined file that is not finished (see `combine`); no scan reads it, and the next start deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ..checksum import crc32
from ..disk.disk import File

SUFFIX = ".rdq"
ASIDE_SUFFIX = ".rdt"
VERSION = 1
MARKER = b"\xff"
HEAD = Struct(">Q16sBI")
#: Bytes of a record beside its message.
OVERHEAD = HEAD.size + len(MARKER)
#: Bytes of a record that its size field does not count.
OUTSIDE_SIZE = 9
SCAN_BLOCK = 4 << 20
_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)


class DamagedRecord(Exception):
    """The bytes at a place are not the record that was written there."""


class FoundRecord(NamedTuple):
    """A whole, undamaged record of a file."""

    message_id: bytes
    offset: int
    total_size: int


def file_name(number: int) -> str:
    """The name of data file `number`."""
    return f"{number}{SUFFIX}"


def file_number(name: str) -> int | None:
    """The number in the name of a data file; None for any other name."""
    return _number(name, SUFFIX)


def aside_number(name: str) -> int | None:
    """The number in the name of a combined file that is not finished; None for any other name."""
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
        raise DamagedRecord(f"{len(data)} bytes are not a record")
    size, found_id, version, checksum = HEAD.unpack_from(data)
    if size + OUTSIDE_SIZE != len(data) or found_id != message_id or version != VERSION or data[-1:] != MARKER:
        raise DamagedRecord("another record or none is there")
    message = data[HEAD.size : -1]
    if crc32(message, crc32(message_id)) != checksum:
        raise DamagedRecord("the checksum is wrong")
    return message


def read_message(file: File, offset: int, total_size: int, message_id: bytes) -> bytes:
    """The message of the record at a known place. Waits for the disk. Raises DamagedRecord, and OSError of the disk."""
    data = file.read(offset, total_size)
    if len(data) != total_size:
        raise DamagedRecord("the file ends within the record")
    return parse_record(data, message_id)


def scan(file: File, offset: int = 0, block: int = SCAN_BLOCK) -> Iterator[FoundRecord]:
    """Yield the whole records from `offset`, where a record begins, up to the first damage.

    Reads `block` bytes at a time.
    """
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
