"""The jobs of a queue index, which wait for the disk in another thread.

`FlushJob` writes and removes segments, `SegmentReadJob` reads from one, and `ReleaseJob` finds the shared bodies that
one refers to.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import NamedTuple

from ..disk.contents import Contents, Readable
from ..disk.disk import Disk, File, SyncFailed
from ..disk.walk_frames import DamagedPart, walk_frames
from ..messages.message_ids import StoredSpan, as_bytes
from ..messages.records import Damaged, Kind, decode_spans, skim_runs
from .segment import Segment
from .segment_file import BLOCK, Block, BlockTable, Entries, encode, mark, read_block, read_table, segment_path
from .segment_salvage import Salvaged, look_through, put_aside, salvage

_LIVE = re.compile(b"\0+")
#: A segment that is written and synced piece by piece gets its disk blocks in chunks of this size (`File.reserve`).
RESERVED_CHUNK = 1 << 20


#: After a flush has asked the disk for its free space, the next ones may write one part in `AMPLE` of what that flush
#: leaves, and at most `MOST_UNCHECKED` bytes, before one of them asks again. To ask before each flush would have the
#: thread of each job wait for the interpreter once more.
AMPLE = 16
MOST_UNCHECKED = 4 << 20


def check_room(disk: Disk, size: int) -> int:
    """Return how many bytes more than `size` may be written before the disk is asked again. Raise OSError if it has
    less than `size` bytes free. Waits for the disk.
    """
    room = disk.free_space() - size
    if room < 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return min(room // AMPLE, MOST_UNCHECKED)


class SegmentAppend(NamedTuple):
    """What a flush appends to a segment of `offset` bytes; a damaged one is shorter once it is rewritten."""

    number: int
    pieces: list[Entries]
    acks: list[range]
    offset: int
    is_damaged: bool


class FlushJob:
    """Write entries and acks to segments, and remove segments that have no un-acked entry left.

    After an OSError the job may be run again: it cuts off what the first attempt wrote. If a sync failed, the operating
    system may have dropped what earlier flushes had written to that segment, and the next sync would succeed without
    these bytes. So the next attempt writes the whole segment to a new file. It raises Damaged if the old file has not
    kept all of the segment; then the journal has what is missing, and a recovery finds it there.

    parts       what is appended, by segment
    emptied     segments to remove, and whether each is damaged
    is_synced   sync these segments, and those that earlier flushes left unsynced
    results     after `run`: for each part its new blocks and the size of its file
    salvaged    after `run`: the sizes of damaged files when they were rewritten, before anything was appended
    unchecked   how many bytes may be written before the disk is asked for its free space; after `run`, the rest of them
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        parts: list[SegmentAppend],
        emptied: dict[int, bool],
        unsynced: set[int],
        are_names_unsynced: bool,
        is_synced: bool,
        unchecked: int = 0,
    ) -> None:
        self.parts = parts
        self.emptied = emptied
        self.is_synced = is_synced
        self.results: list[tuple[list[Block], int]] = []
        self.unchecked = unchecked
        self._guard = disk.guards.begin(directory)
        self._disk = disk
        self._directory = directory
        self._unsynced = unsynced
        self._are_names_unsynced = (
            are_names_unsynced or bool(emptied) or any(not part.offset or part.is_damaged for part in parts)
        )
        # A second attempt does not rewrite these files again.
        self.salvaged: dict[int, int] = {}
        #: Segments of which a failed sync may have lost a part.
        self._doubtful: set[int] = set()

    def run(self) -> None:
        """Waits for the disk. Raises JobEnded if another process of the queue has scanned the segments meanwhile."""
        with self._guard.work():
            self._run()

    def _run(self) -> None:
        self.results = []
        if any(not part.offset for part in self.parts):
            self._disk.make_dir(self._directory)
        for number, pieces, acks, offset, is_damaged in self.parts:
            path = segment_path(self._directory, number)
            if is_damaged and number not in self.salvaged:
                self.salvaged[number] = salvage(self._disk, path) if self._disk.exists(path) else 0
            offset = self.salvaged.get(number, offset)
            pieces.sort(key=lambda entries: entries.run.first)
            buffers, added, size = encode(pieces, acks, offset)
            if number in self._doubtful and offset:
                self._rewrite(number, offset)
            file = self._disk.open(path, create=True)
            try:
                if file.size() != offset:
                    file.truncate(offset)
                self._append(file, buffers, offset, size)
            except SyncFailed:
                self._doubtful.add(number)
                raise
            finally:
                file.close()
            self.results.append((added, size))
        self._remove_emptied()
        if self.is_synced:
            self._sync_others()

    def _append(self, file: File, buffers: list[bytes], offset: int, size: int) -> None:
        """Append to a file of `offset` bytes, which has `size` bytes then.

        If the disk has no room for all of it, nothing is left behind. The bytes would take the room that the journal
        needs to record acknowledgements, and consumers could not make room by acknowledging.
        """
        added = size - offset
        self.unchecked = self.unchecked - added if added <= self.unchecked else check_room(self._disk, added)
        chunks = -(-size // RESERVED_CHUNK)
        if self.is_synced and added >= RESERVED_CHUNK // 16 and chunks > -(-offset // RESERVED_CHUNK):
            file.reserve(chunks * RESERVED_CHUNK)
        try:
            if self.is_synced:
                file.append_synced(buffers)
            else:
                file.append(buffers)
        except OSError:
            self.unchecked = 0
            with suppress(OSError):
                file.truncate(offset)
            raise

    def _remove_emptied(self) -> None:
        for number, is_damaged in self.emptied.items():
            path = segment_path(self._directory, number)
            if self._disk.exists(path):
                if is_damaged:
                    put_aside(self._disk, path)
                else:
                    self._disk.delete(path)  # every entry of it is acked (QS-22)

    def _sync_others(self) -> None:
        """Sync what earlier flushes left unsynced, and the names."""
        for number in sorted(self._unsynced - {part.number for part in self.parts} - set(self.emptied)):
            if number in self._doubtful:
                self._rewrite(number)
                continue
            file = self._disk.open(segment_path(self._directory, number))
            try:
                file.sync()
            except OSError:
                self._doubtful.add(number)
                raise
            finally:
                file.close()
        if self._are_names_unsynced:
            self._disk.sync_dir(self._directory)

    def _rewrite(self, number: int, size: int | None = None) -> None:
        """Replace a segment's file by a synced one that has its first `size` bytes, by default all."""
        path = segment_path(self._directory, number)
        file = self._disk.open(path)
        try:
            if size is None:
                size = file.size()
            else:
                file.truncate(size)
        finally:
            file.close()
        if salvage(self._disk, path) != size:
            raise Damaged(f"{self._disk.full_path(path)} has lost what a sync that failed should have written")
        self._doubtful.discard(number)


class SegmentReadJob:
    """Read and decode the blocks of a segment that may have entries from `start` to before `stop`.

    table      of the segment; None after `run` if its file is missing
    blocks     after `run`: entries by the offset of their block
    salvaged   after `run`: None unless the segment is damaged
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        start: int,
        stop: int,
        segment: Segment,
        number: int,
        entries: int,
        table: BlockTable | None,
    ) -> None:
        self.number = number
        self.segment = segment
        self.size = segment.size
        self.table = table
        self.blocks: dict[int, list[Entries]] = {}
        self.salvaged: Salvaged | None = None
        self._disk = disk
        self._path = path
        self._bounds = start, stop
        self._entries = entries

    def run(self) -> None:
        """Waits for the disk."""
        content, self.segment.content = self.segment.content, None
        if content is not None and len(content) == self.size:
            self._read(Contents(content))
            return
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            self.table = None
            return
        try:
            self._read(file)
        finally:
            file.close()

    def _read(self, file: Readable) -> None:
        base = self.number * self._entries
        try:
            if self.table is None:
                self.table = read_table(file, self.size, base, self._entries)
            self._read_blocks(file, self.table)
        except Damaged:
            self.salvaged = look_through(file, self.size, base, self._entries)
            self.table = self.salvaged.table
            self._read_blocks(file, self.table)

    def bodies(self) -> int:
        """How many bodies were read; those of large messages are in a message store."""
        return sum(len(one.run.contents) for entries in self.blocks.values() for one in entries if not one.is_stored)

    def _read_blocks(self, file: Readable, table: BlockTable) -> None:
        start, stop = self._bounds
        for block in table.blocks_between(start, stop):
            self.blocks[block.offset] = read_block(file, block.offset)


class ReleaseJob:
    """Find the shared bodies of a segment's entries that were just purged or deleted; only the file has their ids.

    The job reads the first `size` bytes, the file's size before the purge: acks behind them may be the purge's own.
    It skips the numbers in `gone`: those that were acked before and whose acks the file lacks, and those that the purge
    keeps. In a damaged segment it finds nothing, because a lost ack would release a body twice.

    persistent   after `run`: ids of shared bodies in the persistent store
    transient    after `run`: ids of shared bodies in the transient store
    is_damaged   after `run`: the segment is damaged or missing
    """

    def __init__(
        self, disk: Disk, path: str, size: int, bounds: range, base: int, entries: int, gone: list[range]
    ) -> None:
        self.persistent: list[bytes] = []
        self.transient: list[bytes] = []
        self.is_damaged = False
        self._disk = disk
        self._path = path
        self._size = size
        self._bounds = bounds
        self._base = base
        self._entries = entries
        self._gone = gone

    def run(self) -> None:
        """Waits for the disk."""
        gone = bytearray(self._entries)
        mark(gone, self._gone, self._base)
        shared = self._walk(gone)
        for is_persistent, (numbers, id_base) in shared or ():
            low, high = (
                max(numbers.start, self._bounds.start) - self._base,
                min(numbers.stop, self._bounds.stop) - self._base,
            )
            if low < high:
                (self.persistent if is_persistent else self.transient).extend(
                    as_bytes(id_base + self._base + at)
                    for live in _LIVE.finditer(gone, low, high)
                    for at in range(live.start(), live.end())
                )
                gone[low:high] = b"\1" * (high - low)

    def _walk(self, gone: bytearray) -> list[tuple[bool, StoredSpan]] | None:
        """Shared bodies as (is persistent, span); None if the file is damaged. Marks acked numbers in `gone`."""
        shared = []
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            self.is_damaged = True
            return None
        try:
            for part in walk_frames(file, self._size):
                if isinstance(part, DamagedPart):
                    self.is_damaged = True
                    return None
                if part.kind == Kind.ENTRIES:
                    shared += [
                        (head.origin.persistent, span)
                        for head in skim_runs(part.payload[BLOCK.size :])
                        for span in head.stored
                        if span.is_shared
                    ]
                else:
                    mark(gone, decode_spans(part.payload), self._base)
        finally:
            file.close()
        return shared
