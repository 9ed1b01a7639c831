"""The parts of `Durability` that run in another thread, because they wait for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....store.data_dir.vhost_dir import LEVEL_BITS, queue_directory, queue_numbers
from ....store.deduplication.ids_file import delete_ids
from ....store.disk.disk import Disk
from ....store.disk.progress import RecoveryProgress
from ....store.messages.message_ids import StoredSpan
from ....store.queue.variable.disk_queue import DiskQueue

if TYPE_CHECKING:
    from ...contracts.queue import Terms


def scan(
    level: DiskQueue, terms: Terms | None, is_copy: bool, progress: RecoveryProgress, disk: Disk, old_ids: str | None
) -> list[StoredSpan]:
    """Scan a level, and recover it in the same call if it needs no body: a second call in another thread would cost
    thousands of small queues as much as their recovery. Files of digests in the directory `old_ids` are deleted. Waits
    for the disk.
    """
    if old_ids is not None:
        delete_ids(disk, old_ids)
    needed = level.scan(terms, progress)
    if not needed:
        level.recover(terms, (), is_copy)
    return needed


def delete_files(levels: list[DiskQueue]) -> None:
    """Delete the segments of all levels. Waits for the disk."""
    for level in levels:
        level.segment_writer.delete_files()


def delete_levels(disk: Disk, numbers: list[int]) -> None:
    """Delete the directories of levels that have no message. Waits for the disk."""
    for number in numbers:
        disk.delete_tree(queue_directory(number))


def numbers_on_disk(disk: Disk, queue: int) -> frozenset[int]:
    """The numbers of the levels of which there is a directory. Waits for the disk."""
    return frozenset(number for number in queue_numbers(disk) if number >> LEVEL_BITS == queue)
