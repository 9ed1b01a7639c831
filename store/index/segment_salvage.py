"""Salvaging a damaged index segment: its whole frames are read, and written to a new file in its place.

Damage must not stay in a segment, because flushes append to it and its table is read from frame head to frame head.
`salvage` writes the whole frames to `<n>.idx.new`, syncs that file and renames it over the segment. Before that it
copies the damaged file to `<n>.idx.damaged` for an operator; warren never reads the copy, and later damage of the same
segment replaces it. It makes no copy if the damaged bytes are zeros or a torn tail, as a power cut leaves them:
such bytes hold no data.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from ..disk.contents import Readable
from ..disk.damage_log import VERIFY, log, log_damaged
from ..disk.disk import Disk, File
from ..disk.walk_frames import DamagedPart, WholeFrame, walk_frames
from ..messages.records import FRAME, Kind, decode_spans, frame, skim_runs
from .segment_file import BLOCK, SUFFIX, Block, BlockTable, mark

NEW_SUFFIX = f"{SUFFIX}.new"
KEPT_SUFFIX = f"{SUFFIX}.damaged"
_COPY_BLOCK = 1 << 20


class Salvaged(NamedTuple):
    """What a damaged segment still has.

    table           of the whole blocks
    present         one byte a number: 1 if its entry is in a whole block
    parts           the damaged parts of the file
    frames_behind   how many whole frames follow the first damaged part
    """

    table: BlockTable
    present: bytearray
    parts: list[DamagedPart]
    frames_behind: int


def look_through(file: Readable, size: int, base: int, entries: int) -> Salvaged:
    """Read the frames in the first `size` bytes of a segment whose lowest number is `base`. Waits for the disk."""
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
    """Log the damage of a segment. `lost` is the number of messages that were in the damaged bytes, if it is known."""
    behind = f"{frames_behind:,} whole frames, which are kept" if frames_behind else "nothing whole"
    is_zero = all(part.is_zero for part in parts)
    if lost is None:
        meaning = (
            "After a power cut these zeros were never synced, and no confirmed message is missing; otherwise messages"
            if is_zero
            else "Messages"
        )
        meaning += (
            " in these bytes are lost unless the journal still has them, and messages acknowledged there may come back"
        )
    else:
        meaning = f"{lost:,} messages in these bytes are lost, and messages acknowledged there may come back"
    if not is_zero:
        meaning += f"; the damaged file is kept as {os.path.basename(path)[: -len(SUFFIX)]}{KEPT_SUFFIX}"
    log_damaged(disk, path, parts, behind, meaning, logging.WARNING if is_zero else logging.ERROR)


def log_shortened(disk: Disk, path: str, size: int | None, least: int) -> None:
    """Log that a segment has fewer bytes than when it was synced last. `size` is None if the file is missing."""
    log.error(
        "%s is damaged: it %s, and had %s bytes when it was synced last. The messages in the missing bytes are lost "
        "unless the journal still has them, and messages acknowledged there may come back. %s",
        disk.full_path(path),
        "is missing" if size is None else f"has {size:,} bytes of whole frames",
        f"{least:,}",
        VERIFY,
    )


def salvage(disk: Disk, path: str) -> int:
    """Replace the segment at `path` durably by a file with only its whole frames; returns that file's size.

    A crash leaves the old file or the new one. Waits for the disk.
    """
    stem, directory = path[: -len(SUFFIX)], os.path.dirname(path)
    new = stem + NEW_SUFFIX
    size = 0
    has_data = False
    source, target = disk.open(path), disk.open(new, create=True)
    try:
        target.truncate(0)
        for part in walk_frames(source):
            if isinstance(part, WholeFrame):
                target.append([frame(part.kind, part.payload), part.payload])
                size += FRAME.size + len(part.payload)
            else:
                has_data = has_data or not (part.is_zero or part.is_torn_tail)
        target.sync()
        if has_data:
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
    """Keep the file of a damaged segment that has no un-acked entry left, under the name of a copy for the operator."""
    disk.rename(path, path[: -len(SUFFIX)] + KEPT_SUFFIX)
