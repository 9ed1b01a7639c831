"""The directory of a virtual host, and the order in which it is opened and left (queue-and-store section 10.1).

    vhosts/<id>/config                    u16 big-endian, entries in an index segment: fixed at first use (D-2)
    vhosts/<id>/journal/<n>.wal           see `journal_file`
    vhosts/<id>/queues/<number>/<n>.idx   see `segment_file`; number is hexadecimal
    vhosts/<id>/msg_store_persistent/     <n>.rdq, see `rdq_file`, and `index`, LMDB, see `location_index`
    vhosts/<id>/msg_store_transient/      the same; emptied at start
    vhosts/<id>/index/                    LMDB, see `message_index`; only if queues are indexed
    vhosts/<id>/recovery/                 LMDB, see `recovery_terms`

The version of `config` is that of the data directory (`data_dir.FORMAT`).

A priority queue is several queues to everything below: the **number** of each level is `queue << 8 | priority`, where
`queue` is `data_dir.queue_number` of the queue's id.

Start: terms are read and durably cleared, so that a crash from then on is an unclean end. Directories of deleted queues
are removed. The journal is replayed. The persistent store trusts its index only if every queue has terms and the
journal has no message and no ack; otherwise it counts references again from what the queues find.

Stop: queues, journal and stores close in this order, and the terms are written last. A crash before that is an unclean
end (C-21).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..disk.damage_log import VERIFY, log, log_foreign
from ..disk.disk import Disk
from ..index.queue_index import SEGMENT_ENTRIES
from ..index.segment_file import BLOCK, segment_number
from ..messages.records import FRAME, Kind
from .recovery_terms import RecoveryTerms, take_terms

#: Names in a virtual host's directory.
JOURNAL, QUEUES, RECOVERY = "journal", "queues", "recovery"
INDEX = "index"
PERSISTENT, TRANSIENT = "msg_store_persistent", "msg_store_transient"
#: The bits of a number that are the priority.
LEVEL_BITS = 8
_NUMBER = re.compile("0|[1-9a-f][0-9a-f]*")


class DamagedConfig(Exception):
    """The number of entries in a segment is lost. The text is the reason and the way out."""


@dataclass(frozen=True, slots=True)
class FoundVhost:
    """What `open_vhost` found.

    segment_entries   entries in each segment of the queues' indexes
    terms             of the queues that stopped cleanly, by queue
    numbers           of the queues' directories
    is_complete       no deleted queue has left files or terms. Otherwise the message store may have bodies to which
                      only that queue referred, so its references must be counted again
    """

    segment_entries: int
    terms: dict[int, dict[str, Any]]
    numbers: frozenset[int]
    is_complete: bool

    def is_clean(self, journaled: Collection[int]) -> bool:
        """Whether all queues stopped cleanly; `journaled` are the numbers of which the journal has messages or acks."""
        return not journaled and {number >> LEVEL_BITS for number in self.numbers} <= self.terms.keys()


def queue_directory(number: int) -> str:
    """The directory of a queue's level, within the vhost's."""
    return f"{QUEUES}/{number:x}"


def directory_number(name: str) -> int | None:
    """The number in a directory's name; None for any other name."""
    return int(name, 16) if _NUMBER.fullmatch(name) else None


def queue_numbers(disk: Disk) -> set[int]:
    """The numbers that have a directory. Waits for the disk."""
    return {number for name in disk.list(QUEUES) if (number := directory_number(name)) is not None}


def index_bytes(disk: Disk, numbers: Iterable[int]) -> int:
    """Bytes that a scan of the indexes of these numbers reads. Waits for the disk."""
    total = 0
    for path in _segments(disk, numbers):
        file = disk.open(path)
        total += file.size()
        file.close()
    return total


def remove_queue(disk: Disk, queue: int) -> None:
    """Remove the directories of all levels of a queue. Waits for the disk."""
    for number in queue_numbers(disk):
        if number >> LEVEL_BITS == queue:
            disk.guards.end(queue_directory(number))
            disk.delete_tree(queue_directory(number))


