"""What a virtual host has on disk, and in which order it is opened and left (section 10.1).

    vhosts/<id>/config                    u16 segment entries: fixed at first use (D-2)
    vhosts/<id>/journal/<n>.wal           see `journal`
    vhosts/<id>/queues/<number>/<n>.idx   see `queue_index`; number is hexadecimal
    vhosts/<id>/msg_store_persistent/     <n>.rdq, see `rdq_file`, and `index`, LMDB, see `location_index`
    vhosts/<id>/msg_store_transient/      the same; emptied at start
    vhosts/<id>/recovery/                 LMDB, see `recovery_terms`

A queue of priorities is several queues to everything below: its levels' **number** is `queue << 8 | priority`, where
`queue` is `data_dir.queue_number` of its id.

Start: terms are read and durably cleared, so that a crash from then on is an unclean end; directories of queues that
are no more are deleted; the journal is replayed; the persistent store believes its index only if every queue has terms
and the journal says nothing, and else counts its references anew from what the queues find. Stop: queues, journal,
stores, and the terms last of all: a crash anywhere in between leaves an unclean end (C-21).
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

JOURNAL, QUEUES, RECOVERY = "journal", "queues", "recovery"
PERSISTENT, TRANSIENT = "msg_store_persistent", "msg_store_transient"
LEVEL_BITS = 8
_NUMBER = re.compile("0|[1-9a-f][0-9a-f]*")


@dataclass(frozen=True, slots=True)
class FoundVhost:
    """What `open_vhost` found.

    segment_entries   of the indexes of all its queues
    terms             by queue, of those that ended cleanly
    numbers           of queue directories
    is_complete       nothing was left of queues that are no more
    """

    segment_entries: int
    terms: dict[int, dict[str, Any]]
    numbers: frozenset[int]
    is_complete: bool

    def is_clean(self, journaled: Collection[int]) -> bool:
        """Whether everything ended cleanly; `journaled` are the numbers of which the journal says anything."""
        return not journaled and {number >> LEVEL_BITS for number in self.numbers} <= self.terms.keys()


def queue_directory(number: int) -> str:
    """Within the vhost's."""
    return f"{QUEUES}/{number:x}"


def directory_number(name: str) -> int | None:
    """Whose directory has that name; None if it is no queue's."""
    return int(name, 16) if _NUMBER.fullmatch(name) else None


def queue_numbers(disk: Disk) -> set[int]:
    """Those that have a directory."""
    return {number for name in disk.list(QUEUES) if (number := directory_number(name)) is not None}


def index_bytes(disk: Disk, numbers: Iterable[int]) -> int:
    """How much there is to look through in the indexes of these queues; waits for the disk."""
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
    """The directories of all its levels; waits for the disk."""
    for number in queue_numbers(disk):
        if number >> LEVEL_BITS == queue:
            disk.delete_tree(queue_directory(number))


def open_vhost(disk: Disk, path: str, queues: Collection[int], segment_entries: int) -> FoundVhost:
    """The first step of a start. `path` is the vhost's directory for LMDB, `disk` the same for all else, `queues` the durable queues there are. Waits for the disk."""
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
    """The last step of a clean stop."""
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
