"""`ReplicatedState`: applies the committed entries of the log to Metadata's state, and collects the rows to write.

Every node applies the same entries in the same order, so all nodes reach the same state. The state is the rows and
definitions of Metadata and, in the table `cluster`, what a node needs to decide about the next entries as all others
do: which commands were applied (`proposers`), and which connections ended last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

import msgpack  # type: ignore[import-untyped]

from ...actors.contracts.membership import CountsAsDown
from ...actors.metadata.log.log import CommandOutcome
from ...actors.metadata.log.row_encoding import all_rows, stored_change, stored_rows
from ...actors.metadata.recovery import fill
from ...actors.metadata.state.commands import AddNode, ChangeNodes, Command, EndConnection
from ...actors.metadata.state.effects import Applied
from ...actors.metadata.state.state import State, apply_in_slices, joined
from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...definitions.errors import DefinitionError
from ...runtime.coroutines import Slices
from ...store.data_dir.metadata_store import TABLES, Change, Row
from ..consensus.log import COMMAND, Entry
from .command_codec import unpack_batch, unpack_command
from .difference import replace_state
from .digest import CompareDigest, Digests
from .proposers import TABLE, Proposer, Proposers

if TYPE_CHECKING:
    from ...actors.metadata.log.row_encoding import RowKey

#: The key of the row in `TABLE` that has the last connections that ended.
ENDED = ("ended connections",)

#: A turn applies no further command of an entry after this many. One takes 60 to 200 µs with all that follows from it.
COMMANDS_A_TURN = 16

#: Receives the proposer and serial of a command, the command, and what a slice of it has changed.
Show = Callable[[Proposer, int, Command, Applied], None]

#: Receives the proposer and serial of a command, the index of its entry, and its outcome.
Report = Callable[[Proposer, int, int, CommandOutcome], None]


class ReplicatedState:
    """See the module. `show` is called after each slice of a command that takes effect, and `report` after each command
    that has taken effect or was refused.
    """

    def __init__(self, state: State, show: Show, report: Report) -> None:
        self._state = state
        self._show = show
        self._report = report
        self._proposers = Proposers()
        self.digests = Digests()
        #: The changes that the next write of the disk makes, by row.
        self._changed: dict[RowKey, Change] = {}

    def load(self, rows: Iterable[Row]) -> None:
        """Take over the rows of the table `cluster` from the disk. The state has those of the other tables already."""
        rows = list(rows)
        self._proposers.fill(rows)
        ended = [row.fields["ids"] for row in rows if row.key == ENDED]
        self._state.ended_connections = dict.fromkeys(ended[0] if ended else ())

    def apply(self, entry: Entry) -> Slices[int]:
        """Apply a committed entry, and return how many commands it has. Many commands, or one on very many queues, take
        several turns (CL-36): others see what has changed, and nothing else changes the state meanwhile.

        Raises Diverged, UnknownCommand, and ValueError for an entry that is damaged.
        """
        if entry.kind != COMMAND:
            return 0
        batch = unpack_batch(entry.data)
        proposer = batch.node, batch.incarnation
        for at, data in enumerate(batch.commands):
            serial = batch.first + at
            if at and not at % COMMANDS_A_TURN:
                yield
            command = unpack_command(data)
            if not self._proposers.take(proposer, serial):
                continue
            if isinstance(command, CompareDigest):
                self.digests.compare(command)
                self._report(proposer, serial, entry.index, CommandOutcome(Applied([], [])))
                continue
            shown: list[Applied] = []
            try:
                self._check_run(proposer, command)
                _check_verdict(entry, command)
                for applied in apply_in_slices(self._state, command):
                    if shown:
                        yield
                    self._note(command, applied)
                    self._show(proposer, serial, command, applied)
                    shown.append(applied)
            except (AmqpError, DefinitionError) as error:
                self._report(proposer, serial, entry.index, CommandOutcome(None, error.with_traceback(None)))
                continue
            self._report(proposer, serial, entry.index, CommandOutcome(joined(shown)))
        for change in self._proposers.changes_for(proposer):
            self._change(change)
        return len(batch.commands)

    def _is_up(self, proposer: Proposer) -> bool:
        found = self._state.definitions.node(proposer[0])
        return found is not None and found.incarnation == proposer[1]

    def _check_run(self, proposer: Proposer, command: Command) -> None:
        """Refuse a command of an incarnation that counts as down.

        The rows that belong to that incarnation were removed when it went down, so nothing would remove a later one.
        """
        if not isinstance(command, (AddNode, ChangeNodes)) and not self._is_up(proposer):
            raise CountsAsDown(
                INTERNAL_ERROR,
                f"{proposer[0]} counts as down in its cluster, and must start again before it changes anything",
            )

    def _note(self, command: Command, applied: Applied) -> None:
        for change in applied.changes:
            self._change(stored_change(change))
        if isinstance(command, EndConnection):
            self._change(self._ended())

    def _change(self, change: Change) -> None:
        self._changed[change.table, change.key] = change

    def _ended(self) -> Change:
        return Change(TABLE, ENDED, {"ids": list(self._state.ended_connections)})

    def take_changes(self) -> list[Change]:
        """The changes of rows by the entries that were applied since the last call, for the disk."""
        changes, self._changed = list(self._changed.values()), {}
        return changes

    # -- snapshots ---

    def rows(self) -> Iterator[Change]:
        """All rows of the state as it is now. It may change while they are taken."""
        return chain(all_rows(self._state), self._proposers.rows(), [self._ended()])

    def replace(self, rows: Iterable[Change]) -> Applied:
        """Replace the state by that of a snapshot, and return what changed. The disk gets all rows of the snapshot."""
        tables: Mapping[str, list[Row]] = {name: [] for name in TABLES}
        self._changed = {}
        for change in rows:
            assert change.fields is not None
            tables[change.table].append(Row(change.key, change.fields))
            self._change(change)
        new = State()
        fill(new, stored_rows(tables))
        applied = replace_state(self._state, new)
        self.load(tables[TABLE])
        return applied


def _check_verdict(entry: Entry, command: Command) -> None:
    """Refuse a decision about which nodes are up if another leader than the one that made it has appended it.

    The command has the term of the leader that decided, and the entry has the term of the leader that appended it.
    """
    if isinstance(command, ChangeNodes) and command.term not in (0, entry.term):
        raise DefinitionError(
            "unavailable", f"this was decided by the leader of term {command.term}, and another one leads now"
        )


def pack_rows(rows: Iterable[Change]) -> bytes:
    """Rows as a part of a snapshot."""
    packed: bytes = msgpack.packb([list(row) for row in rows], unicode_errors="surrogateescape")
    return packed


def unpack_rows(data: bytes) -> list[Change]:
    found = msgpack.unpackb(data, use_list=False, unicode_errors="surrogateescape")
    return [Change(*row) for row in found]
