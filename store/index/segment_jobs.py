"""The jobs of a queue index that wait for the disk, run in another thread: writing to its segments, reading from one, and finding out what one refers to."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..disk.disk import Disk, File
from ..disk.walk_frames import DamagedPart, walk_frames
from ..messages.message_ids import StoredSpan, as_bytes
from ..messages.records import Damaged, Kind, decode_spans, skim_runs
from .segment_file import BLOCK, Block, BlockTable, Entries, encode, mark, read_block, read_table, segment_path
from .segment_salvage import Salvaged, look_through, put_aside, salvage

_LIVE = re.compile(b"\0+")
RESERVED_CHUNK = 1 << 20
"""A backlog that is written and synced piece by piece gets its blocks in such chunks (see `disk.File.reserve`)."""


class Segment:
    """`unacked` counts the entries that are not acked, in the file or on their way there; `size` is that of the file, 0 = none.

    `is_damaged`: the file must be written anew. `present` has, once damage was found, a byte for each number, 1 if its entry is still there: no other counts as `unacked`.
    """

    __slots__ = ("unacked", "size", "acks", "acks_in_flight", "is_damaged", "present")

    def __init__(self) -> None:
        self.unacked = 0
        self.size = 0
        self.acks: list[range] = []  # not yet in the file, nor on their way
        self.acks_in_flight: list[range] = []
        self.is_damaged = False
        self.present: bytearray | None = None


class SegmentAppend(NamedTuple):
    """What a flush appends to the file of one segment, which is `offset` bytes long by then, or less if it is damaged."""

    number: int
    pieces: list[Entries]
    acks: list[range]
    offset: int
    is_damaged: bool


class FlushJob:
    """What goes to the segments, in another thread. After an OSError it may be run again: what the first attempt wrote is cut off."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        parts: list[SegmentAppend],
        emptied: dict[int, bool],
        unsynced: set[int],
        are_names_unsynced: bool,
        is_synced: bool,
    ) -> None:
        self.parts = parts
        self.emptied = emptied
        """Segments of which nothing is wanted, and whether they are damaged."""
        self.is_synced = is_synced
        self.results: list[tuple[list[Block], int]] = []
        """For each part, the blocks it made and the size of its file."""
        self._disk = disk
        self._directory = directory
        self._unsynced = unsynced
        self._are_names_unsynced = (
            are_names_unsynced or bool(emptied) or any(not part.offset or part.is_damaged for part in parts)
        )
        self._salvaged: dict[int, int] = {}  # the sizes of files that were written anew

    def run(self) -> None:
        self.results = []
        if any(not part.offset for part in self.parts):
            self._disk.make_dir(self._directory)
        for number, pieces, acks, offset, is_damaged in self.parts:
            path = segment_path(self._directory, number)
            if is_damaged and number not in self._salvaged:
                self._salvaged[number] = salvage(self._disk, path) if self._disk.exists(path) else 0
            offset = self._salvaged.get(number, offset)
            pieces.sort(key=lambda entries: entries.run.first)
            buffers, added, size = encode(pieces, acks, offset)
            file = self._disk.open(path, create=True)
            try:
                if file.size() != offset:
                    file.truncate(offset)
                chunks = -(-size // RESERVED_CHUNK)
                if self.is_synced and size - offset >= RESERVED_CHUNK // 16 and chunks > -(-offset // RESERVED_CHUNK):
                    file.reserve(chunks * RESERVED_CHUNK)
                if self.is_synced:
                    file.append_synced(buffers)
                else:
                    file.append(buffers)
            finally:
                file.close()
            self.results.append((added, size))
        for number, is_damaged in self.emptied.items():
            path = segment_path(self._directory, number)
            if self._disk.exists(path):
                if is_damaged:
                    put_aside(self._disk, path)
                else:
                    self._disk.delete(path)  # QS-22
        if self.is_synced:
            for number in sorted(self._unsynced - {part.number for part in self.parts} - set(self.emptied)):
                file = self._disk.open(segment_path(self._directory, number))
                try:
                    file.sync()
                finally:
                    file.close()
            if self._are_names_unsynced:
                self._disk.sync_dir(self._directory)


class SegmentReadJob:
    """Blocks of a segment, read and decoded in another thread. `table` is None if the segment had gone by then; `salvaged` is not if it is damaged."""

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
        """By offset."""
        self.salvaged: Salvaged | None = None
        self._disk = disk
        self._path = path
        self._bounds = start, stop
        self._entries = entries

    def run(self) -> None:
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            self.table = None
            return
        base = self.number * self._entries
        try:
            try:
                if self.table is None:
                    self.table = read_table(file, self.size, base, self._entries)
                self._read_blocks(file, self.table)
            except Damaged:
                self.salvaged = look_through(file, self.size, base, self._entries)
                self.table = self.salvaged.table
                self._read_blocks(file, self.table)
        finally:
            file.close()

    def _read_blocks(self, file: File, table: BlockTable) -> None:
        start, stop = self._bounds
        for block in list(table.blocks):
            if block.first < stop and block.last >= start:
                self.blocks[block.offset] = read_block(file, block.offset)


class ReleaseJob:
    """Which shared bodies the entries of a segment refer to that have just been purged or deleted, when nobody but its file knows.

    Looked at are the first `size` bytes, as of that moment: acks that come behind them may be the purge's own. `gone` are those acked by then that the file does not know of,
    and those that are to be left alone. Nothing is released of a segment that is damaged, for what had been acked would be released twice: `is_damaged`.
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
        """The shared bodies, and whether they are persistent; what is acked is marked."""
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
