"""Walking through a file of frames (see `records`), whole or damaged: journal files and index segments.

The walk reads frame by frame. Where there is no whole frame the file is damaged, and the walk continues at the next
whole frame, so damage costs only the frames that it touches. Damage that looks like an interrupted append, and that no
whole frame follows, is a **torn tail**: nothing in it was ever confirmed.

Frames hold messages, and messages may hold frames (somebody sends a copy of a journal by message), so not everything
that looks like a frame is one. The walk decides in this order where damage ends:

1. Where the size in the damaged frame's head says, if a whole frame begins there or the file ends there: anything but
   the size is damaged. A damaged size may lead there by chance, behind other frames; then 2 applies.
2. At the first whole frame up to which the checksum of the damaged frame is right: only the size is damaged.
3. If the size leads behind the end of the file and 2 does not apply, the frame is a torn tail. But if whole frames
   follow one another to the very end of the file, the frame is damaged and the walk continues with them. If there are
   other whole frames in it, it may be either: the walk skips all of it, and does not call it torn, so that recovery
   never cuts it off.
4. Otherwise size and content are damaged, and the walk continues at the next whole frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import pack
from typing import NamedTuple

from ..checksum import crc32
from ..messages.records import FRAME, MAGIC, VERSION, Damaged, Kind, checksum_start, read_frame
from .contents import Readable

#: Bytes read at once in a search.
SEARCH_BLOCK = 1 << 20
#: Once a whole frame was found behind a damaged one, the search for an end that fits its checksum (2) stops after this
#: many bytes: few frames are larger.
NEAR = 4 * SEARCH_BLOCK
_BEGINNING = pack(">BBB", MAGIC, VERSION, 0)
_KINDS = {int(kind) for kind in Kind}
_NOT_ZERO = re.compile(rb"[^\x00]")


class WholeFrame(NamedTuple):
    """A frame from `offset` to before `end`. `is_behind`: there is damage before it."""

    kind: int
    payload: bytes
    offset: int
    end: int
    is_behind: bool


class DamagedPart(NamedTuple):
    """Damage from `offset` to before `end`, where the next whole frame begins or the file ends.

    is_tail         the file ends with it
    is_zero         it is all zeros: the file system gave the file space, and a power cut came before the data
    is_torn_tail    an interrupted append left it, whether the process or the power was cut
    """

    offset: int
    end: int
    is_tail: bool
    is_zero: bool
    is_torn_tail: bool

    @property
    def size(self) -> int:
        """Bytes in it."""
        return self.end - self.offset


def walk_frames(file: Readable, size: int | None = None) -> Iterator[WholeFrame | DamagedPart]:
    """The frames and damaged parts of the first `size` bytes, by default of the whole file, in order and without gaps.

    Waits for the disk.
    """
    size = file.size() if size is None else size
    offset = 0
    is_behind = False
    while offset < size:
        try:
            kind, payload, end = read_frame(file, offset, size)
        except Damaged:
            part = _damaged(file, offset, size)
            yield part
            is_behind = True
            offset = part.end
        else:
            yield WholeFrame(kind, payload, offset, end, is_behind)
            offset = end


def _damaged(file: Readable, offset: int, size: int) -> DamagedPart:
    end, is_cut = _end_of_damage(file, offset, size)
    first = first_not_zero(file, offset, end)
    is_tail = end == size
    is_zero = first is None
    # A torn tail may also be zeros that one append has left, followed by the torn frame of the next append.
    is_torn = is_tail and (
        is_cut or first is None or first > offset and _end_of_damage(file, first, size) == (size, True)
    )
    return DamagedPart(offset, end, is_tail, is_zero, is_torn)


def _end_of_damage(file: Readable, offset: int, size: int) -> tuple[int, bool]:
    """Where the damage at `offset` ends, and whether it is a frame that the file's end cuts off; see the module."""
    head = file.read(offset, min(FRAME.size, size - offset))
    if len(head) < FRAME.size:
        return size, True
    magic, version, kind, payload_size, checksum = FRAME.unpack(head)
    stated_end = offset + FRAME.size + payload_size
    if stated_end == size or stated_end < size and _is_frame(file, stated_end, size):
        sum_so_far, summed = checksum_start(kind), offset + FRAME.size
        for at, _ in _whole_frames(file, summed, stated_end):
            sum_so_far, summed = _summed(file, summed, at, sum_so_far), at
            if sum_so_far == checksum:
                return at, False
        return stated_end, False
    is_cut = (magic, version) == (MAGIC, VERSION) and stated_end > size
    sum_so_far, summed = checksum_start(kind), offset + FRAME.size
    nearest = None
    row = row_end = offset  # where the last row of whole frames without gaps begins and ends
    for at, end in _whole_frames(file, offset + 1, size):
        if at >= summed:
            sum_so_far, summed = _summed(file, summed, at, sum_so_far), at
            if sum_so_far == checksum:
                return at, False
        nearest = at if nearest is None else nearest
        if at > row_end:
            row = at
        row_end = max(row_end, end)
        if not is_cut and at > offset + NEAR:
            break
    if nearest is None:
        return size, is_cut and _summed(file, summed, size, sum_so_far) != checksum
    if is_cut:
        return row if row_end == size else size, False
    return nearest, False


def _summed(file: Readable, start: int, stop: int, checksum: int) -> int:
    """The CRC-32 of a part of the file, continued from `checksum`."""
    for at in range(start, stop, SEARCH_BLOCK):
        checksum = crc32(file.read(at, min(SEARCH_BLOCK, stop - at)), checksum)
    return checksum


def _whole_frames(file: Readable, start: int, size: int) -> Iterator[tuple[int, int]]:
    """The (offset, end) of everything from `start` on that is a whole frame; they may overlap."""
    while start < size:
        block = file.read(start, SEARCH_BLOCK + FRAME.size)
        at = block.find(_BEGINNING)
        while 0 <= at < SEARCH_BLOCK:
            # Most places that look like a beginning are none: check the head before reading the payload.
            head = block[at : at + FRAME.size]
            if len(head) == FRAME.size:
                _, _, kind, payload_size, _ = FRAME.unpack(head)
                end = start + at + FRAME.size + payload_size
                if kind in _KINDS and end <= size and _is_frame(file, start + at, size):
                    yield start + at, end
            at = block.find(_BEGINNING, at + 1)
        start += SEARCH_BLOCK


def _is_frame(file: Readable, offset: int, size: int) -> bool:
    try:
        read_frame(file, offset, size)
    except Damaged:
        return False
    return True


def first_not_zero(file: Readable, offset: int, end: int) -> int | None:
    """The offset of the first byte from `offset` to before `end` that is not zero; None if all are."""
    for at in range(offset, end, SEARCH_BLOCK):
        found = _NOT_ZERO.search(file.read(at, min(SEARCH_BLOCK, end - at)))
        if found is not None:
            return at + found.start()
    return None
