"""What to do about a damaged index segment: read it all the same, and put a file in its place that has the whole frames alone.

A segment is appended to, and its table is read by going from head to head, so damage must not stay in it. `salvage` writes the whole frames to `<n>.idx.new`, syncs that and
renames it over the segment. Before that a copy is kept as `<n>.idx.damaged`, for an operator: warren never looks at it again, and a later damage of the same segment
replaces it. There is none if the damaged bytes are zeros, as a power cut leaves them: they have nothing to tell.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from ..disk.damage_log import log_damaged
from ..disk.disk import Disk, File
from ..disk.walk_frames import DamagedPart, WholeFrame, walk_frames
from ..messages.records import FRAME, Kind, decode_spans, frame, skim_runs
from .segment_file import BLOCK, SUFFIX, Block, BlockTable, mark

NEW_SUFFIX = f"{SUFFIX}.new"
KEPT_SUFFIX = f"{SUFFIX}.damaged"
_COPY_BLOCK = 1 << 20


class Salvaged(NamedTuple):
    """What a damaged segment still has: the table of its whole blocks, and a byte for each number, 1 if it is in one of them.

    parts           the damaged ones
    frames_behind   whole frames behind the first of them
    """

    table: BlockTable
    present: bytearray
    parts: list[DamagedPart]
    frames_behind: int


def look_through(file: File, size: int, base: int, entries: int) -> Salvaged:
    """The first `size` bytes of a segment's file, whose lowest number is `base`; every frame is read."""
    table, present = BlockTable(entries), bytearray(entries)
    parts: list[DamagedPart] = []
    frames_behind = 0
    for part in walk_frames(file, size):
        if isinstance(part, DamagedPart):
            parts.append(part)
            continue
        frames_behind += part.is_behind
        if part.kind == Kind.ENTRIES:
            first, last, _ = BLOCK.unpack_from(part.payload)
            table.blocks.append(Block(first, last, part.offset))
            mark(
                present,
                (range(head.first, head.first + head.count) for head in skim_runs(part.payload[BLOCK.size :])),
                base,
            )
        else:
            mark(table.acked, decode_spans(part.payload), base)
    return Salvaged(table, present, parts, frames_behind)


def log_salvaged(disk: Disk, path: str, parts: list[DamagedPart], frames_behind: int, lost: int | None = None) -> None:
    """`lost`: messages that were in the damaged bytes, as far as that is known."""
    behind = f"{frames_behind:,} whole frames, which are kept" if frames_behind else "nothing whole"
    is_zero = all(part.is_zero for part in parts)
    if lost is None:
        meaning = (
            "A power cut leaves zeros where nothing had been synced, and then nothing confirmed is missing; else messages"
            if is_zero
            else "Messages"
        )
        meaning += " that stood there are lost unless the journal still has them, and messages acknowledged there may come back"
    else:
        meaning = f"{lost:,} messages that stood there are lost, and messages acknowledged there may come back"
    if not is_zero:
        meaning += f"; the damaged file is kept as {os.path.basename(path)[: -len(SUFFIX)]}{KEPT_SUFFIX}"
    log_damaged(disk, path, parts, behind, meaning, logging.WARNING if is_zero else logging.ERROR)


def salvage(disk: Disk, path: str) -> int:
    """Put a file with the whole frames alone in the place of the segment at `path`, durably; returns its size. A crash leaves the one or the other. Waits for the disk."""
    stem, directory = path[: -len(SUFFIX)], os.path.dirname(path)
    new = stem + NEW_SUFFIX
    size = 0
    is_telling = False
    source, target = disk.open(path), disk.open(new, create=True)
    try:
        target.truncate(0)
        for part in walk_frames(source):
            if isinstance(part, WholeFrame):
                target.append([frame(part.kind, part.payload), part.payload])
                size += FRAME.size + len(part.payload)
            else:
                is_telling = is_telling or not (part.is_zero or part.is_torn_tail)
        target.sync()
        if is_telling:
            _copy(disk, source, stem + KEPT_SUFFIX)
    finally:
        source.close()
        target.close()
    disk.sync_dir(directory)
    disk.rename(new, path)
    disk.sync_dir(directory)
    return size


def _copy(disk: Disk, source: File, path: str) -> None:
    kept = disk.open(path, create=True)
    try:
        kept.truncate(0)
        for offset in range(0, source.size(), _COPY_BLOCK):
            kept.append([source.read(offset, _COPY_BLOCK)])
        kept.sync()
    finally:
        kept.close()


def put_aside(disk: Disk, path: str) -> None:
    """A damaged segment of which nothing is wanted any more."""
    disk.rename(path, path[: -len(SUFFIX)] + KEPT_SUFFIX)
