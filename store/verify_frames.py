"""Walking through a file of frames as recovery does, and on behind what is damaged.

Recovery reads up to the first frame that is incomplete or wrong (`records`) and gives up what lies behind it. At the end of a file that is a **torn tail**: an append
that a crash interrupted, which nobody had been told was durable. Elsewhere it is damage, and the whole frames behind it are what will be missed. So here the search
goes on: for the next place where a whole frame, checksum and all, begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import NamedTuple

from .disk import File
from .records import FRAME, MAGIC, VERSION, Damaged, Kind, read_frame

SEARCH_BLOCK = 1 << 20
_BEGINNING = pack('>BBB', MAGIC, VERSION, 0)
_KINDS = {int(kind) for kind in Kind}


class WholeFrame(NamedTuple):
    """`is_reached`: recovery gets here; else damage lies before it."""

    kind: int
    payload: bytes
    offset: int
    end: int
    is_reached: bool


class DamagedPart(NamedTuple):
    """No frame from `offset` to `end`, where the next whole one begins, or the file ends (`is_tail`).

    is_zero    nothing but zeros: space that a file was given, and what belongs there never came (power cut)
    is_cut     the frame says that it goes on behind the end of the file, or its head is incomplete
    """

    offset: int
    end: int
    is_tail: bool
    is_zero: bool
    is_cut: bool

    @property
    def size(self) -> int:
        return self.end - self.offset

    @property
    def is_torn_tail(self) -> bool:
        """What an interrupted append leaves, whether the process or the power was cut."""
        return self.is_tail and (self.is_cut or self.is_zero)


def walk_frames(file: File) -> Iterator[WholeFrame | DamagedPart]:
    """Everything from the start to the end of the file, in its order and without gaps."""
    size = file.size()
    offset = 0
    is_reached = True
    while offset < size:
        try:
            _check_head(file, offset, size)
            kind, payload, end = read_frame(file, offset)
        except Damaged:
            found = _next_frame(file, offset + 1, size)
            end = size if found is None else found
            yield DamagedPart(offset, end, found is None, is_zero(file, offset, end), _is_cut(file, offset, size))
            is_reached = False
        else:
            yield WholeFrame(kind, payload, offset, end, is_reached)
        offset = end


def _check_head(file: File, offset: int, size: int) -> None:
    """Raises Damaged for a frame that leads out of the file, so that nothing is read to find that out: a damaged size may be a gigabyte."""
    if _is_cut(file, offset, size):
        raise Damaged('the file ends within')


def _is_cut(file: File, offset: int, size: int) -> bool:
    head = file.read(offset, FRAME.size)
    if len(head) < FRAME.size:
        return True
    magic, version, _, payload_size, _ = FRAME.unpack(head)
    return magic == MAGIC and version == VERSION and offset + FRAME.size + payload_size > size


def _next_frame(file: File, start: int, size: int) -> int | None:
    """Where the next whole frame begins, at `start` or behind it."""
    while start < size:
        block = file.read(start, SEARCH_BLOCK + FRAME.size)
        at = block.find(_BEGINNING)
        while 0 <= at < SEARCH_BLOCK:
            # Most places that look like a beginning are not: look at the head before reading what it claims.
            head = block[at:at + FRAME.size]
            if len(head) == FRAME.size:
                _, _, kind, payload_size, _ = FRAME.unpack(head)
                if kind in _KINDS and start + at + FRAME.size + payload_size <= size and _is_frame(file, start + at):
                    return start + at
            at = block.find(_BEGINNING, at + 1)
        start += SEARCH_BLOCK
    return None


def _is_frame(file: File, offset: int) -> bool:
    try:
        read_frame(file, offset)
    except Damaged:
        return False
    return True


def is_zero(file: File, offset: int, end: int) -> bool:
    """Whether there are only zeros between two places."""
    while offset < end:
        block = file.read(offset, min(SEARCH_BLOCK, end - offset))
        if not block or block.count(0) < len(block):
            return False
        offset += len(block)
    return True
