"""The write-ahead journal of a vhost: one for all its queues, so that one sync confirms them all (design, section 4).

How it works
------------
`append` gathers records, which queues encode with a `LogWriter`, and returns a **position** (records ever appended). Writing is in three
steps, so that the process that owns the journal never waits for a disk:

    batch = journal.take_batch()      # what has gathered; None if nothing has
    journal.commit(batch)             # in a worker thread: write, fdatasync. One batch at a time
    journal.committed(batch)          # back in the process: `durable` moves to batch.position

While a batch is synced the next one gathers: group commit without a timer.

Files are `<n>.wal`, frames of records (see `records`). A batch that would make a file larger than `file_limit` begins a new one, whose first records
are the STATE of each queue. Older files are given up in this order: the queues **fold** what still lives of them into their
segments (`queue_index`) and sync; a RETIRE record becomes durable; the files are unlinked. Replay ignores files below the last
RETIRE, so it does not matter in which order, or whether, the unlinks reach the disk: a publish can never come back without its ack.

What was acked before its file is folded never reaches a segment: a message consumed early costs one sequential write.

At recovery only the torn tail of the last file is cut. What is damaged elsewhere is passed over (`walk_frames`): the frames behind it are replayed, and the file
stays as it is, for nothing is ever appended to a file of an earlier life.

There is no record of deliveries: a message may have been delivered just before a crash, so after one all are flagged redelivered
(section 5.5), whatever a record might say.

Errors: `commit` raises OSError when the batch could not be written; nothing of it counts and the same batch may be committed again
(QS-35). When a sync failed nothing is known any more: `JournalBroken`, and only recovery helps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..disk.damage_log import log_damaged, log_foreign
from ..disk.disk import Disk, File, SyncFailed
from ..disk.walk_frames import DamagedPart, walk_frames
from ..messages.message_ids import StoredSpan, stored_spans
from ..messages.records import Kind, Record, Type, decode_runs, decode_spans, frame, record, records, stub_id
from ..messages.run import PendingRuns
from .number_reserve import AHEAD

FILE_LIMIT = 64 << 20
FRAME_LIMIT = 1 << 20
"""A frame is closed once it holds this much; recovery reads one at a time."""
RESERVED_AHEAD = 8 << 20
SUFFIX = ".wal"
_NAME = re.compile(r"(\d{6,})\.wal", re.ASCII)


def file_number(name: str) -> int | None:
    """The number of a journal file's name, None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None and name == file_name(int(match[1])) else None


def file_name(number: int) -> str:
    return f"{number:06}{SUFFIX}"


class JournalBroken(Exception):
    """What reached the disk is unknown. Nothing more is written; start again and recover."""


class Batch(NamedTuple):
    """What one write and one sync make durable."""

    payloads: list[list[bytes]]
    position: int
    file: int
    offset: int
    size: int
    retires: int
    """The files below this one may be unlinked once the batch is durable."""


@dataclass
class Replayed:
    """What the journal knows of a queue after recovery."""

    embedded: PendingRuns = field(default_factory=PendingRuns)
    stored: PendingRuns = field(default_factory=PendingRuns)
    """Published and not acked in the journal; the contents of `stored` are stubs."""
    acked: list[range] = field(default_factory=list)
    """Everything acked in the journal: the segments may still have it."""
    next_number: int = 0
    end: int = 0
    """Behind the highest number that was published or acked; `next_number` is what was told ahead as well."""

    @property
    def is_empty(self) -> bool:
        """Nothing is known but where the numbering stood."""
        return not (self.embedded.count or self.stored.count or self.acked)

    def stored_spans(self) -> list[StoredSpan]:
        """Of `stored`, what the message store is to have."""
        return [
            span
            for run in self.stored.runs
            for piece in run.without_holes()
            for span in stored_spans(piece.first, map(stub_id, piece.contents))
        ]

    def ack(self, spans: Sequence[range]) -> None:
        for span in spans:
            # A number that was once acked must never be given again: replay would take the new message for gone.
            self.end = max(self.end, span[-1] + 1)
            self.next_number = max(self.next_number, self.end)
            last = self.acked[-1] if self.acked else None
            if last is not None and last.step == span.step == 1 and last.stop == span.start:
                self.acked[-1] = range(last.start, span.stop)
            else:
                self.acked.append(span)
            self.embedded.discard(span)
            self.stored.discard(span)


class _DamagedFile(NamedTuple):
    number: int
    parts: list[DamagedPart]
    frames_behind: int


@dataclass
class _Found:
    """`retired`: the files below this number do not count."""

    queues: dict[int, Replayed] = field(default_factory=dict)
    retired: int = 0
    damaged: list[_DamagedFile] = field(default_factory=list)


