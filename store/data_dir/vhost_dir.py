"""The directory of a virtual host, and the order in which it is opened and left (queue-and-store section 10.1).

    vhosts/<id>/config                    u16 big-endian, entries in an index segment: fixed at first use (D-2)
    vhosts/<id>/journal/<n>.wal           see `journal_file`
    vhosts/<id>/queues/<number>/<n>.idx   see `segment_file`; number is hexadecimal
    vhosts/<id>/msg_store_persistent/     <n>.rdq, see `rdq_file`, and `index`, LMDB, see `location_index`
    vhosts/<id>/msg_store_transient/      the same; emptied at start
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
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..disk.damage_log import log_foreign
from ..disk.disk import Disk
from ..index.segment_file import segment_number
from .recovery_terms import RecoveryTerms, take_terms

#: Names in a virtual host's directory.
JOURNAL, QUEUES, RECOVERY = "journal", "queues", "recovery"
PERSISTENT, TRANSIENT = "msg_store_persistent", "msg_store_transient"
#: The bits of a number that are the priority.
LEVEL_BITS = 8
_NUMBER = re.compile("0|[1-9a-f][0-9a-f]*")


@dataclass(frozen=True, slots=True)
class FoundVhost:
    """What `open_vhost` found.

    segment_entries   entries in each segment of the queues' indexes
    terms             of the queues that stopped cleanly, by queue
    numbers           of the queues' directories
    is_complete       there were no files or terms of deleted queues
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
    for number in numbers:
        directory = queue_directory(number)
        for name in disk.list(directory):
            if segment_number(name) is not None:
                file = disk.open(f"{directory}/{name}")
                total += file.size()
                file.close()
    return total


def remove_queue(disk: Disk, queue: int) -> None:
    """Remove the directories of all levels of a queue. Waits for the disk."""
    for number in queue_numbers(disk):
        if number >> LEVEL_BITS == queue:
            disk.delete_tree(queue_directory(number))


def open_vhost(disk: Disk, path: str, queues: Collection[int], segment_entries: int) -> FoundVhost:
    """Do the first steps of a start, up to the removal of deleted queues' directories (C-17). Waits for the disk.

    disk              of the vhost's directory
    path              of the same directory in the operating system, for LMDB
    queues            the durable queues that exist
    segment_entries   for a vhost that has no `config` yet
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
        disk.delete_tree(queue_directory(number))  # C-17
    return FoundVhost(
        _configured(disk, segment_entries),
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


def _configured(disk: Disk, segment_entries: int) -> int:
    file = disk.open("config", create=True)
    try:
        if file.size() < 2:
            file.truncate(0)
            file.append([segment_entries.to_bytes(2, "big")])
            file.sync()
            disk.sync_dir("")
        return int.from_bytes(file.read(0, 2), "big")
    finally:
        file.close()
