"""A queue's index: which messages are in it, in which order, which are acknowledged; and the small messages themselves.

How it works
------------
`publish` records a message in the journal and keeps its entry here as **unflushed** (`unflushed`). An ack of an
unflushed entry forgets it: a message consumed early never reaches a file of the index. `flush` writes the remaining
entries into **segments**, files `<n>.idx` for the numbers `n * E .. (n + 1) * E - 1`; only then may the journal retire
its old files. A segment whose entries are all acked is deleted.

No method waits for the disk unless its docstring says so. What waits is a **job**: the owner takes it, runs it in
another thread and hands it back:

    flush = index.take_flush()               flush.run()    index.flushed(flush)
    read = index.reads.take(start, stop)     read.run()     index.reads.loaded(read)

One flush is under way at a time; publishes and acks go on meanwhile. After `loaded`, `read(start, stop)` finds
everything in memory (`segment_reads`). A job may be run again after an OSError, and must be run before the next one is
taken.

A synced flush makes durable everything flushed so far. The journal may retire a file only after a synced flush that was
taken after the file was closed (QS-21).

The state of a number is the union of segments and journal: published in either, acked in either (QS-25). So a crash
after a flush and before the journal retires its files leaves records of a number in both, without harm (C-12).
`segment_file` describes the layout of a segment.

A segment costs two integers in memory (`segment`), and the segments used last a table each (`segment_cache`), so a
backlog costs disk and not memory.

When a segment is damaged (`segment_salvage`), the entries in whole frames are read, and the file is rewritten without
the damaged frames before anything is appended to it. Entries in damaged frames are lost (D-19). The file of a segment
without un-acked entries is removed once the journal's record of the removal is on the disk (`emptied_segments`).

Transient messages that were paged out stand in segments too, but not in the journal; recovery drops them
(queue-and-store section 4.10).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..disk.disk import Disk
from ..disk.progress import NO_PROGRESS, RecoveryProgress
from ..journal.replay import Replayed
from ..messages.lives import Lives
from ..messages.run import Run
from ..messages.spans import spans
from .emptied_segments import EmptiedSegments
from .log import IndexLog
from .segment import Segment
from .segment_file import Entries, cut, mark, segment_path
from .segment_jobs import FlushJob, ReleaseJob, SegmentAppend, check_room
from .segment_reads import SegmentReads
from .segment_scan import Scan, scan_segments, segment_sizes
from .unflushed import Unflushed

#: Entries in a segment, unless the vhost's configuration has another number (D-2).
SEGMENT_ENTRIES = 16384
#: Stands for the segment after the last one. It is higher than any segment's number.
_NO_SEGMENT = 1 << 62
#: No segments. Every empty set takes 216 bytes, so idle queues share one.
_NO_NUMBERS: frozenset[int] = frozenset()


class QueueIndex:
    """The index of one queue. `queue` is its number in the journal. A queue that existed before calls `scan` first."""

    __slots__ = (
        "_are_names_unsynced",
        "_directory",
        "_disk",
        "_emptied",
        "_entries",
        "_flush",
        "_log",
        "_queue",
        "_segments",
        "_unsynced",
        "reads",
        "unchecked_bytes",
        "unflushed",
    )

    def __init__(
        self, disk: Disk, directory: str, queue: int, log: IndexLog, segment_entries: int = SEGMENT_ENTRIES
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._queue = queue
        self._log = log
        self._entries = segment_entries
        self.unflushed = Unflushed(log)
        self._flush: FlushJob | None = None
        self._segments: dict[int, Segment] = {}
        self._emptied = EmptiedSegments(queue, log, self._segments)
        self.reads = SegmentReads(disk, directory, segment_entries, self._segments, self.unflushed, self._emptied)
        #: Segments written and not synced.
        self._unsynced = _NO_NUMBERS
        self._are_names_unsynced = False
        #: How many bytes flushes may write before one asks the disk again how much space is free.
        self.unchecked_bytes = 0

    @property
    def has_lost_entries(self) -> bool:
        """Whether damage has cost entries or acks, so that references to shared bodies are not known exactly."""
        return self.reads.has_lost_entries

    # -- recovery ---

    def scan(
        self, replayed: Replayed | None, clean: dict[int, int] | None, progress: RecoveryProgress = NO_PROGRESS
    ) -> Scan | None:
        """Find what an earlier process of the queue left. Waits for the disk.

        `clean` is what `terminate` returned, if the queue stopped cleanly. If that still fits the files, nothing is
        read and the result is None. Otherwise every segment is read, its torn tail is cut, and its entries are united
        with what the journal replayed. The caller then finds out which bodies in `Scan.stored` the message store has,
        calls `drop_missing` with the messages of the others, and flushes synced (queue-and-store section 5.5).
        """
        self._disk.guards.end(self._directory)
        if clean is not None and (replayed is None or replayed.is_empty):
            sizes = segment_sizes(self._disk, self._directory, clean)
            least = replayed.sizes if replayed is not None else {}
            if all(size >= max(1, least.get(number, 0)) for number, size in sizes.items()):
                self._segments.update((number, Segment(sizes[number], unacked)) for number, unacked in clean.items())
                return None
            # Somebody removed or shortened files, so the counts of the clean stop are wrong and the files decide (D-7).
        replayed = replayed or Replayed()
        segments, found = scan_segments(self._disk, self._directory, self._entries, replayed, progress)
        self._segments.update(segments)
        sizes = dict.fromkeys(replayed.sizes, 0) | {number: each.size for number, each in self._segments.items()}
        changed = {number: size for number, size in sizes.items() if size != replayed.sizes.get(number)}
        if changed:
            if any(size < replayed.sizes.get(number, 0) for number, size in changed.items()):
                self.reads.has_lost_entries = True
            self._log.sizes(self._queue, changed)
        if found.unrecorded:
            # Only the segment's file has the acks of these messages, and it may be removed before the journal gives up
            # the file with their publishes. A crash in between would bring them back, so the journal gets the acks too.
            self._log.ack(self._queue, found.unrecorded)
        self.unflushed.embedded, self.unflushed.stored = replayed.embedded, replayed.stored
        return found

    def drop_missing(self, found: Scan, missing: Sequence[int]) -> Scan:
        """Ack the messages of a scan whose bodies are missing from the store (C-3); returns the scan without them.

        Waits for the disk.
        """
        messages, body_bytes = found.messages, found.body_bytes
        for number in missing:
            for run, _ in self.read(number, number + 1):
                messages -= 1
                body_bytes -= run.body_bytes
                self.ack(range(number, number + 1))
        return found._replace(messages=messages, body_bytes=body_bytes)

    # -- the hot path ---

    def publish(self, run: Run, is_stored: bool = False) -> int:
        """Add a run without holes and record it in the journal; returns the position at which it is durable."""
        self.unflushed.add(run, is_stored)
        return self._log.publish(self._queue, run, is_stored)

    def page(self, run: Run, is_stored: bool) -> None:
        """Add a run without a record in the journal: it is transient, or the next synced flush makes it durable."""
        if run.origin.persistent:
            self._log.skip_to(self._queue, run.end)
        self.unflushed.add(run, is_stored)

    def reserve(self, number: int) -> int:
        """Have the numbering continue at `number` or above after an unclean end; returns the journal's position."""
        return self._log.reserve(self._queue, number)

    def begin_life(self, lives: Lives) -> int:
        """Record the lives of the queue; returns the journal's position."""
        return self._log.lives(self._queue, lives)

    def returned(self, returns: Mapping[int, int], is_repeated: bool = False) -> None:
        """Record how often messages were returned to the queue by now, as `LogWriter.returned` does."""
        self._log.returned(self._queue, returns, is_repeated)

    def ack(self, tags: Sequence[int], journaled: bool = True) -> int:
        """Remove entries; each tag is in the index and acked once.

        Returns the journal's position, or 0 if the journal gets no record.
        """
        gone = spans(tags)
        for span in gone:
            for part in self.unflushed.ack(span):
                self._ack_in_segments(part)
        return self._log.ack(self._queue, gone) if gone and journaled else 0

    def record_ack(self, tags: Sequence[int]) -> int:
        """Record the ack of entries that stay here for now; returns the journal's position.

        The caller acks them without a record when the journal is durable up to there.
        """
        return self._log.ack(self._queue, spans(tags))

    @property
    def recorded(self) -> int:
        """The position of the queue's last record in the journal."""
        return self._log.position

    def _ack_in_segments(self, span: range) -> None:
        for number in range(span[0] // self._entries, span[-1] // self._entries + 1):
            part = cut(span, number * self._entries, (number + 1) * self._entries)
            if not part:
                continue
            segment = self._segments.get(number)
            if segment is None:
                continue  # the message was read before damage was found, which left the segment without any entry
            segment.ack(part, number * self._entries)
            if not segment.unacked and segment.size:
                self._emptied.note(number)
            self.reads.cache.ack(number, part)

    def ack_between(self, start: int, stop: int, keep: Iterable[int] = ()) -> None:
        """Ack every entry in `[start, stop)` except `keep`: a purge of messages that only the disk has.

        Segments that lie wholly inside, without a message to keep, are not read. Waits for the disk to read others.
        """
        kept = sorted(keep)
        for number in range(start // self._entries, -(-stop // self._entries)):
            base = number * self._entries
            low, high = max(start, base), min(stop, base + self._entries)
            span = range(low, high)
            segment = self._segments.get(number)
            has_unacked = segment is not None and segment.unacked
            if not (has_unacked or self.unflushed.has_any(span)):
                continue
            if len(span) == self._entries and bisect_left(kept, high) == bisect_left(kept, low):
                self.unflushed.discard(span)
                if segment is not None:
                    # Note it now, even if the flush under way has still to write the file: no later ack of its entries
                    # would note it.
                    self._emptied.note(number)
                    segment.unacked = 0
                    segment.acks = []
                    self.reads.cache.drop_table(number)
                self._log.ack(self._queue, [span])
                continue
            for run, _ in self.read(low, high):
                self.ack(
                    [tag for tag in range(run.first, run.end) if bisect_left(kept, tag) == bisect_left(kept, tag + 1)]
                )

    def shared_between(self, start: int, stop: int, keep: Iterable[int]) -> tuple[list[Run], list[ReleaseJob]]:
        """Find the shared bodies of entries in `[start, stop)` except `keep`.

        Call it before `ack_between` or `forget` removes these entries. Returns the entries in memory whose bodies are
        in a store, and the jobs that find shared bodies in segments. Each job must be run and handed to `released`
        before the next flush or removal is taken and before `delete_files`, for the job reads the segment's file as it
        is now.
        """
        kept = set(keep)
        known = []
        for stored in (self.unflushed.stored, *self.unflushed.under_way[1:]):
            for run in stored.between(start, stop):
                wanted = [number for number in range(run.first, run.end) if number not in kept]
                known += [run.part(span.start - run.first, span.stop - run.first) for span in spans(wanted)]
        jobs = []
        for number, segment in self._segments.items():
            base = number * self._entries
            is_inside = base < stop and base + self._entries > start
            if is_inside and segment.unacked and segment.size and not segment.is_damaged:
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
        """Note the result of a release job that was run."""
        self.reads.has_lost_entries = self.reads.has_lost_entries or release.is_damaged

    # -- reading ---

    def boundary_after(self, number: int) -> int:
        """The first number of the next segment."""
        return (number // self._entries + 1) * self._entries

    def boundary_before(self, number: int) -> int:
        """The first number of the same segment."""
        return number // self._entries * self._entries

    def reach(self, number: int) -> int:
        """Up to where a read that begins at `number` may go: where the next segment begins that has a file.

        After a crash the numbers of a queue continue behind a gap, which has no files.
        """
        following = number // self._entries + 1
        if following not in self._segments:
            following = min((other for other in self._segments if other > following), default=_NO_SEGMENT)
        return following * self._entries

    def bounds(self) -> tuple[int, int]:
        """Numbers that may be in the index, `[low, high)`, aligned to segments; (0, 0) for an empty index."""
        numbers = [number for number, segment in self._segments.items() if segment.unacked]
        for unflushed in (self.unflushed.embedded, self.unflushed.stored):
            if unflushed.runs:
                numbers += [unflushed.runs.head.first // self._entries, (unflushed.runs.tail.end - 1) // self._entries]
        return (min(numbers) * self._entries, (max(numbers) + 1) * self._entries) if numbers else (0, 0)

    def read(self, start: int, stop: int) -> list[Entries]:
        """Un-acked entries with `start <= number < stop`, ascending, as runs without holes; `stop` is within `reach`.

        Damaged entries are left out. Waits for the disk unless a read job of the range was handed to `loaded`.
        """
        assert start < stop <= self.reach(start), "a read of one segment, and of numbers that have no segment"
        found = [*self.unflushed.between(start, stop), *self.reads.read(start, stop)]
        found.sort(key=lambda entries: entries.run.first)
        return found

    # -- flushing ---

    @property
    def unflushed_bytes(self) -> int:
        """Body bytes of unflushed entries that hold their contents in memory."""
        return self.unflushed.embedded.body_bytes

    def check_room(self, size: int) -> None:
        """Raise OSError if the disk has less free space than `size` bytes. Waits for the disk."""
        check_room(self._disk, size)

    @property
    def has_files(self) -> bool:
        """Whether any segment has been written."""
        return bool(self._segments)

    @property
    def has_emptied(self) -> bool:
        """Whether the file of a segment may be removed."""
        return self._emptied.are_removable

    @property
    def has_damaged_empty_file(self) -> bool:
        """Whether a damaged file has no un-acked entry left (`EmptiedSegments.are_damaged`)."""
        return self._emptied.are_damaged

    def take_removal(self) -> FlushJob | None:
        """A flush that removes the files of emptied segments and writes nothing; None if there are none."""
        assert self._flush is None, "one flush at a time"
        emptied = self._emptied.take()
        if not emptied:
            return None
        removed = {number: self._segments[number].is_damaged for number in emptied}
        self._flush = FlushJob(self._disk, self._directory, [], removed, set(), False, False)
        return self._flush

    def take_flush(self, is_synced: bool = False, most: tuple[int, int, int] | None = None) -> FlushJob | None:
        """A flush of all unflushed entries that are not held, and of all acks; None if there are none.

        The flush before has been `flushed`. `most` are numbers of runs, bytes and messages, which bound the embedded
        and the stored entries separately: the flush takes no further run of a kind when it has that many of it.
        """
        assert self._flush is None, "one flush at a time"
        removable = self._emptied.take()
        taken = self.unflushed.take(most)
        pieces: dict[int, list[Entries]] = {}
        for unflushed, is_stored in zip(taken, (False, True)):
            for run in unflushed.runs:
                for piece in run.without_holes():
                    for part in self._at_boundaries(piece):
                        pieces.setdefault(part.first // self._entries, []).append(Entries(part, is_stored))
        changed = {n for n, segment in self._segments.items() if segment.acks or segment.is_damaged}
        empty = {n for n, segment in self._segments.items() if not segment.unacked}
        parts, emptied = [], []
        for number in sorted(pieces.keys() | changed | empty):
            segment = self._segments.setdefault(number, Segment())
            if number not in pieces and not segment.unacked and segment.size and number not in removable:
                # Write the acks, because the journal may give up its records of them before the file can be removed.
                self._emptied.note(number)
                if segment.acks:
                    parts.append(SegmentAppend(number, [], segment.acks, segment.size, segment.is_damaged))
                    segment.acks_in_flight, segment.acks = segment.acks, []
            elif number in pieces or segment.unacked:
                self._emptied.drop(number)
                mine = pieces.get(number, [])
                segment.unacked += sum(len(piece.run.contents) for piece in mine)
                if segment.present is not None:
                    added = (range(piece.run.first, piece.run.end) for piece in mine)
                    mark(segment.present, added, number * self._entries)
                parts.append(SegmentAppend(number, mine, segment.acks, segment.size, segment.is_damaged))
                segment.acks_in_flight, segment.acks = segment.acks, []
            else:
                emptied.append(number)
        if not (parts or emptied or is_synced and (self._unsynced or self._are_names_unsynced)):
            return None
        self.unflushed.under_way = taken
        removed = {number: self._segments[number].is_damaged for number in emptied if self._segments[number].size}
        unsynced, are_names_unsynced, unchecked = set(self._unsynced), self._are_names_unsynced, self.unchecked_bytes
        self._flush = FlushJob(
            self._disk, self._directory, parts, removed, unsynced, are_names_unsynced, is_synced, unchecked
        )
        for number in emptied:
            if not self._segments[number].size:
                del self._segments[number]
        return self._flush

    def flushed(self, flush: FlushJob) -> None:
        """Note the results of a flush that was run."""
        assert flush is self._flush
        self._flush = None
        if flush.parts:
            self.unchecked_bytes = flush.unchecked
        self.unflushed.flushed()
        sizes: dict[int, int] = {}
        if flush.is_synced:
            sizes = {number: self._segments[number].size for number in self._unsynced if number in self._segments}
        for part, (added, size) in zip(flush.parts, flush.results, strict=True):
            segment = self._segments.get(part.number)
            if segment is None:
                continue  # the queue was deleted meanwhile
            if part.is_damaged:
                segment = self._replace_segment(part.number, segment)
            segment.size = size
            if flush.is_synced or part.is_damaged:
                # Record synced sizes only: a start does not sync a file that has the recorded size (`scan_segment`).
                sizes[part.number] = size if flush.is_synced else flush.salvaged[part.number]
            segment.acks_in_flight = []
            self.reads.cache.add_blocks(part.number, added)
            self._unsynced |= {part.number}
            self._are_names_unsynced = self._are_names_unsynced or not part.offset
        for number in flush.emptied:
            self._segments.pop(number, None)
            self.reads.cache.drop(number)
            self._unsynced -= {number}
            self._are_names_unsynced = True
        if flush.is_synced:
            self._unsynced = _NO_NUMBERS
            self._are_names_unsynced = False
        kept = {n: size for n, size in sizes.items() if n in self._segments and n not in self._emptied}
        if kept:
            (self._log.sizes if flush.salvaged else self._log.sizes_later)(self._queue, kept)

    def _replace_segment(self, number: int, segment: Segment) -> Segment:
        """Replace the segment of a damaged file that was rewritten, so that its blocks have other offsets.

        Because the segment is another object, `loaded` drops the blocks of a read under way.
        """
        self.reads.cache.drop(number)
        salvaged = self._segments[number] = Segment(0, segment.unacked, segment.acks)
        salvaged.present = segment.present
        return salvaged

    def flush(self, is_synced: bool = False) -> None:
        """Flush here and now. Waits for the disk. After an OSError the next call continues the same flush."""
        flush = self._flush or self.take_flush(is_synced)
        if flush is not None:
            flush.run()
            self.flushed(flush)
            if is_synced and not flush.is_synced:
                self.flush(True)

    def _at_boundaries(self, run: Run) -> Iterator[Run]:
        """The parts of a run, cut where segments begin."""
        start = 0
        while start < len(run.contents):
            stop = min(len(run.contents), self.boundary_after(run.first + start) - run.first)
            yield run.part(start, stop)
            start = stop

    # -- the end ---

    def terminate(self) -> dict[int, int]:
        """Flush synced; returns how many un-acked entries each segment has, for the next `scan`. Waits for the disk."""
        self.unflushed.hold_nothing()
        self.flush(True)
        return {number: segment.unacked for number, segment in self._segments.items()}

    def forget(self) -> None:
        """Forget everything and record in the journal that the queue was deleted.

        The files remain until `delete_files`.
        """
        self._segments.clear()
        self.reads.drop()
        self.unflushed.clear()
        self._emptied.clear()
        self._unsynced = _NO_NUMBERS
        self._are_names_unsynced = False
        self._log.delete(self._queue)

    def delete_files(self) -> None:
        """Remove the queue's directory, all or nothing (QS-23). Waits for the disk. No flush is under way."""
        self._disk.delete_tree(self._directory)

    def _path(self, number: int) -> str:
        return segment_path(self._directory, number)
