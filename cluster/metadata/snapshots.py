"""Snapshots: a leader sends its state to a member that needs entries which the log no longer has (CL-24).

The rows are packed into parts of `PART_BYTES`, `ROWS_AT_A_TIME` rows in a turn. A few parts are in flight at a time. A
part that is lost, or that comes too late, ends the attempt: the core of consensus then begins another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ...runtime.process import Process
from ...store.data_dir.metadata_store import Change
from ..consensus.log import Mark
from . import wire
from .replicated_state import pack_rows, unpack_rows

#: Rows that are packed in one turn, and bytes from which on a part is full.
ROWS_AT_A_TIME = 500
PART_BYTES = 256 << 10
#: Parts that are in flight at a time.
MOST_PARTS = 4
#: Ticks without an answer after which the attempt ends.
ANSWER_TICKS = 200


async def pack_snapshot(process: Process, rows: Iterable[Change]) -> list[bytes]:
    """The rows as parts of a snapshot. They must not change until this returns."""
    waiting = iter(rows)
    parts: list[bytes] = []
    size, pieces = 0, list[Change]()
    while some := list(islice(waiting, ROWS_AT_A_TIME)):
        for row in some:
            pieces.append(row)
            size += len(str(row.key)) + len(str(row.fields))
            if size >= PART_BYTES:
                parts.append(pack_rows(pieces))
                size, pieces = 0, []
        await process.next_turn()
    parts.append(pack_rows(pieces))
    return parts


class SnapshotSender:
    """Which parts of one snapshot go to one member, and when."""

    def __init__(self, term: int, mark: Mark, parts: list[bytes]) -> None:
        self._term = term
        self._mark = mark
        self._parts = parts
        self._next = 0
        self._silent = 0

    def begin(self) -> list[wire.SnapshotPart]:
        """The first parts to send."""
        return [part for _ in range(MOST_PARTS) for part in self._next_part()]

    def _next_part(self) -> list[wire.SnapshotPart]:
        if self._next == len(self._parts):
            return []
        self._next += 1
        number = self._next - 1
        return [wire.SnapshotPart(self._term, self._mark, number, len(self._parts), self._parts[number])]

    def taken(self, answer: wire.SnapshotTaken) -> list[wire.SnapshotPart]:
        """A part has arrived; return what to send now."""
        if answer.index != self._mark.index:
            return []
        self._silent = 0
        return self._next_part()

    def is_last(self, answer: wire.SnapshotTaken) -> bool:
        """Whether this part is the last one of this snapshot."""
        return answer.index == self._mark.index and answer.number == len(self._parts) - 1

    def tick(self, ticks: int) -> bool:
        """Note that this many ticks have passed. Return False if the member has been silent for too long."""
        self._silent += ticks
        return self._silent <= ANSWER_TICKS


class SnapshotReceiver:
    """Puts the parts of one snapshot together."""

    def __init__(self) -> None:
        self._of: tuple[str, int, Mark] | None = None
        self._parts: list[bytes] = []

    def take(self, node: str, part: wire.SnapshotPart) -> list[Change] | None:
        """Take a part that has arrived. Return the rows if it was the last one and none is missing."""
        of = node, part.term, part.mark
        if part.number == 0:
            self._of, self._parts = of, []
        if of != self._of or part.number != len(self._parts):
            return None
        self._parts.append(part.data)
        if len(self._parts) < part.total:
            return None
        rows = [row for data in self._parts for row in unpack_rows(data)]
        self._of, self._parts = None, []
        return rows