class JournalEngine:
    """See the module. `directory` exists; `recover` is called once before anything else."""

    def __init__(
        self, disk: Disk, directory: str, file_limit: int = FILE_LIMIT, frame_limit: int = FRAME_LIMIT
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file_limit = file_limit
        self._frame_limit = frame_limit
        self._payloads: list[list[bytes]] = []
        self._gathered = 0  # bytes in _payloads
        self._open_frame = 0  # bytes in the last of them
        self._next_numbers: dict[int, int] = {}
        self._retires = 0
        self._file: File | None = None
        self._in_flight = False
        self._broken = False
        self._has_rest = False  # an attempt to commit may have left something at the end of the file
        self.position = 0
        self.durable = 0
        self.current = 0
        """Number of the file that the next batch goes to, unless it begins another."""
        self._size = 0
        self._reserved = 0
        self.oldest = 1
        """Number of the oldest file that still counts."""

    # -- recovery

    def recover(self) -> dict[int, Replayed]:
        """Replay all files, cut the torn tail, say what is damaged, and begin a new file with the next batch."""
        names = self._disk.list(self._directory)
        numbers = sorted(number for name in names if (number := file_number(name)) is not None)
        log_foreign(
            self._disk,
            self._directory,
            (name for name in names if name.endswith(SUFFIX) and file_number(name) is None),
            "a file of the journal",
        )
        found = self._replay(numbers)
        if any(number < found.retired for number in numbers):
            # A crash came between a RETIRE and its unlinks: the old files must count for nothing.
            self._unlink([number for number in numbers if number < found.retired])
            numbers = [number for number in numbers if number >= found.retired]
            found = self._replay(numbers)
        for damaged in found.damaged:
            self._log_damaged(damaged)
        self.current = numbers[-1] if numbers else 0
        self.oldest = numbers[0] if numbers else 1
        self._size = self._file_limit  # never append to a file of an earlier life
        self._disk.sync_dir(self._directory)
        # What was published or told ahead in damaged bytes is not known, and its numbers must not be given again; a message takes more than a byte.
        gap = sum(part.size + AHEAD for damaged in found.damaged for part in damaged.parts)
        for replayed in found.queues.values():
            replayed.next_number += gap
        self._next_numbers = {queue: replayed.next_number for queue, replayed in found.queues.items()}
        return found.queues

    def _replay(self, numbers: list[int]) -> _Found:
        found = _Found()
        for number in numbers:
            file = self._disk.open(self._path(number))
            parts: list[DamagedPart] = []
            frames_behind = 0
            for part in walk_frames(file):
                if isinstance(part, DamagedPart):
                    # Only the last file may end with an append that was not confirmed: it was synced before the next one was begun.
                    if part.is_torn_tail and number == numbers[-1]:
                        file.truncate(part.offset)
                    else:
                        parts.append(part)
                    continue
                frames_behind += part.is_behind
                for entry in records(part.payload):
                    if entry.type is Type.RETIRE:
                        found.retired = max(found.retired, entry.queue)
                    else:
                        _replay(found.queues, entry)
            if parts:
                found.damaged.append(_DamagedFile(number, parts, frames_behind))
            # A killed process leaves bytes that were read here but never synced; what is built on them must not be undone later.
            file.sync()
            file.close()
        return found

    def _log_damaged(self, damaged: _DamagedFile) -> None:
        behind = (
            f"{damaged.frames_behind:,} whole frames, which are replayed" if damaged.frames_behind else "nothing whole"
        )
        log_damaged(
            self._disk,
            self._path(damaged.number),
            damaged.parts,
            behind,
            "What the damaged bytes said is lost, unless the queues had it in their segments: messages published there may be gone, confirmed ones too, "
            "and messages acknowledged there may come back",
        )

    def replay(self) -> dict[int, Replayed]:
        """What the files say now, for a queue that starts again alone: everything of it is written. Nothing is under way."""
        assert not self._in_flight
        numbers = [number for number in range(self.oldest, self.current + 1) if self._disk.exists(self._path(number))]
        return self._replay(numbers).queues

    # -- gathering

    def append(self, queue: int, parts: Sequence[bytes], records: int, next_number: int | None) -> int:
        """Records of one queue, as `LogWriter` made them; `next_number` is where its numbering stands then, None if the queue is gone."""
        if next_number is None:
            self._next_numbers.pop(queue, None)
        else:
            self._next_numbers[queue] = max(next_number, self._next_numbers.get(queue, 0))
        return self._append(parts, records)

    def retire(self, file: int) -> int:
        """All that lives in files before `file` was folded and synced by its queues."""
        assert self._retires <= file <= self.current + 1
        self._retires = file
        return self._append(record(Type.RETIRE, file, []), 1)

    @property
    def numbers(self) -> list[int]:
        """Those that have said anything and were not deleted."""
        return list(self._next_numbers)

    @property
    def closed_files(self) -> int:
        """Files before the current one that nobody has retired."""
        return max(0, self.current - max(self.oldest, self._retires))

    def _append(self, parts: Sequence[bytes], count: int) -> int:
        if self._broken:
            raise JournalBroken("a sync of the journal has failed")
        if not self._payloads or self._open_frame >= self._frame_limit:
            self._payloads.append([])
            self._open_frame = 0
        self._payloads[-1].extend(parts)
        size = sum(map(len, parts))
        self._open_frame += size
        self._gathered += size
        self.position += count
        return self.position

    # -- writing

    def rotate(self) -> int:
        """Have the next batch begin a new file; returns its number."""
        self._size = self._file_limit
        return self.current + 1

    @property
    def current_bytes(self) -> int:
        """In the file that batches go to."""
        return self._size

    @property
    def gathered_bytes(self) -> int:
        """Bytes that no batch has taken yet."""
        return self._gathered

    def take_batch(self) -> Batch | None:
        """All that has gathered; None if that is nothing. The one before must be committed."""
        assert not self._in_flight, "one batch at a time"
        if not self._payloads:
            return None
        payloads = self._payloads
        if self._size >= self._file_limit or self._size and self._size + self._gathered > self._file_limit:
            self.current += 1
            self._size = 0
            # States as of now may include what this very batch publishes: numbers only grow, so that does no harm.
            states = [
                part
                for queue, number in self._next_numbers.items()
                for part in record(Type.STATE, queue, [number.to_bytes(8, "big")])
            ]
            if states:
                payloads.insert(0, states)
        batch = Batch(payloads, self.position, self.current, self._size, self._gathered, self._retires)
        self._payloads = []
        self._gathered = self._open_frame = 0
        self._in_flight = True
        return batch

    def commit(self, batch: Batch) -> None:
        """Write and sync; may run in another thread. After an OSError the same batch may be committed again."""
        if self._broken:
            raise JournalBroken("a sync of the journal has failed")
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
            self._broken = True
            raise JournalBroken(f"journal file {batch.file}: {error}") from error
        self._has_rest = False
        self._size = end

    def _sync_names(self) -> None:
        try:
            self._disk.sync_dir(self._directory)
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def committed(self, batch: Batch) -> int:
        """The batch is durable; returns the position up to which everything is."""
        self._in_flight = False
        self.durable = batch.position
        return self.durable

    def write_all(self) -> int:
        """Take, commit and note a batch here and now; for shutdown, and for whoever has no other thread."""
        batch = self.take_batch()
        if batch is not None:
            self.commit(batch)
            self.committed(batch)
        return self.durable

    def unlink_retired(self, batch: Batch) -> None:
        """After a batch that retires files is durable; may run in another thread."""
        retired = list(range(self.oldest, batch.retires))
        if retired:
            self.oldest = batch.retires
            self._unlink(retired)

    def _unlink(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if self._disk.exists(self._path(number)):
                self._disk.delete(self._path(number))

    def close_flushed(self) -> None:
        """Close after every queue has folded and synced everything: a file with the states alone is left."""
        self.write_all()
        self._size = self._file_limit
        self._retires = self.current + 1
        self._append(record(Type.RETIRE, self.current + 1, []), 1)
        batch = self.take_batch()
        assert batch is not None
        self.commit(batch)
        self.committed(batch)
        self.unlink_retired(batch)
        self.close()

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self.write_all()
        if self._file is not None:
            self._file.truncate(self._file.size())  # gives back what was reserved
            self._file.close()
            self._file = None

    def _path(self, number: int) -> str:
        return f"{self._directory}/{file_name(number)}"


def _replay(queues: dict[int, Replayed], entry: Record) -> None:
    if entry.type is Type.DELETE:
        queues.pop(entry.queue, None)
        return
    queue = queues.setdefault(entry.queue, Replayed())
    if entry.type is Type.PUBLISH:
        for run, is_stored in decode_runs(entry.body):
            (queue.stored if is_stored else queue.embedded).add(run)
            queue.end = max(queue.end, run.end)
            queue.next_number = max(queue.next_number, queue.end)
    elif entry.type is Type.ACK:
        queue.ack(decode_spans(entry.body))
    else:
        queue.next_number = max(queue.next_number, int.from_bytes(entry.body, "big"))
