"""A queue's index: which messages are in it, in which order, which are acknowledged; and the small ones themselves.

How it works
------------
What is published is said to the journal and remembered here as **unflushed**. An ack of an unflushed entry forgets it: a message
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

Damage (`segment_salvage`): what is in whole frames is kept and read, the file is written anew without the rest before anything is appended to it. Messages that
were in damaged blocks are not there any more for whoever reads (D-19).

Transient messages that were paged out stand in segments too, but not in the journal; recovery drops them (section 4.10).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ..disk.damage_log import log_foreign
from ..disk.disk import Disk
from ..disk.progress import NO_PROGRESS, Progress
from ..journal.journal_engine import Replayed
from ..messages.message_ids import StoredSpan
from ..messages.run import PendingRuns, Run, spans
from .segment_file import SUFFIX, BlockTable, Entries, cut, mark, marked, segment_number, segment_path
from .segment_jobs import FlushJob, ReleaseJob, Segment, SegmentAppend, SegmentReadJob
from .segment_salvage import NEW_SUFFIX, Salvaged, log_salvaged
from .segment_scan import scan_segment

SEGMENT_ENTRIES = 16384
MAPS_KEPT = 2
_LIVE = re.compile(b"\0+")


class Log(Protocol):
    """The part of `journal.Journal` that an index writes to; positions only grow."""

    def publish(self, queue: int, run: Run, is_stored: bool = False) -> int: ...

    def ack(self, queue: int, spans: Sequence[range]) -> int: ...

    def skip_to(self, queue: int, next_number: int) -> None: ...

    def reserve(self, queue: int, number: int) -> int: ...

    def delete(self, queue: int) -> int: ...


class RecoveredIndex(NamedTuple):
    """Un-acked messages found, their body bytes, and the number after the highest ever seen."""

    messages: int
    body_bytes: int
    next_number: int


class Scan(NamedTuple):
    """`RecoveredIndex`, before anybody has asked for the bodies of those in `stored`: un-acked, persistent, and in the message store. `end` is behind the highest number seen."""

    messages: int
    body_bytes: int
    next_number: int
    end: int
    stored: list[StoredSpan]
    may_expire: bool


class QueueIndex:
    """See the module. `queue` is the number that the journal knows the queue by. `recover` is called once before anything else."""

    __slots__ = (
        "_are_names_unsynced",
        "_directory",
        "_disk",
        "_embedded",
        "_emptied",
        "_entries",
        "_flush",
        "_flushing",
        "_loaded",
        "_log",
        "_maps",
        "_queue",
        "_segments",
        "_stored",
        "_unsynced",
        "has_lost_entries",
        "uncounted",
    )

    def __init__(
        self, disk: Disk, directory: str, queue: int, log: Log, segment_entries: int = SEGMENT_ENTRIES
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._queue = queue
        self._log = log
        self._entries = segment_entries
        self._embedded = PendingRuns()
        self._stored = PendingRuns()
        self._flushing: tuple[PendingRuns, PendingRuns] = (
            PendingRuns(),
            PendingRuns(),
        )  # embedded and stored, in the flush under way
        self._flush: FlushJob | None = None
        self._segments: dict[int, Segment] = {}
        self._maps: OrderedDict[int, BlockTable] = OrderedDict()
        self._loaded: dict[
            tuple[int, int], list[Entries]
        ] = {}  # segment and offset: blocks that the last `SegmentReadJob` brought
        self._emptied: set[int] = set()  # segments with a file that became worthless since the last flush
        self._unsynced: set[int] = set()  # segments written and not synced
        self._are_names_unsynced = False
        self.has_lost_entries = False
        self.uncounted = 0
        """Messages there are more than was counted, since acknowledgements of them were damaged; whoever counts them begins anew with 0."""

    # -- recovery

    def recover(
        self,
        replayed: Replayed | None,
        clean: dict[int, int] | None,
        contains: Callable[[bytes], bool] = lambda message_id: True,
    ) -> RecoveredIndex | None:
        """Find what is there; waits for the disk. `clean` is what `terminate` returned, if nothing happened since; then None is returned and nothing
        is read. Otherwise every segment is read, its torn tail cut, and united with what the journal replayed; `contains(message id)` tells whether the
        message store has a body. What is transient, or has no body, is acked away. The caller flushes and syncs (section 5.5).
        """
        found = self.scan(replayed, clean)
        if found is None:
            return None
        missing = [
            number
            for span in found.stored
            for number, message_id in zip(span.numbers, span.ids())
            if not contains(message_id)
        ]
        return self.drop_missing(found, missing)

    def scan(
        self, replayed: Replayed | None, clean: dict[int, int] | None, progress: Progress = NO_PROGRESS
    ) -> Scan | None:
        """The first half of `recover`, for whoever must ask somebody else which bodies there are: `stored` tells whose are wanted."""
        if clean is not None and (replayed is None or replayed.is_empty):
            sizes = {number: self._file_size(number) for number in clean}
            if all(sizes.values()):
                for number, unacked in clean.items():
                    segment = self._segments[number] = Segment()
                    segment.unacked, segment.size = unacked, sizes[number]
                return None
            # Somebody removed files: what is there counts (D-7).
        replayed = replayed or Replayed()
        count = body_bytes = 0
        may_expire = any(run.expiry is not None for runs in (replayed.embedded, replayed.stored) for run in runs.runs)
        end = replayed.end
        stored: list[StoredSpan] = []
        on_disk = self._on_disk()
        for number in on_disk:
            found = scan_segment(self._disk, self._path(number), number * self._entries, self._entries, replayed)
            progress.advance(found.size)
            end = max(end, found.next_number)
            if not found.size:
                self._disk.delete(self._path(number))  # a crash came before its first block was there
                continue
            segment = self._segments[number] = Segment()
            segment.size, segment.unacked, segment.acks = found.size, found.unacked, found.acks
            count += found.unacked
            body_bytes += found.body_bytes
            stored += found.stored
            may_expire = may_expire or found.may_expire
        if on_disk:
            self._disk.sync_dir(self._directory)
        self._embedded, self._stored = replayed.embedded, replayed.stored
        stored += replayed.stored_spans()
        return Scan(
            count + self._embedded.count + self._stored.count,
            body_bytes + self._embedded.body_bytes + self._stored.body_bytes,
            max(end, replayed.next_number),
            end,
            stored,
            may_expire,
        )

    def drop_missing(self, found: Scan, missing: Sequence[int]) -> RecoveredIndex:
        """The second half of `recover`: those whose bodies are missing are acked away (C-3)."""
        count, body_bytes = found.messages, found.body_bytes
        for number in missing:
            for run, _ in self.read(number, number + 1):
                count -= 1
                body_bytes -= run.body_bytes
                self.ack(range(number, number + 1))
        return RecoveredIndex(count, body_bytes, found.next_number)

    def _on_disk(self) -> list[int]:
        names = self._disk.list(self._directory)
        for name in names:
            if name.endswith(NEW_SUFFIX):
                self._disk.delete(f"{self._directory}/{name}")  # a crash came before it was renamed
        log_foreign(
            self._disk,
            self._directory,
            (name for name in names if name.endswith(SUFFIX) and segment_number(name) is None),
            "a segment",
        )
        return sorted(number for name in names if (number := segment_number(name)) is not None)

    # -- the hot path

    def publish(self, run: Run, is_stored: bool = False) -> int:
        """Take in a run without holes and tell the journal; returns the position at which it is durable."""
        self._take_in(run, is_stored)
        return self._log.publish(self._queue, run, is_stored)

    def page(self, run: Run, is_stored: bool) -> None:
        """Take in a run of which the journal does not hear: it need not survive, or is safe with the next synced flush."""
        if run.origin.persistent:
            self._log.skip_to(self._queue, run.end)
        self._take_in(run, is_stored)

    def reserve(self, number: int) -> int:
        """After an unclean end the numbering goes on from there at the least, when the position that is returned is durable."""
        return self._log.reserve(self._queue, number)

    def _take_in(self, run: Run, is_stored: bool) -> None:
        (self._stored if is_stored else self._embedded).add(
            Run(run.first, run.contents[:], run.origin, run.expiry, run.redelivered, run.body_bytes, run.sizes)
        )

    def ack(self, tags: Sequence[int], journaled: bool = True) -> int:
        """Entries left the queue; each tag is known and acked once. Returns the journal's position, 0 if it was not told."""
        gone = spans(tags)
        for span in gone:
            self._ack(span)
        return self._log.ack(self._queue, gone) if gone and journaled else 0

    def _ack(self, span: range) -> None:
        for unflushed in (self._embedded, self._stored):
            known = unflushed.count_in(span) if unflushed.count else 0
            if known:
                missing = unflushed.missing(span) if known < len(span) else []
                unflushed.discard(span)
                for part in missing:
                    self._ack(part)
                return
        for flushing in self._flushing:
            if flushing.count:
                flushing.discard(span)  # the segment is about to have them, so it must have the acks too
        for number in range(span[0] // self._entries, span[-1] // self._entries + 1):
            part = cut(span, number * self._entries, (number + 1) * self._entries)
            if not part:
                continue
            segment = self._segments.get(number)
            if segment is None:
                continue  # all it had left was damaged, and it is gone; this had been read before
            segment.unacked -= (
                len(part) if segment.present is None else marked(segment.present, part, number * self._entries)
            )
            assert segment.unacked >= 0, "an entry was acked twice"
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
            if (
                (segment is None or not segment.unacked)
                and not self._embedded.count_in(span)
                and not self._stored.count_in(span)
            ):
                continue
            if len(span) == self._entries and bisect_left(kept, high) == bisect_left(kept, low):
                for unflushed in (self._embedded, self._stored, *self._flushing):
                    unflushed.discard(span)
                if segment is not None:
                    if segment.size:
                        self._emptied.add(number)
                    segment.unacked = 0
                    segment.acks = []
                    self._maps.pop(number, None)
                self._log.ack(self._queue, [span])
                continue
            for run, _ in self.read(low, high):
                self.ack(
                    [tag for tag in range(run.first, run.end) if bisect_left(kept, tag) == bisect_left(kept, tag + 1)]
                )

    def shared_between(self, start: int, stop: int, keep: Iterable[int]) -> tuple[list[Run], list[ReleaseJob]]:
        """Before `ack_between` or `forget` of the same numbers: those of which the body is in a store, as far as that is known here, and the jobs that find the shared ones among
        the others. The jobs must be run, and handed to `released`, before the next flush or removal is taken, and before `delete_files`.
        """
        kept = set(keep)
        known = []
        for stored in (self._stored, self._flushing[1]):
            for run in stored.between(start, stop):
                wanted = [number for number in range(run.first, run.end) if number not in kept]
                known += [run.part(span.start - run.first, span.stop - run.first) for span in spans(wanted)]
        jobs = []
        for number, segment in self._segments.items():
            base = number * self._entries
            if (
                segment.unacked
                and segment.size
                and not segment.is_damaged
                and base < stop
                and base + self._entries > start
            ):
                jobs.append(
                    ReleaseJob(
                        self._disk,
                        self._path(number),
                        segment.size,
                        range(start, stop),
                        base,
                        self._entries,
                        [*segment.acks_in_flight, *segment.acks, *spans(sorted(kept))],
                    )
                )
        return known, jobs

    def released(self, release: ReleaseJob) -> None:
        """The job was run."""
        self.has_lost_entries = self.has_lost_entries or release.is_damaged

    # -- reading

    def boundary_after(self, number: int) -> int:
        """The first number of the next segment."""
        return (number // self._entries + 1) * self._entries

    def bounds(self) -> tuple[int, int]:
        """Numbers that may be in the index, `[low, high)`, aligned to segments; (0, 0) if there are none."""
        numbers = [number for number, segment in self._segments.items() if segment.unacked]
        for unflushed in (self._embedded, self._stored):
            if unflushed.runs:
                numbers += [unflushed.runs[0].first // self._entries, (unflushed.runs[-1].end - 1) // self._entries]
        return (min(numbers) * self._entries, (max(numbers) + 1) * self._entries) if numbers else (0, 0)

    def read(self, start: int, stop: int) -> list[Entries]:
        """Un-acked entries with `start <= number < stop`, ascending, as runs without holes; within one segment. Those that are damaged are not there."""
        number = start // self._entries
        assert start < stop <= (number + 1) * self._entries, "a read within one segment"
        found = [
            Entries(piece, is_stored)
            for embedded, stored in ((self._embedded, self._stored), self._flushing)
            for unflushed, is_stored in ((embedded, False), (stored, True))
            for piece in unflushed.between(start, stop)
        ]
        segment = self._segments.get(number)
        if segment is not None and segment.unacked and segment.size:
            found += self._read_segment(number, start, stop)
        found.sort(key=lambda entries: entries.run.first)
        return found

    def take_read(self, start: int, stop: int) -> SegmentReadJob | None:
        """The job that brings into memory what `read` of the same range wants; None if it needs no disk."""
        number = start // self._entries
        segment = self._segments.get(number)
        if segment is None or not segment.unacked or not segment.size:
            return None
        table = self._maps.get(number)
        if table is not None and all(
            (number, block.offset) in self._loaded
            for block in table.blocks
            if block.first < stop and block.last >= start
        ):
            return None
        return SegmentReadJob(self._disk, self._path(number), start, stop, segment, number, self._entries, table)

    def loaded(self, job: SegmentReadJob) -> None:
        """The job was run. What it brought is kept until the next one is handed in."""
        self._loaded = {}
        if self._segments.get(job.number) is not job.segment or not job.segment.unacked:
            return
        if job.table is None:
            # Nobody but a flush removes a segment, and that one is empty by then.
            job.salvaged = Salvaged(BlockTable(self._entries), bytearray(self._entries), [], 0)
        if job.salvaged is not None or job.number not in self._maps:
            if job.segment.size != job.size:
                return  # a flush came between: the table knows nothing of what it added
            if job.salvaged is not None:
                self._reckon(job.number, job.segment, job.salvaged)
            else:
                assert job.table is not None
                self._keep_table(job.number, job.table)
        self._loaded = {(job.number, offset): entries for offset, entries in job.blocks.items()}

    def _reckon(self, number: int, segment: Segment, salvaged: Salvaged) -> None:
        """Damage was found in a segment: from now on only what is whole counts."""
        base = number * self._entries
        present = salvaged.present
        for flushing in self._flushing:
            mark(present, (range(run.first, run.end) for run in flushing.between(base, base + self._entries)), base)
        self._keep_table(number, salvaged.table)
        before, segment.unacked = (
            segment.unacked,
            sum(here > gone for here, gone in zip(present, salvaged.table.acked, strict=True)),
        )
        if not segment.is_damaged:
            log_salvaged(
                self._disk, self._path(number), salvaged.parts, salvaged.frames_behind, max(0, before - segment.unacked)
            )
        self.uncounted += max(0, segment.unacked - before)
        segment.present = present
        segment.is_damaged = self.has_lost_entries = True
        if not segment.unacked:
            self._emptied.add(number)

    def _read_segment(self, number: int, start: int, stop: int) -> Iterator[Entries]:
        table, blocks = self._maps.get(number), self._loaded
        if table is None or not all(
            (number, block.offset) in blocks for block in table.blocks if block.first < stop and block.last >= start
        ):
            job = SegmentReadJob(
                self._disk, self._path(number), start, stop, self._segments[number], number, self._entries, table
            )
            job.run()
            self.loaded(job)
            table, blocks, self._loaded = self._maps[number], self._loaded, blocks
        self._maps.move_to_end(number)
        base = number * self._entries
        unread = bytearray(table.acked)  # a number may stand in two blocks after a crash: take it once
        for block in table.blocks:
            if block.first >= stop or block.last < start:
                continue
            for run, is_stored in blocks[number, block.offset]:
                low, high = max(start, run.first) - base, min(stop, run.end) - base
                if low < high:
                    for live in _LIVE.finditer(unread, low, high):
                        yield Entries(
                            run.part(live.start() + base - run.first, live.end() + base - run.first), is_stored
                        )
                    unread[low:high] = b"\1" * (high - low)

    def _keep_table(self, number: int, table: BlockTable) -> None:
        segment = self._segments[number]
        mark(table.acked, segment.acks_in_flight, number * self._entries)
        mark(table.acked, segment.acks, number * self._entries)
        self._maps[number] = table
        if len(self._maps) > MAPS_KEPT:
            self._maps.popitem(last=False)

    # -- flushing

    @property
    def unflushed_bytes(self) -> int:
        """Body bytes of entries that no segment has."""
        return self._embedded.body_bytes

    @property
    def has_emptied(self) -> bool:
        """Whether there is a file of which nothing is wanted."""
        return bool(self._emptied)

    def take_removal(self) -> FlushJob | None:
        """A flush that removes emptied files and writes nothing."""
        assert self._flush is None, "one flush at a time"
        emptied = [
            number
            for number in sorted(self._emptied)
            if number in self._segments and not self._segments[number].unacked
        ]
        self._emptied = set()
        if not emptied:
            return None
        self._flush = FlushJob(
            self._disk,
            self._directory,
            [],
            {number: self._segments[number].is_damaged for number in emptied},
            set(),
            False,
            False,
        )
        return self._flush

    def take_flush(self, is_synced: bool = False) -> FlushJob | None:
        """Fold everything into segments; None if there is nothing to do. The one before must have been `flushed`."""
        assert self._flush is None, "one flush at a time"
        self._emptied = set()
        pieces: dict[int, list[Entries]] = {}
        for unflushed, is_stored in ((self._embedded, False), (self._stored, True)):
            for run in unflushed.runs:
                for piece in run.without_holes():
                    for part in self._at_boundaries(piece):
                        pieces.setdefault(part.first // self._entries, []).append(Entries(part, is_stored))
        parts, emptied = [], []
        for number in sorted(
            pieces.keys()
            | {n for n, segment in self._segments.items() if segment.acks or segment.is_damaged or not segment.unacked}
        ):
            segment = self._segments.setdefault(number, Segment())
            if number in pieces or segment.unacked:
                mine = pieces.get(number, [])
                segment.unacked += sum(len(piece.run.contents) for piece in mine)
                if segment.present is not None:
                    mark(
                        segment.present,
                        (range(piece.run.first, piece.run.end) for piece in mine),
                        number * self._entries,
                    )
                parts.append(SegmentAppend(number, mine, segment.acks, segment.size, segment.is_damaged))
                segment.acks_in_flight, segment.acks = segment.acks, []
            else:
                emptied.append(number)
        if not (parts or emptied or is_synced and (self._unsynced or self._are_names_unsynced)):
            return None
        self._flushing = self._embedded, self._stored
        self._embedded, self._stored = PendingRuns(), PendingRuns()
        removed = {number: self._segments[number].is_damaged for number in emptied if self._segments[number].size}
        self._flush = FlushJob(
            self._disk, self._directory, parts, removed, set(self._unsynced), self._are_names_unsynced, is_synced
        )
        for number in emptied:
            if not self._segments[number].size:
                del self._segments[number]
        return self._flush

    def flushed(self, flush: FlushJob) -> None:
        """The flush was run."""
        assert flush is self._flush
        self._flush = None
        self._flushing = PendingRuns(), PendingRuns()
        for part, (added, size) in zip(flush.parts, flush.results, strict=True):
            segment = self._segments.get(part.number)
            if segment is None:
                continue  # the queue was deleted meanwhile
            if part.is_damaged:
                segment = self._written_anew(part.number, segment)
            segment.size = size
            segment.acks_in_flight = []
            if part.number in self._maps:
                self._maps[part.number].blocks += added
            self._unsynced.add(part.number)
            self._are_names_unsynced = self._are_names_unsynced or not part.offset
        for number in flush.emptied:
            self._segments.pop(number, None)
            self._maps.pop(number, None)
            self._loaded = {
                place: entries for place, entries in self._loaded.items() if place[0] != number
            }  # the next file of this number has other blocks there
            self._unsynced.discard(number)
            self._are_names_unsynced = True
        if flush.is_synced:
            self._unsynced = set()
            self._are_names_unsynced = False

    def _written_anew(self, number: int, segment: Segment) -> Segment:
        """Its blocks are in other places now; another object, so that a read that is under way does not count."""
        self._maps.pop(number, None)
        self._loaded = {}
        anew = self._segments[number] = Segment()
        anew.unacked, anew.acks, anew.present = segment.unacked, segment.acks, segment.present
        return anew

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
        self._emptied.clear()
        self._unsynced.clear()
        self._are_names_unsynced = False
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
