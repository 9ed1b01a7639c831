"""`ConsensusLog`: the log of a node that may have a cluster.

As long as the node has never had a cluster, it hands every change to a `LocalLog`: no other node needs entries, and a
commit on the node's own disk decides. `found` and `follow` begin the log of consensus, and so does `open` on a data
directory that has one. From then on every change is an entry, which `LogReplication` writes to the disks of a majority,
and which `ReplicatedState` applies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

from ...actors.disk.errors import StorageError
from ...actors.metadata.log.local_log import LocalLog
from ...actors.metadata.log.log import Answer, CommandOutcome, LogOwner
from ...actors.metadata.log.row_encoding import StoredRows
from ...actors.metadata.state.commands import Bind, Command, CreateVhost, DeclareExchange, DeclareQueue, DeleteQueue
from ...actors.metadata.state.effects import Applied
from ...actors.metadata.state.state import State, additions
from ...amqp.constants import INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...definitions.errors import DefinitionError
from ...definitions.records import EnabledFeature, Node
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.log_tables import LogStart, LogWrite
from ...store.data_dir.metadata_store import Change, MetadataError, MetadataWriteError
from ..consensus.core import Raft
from ..consensus.election import Ballot
from ..consensus.log import Mark, RaftLog
from ..consensus.membership import RaftMembers
from ..consensus_store import first_write, found_on_disk
from .command_codec import pack_command
from .contract import NO_LOG, ConsensusStatus
from .digest import CompareDigest
from .in_force import TICK, AnswerTimeouts
from .proposals import Proposals
from .proposers import TABLE, Proposer
from .replicated_state import ReplicatedState
from .replication import LogReplication

#: The result of a declaration of something that exists already.
_NOTHING = Applied([], [])

#: Seconds after which a command without an outcome is sent to the leader again. A command that was lost with a link or
#: a leader is sent again as soon as there is a new one; this covers a leader that could not accept the command.
RESEND_SECONDS = 5.0

#: The commands that are answered without an entry in the log if what they declare exists already.
_DECLARATIONS = (DeclareQueue, DeclareExchange, Bind, CreateVhost)


class Agreeing(LogOwner, Protocol):
    """The process that a `ConsensusLog` belongs to.

    The parts of the log call the log through the process, because only the process drops its references when it ends.
    If the parts referred to the log, the log and its open files would outlive the process.
    """

    agreed: ConsensusLog


class ConsensusLog:
    """Belongs to `process`, a Metadata, whose `after_batch` calls `begin`.

    owner        the same process, which is called for each command that was applied
    proposer     this node and its incarnation
    send         sends bytes to another node, or drops them if it is not linked
    catch_up     returns when the cluster counts this run of the node as up
    led          called when the leader or the term has changed
    beat         called every 250 ms when there is a log
    holds_lease  whether this node may act as a part of the majority now
    timeout      seconds after which a change is refused that no majority has agreed to
    timeouts     for how long the answers to changes wait for a member
    """

    def __init__(
        self,
        process: Process,
        state: State,
        owner: Agreeing,
        proposer: Proposer,
        send: Callable[[str, bytes], None],
        catch_up: Callable[[], Awaitable[object]],
        led: Callable[[], None],
        beat: Callable[[], None],
        holds_lease: Callable[[], bool],
        timeout: float,
        timeouts: AnswerTimeouts,
    ) -> None:
        self._process = process
        self._state = state
        self._owner = owner
        self._proposer = proposer
        self._send = send
        self._catch_up = catch_up
        self._led = led
        self._beat = beat
        self._holds_lease = holds_lease
        self._timeout = timeout
        self._timeouts = timeouts
        self._local = LocalLog(process, state, owner)
        self._replicated = ReplicatedState(
            state, lambda *what: owner.agreed.show(*what), lambda *what: owner.agreed.report(*what)
        )
        self._proposals = Proposals(proposer, lambda: owner.agreed.complaint())
        self.replication: LogReplication | None = None
        #: Proposals that came before the disk was read or while the log was being begun; None at other times.
        self._held: list[tuple[Command, Answer, bool]] | None = []
        self._linked: set[str] = set()

    # -- the beginning ---

    async def open(self, directory: DataDir | None) -> StoredRows:
        """See `Log`."""
        if directory is None:
            return StoredRows()
        logged = await self._local.open_store(directory)
        found = await self._local.load()
        store = self._local.store
        if logged is not None and logged.start is not None and store is not None:
            rows = await self._process.run_blocking(lambda: list(store.read(TABLE)))
            self._replicated.load(row for row in rows if not isinstance(row, MetadataError))
            self._begin_replication(*found_on_disk(logged))
        return found

    async def catch_up(self) -> None:
        """See `Log`."""
        self._release()
        await self._catch_up()

    async def found(self, node: Node) -> None:
        """Begin the log with this node as the sole voter, and enable its features.

        The disk gets the rows that only the memory has.
        """
        if self.replication is not None:
            return
        self._held = []
        try:
            await self._local.settled()
            self._state.definitions.put(replace(node, number=node.number or 1))
            for feature in node.features:
                self._state.definitions.put(EnabledFeature(feature))
            members = RaftMembers((node.name,))
            # The state as it is now is a snapshot, because nobody could get the entries that led to it.
            start = Mark(1, 1, members)
            written = LogWrite(LogStart(1, 1, members.packed()), (1, node.name), (), 1, None)
            await self._write(list(self._replicated.rows()), written)
            self._begin_replication(Ballot(1, node.name), RaftLog(start))
        finally:
            self._release()

    async def follow(self) -> None:
        """Begin a log without members."""
        if self.replication is not None:
            return
        assert not self._state.vhosts, "a node with metadata of its own must be reset before it joins a cluster"
        self._held = []
        try:
            await self._local.settled()
            members = RaftMembers(())
            await self._write([], first_write(members))
            self._begin_replication(Ballot(0, None), RaftLog(Mark(0, 0, members)))
        finally:
            self._release()

    async def _write(self, rows: list[Change], written: LogWrite) -> None:
        if self._local.store is not None:
            try:
                await self._process.run_blocking(self._local.store.apply, rows, written)
            except MetadataWriteError as error:
                raise StorageError(f"the log of the cluster's metadata cannot be begun: {error}") from None

    def _release(self) -> None:
        """Propose the held commands."""
        held, self._held = self._held, None
        for proposal in held or ():
            self.propose(*proposal)
        self.begin()

    def _begin_replication(self, ballot: Ballot, entries: RaftLog) -> None:
        owner = self._owner
        raft = Raft(self._proposer[0], ballot, entries, partial(_draw, self._process))
        self.replication = LogReplication(
            self._process,
            raft,
            self._local.store,
            self._replicated,
            self._state.definitions,
            self._send,
            lambda applied: owner.agreed.was_replaced(applied),
            self._proposals.in_force,
            lambda: owner.agreed.leader_changed(),
            lambda: owner.agreed.every_tick(),
            lambda: owner.agreed.beat(),
            lambda compared: owner.agreed.compare(compared),
            self._timeouts,
        )

    def close(self) -> None:
        """See `Log`."""
        if self.replication is not None:
            self.replication.close()
        self._local.close()

    # -- proposals ---

    @property
    def refuses_at_once(self) -> bool:
        return self._held is None and self.replication is None

    def propose(self, command: Command, answer: Answer, until_durable: bool = True) -> None:
        """See `Log`."""
        if self._held is not None:
            self._held.append((command, answer, until_durable))
        elif self.replication is None:
            self._local.propose(command, answer, until_durable)
        elif not self._is_done(command, answer):
            self._submit(self.replication, command, answer, until_durable)

    def _is_done(self, command: Command, answer: Answer) -> bool:
        """Answer a command that changes nothing as soon as what it has found is in force; False for all others.

        Only if this node holds a lease: until the lease ends, no node answers a change that this node has not applied.
        """
        assert self.replication is not None
        if not self._holds_lease():
            return False
        outcome = self._outcome_without_entry(command)
        if outcome is None:
            return False
        if self.replication.in_force >= self.replication.in_state:
            answer(outcome)
        else:
            self._proposals.wait(self.replication.in_state, outcome, answer, self._deadline())
        return True

    def _outcome_without_entry(self, command: Command) -> CommandOutcome | None:
        """The outcome of a command that needs no entry, because it changes nothing; None for all others."""
        if isinstance(command, DeleteQueue):
            # The id is that of one life of the queue, so nothing that is in flight can bring this queue back. Without
            # an id the command asks whether any node has declared a queue of this name.
            row = self._state.queue(command.vhost, command.name)
            is_gone = row is None or row.queue_id != command.queue_id
            return CommandOutcome(_NOTHING) if is_gone and command.is_ended and command.queue_id else None
        if self._proposals or not isinstance(command, _DECLARATIONS):
            # A command of this node that is in flight might be about the same name.
            return None
        try:
            return None if additions(self._state, command) else CommandOutcome(_NOTHING)
        except (AmqpError, DefinitionError) as error:
            # The traceback is removed, because its frames would keep the log and its files alive.
            return CommandOutcome(None, error.with_traceback(None))

    def _submit(self, replication: LogReplication, command: Command, answer: Answer, until_durable: bool) -> None:
        if replication.is_failing and _adds(self._state, command):
            text = (
                "metadata cannot be written: the disk accepts no writes. Nothing was changed. Free space on the disk "
                "of the data directory"
            )
            answer(CommandOutcome(None, AmqpError(INTERNAL_ERROR, text)))
            return
        try:
            data = pack_command(command)
        except AmqpError as error:
            answer(CommandOutcome(None, error.with_traceback(None)))
            return
        self._proposals.add(data, answer, self._deadline() if until_durable else None, not until_durable)

    def _deadline(self) -> float:
        return self._process.now() + self._timeout

    def compare(self, command: CompareDigest) -> None:
        """Have all nodes compare their digest with this one. Nothing waits for the result."""
        self._proposals.add(pack_command(command), lambda outcome: None, None, True)

    def flush(self, answer: Answer) -> None:
        """See `Log`. With consensus, whatever was applied is on the disks of a majority already."""
        if self.replication is None:
            self._local.flush(answer)
        else:
            answer(CommandOutcome(None))

    def begin(self) -> None:
        """See `Log`."""
        if self.replication is None:
            self._local.begin()
            return
        if self.replication.has_leader:
            batches = self._proposals.unsent(self._process.now())
            if batches:
                self.replication.propose(batches)
        self.replication.pump()

    def timer_due(self) -> None:
        """Handle a timer of the process that has fired. All its timers belong to `LogReplication`."""
        if self.replication is not None:
            self.replication.timer_due()

    def beat(self) -> None:
        self._beat()

    def every_tick(self) -> None:
        now = self._process.now()
        self._proposals.expire(now)
        if self.replication is not None and self.replication.has_leader:
            self.replication.propose(self._proposals.sent_before(now - RESEND_SECONDS, now))

    def leader_changed(self) -> None:
        replication = self.replication
        if replication is not None and replication.has_leader:
            # Entries that the previous leader had not committed may be lost.
            self._resend(replication)
        self._led()

    def _resend(self, replication: LogReplication) -> None:
        now = self._process.now()
        replication.propose(self._proposals.sent_before(now + TICK, now))

    # -- what becomes of proposals ---

    def show(self, proposer: Proposer, serial: int, command: Command, applied: Applied) -> None:
        """Handle what a slice of a command, of whichever node, has changed."""
        self._owner.applied(command, applied, self._is_awaited(proposer, serial))

    def report(self, proposer: Proposer, serial: int, index: int, outcome: CommandOutcome) -> None:
        """Handle a command, of whichever node, that has taken effect or was refused."""
        if self._is_awaited(proposer, serial):
            self._proposals.applied(serial, index, outcome)

    def _is_awaited(self, proposer: Proposer, serial: int) -> bool:
        return proposer == self._proposer and self._proposals.is_awaited(serial)

    def was_replaced(self, applied: Applied) -> None:
        self._proposals.replaced()
        self._owner.replaced(applied)

    def complaint(self) -> str:
        """Why no majority has agreed to a change (CL-37)."""
        assert self.replication is not None
        voters = self.replication.raft.log.members.voters
        reached = sum(voter == self._proposer[0] or voter in self._linked for voter in voters)
        return f"{reached} of {len(voters)} voters can be reached. The change may still be made later"

    # -- other nodes ---

    def received(self, node: str, data: bytes) -> None:
        """Handle a message of another node's `LogReplication`."""
        if self.replication is not None:
            self.replication.received(node, data)

    def link_up(self, node: str) -> None:
        self._linked.add(node)
        if self.replication is not None:
            self.replication.link_up(node)
            if node == self.replication.raft.leader_name:
                self._resend(self.replication)

    def link_down(self, node: str) -> None:
        self._linked.discard(node)
        if self.replication is not None:
            self.replication.link_down(node)

    async def barrier(self) -> int:
        """See `LogReplication.barrier`; without a log everything is applied."""
        return 0 if self.replication is None else await self.replication.barrier()

    def transfer(self, to: str | None) -> str:
        """See `LogReplication.transfer`."""
        return "" if self.replication is None else self.replication.transfer(to)

    def rows(self) -> Iterator[Change]:
        """All rows of the state, with those of the table `cluster`."""
        return self._replicated.rows()

    def status(self) -> ConsensusStatus:
        """See `ConsensusStatus`."""
        replication = self.replication
        if replication is None:
            return NO_LOG
        raft = replication.raft
        members = raft.log.members
        return {
            "role": raft.role.value,
            "term": raft.term,
            "leader": raft.leader_name or "",
            "voters": list(members.voters),
            "learners": list(members.learners),
            "witnesses": list(members.witnesses),
            "committed": raft.log.committed,
            "applied": replication.applied,
            "in_force": replication.in_force,
            "contact": replication.contact,
        }


def _draw(process: Process, least: int, most: int) -> int:
    """A random number from `least` to `most`, for the time until an election begins."""
    return least + int.from_bytes(process.random_bytes(4), "big") % (most - least + 1)


def _adds(state: State, command: Command) -> bool:
    """Whether the command adds rows or records; removals make room on a full disk."""
    try:
        return bool(additions(state, command))
    except (AmqpError, DefinitionError):
        return False
