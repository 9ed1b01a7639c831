"""What an index keeps in memory of its segments' files, so that a backlog costs disk and not memory.

It holds the **tables** of the two segments used last (where the blocks are, and 16 KiB of acked flags), and the
**blocks** that the last read job brought.
"""

from __future__ import annotations

import re

from .segment import Segment
from .segment_file import Block, BlockTable, Entries, mark

#: Tables kept: a queue is read at its head and appended to at its tail.
MAX_TABLES = 2
_LIVE = re.compile(b"\0+")


class SegmentCache:
    """Tables by segment number, and the blocks of one segment. `entries` is the number of entries in a segment."""

    __slots__ = ("_blocks", "_blocks_of", "_entries", "_tables")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        #: The table that was used last is the last one.
        self._tables: dict[int, BlockTable] = {}
        self._blocks_of = -1
        #: By offset in the file of the segment `_blocks_of`.
        self._blocks: dict[int, list[Entries]] = {}

    def table(self, number: int) -> BlockTable | None:
        """The table of a segment; None if it is not kept."""
        return self._tables.get(number)

    def keep_table(self, number: int, table: BlockTable, segment: Segment) -> None:
        """Keep the table that was read from a segment's file, and mark the acks that the file lacks."""
        mark(table.acked, segment.acks_in_flight, number * self._entries)
        mark(table.acked, segment.acks, number * self._entries)
        self._tables[number] = table
        if len(self._tables) > MAX_TABLES:
            del self._tables[next(iter(self._tables))]

    def keep_blocks(self, number: int, blocks: dict[int, list[Entries]]) -> None:
        """Keep these blocks of a segment, by offset, in the place of those kept before."""
        self._blocks_of, self._blocks = number, blocks

    def has_blocks(self, number: int, start: int, stop: int) -> bool:
        """Whether `read` of this range needs no disk."""
        table = self._tables.get(number)
        return table is not None and all(
            self._blocks_of == number and block.offset in self._blocks for block in table.blocks_between(start, stop)
        )

    def read(self, number: int, start: int, stop: int, blocks: dict[int, list[Entries]] | None = None) -> list[Entries]:
        """Un-acked entries from `start` to before `stop` of a segment whose table is kept, as runs without holes.

        They come from `blocks`, by default those that are kept.
        """
        blocks = self._blocks if blocks is None else blocks
        table = self._tables[number] = self._tables.pop(number)
        base = number * self._entries
        found = []
        # After a crash a number may stand in two blocks. An entry that was read is marked, so it is read once.
        unread = bytearray(table.acked)
        for block in table.blocks_between(start, stop):
            for run, is_stored in blocks[block.offset]:
                low, high = max(start, run.first) - base, min(stop, run.end) - base
                if low < high:
                    for live in _LIVE.finditer(unread, low, high):
                        part = run.part(live.start() + base - run.first, live.end() + base - run.first)
                        found.append(Entries(part, is_stored))
                    unread[low:high] = b"\1" * (high - low)
        return found

    def ack(self, number: int, span: range) -> None:
        """Mark entries of a segment acked if its table is kept."""
        if number in self._tables:
            mark(self._tables[number].acked, [span], number * self._entries)

    def add_blocks(self, number: int, added: list[Block]) -> None:
        """Add blocks that a flush appended to a segment if its table is kept."""
        if number in self._tables:
            self._tables[number].blocks += added

    def drop_table(self, number: int) -> None:
        """Drop the table of a segment whose entries were all acked at once, so that the table is out of date."""
        self._tables.pop(number, None)

    def drop(self, number: int) -> None:
        """Drop all of a segment whose file was removed or rewritten: its blocks have other offsets from now on."""
        self._tables.pop(number, None)
        if number == self._blocks_of:
            self._blocks = {}

    def clear(self) -> None:
        """Drop everything."""
        self._tables.clear()
        self._blocks = {}
