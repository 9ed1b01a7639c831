"""`DigestLog`: the digests of the publishes that a durable queue has accepted, on the disk (SP-31).

The digests of a run go to the journal, in the frame that has its messages (`LogWriter.cut` cuts between runs only). So
after any crash a message and its digest are both there, or neither is. Before the journal gives up a file, the queue
writes the digests that only the journal has to `.ids` files (`ids_file`), by a job that runs in another thread:

    synced = log.synced
    while (flush := log.take_flush(synced)) is not None:
        flush.run()
        log.flushed(flush)

A flush writes only what the journal has synced, since a digest must never reach the disk before its message. Each has a
part of it, because a queue may remember millions of messages, and to gather their digests takes time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...seams import seam
from ..disk.disk import Disk
from ..journal.log_writer import LogWriter
from .digest_records import (
    COPIED,
    decode_digests,
    digests_in,
    encode_digests,
    from_last_beginning,
    remaining,
    taken_back,
)
from .ids_file import append_ids, delete_ids, ids_numbers, ids_path, read_ids
from .window import Window

#: Records, and about the bytes of them, that one flush writes.
FLUSH_RECORDS, FLUSH_BYTES = 2048, 1 << 20

#: The position up to which the last flush writes, after the last one of the segments.
EVERYTHING = 1 << 63


def _guarded(directory: str) -> str:
    """The name of the guard of the jobs that write the files in this directory (`job_guards`)."""
    return f"{directory}/ids"


class DigestFlush:
    """Append digests to a file, synced, and delete files whose digests the window has given up. With `is_first`, delete
    all files before, because an earlier window has left them.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        queue: int,
        bodies: list[bytes],
        file_number: int,
        offset: int,
        is_first: bool,
    ) -> None:
        self.bodies = bodies
        self.file_number = file_number
        #: After `run`: the size of the file, and how many digests the job has added to it.
        self.size = self.digests = 0
        self._guard = disk.guards.begin(_guarded(directory))
        self._disk = disk
        self._directory = directory
        self._queue = queue
        self._offset = offset
        self._is_first = is_first

    def run(self) -> None:
        """Do the job. Waits for the disk. After an OSError the job may be run again. Raises JobEnded if another process
        of the queue has read the files meanwhile.
        """
        with self._guard.work():
            self._run()

    def _run(self) -> None:
        disk, directory = self._disk, self._directory
        if self._is_first:
            delete_ids(disk, directory)
        self.size = append_ids(disk, directory, self._queue, self.bodies, self.file_number, self._offset)
        self.digests = sum(map(digests_in, self.bodies))
        for number in ids_numbers(disk, directory):
            if number < self.file_number - 1:
                disk.delete(ids_path(directory, number))


class DigestLog:
    """See the module. `queue` is the number of the queue's level 0, and `directory` its directory."""

    __slots__ = (
        "_copies",
        "_count",
        "_directory",
        "_disk",
        "_file_number",
        "_is_first",
        "_log",
        "_offset",
        "_queue",
        "_size",
        "_unflushed",
    )

    def __init__(self, disk: Disk, directory: str, queue: int, log: LogWriter, size: int) -> None:
        self._disk = disk
        self._directory = directory
        self._queue = queue
        self._log = log
        #: Digests that the window has at least.
        self._size = size
        #: The records that only the journal has: the position of each, and its body.
        self._unflushed: deque[tuple[int, bytes]] = deque()
        #: The number of the next record of copied digests.
        self._copies = COPIED
        self._file_number = 1
        #: Bytes and digests in the last file.
        self._offset = self._count = 0
        #: The first flush has to delete the files that an earlier window has left.
        self._is_first = False

    def begin(self, nonce: bytes) -> None:
        """Begin with an empty window, whatever earlier windows have left on the disk.

        Records a new beginning. Its number comes from `nonce`, 7 random bytes, so that an earlier window of the queue
        has not used it.
        """
        self._is_first = True
        self._copies = COPIED + int.from_bytes(nonce, "big")
        self.copied([])

    def resize(self, size: int) -> None:
        """Keep at least the last `size` digests from now on."""
        self._size = size

    def load(self, replayed: Sequence[bytes], missing: Sequence[int]) -> Window:
        """The window that an earlier process of the queue left. Waits for the disk.

        replayed   the bodies of the records that the journal has
        missing    the messages that are lost, because the store has no body for them
        """
        self._disk.guards.end(_guarded(self._directory))
        found = read_ids(self._disk, self._directory, self._queue)
        self._file_number, self._offset, self._count = max(1, found.last), found.size, found.digests
        known = set(found.bodies)
        # A crash after a flush, but before the journal gave up its file, leaves the same records in both.
        left = [body for body in from_last_beginning(replayed) if body not in known]
        self._unflushed.extend((0, body) for body in left)
        for body in taken_back(missing):
            left.append(body)
            self._record(body)
        numbers = [decode_digests(body)[0] for body in (*found.bodies, *left)]
        self._copies = max([COPIED, *(number + 1 for number in numbers if number >= COPIED)])
        window = Window(self._size)
        window.add_all(remaining([*found.bodies, *left]))
        return window

    @seam("which publishes a queue remembers after a crash")
    def record(self, first: int, digests: Sequence[bytes]) -> None:
        """Record the digests of messages that the queue has accepted under consecutive numbers, in the same turn in
        which their publish is recorded.
        """
        self._record(encode_digests(first, digests))

    def copied(self, digests: Sequence[bytes]) -> None:
        """Record digests that another replica of the queue has. An empty list is a new beginning: the next start
        ignores all records before it.
        """
        self._record(encode_digests(self._copies, digests))
        self._copies += 1

    def _record(self, body: bytes) -> None:
        self._unflushed.append((self._log.digests(self._queue, body), body))

    @property
    def synced(self) -> int:
        """The position up to which the journal has synced records."""
        return self._log.durable

    def take_flush(self, until: int) -> DigestFlush | None:
        """The job that writes the next digests that only the journal has, up to the position `until`. None if there are
        none.
        """
        unflushed, bodies, size = self._unflushed, list[bytes](), 0
        while unflushed and unflushed[0][0] <= until and len(bodies) < FLUSH_RECORDS and size < FLUSH_BYTES:
            bodies.append(unflushed.popleft()[1])
            size += len(bodies[-1])
        if not bodies:
            return None
        if self._count >= self._size:
            self._file_number += 1
            self._offset = self._count = 0
        return DigestFlush(
            self._disk, self._directory, self._queue, bodies, self._file_number, self._offset, self._is_first
        )

    def flushed(self, flush: DigestFlush) -> None:
        """Note the result of a flush that was run."""
        self._is_first = False
        self._offset = flush.size
        self._count += flush.digests

    def delete_files(self) -> None:
        """Remove the directory of the files. Waits for the disk."""
        self._disk.delete_tree(self._directory)
