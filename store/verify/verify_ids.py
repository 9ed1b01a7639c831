"""The offline check of the files of digests, by which a queue recognises messages that are published twice (SP-31)."""

from __future__ import annotations

from ..deduplication.digest_records import decode_digests
from ..deduplication.ids_file import bodies_of, ids_numbers, ids_path
from ..disk.disk import Disk
from ..disk.walk_frames import DamagedPart, walk_frames
from .verify_report import Findings

_FORGOTTEN = "No message is lost, but one whose id was there is kept once more if it is published again"


def check_ids(disk: Disk, directory: str, number: int, is_clean: bool, findings: Findings) -> int:
    """Check all files of digests in the directory of the queue's level `number`; returns how many digests they have."""
    count = 0
    for file_number in ids_numbers(disk, directory):
        place = ids_path(directory, file_number)
        try:
            count += _check_file(disk, place, number, is_clean, findings)
        except OSError as error:
            findings.unreadable(place, error)
    return count


def _check_file(disk: Disk, place: str, number: int, is_clean: bool, findings: Findings) -> int:
    count = 0
    file = disk.open(place)
    try:
        for part in walk_frames(file):
            if not isinstance(part, DamagedPart):
                try:
                    count += sum(len(decode_digests(body)[1]) for body in bodies_of(part.kind, part.payload, number))
                except Exception as error:
                    # A decoder may raise anything for bytes that warren never wrote.
                    findings.error(
                        place,
                        f"a whole frame that cannot be understood: {error}",
                        f"warren cannot start the queue with it. Delete the file. {_FORGOTTEN}",
                        part.offset,
                    )
            elif part.is_torn_tail and not is_clean:
                findings.note(
                    place,
                    f"a torn tail of {part.size:,} bytes",
                    "it is cut off; the journal still has what was to be written",
                    part.offset,
                    part.size,
                )
            else:
                findings.warn(
                    place,
                    f"{part.size:,} damaged bytes",
                    f"warren passes over them. {_FORGOTTEN}",
                    part.offset,
                    part.size,
                )
    finally:
        file.close()
    return count
