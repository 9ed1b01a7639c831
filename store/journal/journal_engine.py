"""The write-ahead journal of a vhost: one for all its queues, so that one sync confirms them all (design section 4).

How it works
------------
`append` gathers records, which queues encode with a `LogWriter`, and returns a **position**: the number of records ever
appended. Writing takes three steps, so that the process that owns the journal never waits for a disk:

    batch = journal.take_batch()      # the gathered records; None if there are none
    journal.commit(batch)             # in a worker thread: write and sync. One batch at a time
    journal.committed(batch)          # back in the process: `durable` moves to batch.position

While a batch is synced the next one gathers: group commit without a timer.

`journal_file` describes the files. A batch that would make a file larger than `file_limit` begins a new one, whose
first records are the STATE of each queue, the SIZES of its segments and its LIVES (`messages.lives`). Older files are
given up in this order: the queues **flush** what is left of these files to their segments (`queue_index`), synced; a
RETIRE record becomes durable; the files are unlinked. Replay ignores files below the last RETIRE, so the unlinks may
reach the disk in any order or not at all: a publish never comes back without its ack.

A message that is acked before its journal file is flushed never reaches a segment, so it costs one sequential write
only.

Recovery (`replay`) cuts only the torn tail of the last file. It passes over damage elsewhere: the frames behind the
damage are replayed, and the file stays as it is, because nothing is ever appended to a file of an earlier process.

There is no record of deliveries. After a crash any message may have been delivered before, so all are flagged
redelivered, and a record of deliveries would not change that (queue-and-store section 5.5).

Errors: `commit` raises OSError when the batch could not be written; then nothing of it counts, and the same batch may
be committed again (QS-35). When a sync fails, `commit` raises `JournalBroken`: what reached the disk is unknown, and
only a recovery helps.

A virtual host may end while a commit of its journal still runs, or waits for a thread, and start again before that
commit is done. So `recover` first ends the commits of earlier journals of the directory (`disk.job_guards`).
Otherwise such a commit could open the file that the new journal has begun, as if the file were its own, and truncate
it: that would delete records that the new journal has reported as durable.
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from typing import NamedTuple

from ..disk.damage_log import log_damaged, log_foreign
from ..disk.disk import Disk, File, SyncFailed
from ..disk.job_guards import JobGuard
from ..messages.lives import Lives, encode_lives
from ..messages.records import FRAME_LIMIT, Kind, Type, encode_sizes, frame, record
from .in_transit import InTransit, encode_handed_over
from .journal_file import SUFFIX, file_name, file_number
from .log_writer import QueueRecords
from .number_reserve import AHEAD
from .replay import DamagedJournalFile, Replayed, merge_sizes, replay_files

#: Bytes after which a file is closed.
FILE_LIMIT = 64 << 20
#: Bytes of disk blocks that are reserved ahead of the end of the file.
RESERVED_AHEAD = 8 << 20


class JournalBroken(Exception):
    """A sync failed, so what reached the disk is unknown. The journal writes nothing more; restart and recover."""


class Batch(NamedTuple):
    """The records that one write and one sync make durable.

    payloads   parts of each frame's payload
    position   the journal's position after the last record
    file       number of the file to write to
    offset     where in that file; 0 begins it
    retires    files below this number may be unlinked once the batch is durable
    """

    payloads: list[list[bytes]]
    position: int
    file: int
    offset: int
    retires: int


class JournalEngine:
    """The journal of one vhost, in an existing directory. `recover` is called once, before anything else.

    position   records ever appended
    durable    the position up to which records are on the disk
    current    number of the file that the next batch goes to, unless the batch begins another
    oldest     number of the oldest file that still counts
    """

    def __init__(
        self, disk: Disk, directory: str, file_limit: int = FILE_LIMIT, frame_limit: int = FRAME_LIMIT
    ) -> None:
        self._disk = disk
        self._directory = directory
        #: The guard under which this journal's commits run. `recover` begins it, and that of the next journal ends it.
        self._guard = JobGuard()
        self._file_limit = file_limit
        self._frame_limit = frame_limit
        self._payloads: list[list[bytes]] = []
        #: Bytes in `_payloads`, and in its last element, the frame to which records are still added.
        self._gathered = 0
        self._open_frame = 0
        #: Bytes of the gathered records that repeat those of older files.
        self._repeated = 0
        self._next_numbers: dict[int, int] = {}
        #: Dead letters that were handed over and not taken, according to the records that were appended so far.
        self.in_transit = InTransit()
        #: By file that is not retired and that this journal began: the position before its first record.
        self._begins: dict[int, int] = {}
        #: By queue: the sizes of its segments, which each file begins with, as with the STATE of each queue.
        self._sizes: dict[int, dict[int, int]] = {}
        #: The lives of the queues that have had more than one, which each file begins with as well.
        self._lives: dict[int, Lives] = {}
        self._retires = 0
        self._file: File | None = None
        self._is_in_flight = False
        self._is_broken = False
        #: Whether a failed commit may have left bytes at the end of the file.
        self._has_rest = False
        self.position = 0
        #: The position after the last record that a batch has taken.
        self._taken_to = 0
        self.durable = 0
        self.current = 0
        self._size = 0
        #: Bytes of the states at the head of the current file, and of what queues have repeated in it so that an older
        #: file could be given up. They do not count towards its limit: if they did, and there were more of them than
        #: the limit, each file would be full at once, and the journal would free files for ever.
        self._head = 0
        self._reserved = 0
        self.oldest = 1

    # -- recovery ---

    def recover(self) -> dict[int, Replayed]:
        """Replay all files, cut the torn tail, log damage, and have the next batch begin a new file.

        Returns what is left of each queue, by its number. Waits for the disk.
        """
        self._disk.guards.end(self._directory)
        self._guard = self._disk.guards.begin(self._directory)
        names = self._disk.list(self._directory)
        numbers = sorted(number for name in names if (number := file_number(name)) is not None)
        log_foreign(
            self._disk,
            self._directory,
            (name for name in names if name.endswith(SUFFIX) and file_number(name) is None),
            "a file of the journal",
        )
        found = replay_files(self._disk, self._directory, numbers)
        if any(number < found.retired for number in numbers):
            # A crash came between a RETIRE record and its unlinks: the older files must not count.
            self._unlink([number for number in numbers if number < found.retired])
            numbers = [number for number in numbers if number >= found.retired]
            found = replay_files(self._disk, self._directory, numbers)
        for damaged in found.damaged:
            self._log_damaged(damaged)
        self.current = numbers[-1] if numbers else 0
        self.oldest = numbers[0] if numbers else 1
        self._size = self._file_limit  # never append to a file of an earlier process
        self._disk.sync_dir(self._directory)
        # Damaged records may have published or reserved numbers that must not be given again. Every message takes more
        # than a byte, so they published fewer numbers than they have bytes. Reservations reach at most AHEAD further.
        gap = sum(part.size + AHEAD for damaged in found.damaged for part in damaged.parts)
        for replayed in found.queues.values():
            replayed.next_number += gap
        self.in_transit = found.in_transit
        self._next_numbers = {queue: replayed.next_number for queue, replayed in found.queues.items()}
        self._sizes = {queue: dict(replayed.sizes) for queue, replayed in found.queues.items() if replayed.sizes}
        self._lives = {queue: replayed.lives for queue, replayed in found.queues.items() if replayed.lives.life}
        return found.queues

    def _log_damaged(self, damaged: DamagedJournalFile) -> None:
        behind = (
            f"{damaged.frames_behind:,} whole frames, which are replayed" if damaged.frames_behind else "nothing whole"
        )
        log_damaged(
            self._disk,
            self._path(damaged.number),
            damaged.parts,
            behind,
            "The records in these bytes are lost unless the queues had them in their segments: messages published "
            "there may be gone, confirmed ones too, and messages acknowledged there may come back",
        )

    def replay(self) -> dict[int, Replayed]:
        """The messages and acks of each queue that the files have now. Waits for the disk; no batch is in flight.

        Called while the journal runs, for queues that are down. The caller has committed all records that these queues
        have appended.
        """
        assert not self._is_in_flight
        with self._guard.work():
            numbers = [
                number for number in range(self.oldest, self.current + 1) if self._disk.exists(self._path(number))
            ]
            return replay_files(self._disk, self._directory, numbers).queues

    # -- gathering ---

    def append(
        self,
        queue: int,
        parts: Sequence[bytes],
        records: int,
        next_number: int | None,
        sizes: dict[int, int] | None = None,
        is_joined: bool = False,
        repeated: int = 0,
        lives: Lives | None = None,
    ) -> int:
        """Append records of one queue, as `LogWriter` encoded them; returns the position after them.

        `next_number` is where the queue's numbering stands after them, None if the queue was deleted. `sizes` are the
        sizes of segments in SIZES records among them, and `lives` the lives in a LIVES record. All records of one call
        are in one frame; with `is_joined` it is the frame of the call before. `repeated` is how many of their bytes are
        in older files as well, which are about to be given up.
        """
        if sizes:
            merge_sizes(self._sizes.setdefault(queue, {}), sizes)
        if next_number is None:
            self._next_numbers.pop(queue, None)
            self._sizes.pop(queue, None)
            self._lives.pop(queue, None)
        else:
            self._next_numbers[queue] = max(next_number, self._next_numbers.get(queue, 0))
        self._repeated += repeated
        if lives is not None:
            self._lives[queue] = lives
        return self._append(parts, records, is_joined) if records else self.position

    def retire(self, file: int) -> int:
        """Record that the files before `file` are given up: all queues have flushed, synced, what was left of these."""
        assert self._retires <= file <= self.current + 1
        self._repeat_in_transit(file)
        self._begins = {number: position for number, position in self._begins.items() if number >= file}
        self._retires = file
        return self._append(record(Type.RETIRE, file, []), 1)

    def in_transit_before(self, file: int) -> int:
        """The bytes of dead letters in transit that only the files before `file` have."""
        waiting = self.in_transit.placed_before(self._begins.get(file, self.position))
        return sum(len(content) for _, handed in waiting for content in handed.contents)

    def _repeat_in_transit(self, file: int) -> None:
        """Record once more the dead letters in transit that only the files before `file` have."""
        for item, handed in self.in_transit.placed_before(self._begins.get(file, self.position)):
            item.place = self._append(record(Type.HANDED_OVER, handed.targets[0], encode_handed_over(handed)), 1)

    @property
    def numbers(self) -> KeysView[int]:
        """The queues that appended a record and were not deleted."""
        return self._next_numbers.keys()

    @property
    def closed_files(self) -> int:
        """How many files before the current one are not retired."""
        return max(0, self.current - max(self.oldest, self._retires))

    def _append(self, parts: Sequence[bytes], count: int, is_joined: bool = False) -> int:
        if self._is_broken:
            raise JournalBroken("an earlier sync of the journal failed; start the virtual host again to recover it")
        if not self._payloads or self._open_frame >= self._frame_limit and not is_joined:
            self._payloads.append([])
            self._open_frame = 0
        self._payloads[-1].extend(parts)
        size = sum(map(len, parts))
        self._open_frame += size
        self._gathered += size
        self.position += count
        return self.position

    # -- writing ---

    def rotate(self) -> int:
        """Have the next batch begin a new file; returns that file's number."""
        self._size = self._file_limit + self._head
        return self.current + 1

    @property
    def current_bytes(self) -> int:
        """Bytes in the file that batches go to, without the states at its head and records that older files
        have too.
        """
        return self._size - self._head

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the records that no batch has taken yet."""
        return self._gathered

    def take_batch(self) -> Batch | None:
        """Take all gathered records; None if there are none. `committed` was called for the batch before."""
        assert not self._is_in_flight, "one batch at a time"
        if not self._payloads:
            return None
        payloads = self._payloads
        limit = self._file_limit + self._head
        repeated, self._repeated = self._repeated, 0
        if self._size >= limit or self._size and self._size + self._gathered - repeated > limit:
            self.current += 1
            self._size = 0
            self._begins[self.current] = self._taken_to
            # These states may include what this very batch publishes. Numbers only grow, and the last size of a
            # segment counts, so that does no harm.
            states = [
                part
                for queue, number in self._next_numbers.items()
                for part in record(Type.STATE, queue, [number.to_bytes(8, "big")])
            ]
            states += [
                part
                for queue, sizes in self._sizes.items()
                if sizes
                for part in record(Type.SIZES, queue, [encode_sizes(sizes)])
            ]
            states += [
                part
                for queue, lives in self._lives.items()
                for part in record(Type.LIVES, queue, [encode_lives(lives)])
            ]
            self._head = sum(map(len, states))
            if states:
                payloads.insert(0, states)
        self._head += repeated
        batch = Batch(payloads, self.position, self.current, self._size, self._retires)
        self._taken_to = self.position
        self._payloads = []
        self._gathered = self._open_frame = 0
        self._is_in_flight = True
        return batch

    def commit(self, batch: Batch) -> None:
        """Write and sync a batch. Waits for the disk; may run in another thread.

        After an OSError the same batch may be committed again. Raises JournalBroken after a failed sync, and JobEnded
        if another journal of the directory has been recovered meanwhile.
        """
        with self._guard.work():
            self._commit(batch)

    def _commit(self, batch: Batch) -> None:
        if self._is_broken:
            raise JournalBroken("an earlier sync of the journal failed; start the virtual host again to recover it")
        buffers = []
        for parts in batch.payloads:
            payload = b"".join(parts)
            buffers += [frame(Kind.RECORDS, payload), payload]
        file = self._file
        if not batch.offset:
            if file is not None:
                file.close()
                self._file = None
            file = self._file = self._disk.open(self._path(batch.file), create=True)
            self._reserved = 0
            self._has_rest = True
        assert file is not None
        if self._has_rest and file.size() != batch.offset:
            file.truncate(batch.offset)
        end = batch.offset + sum(map(len, buffers))
        if end > self._reserved:
            self._reserved = end + RESERVED_AHEAD
            file.reserve(self._reserved)
        self._has_rest = True
        try:
            file.append_synced(buffers)
            if not batch.offset:
                self._sync_names()
        except SyncFailed as error:
            self._is_broken = True
            raise JournalBroken(f"journal file {batch.file} could not be synced: {error}") from error
        self._has_rest = False
        self._size = end

    def _sync_names(self) -> None:
        try:
            self._disk.sync_dir(self._directory)
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def committed(self, batch: Batch) -> int:
        """Note that a batch is durable; returns the position up to which all records are durable."""
        self._is_in_flight = False
        self.durable = batch.position
        return self.durable

    def write_all(self) -> int:
        """Take and commit a batch here and now; returns the durable position. Waits for the disk."""
        batch = self.take_batch()
        if batch is not None:
            self.commit(batch)
            self.committed(batch)
        return self.durable

    def unlink_retired(self, batch: Batch) -> None:
        """Unlink the files that a durable batch retires. Waits for the disk; may run in another thread."""
        retired = list(range(self.oldest, batch.retires))
        if retired:
            self.oldest = batch.retires
            with self._guard.work():
                self._unlink(retired)

    def _unlink(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if self._disk.exists(self._path(number)):
                self._disk.delete(self._path(number))

    def close_flushed(self, kept: Sequence[QueueRecords] = ()) -> None:
        """Close the journal after every queue has flushed everything, synced. Only one file remains, with the states
        and the records `kept`.

        Waits for the disk.
        """
        self.write_all()
        self.rotate()
        for part in kept:
            self.append(part.queue, part.parts, part.records, part.next_number)
        self._repeat_in_transit(self.current + 1)
        self._retires = self.current + 1
        self._append(record(Type.RETIRE, self.current + 1, []), 1)
        batch = self.take_batch()
        assert batch is not None
        self.commit(batch)
        self.committed(batch)
        self.unlink_retired(batch)
        self.close()

    def close(self) -> None:
        """Commit what has gathered and close the file. Waits for the disk."""
        self.write_all()
        if self._file is not None:
            self._file.truncate(self._file.size())  # returns the blocks that were reserved
            self._file.close()
            self._file = None

    def _path(self, number: int) -> str:
        return f"{self._directory}/{file_name(number)}"
