"""Snapshots: a leader sends its state to a member that needs entries which the log no longer has (CL-24).

The rows are packed into parts of `PART_BYTES`, `ROWS_AT_A_TIME` rows in a turn. Meanwhile the leader goes on: packing
takes 10 µs a row, and with a million rows no node would have a lease any more. A few parts are in flight at a time. A
part that is lost, or that comes too late, ends the attempt: the core of consensus then begins another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ...runtime.process import Process
from ...store.data_dir.metadata_store import Change
from ..consensus.core import Raft
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
    """The rows as parts of a snapshot."""
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
        self.mark = mark
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
        return [wire.SnapshotPart(self._term, self.mark, number, len(self._parts), self._parts[number])]

    def taken(self, answer: wire.SnapshotTaken) -> list[wire.SnapshotPart]:
        """A part has arrived; return what to send now."""
        if answer.index != self.mark.index:
            return []
        self._silent = 0
        return self._next_part()

    def is_last(self, answer: wire.SnapshotTaken) -> bool:
        """Whether this part is the last one of this snapshot."""
        return answer.index == self.mark.index and answer.number == len(self._parts) - 1

    def tick(self, ticks: int) -> bool:
        """Note that this many ticks have passed. Return False if the member has been silent for too long."""
        self._silent += ticks
        return self._silent <= ANSWER_TICKS


class SnapshotSending:
    """The snapshots that this node is sending, because it leads. Belongs to `process`."""

    def __init__(self, process: Process, raft: Raft) -> None:
        self._process = process
        self._raft = raft
        #: By member: the snapshots whose rows are being packed, and those of which parts are sent.
        self._packing: dict[str, Mark] = {}
        self._senders: dict[str, SnapshotSender] = {}
        self._parts: list[tuple[str, wire.SnapshotPart]] = []

    def __bool__(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._senders)

    @property
    def needed_from(self) -> int | None:
        """The entry behind which the members that get a snapshot will go on; None if none gets one."""
        marks = [*self._packing.values(), *(sender.mark for sender in self._senders.values())]
        return min((mark.index for mark in marks), default=None)

    def begin(self, node: str, mark: Mark, rows: Iterable[Change]) -> None:
        """Begin to send these rows, the state as of `mark`, to a member."""
        self._senders.pop(node, None)
        self._packing[node] = mark
        self._process.spawn(self._pack(node, mark, rows))

    async def _pack(self, node: str, mark: Mark, rows: Iterable[Change]) -> None:
        leading = self._raft.leading
        parts = await pack_snapshot(self._process, rows)
        if self._packing.get(node) is not mark:
            return  # its link has ended, or it gets a later state
        del self._packing[node]
        if leading is not None and leading is self._raft.leading:
            leading.snapshot_sent(node, mark.index)
            sender = self._senders[node] = SnapshotSender(self._raft.term, mark, parts)
            self._send(node, sender.begin())

    def _send(self, node: str, parts: Iterable[wire.SnapshotPart]) -> None:
        self._parts += [(node, part) for part in parts]
        self._process.request_turn()

    def take(self) -> list[tuple[str, wire.SnapshotPart]]:
        """The parts to send now, each with its receiver."""
        parts, self._parts = self._parts, []
        return parts

    def taken(self, node: str, answer: wire.SnapshotTaken) -> None:
        """A part has arrived at this member."""
        sender = self._senders.get(node)
        if sender is not None:
            self._send(node, sender.taken(answer))
            if sender.is_last(answer):
                del self._senders[node]

    def stop(self, node: str) -> None:
        """Send nothing more to this member, because its link has ended."""
        self._packing.pop(node, None)
        self._senders.pop(node, None)

    def ticked(self, ticks: int) -> list[str]:
        """Note that this many ticks have passed. Return the members that have been silent for too long."""
        silent = [node for node, sender in self._senders.items() if not sender.tick(ticks)]
        for node in silent:
            del self._senders[node]
        return silent


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