def open_vhost(disk: Disk, path: str, queues: Collection[int], segment_entries: int) -> FoundVhost:
    """Do the first steps of a start, up to the removal of deleted queues' directories (C-17). Waits for the disk.

    disk              of the vhost's directory
    path              of the same directory in the operating system, for LMDB
    queues            the durable queues that exist
    segment_entries   for a vhost that has no `config` yet

    Raises DamagedConfig.
    """
    for name in (JOURNAL, QUEUES):
        disk.make_dir(name)
    os.makedirs(path, exist_ok=True)
    taken = take_terms(f"{path}/{RECOVERY}")
    disk.sweep_tombstones(QUEUES)
    log_foreign(
        disk, QUEUES, (name for name in disk.list(QUEUES) if directory_number(name) is None), "a directory of a queue"
    )
    numbers = queue_numbers(disk)
    kept = {number for number in numbers if number >> LEVEL_BITS in queues}
    for number in numbers - kept:
        disk.delete_tree(queue_directory(number))  # a crash left it after the metadata had lost the queue (C-17)
    return FoundVhost(
        _configured(disk, kept, segment_entries),
        {queue: values for queue, values in taken.items() if queue in queues},
        frozenset(kept),
        numbers == kept and all(queue in queues for queue in taken),
    )


def leave_vhost(path: str, terms: dict[int, dict[str, Any]]) -> None:
    """Do the last step of a clean stop: write the terms. Waits for the disk."""
    environment = RecoveryTerms(f"{path}/{RECOVERY}")
    try:
        environment.put_all(terms)
    finally:
        environment.close()


def _configured(disk: Disk, numbers: Iterable[int], segment_entries: int) -> int:
    """The entries in a segment, from `config`, which is written if the virtual host is new.

    A damaged `config` is written again if `segment_entries` fits all segments.
    """
    file = disk.open("config", create=True)
    try:
        data = file.read(0, 3)
        entries = int.from_bytes(data, "big")
        if len(data) == 2 and 1 <= entries <= SEGMENT_ENTRIES:
            return entries
        for path in _segments(disk, numbers):
            if not _fits(disk, path, segment_entries):
                raise DamagedConfig(
                    f"its file 'config' is damaged, and segments of {segment_entries} entries, as they usually are, do "
                    f"not fit '{path}'. Restore 'config' from a backup"
                )
        if data:
            log.error(
                "%s is damaged: its bytes are %s. It is written again with %d entries in a segment, which fits all "
                "segments, so no message is lost. %s",
                disk.full_path("config"),
                data.hex(),
                segment_entries,
                VERIFY,
            )
        file.truncate(0)
        file.append([segment_entries.to_bytes(2, "big")])
        file.sync()
        disk.sync_dir("")
        return segment_entries
    finally:
        file.close()


def _segments(disk: Disk, numbers: Iterable[int]) -> Iterator[str]:
    """The paths of all segments of these numbers."""
    for directory in map(queue_directory, numbers):
        for name in disk.list(directory):
            if segment_number(name) is not None:
                yield f"{directory}/{name}"


def _fits(disk: Disk, path: str, segment_entries: int) -> bool:
    """Whether the numbers in the first block of a segment fit this many entries a segment.

    True as well if the file does not begin with a whole block, because then nothing in it contradicts.
    """
    file = disk.open(path)
    try:
        head = file.read(0, FRAME.size + BLOCK.size)
    finally:
        file.close()
    if len(head) < FRAME.size + BLOCK.size or FRAME.unpack_from(head)[2] != Kind.ENTRIES:
        return True
    first, last, _ = BLOCK.unpack_from(head, FRAME.size)
    number = segment_number(os.path.basename(path))
    return bool(first // segment_entries == last // segment_entries == number)
