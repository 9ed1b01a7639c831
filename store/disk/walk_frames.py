"""Walking through a file of frames (see `records`): journal files and index segments, at recovery and when they are verified.

A file is read frame by frame. Where there is no whole frame the file is damaged, and the walk goes on with the next
whole one, so that damage costs no more than the frames it is in. What nothing whole follows and looks like an append
that did not get to its end is a **torn tail**: nobody had been told that it was durable.

Contents of messages are in the frames, and may contain frames (somebody sends a copy of a journal by message), so not
everything that looks like a frame is one. Where the walk goes on:

1. Where the damaged frame says that it ends, if a whole frame begins there, or the file ends: the damage is anywhere
but in the size. 2. At the first whole frame up to which the checksum of the damaged one is right: nothing but its size
is damaged. 3. A frame that goes on behind the end of the file, and of which 2 is not so, is a torn tail. But where
whole frames follow one another to the very end of the file it is damaged;
   and if there are others in it, it may be either: nothing of it is used, and it is not called torn, so that nobody
   cuts it off for good.
4. Else more than its size is damaged, and the next whole frame it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import pack
from typing import NamedTuple
from zlib import crc32

from ..messages.records import FRAME, MAGIC, VERSION, Damaged, Kind, checksum_start, read_frame
from .disk import File

SEARCH_BLOCK = 1 << 20
NEAR = 4 * SEARCH_BLOCK
"""How far a damaged frame is searched for an end that its checksum agrees with, once a whole frame was found behind it: more than a frame mostly has."""
_BEGINNING = pack(">BBB", MAGIC, VERSION, 0)
_KINDS = {int(kind) for kind in Kind}
_NOT_ZERO = re.compile(rb"[^\x00]")


class WholeFrame(NamedTuple):
    """`is_behind`: there is damage before it."""

    kind: int
    payload: bytes
    offset: int
    end: int
    is_behind: bool


class DamagedPart(NamedTuple):
    """No frame from `offset` to `end`, where the next whole one begins, or the file ends (`is_tail`).

    is_zero         nothing but zeros: space that a file was given, and what belongs there never came (power cut)
    is_torn_tail    what an interrupted append leaves, whether the process or the power was cut
    """

    offset: int
    end: int
    is_tail: bool
    is_zero: bool
    is_torn_tail: bool

    @property
    def size(self) -> int:
        return self.end - self.offset


def walk_frames(file: File, size: int | None = None) -> Iterator[WholeFrame | DamagedPart]:
    """Everything in the first `size` bytes, or all of the file, in its order and without gaps."""
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


def _damaged(file: File, offset: int, size: int) -> DamagedPart:
    end, is_cut = _end_of_damage(file, offset, size)
    first = first_not_zero(file, offset, end)
    is_tail = end == size
    is_zero = first is None
    # A file may have been given zeros for one append, and a torn one behind them.
    is_torn = is_tail and (
        is_cut or first is None or first > offset and _end_of_damage(file, first, size) == (size, True)
    )
    return DamagedPart(offset, end, is_tail, is_zero, is_torn)


def _end_of_damage(file: File, offset: int, size: int) -> tuple[int, bool]:
    """Where a frame that is not whole ends, and whether the file ends within it; see the module."""
    head = file.read(offset, min(FRAME.size, size - offset))
    if len(head) < FRAME.size:
        return size, True
    magic, version, kind, payload_size, checksum = FRAME.unpack(head)
    said = offset + FRAME.size + payload_size
    if said == size or said < size and _is_frame(file, said, size):
        return said, False
    is_cut = (magic, version) == (MAGIC, VERSION) and said > size
    sum_so_far, summed = checksum_start(kind), offset + FRAME.size
    nearest = None
    row = row_end = offset  # of frames that follow one another
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


def _summed(file: File, start: int, stop: int, checksum: int) -> int:
    for at in range(start, stop, SEARCH_BLOCK):
        checksum = crc32(file.read(at, min(SEARCH_BLOCK, stop - at)), checksum)
    return checksum


def _whole_frames(file: File, start: int, size: int) -> Iterator[tuple[int, int]]:
    """Where something begins, at `start` or behind it, that is a whole frame, and where that ends."""
    while start < size:
        block = file.read(start, SEARCH_BLOCK + FRAME.size)
        at = block.find(_BEGINNING)
        while 0 <= at < SEARCH_BLOCK:
            # Most places that look like a beginning are not: look at the head before reading what it claims.
            head = block[at : at + FRAME.size]
            if len(head) == FRAME.size:
                _, _, kind, payload_size, _ = FRAME.unpack(head)
                end = start + at + FRAME.size + payload_size
                if kind in _KINDS and end <= size and _is_frame(file, start + at, size):
                    yield start + at, end
            at = block.find(_BEGINNING, at + 1)
        start += SEARCH_BLOCK


def _is_frame(file: File, offset: int, size: int) -> bool:
    try:
        read_frame(file, offset, size)
    except Damaged:
        return False
    return True


def first_not_zero(file: File, offset: int, end: int) -> int | None:
    """Where the first byte that is not zero is between two places."""
    for at in range(offset, end, SEARCH_BLOCK):
        found = _NOT_ZERO.search(file.read(at, min(SEARCH_BLOCK, end - at)))
        if found is not None:
            return at + found.start()
    return None
