"""`SegmentReads`: reads the entries of an index from its segments' files, and notices their damage.

    read = reads.take(start, stop)        read.run()        reads.loaded(read)

After `loaded`, `read(start, stop)` finds everything in memory. Only one segment is read at a time.

When a segment is damaged (`segment_salvage`), only its entries in whole frames count from then on, and the next flush
rewrites the file.
"""

from __future__ import annotations

from ..disk.disk import Disk
from .emptied_segments import EmptiedSegments
from .segment import Segment
from .segment_cache import SegmentCache
from .segment_file import BlockTable, Entries, mark, segment_path
from .segment_jobs import SegmentReadJob
from .segment_salvage import Salvaged, log_salvaged
from .unflushed import Unflushed


class SegmentReads:
    """The reads of one index, to which `segments` and `unflushed` belong. `entries` is how many a segment has."""

    __slots__ = (
        "_directory",
        "_disk",
        "_emptied",
        "_entries",
        "_segments",
        "_unflushed",
        "cache",
        "has_lost_entries",
        "uncounted",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        entries: int,
        segments: dict[int, Segment],
        unflushed: Unflushed,
        emptied: EmptiedSegments,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._entries = entries
        self._segments = segments
        self._unflushed = unflushed
        self._emptied = emptied
        self.cache = SegmentCache(entries)
        #: Damage has cost entries or acks: the references that the queue has to shared bodies are not known exactly.
        self.has_lost_entries = False
        #: Messages that came back because their acks were damaged, and that the owner has not yet added to its count.
        #: The owner adds them and sets this to 0.
        self.uncounted = 0

    def read(self, start: int, stop: int) -> list[Entries]:
        """Un-acked entries with `start <= number < stop` in the segment of `start`, as runs without holes.

        Waits for the disk unless a read job of the range was handed to `loaded`.
        """
        number = start // self._entries
        segment = self._segments.get(number)
        if segment is None or not segment.unacked or not segment.size:
            return []
        stop = min(stop, (number + 1) * self._entries)
        blocks = None
        if not self.cache.has_blocks(number, start, stop):
            job = self._job(number, start, stop, segment)
            job.run()
            blocks = self._take_in(job)
        return self.cache.read(number, start, stop, blocks)

    def drop(self) -> None:
        """Drop the cache, which takes 16 KiB or more, because no read is expected soon."""
        self.cache.clear()

    def take(self, start: int, stop: int) -> SegmentReadJob | None:
        """The job that brings into memory what `read` of the same range needs; None if `read` needs no disk."""
        number = start // self._entries
        stop = min(stop, (number + 1) * self._entries)
        segment = self._segments.get(number)
        if segment is None or not segment.unacked or not segment.size or self.cache.has_blocks(number, start, stop):
            return None
        return self._job(number, start, stop, segment)

    def _job(self, number: int, start: int, stop: int, segment: Segment) -> SegmentReadJob:
        table, path = self.cache.table(number), segment_path(self._directory, number)
        return SegmentReadJob(self._disk, path, start, stop, segment, number, self._entries, table)

    def loaded(self, job: SegmentReadJob) -> None:
        """Keep the blocks that a read job brought, until the next one is handed in."""
        self.cache.keep_blocks(job.number, self._take_in(job))

    def _take_in(self, job: SegmentReadJob) -> dict[int, list[Entries]]:
        """Keep the table of a read job; returns its blocks, or none if the segment has changed meanwhile."""
        if self._segments.get(job.number) is not job.segment or not job.segment.unacked:
            return {}
        if job.table is None:
            # The file is missing, although a flush removes it only when it has no un-acked entry: somebody outside of
            # warren has removed it.
            job.salvaged = Salvaged(BlockTable(self._entries), bytearray(self._entries), [], 0)
        if job.salvaged is not None or self.cache.table(job.number) is None:
            if job.segment.size != job.size:
                return {}  # a flush appended blocks meanwhile, and the job's table lacks them
            if job.salvaged is not None:
                self._note_damage(job.number, job.segment, job.salvaged)
            else:
                assert job.table is not None
                self.cache.keep_table(job.number, job.table, job.segment)
        return job.blocks

    def _note_damage(self, number: int, segment: Segment, salvaged: Salvaged) -> None:
        """Count only the entries in whole frames of a damaged segment from now on."""
        base = number * self._entries
        present = salvaged.present
        for flushing in self._unflushed.under_way:
            mark(present, (range(run.first, run.end) for run in flushing.between(base, base + self._entries)), base)
        self.cache.keep_table(number, salvaged.table, segment)
        before = segment.unacked
        segment.unacked = sum(here > gone for here, gone in zip(present, salvaged.table.acked, strict=True))
        if not segment.is_damaged:
            lost = max(0, before - segment.unacked)
            path = segment_path(self._directory, number)
            log_salvaged(self._disk, path, salvaged.parts, salvaged.frames_behind, lost)
        self.uncounted += max(0, segment.unacked - before)
        segment.present = present
        segment.is_damaged = self.has_lost_entries = True
        if not segment.unacked:
            self._emptied.note(number)
