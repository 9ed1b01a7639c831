"""`Proposers`: which commands were applied already, so that one that was proposed twice takes effect once (CL-25).

A node gives its commands serials, beginning with 1 in each of its runs, and at most `WINDOW` of them are in flight at a
time. So the state remembers, for each run, the highest serial and which of the `WINDOW` before it were applied. Any
earlier command was applied. A run that is not remembered counts as new, and its late commands would take effect again,
so the last `KEPT_RUNS` runs of each node are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...store.data_dir.metadata_store import Change, Row

#: Commands of one node that may be in flight.
WINDOW = 1024
_FULL = (1 << WINDOW) - 1

#: Runs of one node that are remembered, the latest ones.
KEPT_RUNS = 8

#: The table of the store that has them, and the first part of the keys.
TABLE, KIND = "cluster", "proposer"

#: A node and its incarnation.
Proposer = tuple[str, str]


class _ProposerRun(NamedTuple):
    """What is known of the commands of one run.

    number    counts the runs of all nodes
    highest   the highest serial
    applied   a number whose bit n is 1 if the serial n below the highest was applied
    """

    number: int
    highest: int
    applied: int


class Proposers:
    """A part of the state that all nodes have alike."""

    def __init__(self) -> None:
        self._runs: dict[Proposer, _ProposerRun] = {}

    def take(self, proposer: Proposer, serial: int) -> bool:
        """Note that this command is applied now; False if it was before."""
        number, highest, applied = self._runs.get(proposer) or _ProposerRun(self._next_number(), 0, _FULL)
        if serial > highest:
            risen = serial - highest
            applied = (applied << risen | 1) & _FULL if risen < WINDOW else 1
            self._runs[proposer] = _ProposerRun(number, serial, applied)
            return True
        bit = 1 << (highest - serial)
        if bit > _FULL or applied & bit:
            return False
        self._runs[proposer] = _ProposerRun(number, highest, applied | bit)
        return True

    def _next_number(self) -> int:
        return 1 + max((run.number for run in self._runs.values()), default=0)

    def changes_for(self, proposer: Proposer) -> list[Change]:
        """The changes of rows after commands of this run: its own row, and the removal of rows of forgotten runs."""
        runs = sorted((run.number, each) for each, run in self._runs.items() if each[0] == proposer[0])
        old = [each for _, each in runs[:-KEPT_RUNS]]
        for each in old:
            del self._runs[each]
        return [self._put(proposer), *(Change(TABLE, (KIND, *each), None) for each in old)]

    def _put(self, proposer: Proposer) -> Change:
        number, highest, applied = self._runs[proposer]
        fields = {"number": number, "highest": highest, "applied": applied.to_bytes(WINDOW // 8, "big")}
        return Change(TABLE, (KIND, *proposer), fields)

    def rows(self) -> list[Change]:
        """All rows, as changes that fill an empty table."""
        return [self._put(proposer) for proposer in sorted(self._runs)]

    def fill(self, rows: Iterable[Row]) -> None:
        """Replace everything by what a disk has."""
        self._runs = {
            (key[1], key[2]): _ProposerRun(
                fields["number"], fields["highest"], int.from_bytes(fields["applied"], "big")
            )
            for key, fields in rows
            if key[0] == KIND
        }
