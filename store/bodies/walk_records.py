"""Walking through a data file of a message store (see `rdq_file`), at recovery and when it is verified: all whole records, also those behind damage.

Where there is no whole record the walk goes on where the next one begins: behind the damaged one, if its size leads to a whole record or to the end of the file, and else
at the next place where a record is whole, checksum and all. Messages may contain records (somebody sends such a file by message), so what is found within a damaged
one may be none of the store's; but whatever no queue refers to by its id is garbage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..disk.disk import File
from ..disk.walk_frames import first_not_zero
from .rdq_file import HEAD, OUTSIDE_SIZE, OVERHEAD, SCAN_BLOCK, VERSION, DamagedRecord, FoundRecord, read_message, scan

RESCAN_BLOCK = 64 << 10
"""Behind damage: there may be more of it, and each time a block is read anew."""
_ZEROS = re.compile(rb"\x00{4,}")
_VERSION_AT = 24


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


def walk_records(file: File, offset: int = 0) -> Iterator[FoundRecord | DamagedBytes]:
    """Everything from `offset`, where a record begins, to the end of the file, in its order and without gaps."""
    size = file.size()
    block = SCAN_BLOCK
    while offset < size:
        for found in scan(file, offset, block):
            yield found
            offset += found.total_size
        if offset < size:
            damage = _damage(file, offset, size)
            yield damage
            offset = damage.end
            block = RESCAN_BLOCK


def _damage(file: File, offset: int, size: int) -> DamagedBytes:
    head = file.read(offset, HEAD.size)
    record_size, message_id = HEAD.unpack(head)[:2] if len(head) == HEAD.size else (0, bytes(16))
    said = offset + record_size + OUTSIDE_SIZE
    is_cut = size - offset < OVERHEAD or said > size
    if not is_cut and record_size + OUTSIDE_SIZE >= OVERHEAD and (said == size or _is_record(file, said, size)):
        end = said
    else:
        end = _next_record(file, offset + 1, size)
    return DamagedBytes(offset, end, message_id, end == size, is_cut or first_not_zero(file, offset, end) is None)


def _next_record(file: File, start: int, size: int) -> int:
    """Where the next whole record begins; the end of the file if there is none.

    A record begins with the 8 bytes of its size, which is below 4 GiB and not 0: it has four zeros, then the end of a run of zeros within the next four.
    """
    while start + OVERHEAD <= size:
        block = file.read(start, SCAN_BLOCK + HEAD.size)
        for zeros in _ZEROS.finditer(block):
            for at in range(max(zeros.start(), zeros.end() - 7), zeros.end() - 3):
                if (
                    at < SCAN_BLOCK
                    and block[at + _VERSION_AT : at + _VERSION_AT + 1] == bytes([VERSION])
                    and _is_record(file, start + at, size)
                ):
                    return start + at
        start += SCAN_BLOCK
    return size


def _is_record(file: File, offset: int, size: int) -> bool:
    head = file.read(offset, HEAD.size)
    if len(head) < HEAD.size:
        return False
    record_size, message_id, version, _ = HEAD.unpack(head)
    total_size = record_size + OUTSIDE_SIZE
    if version != VERSION or not OVERHEAD <= total_size <= size - offset:
        return False
    try:
        read_message(file, offset, total_size, message_id)
    except DamagedRecord:
        return False
    return True
