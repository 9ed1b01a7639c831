"""Walking through a data file of a message store as recovery does, and on behind what is damaged.

Recovery's scan (`rdq_file`) passes over a whole record that is damaged by its size. If the size itself is damaged it is led astray, and finds nothing more in that file,
or not all. So here the search goes on for the next place where a whole record, checksum and all, begins; and it is told of each record whether that scan gets to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .disk import File
from .rdq_file import HEAD, OUTSIDE_SIZE, OVERHEAD, SCAN_BLOCK, DamagedRecord, Found, read_message, scan
from .walk_frames import first_not_zero

RESCAN_BLOCK = 64 << 10
"""Behind damage: there may be more of it, and each time a block is read anew."""
_CANDIDATE = re.compile(rb'(?=\x00{4}.{20}\x01)', re.DOTALL)
"""A record's size is below 4 GiB, and its version 1."""


@dataclass(frozen=True)
class DamagedBytes:
    """No record from `offset` to `end`, where the next whole one begins, or the file ends (`is_tail`).

    message_id    what the head says, for what it is worth
    is_torn       zeros, or a record that goes on behind the end of the file: what an interrupted append leaves
    """

    offset: int
    end: int
    message_id: bytes
    is_tail: bool
    is_torn: bool

    @property
    def size(self) -> int:
        return self.end - self.offset


def walk_records(file: File) -> Iterator[Found | DamagedBytes]:
    """Everything from the start to the end of the file, in its order and without gaps."""
    size = file.size()
    offset = 0
    block = SCAN_BLOCK
    while offset < size:
        for found in scan(file, offset, block):
            if found.offset != offset:
                break
            yield found
            offset += found.total_size
        if offset < size:
            damage = _damage(file, offset, size)
            yield damage
            offset = damage.end
            block = RESCAN_BLOCK


def scanned_offsets(file: File, start: int) -> set[int]:
    """Where the records begin that recovery's scan from `start` finds."""
    return {found.offset for found in scan(file, start)}


def _damage(file: File, offset: int, size: int) -> DamagedBytes:
    found = _next_record(file, offset + 1, size)
    end = size if found is None else found
    head = file.read(offset, HEAD.size)
    record_size, message_id = HEAD.unpack(head)[:2] if len(head) == HEAD.size else (0, bytes(16))
    is_cut = size - offset < OVERHEAD or offset + record_size + OUTSIDE_SIZE > size
    return DamagedBytes(offset, end, message_id, found is None, is_cut or first_not_zero(file, offset, end) is None)


def _next_record(file: File, start: int, size: int) -> int | None:
    while start + OVERHEAD <= size:
        block = file.read(start, SCAN_BLOCK + HEAD.size)
        for match in _CANDIDATE.finditer(block, 0, min(len(block), SCAN_BLOCK + HEAD.size)):
            at = match.start()
            if at >= SCAN_BLOCK or at + HEAD.size > len(block):
                break
            record_size, message_id, _, _ = HEAD.unpack_from(block, at)
            total_size = record_size + OUTSIDE_SIZE
            if OVERHEAD <= total_size <= size - start - at and _is_record(file, start + at, total_size, message_id):
                return start + at
        start += SCAN_BLOCK
    return None


def _is_record(file: File, offset: int, total_size: int, message_id: bytes) -> bool:
    try:
        read_message(file, offset, total_size, message_id)
    except DamagedRecord:
        return False
    return True
