"""A queue's index: which messages are in it, in which order, which are acknowledged; and the small ones themselves.

How it works
------------
What is published is said to the journal and remembered here as **unfolded**. An ack of an unfolded entry forgets it: a message
consumed early never reaches a file of the index. `flush` folds what is left into **segments**, files `<n>.idx` for the numbers `n
* E .. (n + 1) * E - 1`; only then may the journal give up its old files. A segment whose entries are all acked is deleted.

Nothing here waits for a disk but what says so. What does is a **job**, taken by the owner, run in another thread, and handed back:

    flush = index.take_flush();              flush.run();   index.flushed(flush)      one at a time; publishes and acks go on meanwhile
    read = index.take_read(start, stop);     read.run();    index.loaded(read)        then `read(start, stop)` finds everything in memory

A flush that is synced makes durable all that was flushed so far; the journal may retire a file only after one that was taken after the file was closed (QS-21).
A job may be run again after an OSError, and must be run before the next one is taken.

A segment's file is a sequence of blocks of entries and of acks (see `segment_file`). The state of a number is the union of what
segments and journal say: published in either, acked in either (QS-25). Records of one number may therefore be repeated, after a
crash between a flush and the journal's retirement, without harm (C-12).

In memory a segment costs two integers; the two used last also a table of their blocks and 16 KiB of acked flags, so that a
backlog costs disk, not memory.

Transient messages that were paged out stand in segments too, but not in the journal; recovery drops them (section 4.10).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from .disk import Disk
from .journal import Replayed
from .records import Damaged
from .run import PendingRuns, Run, spans
from .segment_file import SUFFIX, Block, Entries, Table, cut, encode, mark, read_block, read_table, segment_path
from .segment_scan import scan_segment

SEGMENT_ENTRIES = 16384
MAPS_KEPT = 2
_LIVE = re.compile(b'\0+')


class Log(Protocol):
    """The part of `journal.Journal` that an index writes to; positions only grow."""

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int: ...

    def ack(self, queue: int, spans: Sequence[range]) -> int: ...

    def delete(self, queue: int) -> int: ...


class Recovered(NamedTuple):
    """Un-acked messages found, their body bytes, and the number after the highest ever seen."""

    messages: int
    body_bytes: int
    next_number: int


class Scan(NamedTuple):
    """`Recovered`, before anybody has asked for the bodies of those in `stored`: un-acked, persistent, and in the message store."""

    messages: int
    body_bytes: int
    next_number: int
    stored: list[range]


class _Segment:
    """`unacked` counts the entries that are not acked, in the file or on their way there; `size` is that of the file, 0 = none."""

    __slots__ = ('unacked', 'size', 'acks', 'acks_on_their_way')

    def __init__(self) -> None:
        self.unacked = 0
        self.size = 0
        self.acks: list[range] = []  # not yet in the file, nor on their way
        self.acks_on_their_way: list[range] = []


class _Part(NamedTuple):
    """What a flush appends to the file of one segment, which is `offset` bytes long by then."""

    number: int
    pieces: list[Entries]
    acks: list[range]
    offset: int


class Flush:
    """What goes to the segments, in another thread. After an OSError it may be run again: what the first attempt wrote is cut off."""

    def __init__(self, disk: Disk, directory: str, parts: list[_Part], emptied: list[int], unsynced: set[int], is_synced: bool) -> None:
        self.parts = parts
        self.emptied = emptied
        self.is_synced = is_synced
        self.results: list[tuple[list[Block], int]] = []
        """For each part, the blocks it made and the size of its file."""
        self._disk = disk
        self._directory = directory
        self._unsynced = unsynced

    def run(self) -> None:
        self.results = []
        if self.parts:
            self._disk.make_dir(self._directory)
        for number, pieces, acks, offset in self.parts:
            pieces.sort(key=lambda entries: entries.run.first)
            buffers, added, size = encode(pieces, acks, offset)
            file = self._disk.open(segment_path(self._directory, number), create=True)
            try:
                if file.size() != offset:
                    file.truncate(offset)
                file.append(buffers)
                if self.is_synced:
                    file.sync()
            finally:
                file.close()
            self.results.append((added, size))
        for number in self.emptied:
            path = segment_path(self._directory, number)
            if self._disk.exists(path):
                self._disk.delete(path)  # QS-22
        if self.is_synced:
            for number in sorted(self._unsynced - {part.number for part in self.parts} - set(self.emptied)):
                file = self._disk.open(segment_path(self._directory, number))
                try:
                    file.sync()
                finally:
                    file.close()
            self._disk.sync_dir(self._directory)


class Read:
    """Blocks of a segment, read and decoded in another thread. `table` is None if the segment had gone by then."""

    def __init__(self, disk: Disk, path: str, start: int, stop: int, segment: _Segment, number: int, entries: int, table: Table | None) -> None:
        self.number = number
        self.segment = segment
        self.size = segment.size
        self.table = table
        self.blocks: dict[int, list[Entries]] = {}
        """By offset."""
        self.is_damaged = False
        self._disk = disk
        self._path = path
        self._bounds = start, stop
        self._entries = entries

    def run(self) -> None:
        start, stop = self._bounds
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            self.table = None
            return
        try:
            if self.table is None:
                self.table = read_table(file, self.size, self.number * self._entries, self._entries)
            for block in list(self.table.blocks):
                if block.first < stop and block.last >= start:
                    self.blocks[block.offset] = read_block(file, block.offset)
        except Damaged:
            self.is_damaged = True
        finally:
            file.close()


class QueueIndex:
    """See the module. `queue` is the number that the journal knows the queue by. `recover` is called once before anything else."""

    def __init__(self, disk: Disk, directory: str, queue: int, log: Log, segment_entries: int = SEGMENT_ENTRIES) -> None:
        self._disk = disk
        self._directory = directory
        self._queue = queue
        self._log = log
        self._entries = segment_entries
        self._embedded = PendingRuns()
        self._stored = PendingRuns()
        self._folding: tuple[PendingRuns, PendingRuns] = (PendingRuns(), PendingRuns())  # embedded and stored, in the flush under way
        self._flush: Flush | None = None
        self._segments: dict[int, _Segment] = {}
        self._maps: OrderedDict[int, Table] = OrderedDict()
        self._loaded: dict[tuple[int, int], list[Entries]] = {}  # segment and offset: blocks that the last `Read` brought
        self._emptied: set[int] = set()  # segments with a file that became worthless since the last flush
        self._unsynced: set[int] = set()  # segments written and not synced
        self._are_names_unsynced = False

    # -- recovery

    def recover(self, replayed: Replayed | None, clean: dict[int, int] | None,
                contains: Callable[[bytes], bool] = lambda message_id: True) -> Recovered | None:
        """Find what is there; waits for the disk. `clean` is what `terminate` returned, if nothing happened since; then None is returned and nothing
        is read. Otherwise every segment is read, its torn tail cut, and united with what the journal replayed; `contains(message id)` tells whether the
        message store has a body. What is transient, or has no body, is acked away. The caller flushes and syncs (section 5.5).
        """
        found = self.scan(replayed, clean)
        if found is None:
            return None
        prefix = self._queue.to_bytes(8, 'big')
        missing = [number for span in found.stored for number in span if not contains(prefix + number.to_bytes(8, 'big'))]
        return self.without(found, missing)

    def scan(self, replayed: Replayed | None, clean: dict[int, int] | None) -> Scan | None:
        """The first half of `recover`, for whoever must ask somebody else which bodies there are: `stored` tells whose are wanted."""
        if clean is not None and (replayed is None or replayed.is_empty):
            sizes = {number: self._file_size(number) for number in clean}
            if all(sizes.values()):
                for number, unacked in clean.items():
                    segment = self._segments[number] = _Segment()
                    segment.unacked, segment.size = unacked, sizes[number]
                return None
            # Somebody removed files: what is there counts (D-7).
        replayed = replayed or Replayed()
        count = body_bytes = 0
        next_number = replayed.next_number
        stored: list[range] = []
        on_disk = self._on_disk()
        for number in on_disk:
            found = scan_segment(self._disk, self._path(number), number * self._entries, self._entries, replayed)
            segment = self._segments[number] = _Segment()
            segment.size, segment.unacked, segment.acks = found.size, found.unacked, found.acks
            count += found.unacked
            body_bytes += found.body_bytes
            next_number = max(next_number, found.next_number)
            stored += found.stored
        if on_disk:
            self._disk.sync_dir(self._directory)
        self._embedded, self._stored = replayed.embedded, replayed.stored
        for run in self._stored.runs:
            stored += [range(piece.first, piece.end) for piece in run.without_holes()]
        return Scan(count + self._embedded.count + self._stored.count,
                    body_bytes + self._embedded.body_bytes + self._stored.body_bytes, next_number, stored)

    def without(self, found: Scan, missing: Sequence[int]) -> Recovered:
        """The second half of `recover`: those whose bodies are missing are acked away (C-3)."""
        count, body_bytes = found.messages, found.body_bytes
        for number in missing:
            for run, _ in self.read(number, number + 1):
                count -= 1
                body_bytes -= run.body_bytes
                self.ack(range(number, number + 1))
        return Recovered(count, body_bytes, found.next_number)

    def _on_disk(self) -> list[int]:
        return sorted(int(name[:-len(SUFFIX)]) for name in self._disk.list(self._directory) if name.endswith(SUFFIX))

    # -- the hot path

    def publish(self, run: Run, is_stored: bool = False) -> int:
        """Take in a run without holes and tell the journal; returns the position at which it is durable."""
        self.page(run, is_stored)
        return self._log.publish(self._queue, run, is_stored)

    def page(self, run: Run, is_stored: bool) -> None:
        """Take in a run that need not survive; the journal does not hear of it."""
        (self._stored if is_stored else self._embedded).add(
            Run(run.first, run.contents[:], run.origin, run.expiry, run.redelivered, run.body_bytes, run.sizes))

    def ack(self, tags: Sequence[int], journaled: bool = True) -> int:
        """Entries left the queue; each tag is known and acked once. Returns the journal's position, 0 if it was not told."""
        gone = spans(tags)
        for span in gone:
            self._ack(span)
        return self._log.ack(self._queue, gone) if gone and journaled else 0

    def _ack(self, span: range) -> None:
        for unfolded in (self._embedded, self._stored):
            known = unfolded.known(span) if unfolded.count else 0
            if known:
                missing = unfolded.missing(span) if known < len(span) else []
                unfolded.discard(span)
                for part in missing:
                    self._ack(part)
                return
        for folding in self._folding:
            if folding.count:
                folding.discard(span)  # the segment is about to have them, so it must have the acks too
        for number in range(span[0] // self._entries, span[-1] // self._entries + 1):
            part = cut(span, number * self._entries, (number + 1) * self._entries)
            if not part:
                continue
            segment = self._segments[number]
            segment.unacked -= len(part)
            assert segment.unacked >= 0, 'an entry was acked twice'
            if not segment.unacked and segment.size:
                self._emptied.add(number)
            last = segment.acks[-1] if segment.acks else None
            if last is not None and last.step == part.step == 1 and last.stop == part.start:
                segment.acks[-1] = range(last.start, part.stop)
            else:
                segment.acks.append(part)
            if number in self._maps:
                mark(self._maps[number].acked, [part], number * self._entries)

    def ack_between(self, start: int, stop: int, keep: Iterable[int] = ()) -> None:
        """Ack every entry in `[start, stop)` but `keep`: a purge of messages that only the disk knows. Segments wholly inside are not read."""
        kept = sorted(keep)
        for number in range(start // self._entries, -(-stop // self._entries)):
            base = number * self._entries
            low, high = max(start, base), min(stop, base + self._entries)
            span = range(low, high)
            segment = self._segments.get(number)
            if (segment is None or not segment.unacked) and not self._embedded.known(span) and not self._stored.known(span):
                continue
            if len(span) == self._entries and bisect_left(kept, high) == bisect_left(kept, low):
                for unfolded in (self._embedded, self._stored, *self._folding):
                    unfolded.discard(span)
                if segment is not None:
                    if segment.size:
                        self._emptied.add(number)
                    segment.unacked = 0
                    segment.acks = []
                    self._maps.pop(number, None)
                self._log.ack(self._queue, [span])
                continue
            for run, _ in self.read(low, high):
                self.ack([tag for tag in range(run.first, run.end) if bisect_left(kept, tag) == bisect_left(kept, tag + 1)])

    # -- reading

    def boundary_after(self, number: int) -> int:
        """The first number of the next segment."""
        return (number // self._entries + 1) * self._entries

    def bounds(self) -> tuple[int, int]:
        """Numbers that may be in the index, `[low, high)`, aligned to segments; (0, 0) if there are none."""
        numbers = [number for number, segment in self._segments.items() if segment.unacked]
        for unfolded in (self._embedded, self._stored):
            if unfolded.runs:
                numbers += [unfolded.runs[0].first // self._entries, (unfolded.runs[-1].end - 1) // self._entries]
        return (min(numbers) * self._entries, (max(numbers) + 1) * self._entries) if numbers else (0, 0)

    def read(self, start: int, stop: int) -> list[Entries]:
        """Un-acked entries with `start <= number < stop`, ascending, as runs without holes; within one segment. Raises Damaged."""
        number = start // self._entries
        assert start < stop <= (number + 1) * self._entries, 'a read within one segment'
        found = [Entries(piece, is_stored) for embedded, stored in ((self._embedded, self._stored), self._folding)
                 for unfolded, is_stored in ((embedded, False), (stored, True)) for piece in unfolded.between(start, stop)]
        segment = self._segments.get(number)
        if segment is not None and segment.unacked and segment.size:
            found += self._read_segment(number, start, stop)
        found.sort(key=lambda entries: entries.run.first)
        return found

    def take_read(self, start: int, stop: int) -> Read | None:
        """The job that brings into memory what `read` of the same range wants; None if it needs no disk."""
        number = start // self._entries
        segment = self._segments.get(number)
        if segment is None or not segment.unacked or not segment.size:
            return None
        table = self._maps.get(number)
        if table is not None and all((number, block.offset) in self._loaded for block in table.blocks if block.first < stop and block.last >= start):
            return None
        return Read(self._disk, self._path(number), start, stop, segment, number, self._entries, table)

    def loaded(self, job: Read) -> None:
        """The job was run. What it brought is kept until the next one is handed in."""
        self._loaded = {}
        if job.table is None or job.is_damaged or self._segments.get(job.number) is not job.segment:
            return
        if job.number not in self._maps:
            if job.segment.size != job.size:
                return  # a flush came between: the table knows nothing of what it added
            self._keep_table(job.number, job.table)
        self._loaded = {(job.number, offset): entries for offset, entries in job.blocks.items()}

    def _read_segment(self, number: int, start: int, stop: int) -> Iterator[Entries]:
        table = self._maps.get(number)
        file = None
        try:
            if table is None:
                file = self._disk.open(self._path(number))
                table = read_table(file, self._segments[number].size, number * self._entries, self._entries)
                self._keep_table(number, table)
            self._maps.move_to_end(number)
            base = number * self._entries
            unread = bytearray(table.acked)  # a number may stand in two blocks after a crash: take it once
            for block in table.blocks:
                if block.first >= stop or block.last < start:
                    continue
                entries = self._loaded.get((number, block.offset))
                if entries is None:
                    if file is None:
                        file = self._disk.open(self._path(number))
                    entries = read_block(file, block.offset)
                for run, is_stored in entries:
                    low, high = max(start, run.first) - base, min(stop, run.end) - base
                    if low < high:
                        for live in _LIVE.finditer(unread, low, high):
                            yield Entries(run.part(live.start() + base - run.first, live.end() + base - run.first), is_stored)
                        unread[low:high] = b'\1' * (high - low)
        finally:
            if file is not None:
                file.close()

    def _keep_table(self, number: int, table: Table) -> None:
        segment = self._segments[number]
        mark(table.acked, segment.acks_on_their_way, number * self._entries)
        mark(table.acked, segment.acks, number * self._entries)
        self._maps[number] = table
        if len(self._maps) > MAPS_KEPT:
            self._maps.popitem(last=False)

    # -- folding

    @property
    def unfolded_bytes(self) -> int:
        """Body bytes of entries that no segment has."""
        return self._embedded.body_bytes

    @property
    def has_unfolded(self) -> bool:
        return bool(self._embedded.count or self._stored.count)

    @property
    def has_emptied(self) -> bool:
        """Whether there is a file of which nothing is wanted."""
        return bool(self._emptied)

    def take_removal(self) -> Flush | None:
        """A flush that removes emptied files and writes nothing."""
        assert self._flush is None, 'one flush at a time'
        emptied = [number for number in sorted(self._emptied) if number in self._segments and not self._segments[number].unacked]
        self._emptied = set()
        if not emptied:
            return None
        self._flush = Flush(self._disk, self._directory, [], emptied, set(), False)
        return self._flush

    def take_flush(self, is_synced: bool = False) -> Flush | None:
        """Fold everything into segments; None if there is nothing to do. The one before must have been `flushed`."""
        assert self._flush is None, 'one flush at a time'
        self._emptied = set()
        pieces: dict[int, list[Entries]] = {}
        for unfolded, is_stored in ((self._embedded, False), (self._stored, True)):
            for run in unfolded.runs:
                for piece in run.without_holes():
                    for part in self._at_boundaries(piece):
                        pieces.setdefault(part.first // self._entries, []).append(Entries(part, is_stored))
        parts, emptied = [], []
        for number in sorted(pieces.keys() | {n for n, segment in self._segments.items() if segment.acks or not segment.unacked}):
            segment = self._segments.setdefault(number, _Segment())
            if number in pieces or segment.unacked:
                mine = pieces.get(number, [])
                segment.unacked += sum(len(piece.run.contents) for piece in mine)
                parts.append(_Part(number, mine, segment.acks, segment.size))
                segment.acks_on_their_way, segment.acks = segment.acks, []
            else:
                emptied.append(number)
        if not (parts or emptied or is_synced and (self._unsynced or self._are_names_unsynced)):
            return None
        self._folding = self._embedded, self._stored
        self._embedded, self._stored = PendingRuns(), PendingRuns()
        self._flush = Flush(self._disk, self._directory, parts, [number for number in emptied if self._segments[number].size], set(self._unsynced), is_synced)
        for number in emptied:
            if not self._segments[number].size:
                del self._segments[number]
        return self._flush

    def flushed(self, flush: Flush) -> None:
        """The flush was run."""
        assert flush is self._flush
        self._flush = None
        self._folding = PendingRuns(), PendingRuns()
        for part, (added, size) in zip(flush.parts, flush.results, strict=True):
            segment = self._segments[part.number]
            segment.size = size
            segment.acks_on_their_way = []
            if part.number in self._maps:
                self._maps[part.number].blocks += added
            self._unsynced.add(part.number)
            self._are_names_unsynced = self._are_names_unsynced or not part.offset
        for number in flush.emptied:
            del self._segments[number]
            self._maps.pop(number, None)
            self._unsynced.discard(number)
            self._are_names_unsynced = True
        if flush.is_synced:
            self._unsynced = set()
            self._are_names_unsynced = False

    @property
    def is_flushing(self) -> bool:
        """A flush was taken and not handed back."""
        return self._flush is not None

    def flush(self, is_synced: bool = False) -> None:
        """A flush, here and now. After an OSError the next call goes on with it."""
        flush = self._flush or self.take_flush(is_synced)
        if flush is not None:
            flush.run()
            self.flushed(flush)
            if is_synced and not flush.is_synced:
                self.flush(True)

    def _at_boundaries(self, run: Run) -> Iterator[Run]:
        start = 0
        while start < len(run.contents):
            stop = min(len(run.contents), self.boundary_after(run.first + start) - run.first)
            yield run.part(start, stop)
            start = stop

    # -- the end

    def terminate(self) -> dict[int, int]:
        """Flush and sync, waiting for the disk; returns un-acked entries per segment, for the next start's `clean`."""
        self.flush(True)
        return {number: segment.unacked for number, segment in self._segments.items()}

    def forget(self) -> int:
        """The queue is deleted: tell the journal, and know nothing any more. The files are left to `delete_files`."""
        self._segments.clear()
        self._maps.clear()
        self._loaded.clear()
        self._embedded.clear()
        self._stored.clear()
        return self._log.delete(self._queue)

    def delete_files(self) -> None:
        """Remove the queue's directory, all or nothing (QS-23); waits for the disk. No flush may be under way."""
        self._disk.delete_tree(self._directory)

    def _path(self, number: int) -> str:
        return segment_path(self._directory, number)

    def _file_size(self, number: int) -> int:
        try:
            file = self._disk.open(self._path(number))
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()
