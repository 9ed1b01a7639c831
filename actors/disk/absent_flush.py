"""`flush_absent`: writes what the journal has of queues that are down into their segments, in another thread.

If the virtual host ends meanwhile and starts again, its queues read and write the same segments. So its next journal
first ends this job (`store.disk.job_guards`), under the name `ABSENT`.
"""

from __future__ import annotations

from ...store.data_dir.vhost_dir import queue_directory
from ...store.deduplication.digest_records import from_last_beginning
from ...store.deduplication.ids_file import append_ids, read_ids
from ...store.disk.disk import Disk
from ...store.disk.job_guards import JobGuard
from ...store.index.queue_index import QueueIndex
from ...store.journal.log_writer import LogWriter, QueueRecords
from ...store.journal.replay import Replayed

#: The name of the guard.
ABSENT = "absent queues"


def flush_absent(
    guard: JobGuard, disk: Disk, segment_entries: int, replayed: dict[int, Replayed]
) -> list[QueueRecords]:
    """Write the replayed records into the segments of their queues. Returns the records that must stay in the journal:
    the sizes of the segments, and how often messages were returned. Waits for the disk.

    Raises JobEnded if another journal of the virtual host has started meanwhile.
    """
    with guard.work():
        return _flush(disk, segment_entries, replayed)


def _flush(disk: Disk, segment_entries: int, replayed: dict[int, Replayed]) -> list[QueueRecords]:
    writer = LogWriter()
    for level, found in replayed.items():
        writer.resume(level, found.next_number)
        index = QueueIndex(disk, queue_directory(level), level, writer, segment_entries)
        index.scan(found, None)
        index.flush(True)
        if found.returns:
            # Segments have no place for these counts, so they are recorded in the journal once more.
            index.returned(found.returns, True)
        if found.digests:
            files = read_ids(disk, queue_directory(level), level)
            known = set(files.bodies)
            left = [body for body in from_last_beginning(found.digests) if body not in known]
            if left:
                append_ids(disk, queue_directory(level), level, left, max(1, files.last), files.size)
    return writer.take()
