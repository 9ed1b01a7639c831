"""A queue's index: which messages are in it, in which order, which are acknowledged; and the small ones themselves.

How it works
------------
What is published is said to the journal and remembered here as **unfolded**. An ack of an unfolded entry forgets it: a message
consumed early never reaches a file of the index. `flush` folds what is left into **segments**, files `<n>.idx` for the numbers `n
* E .. (n + 1) * E - 1`; only then may the journal give up its old files. A segment whose entries are all acked is deleted.

`flush` writes, which goes to the page cache, and returns what must be synced before the journal retires anything, for another
thread to do (QS-21).

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

from .disk import Disk, File
from .journal import Replayed
from .records import FRAME, Damaged, Kind, decode_runs, decode_spans, frames, read_frame, stub_id
from .run import PendingRuns, Run, spans
from .segment_file import BLOCK, Block, Entries, Table, cut, encode, mark

SEGMENT_ENTRIES = 16384
MAPS_KEPT = 2
SUFFIX = '.idx'
_LIVE = re.compile(b'\0+')
_GONE = re.compile(b'\1+')


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


class _Segment:
    """`unacked` counts the entries in the file that are not acked; `size` is that of the file, 0 = none."""

    __slots__ = ('unacked', 'size', 'acks')

    def __init__(self) -> None:
        self.unacked = 0
        self.size = 0
        self.acks: list[range] = []  # not yet in the file


class Unsynced(NamedTuple):
    """What a flush wrote; `sync` may run in another thread, once."""

    disk: Disk
    files: list[File]
    directory: str

    def sync(self) -> None:
        for file in self.files:
            file.sync()
            file.close()
        self.disk.sync_dir(self.directory)


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
        self._segments: dict[int, _Segment] = {}
        self._maps: OrderedDict[int, Table] = OrderedDict()
        self._unsynced: set[int] = set()  # segments written since the last flush that returned
        self._are_names_unsynced = False

    # -- recovery

    def recover(self, replayed: Replayed | None, clean: dict[int, int] | None,
                contains: Callable[[bytes], bool] = lambda message_id: True) -> Recovered | None:
        """Find what is there. `clean` is what `terminate` returned, if nothing happened since; then None is returned and nothing
        is read. Otherwise every segment is read, its torn tail cut, and united with what the journal replayed; `contains(message id)` tells whether the
        message store has a body. What is transient, or has no body, is acked away. The caller flushes and syncs (section 5.5).
        """
        self._disk.make_dir(self._directory)
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
        for number in self._on_disk():
            kept, kept_bytes, highest = self._recover_segment(number, replayed, contains)
            count += kept
            body_bytes += kept_bytes
            next_number = max(next_number, highest)
        self._disk.sync_dir(self._directory)
        lost = [run.first + index for run, index in replayed.stored.slots() if not contains(stub_id(run.contents[index]))]
        replayed.stored.discard(lost)
        self._embedded, self._stored = replayed.embedded, replayed.stored
        return Recovered(count + self._embedded.count + self._stored.count,
                         body_bytes + self._embedded.body_bytes + self._stored.body_bytes, next_number)

    def stored_ids(self, replayed: Replayed | None) -> Iterator[bytes]:
        """Ids of the persistent, un-acked bodies that this queue has in the store, to recount references (section 11.4). Before `recover`; writes nothing."""
        replayed = replayed or Replayed()
        seen: set[int] = set()
        for number in self._on_disk():
            base = number * self._entries
            acked = bytearray(self._entries)
            mark(acked, replayed.acked, base)
            stubs: dict[int, bytes] = {}
            file = self._disk.open(self._path(number))
            for kind, payload, _, _ in frames(file):
                if kind == Kind.ACKS:
                    mark(acked, decode_spans(payload), base)
                    continue
                for run, is_stored in decode_runs(payload[BLOCK.size:]):
                    if is_stored and run.origin.persistent:
                        stubs.update(zip(range(run.first, run.end), run.contents, strict=True))
            file.close()
            seen.update(stubs)
            yield from (stub_id(stub) for tag, stub in stubs.items() if not acked[tag - base])
        for run, index in replayed.stored.slots():
            if run.first + index not in seen:
                yield stub_id(run.contents[index])

    def _on_disk(self) -> list[int]:
        return sorted(int(name[:-len(SUFFIX)]) for name in self._disk.list(self._directory) if name.endswith(SUFFIX))

    def _recover_segment(self, number: int, replayed: Replayed, contains: Callable[[bytes], bool]) -> tuple[int, int, int]:
        """(kept entries, their body bytes, the number after the highest)."""
        base = number * self._entries
        acked = bytearray(self._entries)
        found: list[Entries] = []
        file = self._disk.open(self._path(number))
        segment = self._segments[number] = _Segment()
        for kind, payload, _, end in frames(file):
            segment.size = end
            if kind == Kind.ENTRIES:
                found += [Entries(run, is_stored) for run, is_stored in decode_runs(payload[BLOCK.size:])]
            else:
                mark(acked, decode_spans(payload), base)
        if file.size() != segment.size:
            file.truncate(segment.size)  # D-9
        # A killed process leaves bytes and names that nobody synced; the journal that still has them may be retired after this.
        file.sync()
        file.close()
        acked_before = acked[:]
        mark(acked, replayed.acked, base)
        seen = bytearray(self._entries)
        kept = kept_bytes = highest = 0
        for run, is_stored in found:
            highest = max(highest, run.end)
            for index, content in enumerate(run.contents):
                at = run.first + index - base
                if seen[at]:
                    continue
                seen[at] = 1
                if not run.origin.persistent or is_stored and not contains(stub_id(content)):
                    acked[at] = 1
                if not acked[at]:
                    kept += 1
                    kept_bytes += run.size_at(index)
            # What the segment has need not be folded again.
            replayed.embedded.discard(range(run.first, run.end))
            replayed.stored.discard(range(run.first, run.end))
        newly = bytes(now and is_here and not before for now, is_here, before in zip(acked, seen, acked_before, strict=True))
        segment.acks = [range(base + gone.start(), base + gone.end()) for gone in _GONE.finditer(newly)]
        segment.unacked = kept
        return kept, kept_bytes, highest

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
        for number in range(span[0] // self._entries, span[-1] // self._entries + 1):
            part = cut(span, number * self._entries, (number + 1) * self._entries)
            if not part:
                continue
            segment = self._segments[number]
            segment.unacked -= len(part)
            assert segment.unacked >= 0, 'an entry was acked twice'
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
                self._embedded.discard(span)
                self._stored.discard(span)
                if segment is not None:
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
        found = [Entries(piece, is_stored) for unfolded, is_stored in ((self._embedded, False), (self._stored, True))
                 for piece in unfolded.between(start, stop)]
        segment = self._segments.get(number)
        if segment is not None and segment.unacked:
            found += self._read_segment(number, start, stop)
        found.sort(key=lambda entries: entries.run.first)
        return found

    def _read_segment(self, number: int, start: int, stop: int) -> Iterator[Entries]:
        file = self._disk.open(self._path(number))
        try:
            table = self._map(number, file)
            base = number * self._entries
            unread = bytearray(table.acked)  # a number may stand in two blocks after a crash: take it once
            for block in table.blocks:
                if block.first >= stop or block.last < start:
                    continue
                _, payload, _ = read_frame(file, block.offset)
                for run, is_stored in decode_runs(payload[BLOCK.size:]):
                    low, high = max(start, run.first) - base, min(stop, run.end) - base
                    if low < high:
                        for live in _LIVE.finditer(unread, low, high):
                            yield Entries(run.part(live.start() + base - run.first, live.end() + base - run.first), is_stored)
                        unread[low:high] = b'\1' * (high - low)
        finally:
            file.close()

    def _map(self, number: int, file: File) -> Table:
        table = self._maps.get(number)
        if table is None:
            table = Table(self._entries)
            base = number * self._entries
            offset = 0
            segment = self._segments[number]
            while offset < segment.size:
                head = file.read(offset, FRAME.size + BLOCK.size)
                _, _, kind, size, _ = FRAME.unpack_from(head)
                if kind == Kind.ENTRIES:
                    first, last, _ = BLOCK.unpack_from(head, FRAME.size)
                    table.blocks.append(Block(first, last, offset))
                elif kind == Kind.ACKS:
                    mark(table.acked, decode_spans(read_frame(file, offset)[1]), base)
                else:
                    raise Damaged(f'{self._path(number)}: a frame of kind {kind} at {offset}')
                offset += FRAME.size + size
            mark(table.acked, segment.acks, base)
            self._maps[number] = table
            if len(self._maps) > MAPS_KEPT:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(number)
        return table

    # -- folding

    @property
    def unfolded_bytes(self) -> int:
        """Body bytes of entries that no segment has."""
        return self._embedded.body_bytes

    @property
    def has_unfolded(self) -> bool:
        return bool(self._embedded.count or self._stored.count)

    def flush(self) -> Unsynced | None:
        """Fold everything into segments; None if there was nothing to do.

        After an OSError some segments are done and the rest is as it was: a later flush goes on from there.
        """
        pieces: dict[int, list[Entries]] = {}
        for unfolded, is_stored in ((self._embedded, False), (self._stored, True)):
            for run in unfolded.runs:
                for piece in run.without_holes():
                    for part in self._at_boundaries(piece):
                        pieces.setdefault(part.first // self._entries, []).append(Entries(part, is_stored))
        for number in sorted(pieces.keys() | {n for n, segment in self._segments.items() if segment.acks or not segment.unacked}):
            segment = self._segments.setdefault(number, _Segment())
            if number in pieces or segment.unacked:
                self._append(number, segment, pieces.get(number, []))
            else:
                if segment.size:
                    self._disk.delete(self._path(number))  # QS-22
                    self._are_names_unsynced = True
                del self._segments[number]
                self._maps.pop(number, None)
        if not self._unsynced and not self._are_names_unsynced:
            return None
        unsynced = Unsynced(self._disk, [self._disk.open(self._path(number)) for number in self._unsynced & self._segments.keys()],
                            self._directory)
        self._unsynced = set()
        self._are_names_unsynced = False
        return unsynced

    def _append(self, number: int, segment: _Segment, pieces: list[Entries]) -> None:
        pieces.sort(key=lambda entries: entries.run.first)
        buffers, added, size = encode(pieces, segment.acks, segment.size)
        file = self._disk.open(self._path(number), create=True)
        try:
            if file.size() != segment.size:
                file.truncate(segment.size)  # what a flush that failed has left
            file.append(buffers)
        finally:
            file.close()
        self._unsynced.add(number)
        segment.size = size
        segment.acks = []
        for run, is_stored in pieces:
            segment.unacked += len(run.contents)
            (self._stored if is_stored else self._embedded).discard(range(run.first, run.end))
        if number in self._maps:
            self._maps[number].blocks += added

    def _at_boundaries(self, run: Run) -> Iterator[Run]:
        start = 0
        while start < len(run.contents):
            stop = min(len(run.contents), self.boundary_after(run.first + start) - run.first)
            yield run.part(start, stop)
            start = stop

    # -- the end

    def terminate(self) -> dict[int, int]:
        """Flush and sync; returns un-acked entries per segment, for the next start's `clean`."""
        unsynced = self.flush()
        if unsynced is not None:
            unsynced.sync()
        return {number: segment.unacked for number, segment in self._segments.items()}

    def delete(self) -> int:
        """Remove the queue's directory, all or nothing (QS-23), and tell the journal."""
        position = self._log.delete(self._queue)
        self._disk.delete_tree(self._directory)
        self._segments.clear()
        self._maps.clear()
        self._embedded.clear()
        self._stored.clear()
        return position

    def _path(self, number: int) -> str:
        return f'{self._directory}/{number}{SUFFIX}'

    def _file_size(self, number: int) -> int:
        try:
            file = self._disk.open(self._path(number))
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()
