"""The files that keep the digests of a queue's publishes when the journal gives up the records that have them (SP-31).

They stand beside the segments of the queue, in the directory of its level of priority 0: `1.ids`, `2.ids` and so on. A
file is a sequence of frames of kind DIGESTS; a frame's payload is DIGESTS records as the journal has them (`records`,
`digest_records`). A flush appends one frame, synced. A file that has as many digests as the window is wide is full:
the next flush begins another one, and files before the full one are deleted. So there are about as many digests on
the disk as in memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..disk.damage_log import log_damaged
from ..disk.disk import Disk
from ..disk.walk_frames import DamagedPart, walk_frames
from ..messages.records import FRAME_LIMIT, RECORD, Kind, Type, frame, record, records
from .digest_records import decode_digests

SUFFIX = ".ids"
_NAME = re.compile(r"([1-9]\d*)\.ids", re.ASCII)


def ids_number(name: str) -> int | None:
    """The number in the name of a file of digests; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None else None


def ids_path(directory: str, number: int) -> str:
    """The path of a file of digests."""
    return f"{directory}/{number}{SUFFIX}"


def ids_numbers(disk: Disk, directory: str) -> list[int]:
    """The numbers of the files of digests in a directory, ascending. Waits for the disk."""
    return sorted(number for name in disk.list(directory) if (number := ids_number(name)) is not None)


def delete_ids(disk: Disk, directory: str) -> None:
    """Delete all files of digests in a directory. Waits for the disk."""
    for number in ids_numbers(disk, directory):
        disk.delete(ids_path(directory, number))


class IdsFiles(NamedTuple):
    """What the files of digests of a queue have.

    bodies   the bodies of their records, in order
    last     the number of the last file, 0 if there is none
    size     bytes of its whole frames
    digests  digests in it
    """

    bodies: list[bytes]
    last: int = 0
    size: int = 0
    digests: int = 0


def read_ids(disk: Disk, directory: str, number: int) -> IdsFiles:
    """Read the files of digests in a queue's directory; `number` is that of the queue's level 0.

    Torn tails are cut off. Damage is logged, and the whole frames behind it count. Waits for the disk.
    """
    bodies: list[bytes] = []
    last = size = count = 0
    for last in ids_numbers(disk, directory):
        path = ids_path(directory, last)
        parts: list[DamagedPart] = []
        behind = size = count = 0
        file = disk.open(path)
        try:
            size = file.size()
            for part in walk_frames(file):
                if isinstance(part, DamagedPart):
                    if part.is_torn_tail:
                        file.truncate(part.offset)
                        size = part.offset
                    else:
                        parts.append(part)
                    continue
                behind += part.is_behind
                for body in bodies_of(part.kind, part.payload, number):
                    bodies.append(body)
                    count += len(decode_digests(body)[1])
            # A killed process leaves bytes that were never synced. Sync them, because the window relies on them.
            file.sync()
        finally:
            file.close()
        if parts:
            log_damaged(
                disk,
                path,
                parts,
                f"{behind:,} whole frames" if behind else "nothing whole",
                "Messages whose ids were in these bytes are kept once more if they are published again",
            )
    return IdsFiles(bodies, last, size, count)


def bodies_of(kind: int, payload: bytes, number: int) -> list[bytes]:
    """The bodies of the records in a frame of a file of digests. Raises ValueError for anything else."""
    if kind != Kind.DIGESTS:
        raise ValueError(f"frames of kind {kind} do not belong here")
    bodies = []
    for entry in records(payload):
        if entry.type is not Type.DIGESTS or entry.queue != number:
            raise ValueError(f"records of type {entry.type.name} of queue {entry.queue:x} do not belong here")
        bodies.append(entry.body)
    return bodies


def append_ids(disk: Disk, directory: str, number: int, bodies: Sequence[bytes], file_number: int, offset: int) -> int:
    """Append records to a file of `offset` bytes, which is made if it does not exist, synced; returns its size then.

    After an OSError the same call may be made again. Waits for the disk.
    """
    buffers: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for body in bodies:
        parts += record(Type.DIGESTS, number, [body])
        size += RECORD.size + len(body)
        if size >= FRAME_LIMIT:
            buffers += _framed(parts)
            parts, size = [], 0
    if parts:
        buffers += _framed(parts)
    if not offset:
        disk.make_dir(directory)
    file = disk.open(ids_path(directory, file_number), create=True)
    try:
        if file.size() != offset:
            file.truncate(offset)
        file.append_synced(buffers)
    finally:
        file.close()
    if not offset:
        disk.sync_dir(directory)
    return offset + sum(map(len, buffers))


def _framed(parts: list[bytes]) -> list[bytes]:
    payload = b"".join(parts)
    return [frame(Kind.DIGESTS, payload), payload]
