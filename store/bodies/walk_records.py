"""Finds every whole record in a data file of a message store (see `rdq_file`), behind damage too, for recovery and
`warren verify`.

At a damaged record the walk continues behind it, if its size leads to a whole record or to the end of the file;
otherwise at the next offset where a whole record with a valid checksum begins. A message may itself contain records
(when a user sends such a file as a message), so a record found inside a damaged one may not be the store's. Recovery
treats it as garbage, since no queue refers to its id.

A damaged size may by chance lead to the end of a later record. Then whole records, one behind the other, fill the file
up to that place, and the walk continues with the first of them. Records inside the damaged record's own message are
never taken for these: the end of that message comes behind them, so they do not reach up to that place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..disk.disk import File
from ..disk.walk_frames import first_not_zero
from .rdq_file import HEAD, OUTSIDE_SIZE, OVERHEAD, SCAN_BLOCK, VERSION, DamagedRecord, FoundRecord, read_message, scan

#: Bytes read at a time behind damage. Small, because each further damage reads a block again.
RESCAN_BLOCK = 64 << 10
_ZEROS = re.compile(rb"\x00{4,}")
_VERSION_AT = 24


@dataclass(frozen=True)
class DamagedBytes:
    """Bytes without a whole record, from `offset` to `end`, where the next record begins or the file ends (`is_tail`).

    message_id    the id in the damaged head, which may be wrong
    is_torn       zeros, or a record cut off by the end of the file: an interrupted append leaves these
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
    """Yield records and damaged bytes from `offset`, where a record begins, to the end of the file, without gaps."""
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
    stated_end = offset + record_size + OUTSIDE_SIZE
    is_cut = size - offset < OVERHEAD or stated_end > size
    is_plausible = record_size + OUTSIDE_SIZE >= OVERHEAD
    if not is_cut and is_plausible and (stated_end == size or _is_record(file, stated_end, size)):
        end = _first_of_those_up_to(file, offset + 1, stated_end)
    else:
        end = _next_record(file, offset + 1, size)
    return DamagedBytes(offset, end, message_id, end == size, is_cut or first_not_zero(file, offset, end) is None)


def _first_of_those_up_to(file: File, start: int, end: int) -> int:
    """The offset of the first of consecutive whole records, behind `start`, of which the last one ends at `end`; `end`
    if there are none.
    """
    at = _next_record(file, start, end)
    while at < end:
        behind = at
        for found in scan(file, at, RESCAN_BLOCK):
            behind += found.total_size
            if behind >= end:
                break
        if behind == end:
            return at
        at = _next_record(file, behind if behind < end else at + 1, end)
    return end


def _next_record(file: File, start: int, size: int) -> int:
    """The offset of the next whole record; the end of the file if there is none.

    A record begins with the 8 bytes of its size, which is below 4 GiB and not 0. So it begins with four zeros, and
    the run of zeros ends within the next four bytes.
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
