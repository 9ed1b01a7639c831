"""`LocalLog`: the log of a node that is alone. It orders commands by when they reach the disk.

With a data directory, virtual hosts, durable exchanges, durable queues, bindings between durable ends and definitions
are also rows of a `MetadataStore`. A proposal is answered only after the commit that makes the answer true:

- **A command that puts a durable row is applied after its commit.** Otherwise a message could be routed to, and
  confirmed by, a queue whose declaration a crash takes back, and would be lost with it. A commit that fails refuses the
  command (541), and the state stays as it was.
- **Any other command is applied at once; if it removed durable rows, it is answered after the commit that deletes
  them.** A queue whose `delete` was answered is gone even if the broker is killed; what a crash brings back had not
  been answered. If that commit fails, the answer is 541 as well. But the rows stay removed, and are deleted from the
  disk when it allows, because deleting queues is how an operator makes room on a full disk.

So every durable row of the state is on the disk. The disk alone has a row only while its removal has not been answered
yet. RabbitMQ changes its tables within one transaction and writes them later; it can lose a declaration that it has
answered.

Commands gather while a commit runs in another thread, and all of them share the next one. A commit begins at the end of
the turn that brought its first command, so a command waits at most for the commit that is running and for its own. Two
commands that would write the same row never share a commit: the second is checked again when the first is applied.

What a failed commit was to write may be on the disk all the same, and what it was to delete may still be there. So
**every row that the failed commit named is written anew as the state has it**, or deleted if the state has it not.
These corrections are owed: they go into the next commit, which runs when the next command comes and at least every
`RETRY_SECONDS`. For rows of queues, exchanges and bindings they are deletions, because no row that a running commit
names is in the state as durable: such a row is added to the state after its commit, and is removed from it before. A
record of the definitions may be replaced, so the state may have an older one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....amqp.constants import INTERNAL_ERROR
from ....amqp.errors import AmqpError
from ....definitions.errors import DefinitionError
from ....runtime.process import Process
from ....runtime.signal import Signal
from ....runtime.turn_work import STEP
from ....seams import seam
from ....store.data_dir.data_dir import DataDir
from ....store.data_dir.log_tables import LogFound
from ....store.data_dir.metadata_store import Change, MetadataError, MetadataStore, MetadataWriteError
from ...disk.disk_retry import DiskRetry
from ...disk.errors import StorageError
from ..state import effects
from ..state.commands import Command
from ..state.effects import Applied
from ..state.state import Refusal, State, additions, apply
from .log import Answer, CommandOutcome, LogOwner
from .row_encoding import (
    REMOVALS,
    RowKey,
    StoredRows,
    durable_row,
    is_durable,
    named_rows,
    removal,
    row_change,
    stored_rows,
)

#: Seconds until what is owed is tried again though no command comes.
RETRY_SECONDS = 5.0

#: How many commands that add durable rows share one commit at most: a thousand clients may have sent some. And how many
#: of them are applied in one turn, each in 50 µs.
COMMITTED_AT_ONCE, APPLIED_AT_ONCE = STEP, 16

#: The types of `Refusal`.
REFUSALS = (AmqpError, DefinitionError)

CONSEQUENCE = (
    "Messages are not affected, but durable exchanges, queues and bindings can be neither declared nor deleted (541)"
)


class _DurableCommand:
    """A command that puts durable rows: the changes that it makes to the state as of `version`, and to the store."""

    __slots__ = ("answer", "changes", "command", "version", "written")

    def __init__(self, command: Command, answer: Answer, changes: list[effects.Change], version: int) -> None:
        self.command = command
        self.answer = answer
        self.check(changes, version)

    def check(self, changes: list[effects.Change], version: int) -> None:
        """Note the changes that the command would make to the state of this version."""
        self.changes = changes
        self.written = {(change.table, change.key): change for change in map(row_change, changes)}
        self.version = version


class LocalLog:
    """Belongs to `process`, a Metadata, whose `after_batch` calls `begin`. Keeps nothing on a disk until `open`."""

    def __init__(self, process: Process, state: State, owner: LogOwner) -> None:
        self._process = process
        self._state = state
        self._owner = owner
        self.store: MetadataStore | None = None
        self._disk_retry = DiskRetry(process, "metadata", None, CONSEQUENCE)
        #: How many commands were applied.
        self._version = 0
        #: Commands that add durable rows, for the next commit.
        self._proposals: list[_DurableCommand] = []
        #: The changes that the next commit makes besides those of its proposals.
        self._owed: dict[RowKey, Change] = {}
        #: The answers that wait for the next commit, each with the outcome that it reports if the commit succeeds.
        self._waiting: list[tuple[Answer, CommandOutcome]] = []
        #: The changes of the commit that is running.
        self._written: dict[RowKey, Change] = {}
        #: The answers of the commit that is running; None if no commit is running.
        self._in_flight: list[tuple[Answer, CommandOutcome]] | None = None
        self._has_retry = False

    async def open(self, directory: DataDir | None) -> StoredRows:
        """See `Log`."""
        if directory is None:
            return StoredRows()
        if await self.open_store(directory) is not None:
            raise StorageError(
                f"data directory '{directory.path}' belongs to a member of a cluster, and this node may have none. "
                "Start it with `warren start`, or choose another data_dir"
            )
        return await self.load()

    async def open_store(self, directory: DataDir) -> LogFound | None:
        """Open the metadata store, and return its log of consensus; None if the node was in no cluster.

        Raises StorageError.
        """
        try:
            self.store = await self._process.run_blocking(MetadataStore, directory.metadata)
            return await self._process.run_blocking(self.store.load_log)
        except MetadataError as error:
            raise StorageError(str(error)) from None

    async def load(self) -> StoredRows:
        """The rows of the store. Raises StorageError."""
        assert self.store is not None
        try:
            tables = await self._process.run_blocking(self.store.load)
        except MetadataError as error:
            raise StorageError(str(error)) from None
        found = stored_rows(tables)
        self._owe(found.stale)
        return found

    async def catch_up(self) -> None:
        """Return at once: the rows on the disk are all that was ever committed."""

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    # -- proposals ---

    @property
    def refuses_at_once(self) -> bool:
        return True

    @seam("when a change of metadata is answered")
    def propose(self, command: Command, answer: Answer, until_durable: bool = True) -> None:
        """See `Log`."""
        try:
            if self.store is not None:
                changes = additions(self._state, command)
                if any(map(is_durable, changes)):
                    self._proposals.append(_DurableCommand(command, answer, changes, self._version))
                    return
            applied = self._apply(command)
        except REFUSALS as error:
            # The traceback is removed, because its frames refer to `answer` and to this log. `answer` keeps the
            # outcome, so this would be a cycle that keeps all of them alive.
            answer(CommandOutcome(None, error.with_traceback(None)))
            return
        outcome = CommandOutcome(applied)
        if until_durable and self._is_unwritten(command, applied):
            self._wait(answer, outcome)
        else:
            answer(outcome)

    def flush(self, answer: Answer) -> None:
        """See `Log`."""
        self._wait(answer, CommandOutcome(None))

    async def settled(self) -> None:
        """Wait until nothing is left to write. Raises AmqpError if the disk refuses something."""
        refusals: list[Refusal | None] = []
        answered = Signal(self._process)

        def take(outcome: CommandOutcome) -> None:
            refusals.append(outcome.error)
            answered.wake()

        while self._owed or self._proposals or self._in_flight is not None:
            refusals.clear()
            self.flush(take)
            self.begin()
            if not refusals:
                await answered.wait()
            if refusals[0] is not None:
                raise refusals[0]

    def _wait(self, answer: Answer, outcome: CommandOutcome) -> None:
        """Give this answer when everything that is to be written now is written."""
        if self._owed or self._proposals:
            self._waiting.append((answer, outcome))
        elif self._in_flight is not None:
            self._in_flight.append((answer, outcome))
        else:
            answer(outcome)

    def _is_unwritten(self, command: Command, applied: Applied) -> bool:
        """Whether a crash now could make it untrue that this command was applied.

        That is so if it removed durable rows. It is also so if it changed nothing because a row that it names is in the
        state already as the command makes it, but not yet on the disk.
        """
        if not self._owed and not self._written:
            return False
        if applied.changes:
            return any(is_durable(change) for change in applied.changes if isinstance(change, REMOVALS))
        return any(named in self._owed or named in self._written for named in named_rows(command))

    def _apply(self, command: Command) -> Applied:
        applied = apply(self._state, command)
        self._version += 1
        if self.store is not None:
            self._owe(
                removal(row_change(change))
                for change in applied.changes
                if isinstance(change, REMOVALS) and is_durable(change)
            )
        self._owner.applied(command, applied, True)
        return applied

    def _owe(self, deletions: Iterable[Change]) -> None:
        self._owed.update(((change.table, change.key), change) for change in deletions)

    # -- commits ---

    @property
    def is_failing(self) -> bool:
        """Whether the last commit failed."""
        return self._disk_retry.is_failing

    @property
    def is_committing(self) -> bool:
        """Whether a commit is running."""
        return self._in_flight is not None

    @property
    def unanswered(self) -> int:
        """How many proposals and flushes wait for the next commit."""
        return len(self._proposals) + len(self._waiting)

    def begin(self) -> None:
        """Start a commit if there is something to write and no commit is running.

        After a failure only a proposal that awaits an answer starts one, so that a full disk is not tried every turn.
        """
        if self._in_flight is None and (self._proposals or self._owed):
            if self._proposals or self._waiting or not self.is_failing:
                self._process.spawn(self._commit())

    async def _commit(self) -> None:
        proposals = self._next_proposals()
        changes = self._owed
        for proposal in proposals:
            changes.update(proposal.written)
        waiting = self._in_flight = self._waiting
        self._written, self._owed, self._waiting = changes, {}, []
        try:
            if changes:
                assert self.store is not None
                await self._process.run_blocking(self.store.apply, list(changes.values()))
        except MetadataWriteError as error:
            self._failed(changes, error)
            way_out = "Nothing was changed. Free space on the disk of the data directory"
            refusal = f"metadata cannot be written: {error}. {way_out}"
            for proposal in proposals:
                proposal.answer(CommandOutcome(None, AmqpError(INTERNAL_ERROR, refusal)))
            for answer, outcome in waiting:
                answer(outcome._replace(error=AmqpError(INTERNAL_ERROR, refusal)))
        else:
            if changes:
                self._disk_retry.worked()
            for number, proposal in enumerate(proposals, 1):
                self._committed(proposal)
                if number % APPLIED_AT_ONCE == 0:
                    await self._process.next_turn()
            for answer, outcome in waiting:
                answer(outcome)
        self._written, self._in_flight = {}, None
        self.begin()

    def _next_proposals(self) -> list[_DurableCommand]:
        """Take the proposals that the next commit can write, and check again those that are older than the state."""
        proposals, self._proposals = self._proposals[:COMMITTED_AT_ONCE], self._proposals[COMMITTED_AT_ONCE:]
        taken: list[_DurableCommand] = []
        #: Those that would write a row which another proposal of this commit writes.
        delayed: list[_DurableCommand] = []
        keys: set[RowKey] = set()
        for proposal in proposals:
            if proposal.version != self._version and not self._still_adds(proposal):
                continue
            if keys.isdisjoint(proposal.written):
                taken.append(proposal)
                keys.update(proposal.written)
            else:
                delayed.append(proposal)
        self._proposals[:0] = delayed
        return taken

    def _still_adds(self, proposal: _DurableCommand) -> bool:
        """Whether the command still puts a durable row. If it does not, it is applied or refused here."""
        try:
            changes = additions(self._state, proposal.command)
            if any(map(is_durable, changes)):
                proposal.check(changes, self._version)
                return True
            outcome = CommandOutcome(self._apply(proposal.command))
        except REFUSALS as error:
            outcome = CommandOutcome(None, error)
        proposal.answer(outcome)
        return False

    def _committed(self, proposal: _DurableCommand) -> None:
        """Apply a command whose rows are on the disk. If the state has them otherwise by now, the disk is corrected."""
        try:
            applied = self._apply(proposal.command)
        except REFUSALS as error:
            self._owe_correction(proposal.written)
            proposal.answer(CommandOutcome(None, error))
            return
        if applied.changes != proposal.changes:
            self._owe_correction(proposal.written)
        proposal.answer(CommandOutcome(applied))

    def _owe_correction(self, keys: Iterable[RowKey]) -> None:
        """Have the next commit write these rows as the state has them, and delete those that it does not have."""
        for key in keys:
            self._owed[key] = durable_row(self._state, key)

    def _failed(self, changes: dict[RowKey, Change], error: MetadataWriteError) -> None:
        owed = {key: durable_row(self._state, key) for key in changes}
        self._owed = {**owed, **self._owed}
        self._disk_retry.failed(error, RETRY_SECONDS)
        if not self._has_retry:
            self._has_retry = True
            self._process.spawn(self._retry_later())

    async def _retry_later(self) -> None:
        await self._process.sleep(RETRY_SECONDS)
        self._has_retry = False
        if self._owed and self._in_flight is None:
            await self._commit()
