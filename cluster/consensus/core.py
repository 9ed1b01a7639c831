"""`Raft`: one node's part in the agreement on a log. Messages, ticks and proposals in; messages and writes out.

The nodes of a cluster agree on one sequence of commands, although messages are lost and nodes stop and come back. The
algorithm is Raft: the voters elect a leader for a *term*; it alone appends to the log and sends its entries to the
others; what a majority has on the disk is *committed* and will never change.

**Its caller** owns everything that is not a decision: the disk, the connections, the clock, the state. It does this
whenever it has called one of `step`, `tick`, `propose`, `change_members`, `transfer`, `barrier` and the like:

1. Send `take_messages()`. Losing a message is no harm.
2. If `ready()` returns a `Ready`: replace log and state by `ready.snapshot` if there is one, apply `ready.committed` to
   the state, and write the ballot, the entries and the rows of the applied commands in one transaction. Then send
   `ready.answers`, which promise what was written, and call `advance()`. There is one Ready at a time; messages may be
   stepped and sent meanwhile.

`ready.entries` begin where the disk's log is to be cut: entries there with the same or higher indexes are deleted.

**Roles.** A node is one of these, and becomes a follower again whenever it learns of a later term:

    follower       follows the leader of its term, if it has one
    pre-candidate  has missed its leader for a while, and asks the voters whether they would vote for it
    candidate      began a term because a majority would, and asks them to
    leader         has the votes of a majority

- *Pre-vote.* A node that has received something from its leader within `HEARD_TICKS` supports no other. So a node that
  was cut off does not raise the term when it returns, and does not depose a leader that the others follow.
- *Start.* A node that starts may have answered a leader just before, so it supports no candidate for `HEARD_TICKS`
  either. Leases, which are counted from what a leader's members have answered, rest on both rules.
- *Check-quorum.* A leader that a majority has not answered for a while steps down.
- *One voter.* A sole voter elects itself at its first tick. Its write commits: an entry is in `ready.entries` and in
  `ready.committed` at once, so that entry and rows cost one transaction.

The ticks of the nodes need not be equally long. Agreement does not depend on time; the leases of the caller do.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from ...seams import seam
from .election import Ballot, Election
from .leader import Leader, ProposalRefused
from .log import Entry, RaftLog
from .membership import RaftMembers
from .messages import (
    Append,
    AppendAnswer,
    Barrier,
    BarrierAnswer,
    ConsensusMessage,
    Heartbeat,
    HeartbeatAnswer,
    PreVote,
    PreVoteAnswer,
    Snapshot,
    TimeoutNow,
    Vote,
    VoteAnswer,
)


class RaftRole(Enum):
    """See the module."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Ready(NamedTuple):
    """What is to be written at once, and what may be done then. See the module."""

    ballot: Ballot | None
    entries: list[Entry]
    snapshot: Snapshot | None
    committed: list[Entry]
    answers: list[ConsensusMessage]


class Raft:
    """See the module.

    node       the name of this node
    ballot     the ballot that the disk has; `Ballot(0, None)` for a new node
    log        the log that the disk has
    draw       returns a number between two, both included; decides when elections begin
    """

    def __init__(self, node: str, ballot: Ballot, log: RaftLog, draw: Callable[[int, int], int]) -> None:
        self.node = node
        self.log = log
        self.term, self._voted_for = ballot
        self.role = RaftRole.FOLLOWER
        #: The leader of the term; None as long as this node has received nothing from it, and after its connection
        #: broke.
        self.leader_name: str | None = None
        #: The state and the work of a leader; None while this node does not lead.
        self.leading: Leader | None = None
        self._election = Election(draw)
        self._messages: list[ConsensusMessage] = []
        #: Messages that wait for the next write.
        self._answers: list[ConsensusMessage] = []
        self._snapshot: Snapshot | None = None
        #: A snapshot that the leader sent while this node was writing entries. The snapshot replaces them, so they must
        #: not be applied to its state afterwards.
        self._late_snapshot: Snapshot | None = None
        #: The barriers of this node that were answered: number, and the index up to which it must apply.
        self._barriers: list[tuple[int, int]] = []
        self._written_ballot = ballot
        self._writing: Ready | None = None
        self._handlers: dict[type, Callable[..., None]] = {
            PreVote: self._pre_vote_asked,
            PreVoteAnswer: self._pre_vote_answered,
            Vote: self._vote_asked,
            VoteAnswer: self._vote_answered,
            Append: self._append,
            AppendAnswer: self._append_answered,
            Heartbeat: self._heartbeat,
            HeartbeatAnswer: self._heartbeat_answered,
            Snapshot: self._snapshot_sent,
            TimeoutNow: self._timeout_now,
            Barrier: self._barrier_asked,
            BarrierAnswer: self._barrier_answered,
        }

    # -- what the caller does ---

    def step(self, message: ConsensusMessage) -> None:
        """Take in a message of another node."""
        if isinstance(message, Vote) and message.term >= self.term and self._disregards(message):
            return
        if message.term > self.term:
            # A pre-vote has the term of an election that may never take place, so that term is not taken over.
            if not (isinstance(message, PreVote) or isinstance(message, PreVoteAnswer) and message.is_granted):
                self._follow(message.term)
        elif message.term < self.term:
            self._answer_late(message)
            return
        self._handlers[type(message)](message)

    def tick(self) -> None:
        """50 ms have passed."""
        election = self._election
        election.now += 1
        if self.leading is not None:
            self.leading.tick(election.now)
            if self.leading.has_lost_majority:
                self._follow(self.term)
                return
            self.leading.relieve_witness()
            self._progressed()
        elif self._leads_alone:
            if self.role is not RaftRole.CANDIDATE:
                self._campaign(is_transfer=False)
        elif election.is_due and self._may_lead:
            self._ask_for_pre_votes()

    def propose(self, data: bytes) -> int:
        """Append a command to the log and return its index. If the entry that is later committed at this index has the
        present term, it is this command; otherwise another leader has replaced the entry, and the command is lost.

        Raises ProposalRefused, for example if this node does not lead.
        """
        return self._as_leader().propose(data)

    def change_members(self, members: RaftMembers) -> int:
        """Append a change of the members and return its index. Raises ProposalRefused."""
        leader = self._as_leader()
        index = leader.change_members(members)
        self._progressed()
        return index

    def transfer(self, to: str | None = None) -> str:
        """Hand leadership over to this voter, or to the fittest; return its name. Raises ProposalRefused."""
        leader = self._as_leader()
        successor = leader.transfer(to)
        self._progressed()
        return successor

    def barrier(self, serial: int) -> None:
        """Ask how far this node must apply to have seen everything that is committed now; see `take_barriers`.

        The question may be lost, as when there is no leader.
        """
        if self.leading is not None:
            self.leading.ask_barrier(self.node, serial)
            self._progressed()
        elif self.leader_name is not None:
            self._send(Barrier(self.leader_name, self.node, self.term, serial))

    def leader_lost(self, leader: str) -> None:
        """Note that the connection to this node, which may be the leader, broke and cannot be made again."""
        if leader == self.leader_name and self.leading is None:
            self.leader_name = None
            self._election.leader_lost()

    def unreachable(self, node: str) -> None:
        """Note that what was sent last to this node may be lost: the connection broke, or a snapshot did not arrive."""
        if self.leading is not None:
            self.leading.unreachable(node)

    def compact(self, index: int) -> None:
        """Forget the entries up to `index`, whose changes are in the rows on the disk."""
        self.log.compact(index)

    # -- what the caller takes ---

    def take_messages(self) -> list[ConsensusMessage]:
        """Messages that may leave at once. A leader sends entries before it has written them itself."""
        if self.leading is not None:
            self.leading.send_appends()
        messages, self._messages = self._messages, []
        return messages

    def take_snapshots_due(self) -> list[str]:
        """The members to which the caller is to send a `Snapshot` of the state on its disk, and note it for `leading`.

        The state in memory may be ahead of the disk: what a sole voter has applied during a write is lost if the node
        ends before the write does.
        """
        if self.leading is None:
            return []
        due, self.leading.snapshots_due = self.leading.snapshots_due, []
        return due

    def take_barriers(self) -> list[tuple[int, int]]:
        """The number of each barrier of this node that is passed, and the index up to which it must apply."""
        passed, self._barriers = self._barriers, []
        return passed

    def ready(self) -> Ready | None:
        """What is to be written next; None if there is nothing, or while a Ready is being written."""
        if self._writing is not None:
            return None
        log = self.log
        ballot = self.ballot if self.ballot != self._written_ballot else None
        entries = log.between(log.handed + 1, log.last_index)
        committed = log.between(log.applied + 1, self._committed_when_written())
        if not (ballot or entries or self._snapshot or committed or self._answers):
            return None
        log.handed = log.last_index
        self._writing = Ready(ballot, entries, self._snapshot, committed, self._answers)
        self._snapshot, self._answers = None, []
        return self._writing

    def advance(self) -> None:
        """Note that what `ready` returned is on the disk and applied."""
        done, self._writing = self._writing, None
        assert done is not None
        if done.ballot is not None:
            self._written_ballot = done.ballot
        if done.entries:
            self.log.wrote(done.entries[-1].index, done.entries[-1].term)
        if done.committed:
            self._commit(done.committed[-1].index)
            self.log.applied = done.committed[-1].index
        if self.role is RaftRole.CANDIDATE and self._written_ballot == self.ballot:
            self._count(self.node, True)
        self._progressed()
        if self._late_snapshot is not None:
            late, self._late_snapshot = self._late_snapshot, None
            self.step(late)

    @seam("consensus: which entries the write commits")
    def _committed_when_written(self) -> int:
        """The last entry that is committed once everything in the log is written: the write of a sole voter commits."""
        if self.leading is not None and self.log.members.is_sole_voter(self.node):
            return self.log.last_index
        return self.log.committed

    @property
    def ballot(self) -> Ballot:
        return Ballot(self.term, self._voted_for)

    # -- elections ---

    @seam("consensus: whether a node has a leader")
    def _hears_leader(self) -> bool:
        """Whether this node leads, or has received something from its leader lately, or may have before it started."""
        return self.leading is not None or self._election.has_heard_leader

    @property
    def _leads_alone(self) -> bool:
        """Whether no other node can lead: this node is the sole voter, and not just by a change that may be undone."""
        log = self.log
        return log.members.is_sole_voter(self.node) and log.members_index <= log.committed and not self.leader_name

    @property
    def _may_lead(self) -> bool:
        """Whether this node is a voter, or is one until a change that it has in its log is committed.

        The others may have lost the change, and then need this node's vote. They do not get it, because its log is more
        complete than theirs. So it leads, without a vote of its own, until the change is committed.
        """
        log = self.log
        return self.node in log.members.voters or self.node in log.members_at(log.committed).voters

    def _follow(self, term: int, leader: str | None = None) -> None:
        """Be a follower in this term, of this leader if it is known."""
        if term != self.term:
            self.term, self._voted_for = term, None
        self.role = RaftRole.FOLLOWER
        self.leading = None
        self.leader_name = leader
        self._election.put_off()

    def _hear(self, leader: str) -> None:
        """Note a sign of life of this term's leader, and follow it."""
        assert self.leading is None, f"{leader} and {self.node} both lead in term {self.term}"
        if self.role is not RaftRole.FOLLOWER or self.leader_name != leader:
            self._follow(self.term, leader)
        self._election.hear_leader()

    def _ask_for_pre_votes(self) -> None:
        self.role = RaftRole.PRE_CANDIDATE
        self.leader_name = None
        self._election.begin()
        last = self.log.last_index, self.log.last_term
        self._messages += [PreVote(node, self.node, self.term + 1, *last) for node in self._other_voters()]
        self._count(self.node, True)

    def _campaign(self, is_transfer: bool) -> None:
        """Begin a term as its candidate. The own vote counts, and others are asked, once the disk has term and log."""
        self.role = RaftRole.CANDIDATE
        self.leader_name = None
        self.term, self._voted_for = self.term + 1, self.node
        self._election.begin()
        last = self.log.last_index, self.log.last_term
        for node in self._other_voters():
            self._promise(Vote(node, self.node, self.term, *last, is_transfer))

    def _other_voters(self) -> list[str]:
        return [node for node in self.log.members.voters if node != self.node]

    def _disregards(self, message: Vote) -> bool:
        """Whether the request is ignored, because this node has a leader that has not asked for an election."""
        return not message.is_transfer and self._hears_leader()

    def _pre_vote_asked(self, message: PreVote) -> None:
        could = message.term > self.term or self._voted_for in (None, message.sender)
        is_granted = could and not self._hears_leader() and self.log.is_behind(message.last_index, message.last_term)
        term = message.term if is_granted else self.term
        self._send(PreVoteAnswer(message.sender, self.node, term, is_granted))

    def _pre_vote_answered(self, message: PreVoteAnswer) -> None:
        if self.role is RaftRole.PRE_CANDIDATE and (not message.is_granted or message.term == self.term + 1):
            self._count(message.sender, message.is_granted)

    def _vote_asked(self, message: Vote) -> None:
        is_granted = self._may_vote(message)
        if is_granted:
            self._voted_for = message.sender
            self._election.put_off()
        self._promise(VoteAnswer(message.sender, self.node, self.term, is_granted))

    @seam("consensus: who gets a vote")
    def _may_vote(self, message: Vote) -> bool:
        is_free = self._voted_for in (None, message.sender)
        return is_free and self.log.is_behind(message.last_index, message.last_term)

    def _vote_answered(self, message: VoteAnswer) -> None:
        if self.role is RaftRole.CANDIDATE:
            self._count(message.sender, message.is_granted)

    def _count(self, voter: str, is_granted: bool) -> None:
        """Count a vote or a pre-vote, and act on it when the majority is clear."""
        has_won = self._election.count(voter, is_granted, self.log.members)
        if has_won is False:
            self._follow(self.term)
        elif has_won and self.role is RaftRole.PRE_CANDIDATE:
            self._campaign(is_transfer=False)
        elif has_won:
            self._lead()

    def _lead(self) -> None:
        self.role = RaftRole.LEADER
        self.leader_name = self.node
        self.leading = Leader(self.node, self.term, self.log, self._election.now, self._send)
        self.leading.tick(self._election.now)

    def _timeout_now(self, message: TimeoutNow) -> None:
        if self.leading is None and self._may_lead:
            self._campaign(is_transfer=True)

    # -- what the leader sends ---

    def _append(self, message: Append) -> None:
        self._hear(message.sender)
        previous = message.previous_index
        if previous < self.log.committed:
            # The message is late. The leader's log has all committed entries too, so answer for them.
            self._accept(message.sender, self.log.committed)
        elif self.log.has(previous, message.previous_term):
            self.log.merge(message.entries)
            last = previous + len(message.entries)
            self.log.commit(min(message.committed, last))
            self._accept(message.sender, last)
        else:
            last = self.log.last_at_most(previous, message.previous_term)
            term = self.log.term_at(last)
            assert term is not None
            first = self.log.first_of_term_at(last)
            self._send(AppendAnswer(message.sender, self.node, self.term, False, previous, last, term, first))

    def _accept(self, leader: str, index: int) -> None:
        """Answer for the entries up to `index`."""
        self._promise(AppendAnswer(leader, self.node, self.term, True, index))

    def _send(self, message: ConsensusMessage) -> None:
        """Send this at once."""
        self._messages.append(message)

    @seam("consensus: what waits for the disk")
    def _promise(self, message: ConsensusMessage) -> None:
        """Send this after the next write, which has the ballot and the entries that the message promises."""
        self._answers.append(message)

    def _heartbeat(self, message: Heartbeat) -> None:
        self._hear(message.sender)
        self.log.commit(message.committed)
        self._send(HeartbeatAnswer(message.sender, self.node, self.term, message.asked))

    def _snapshot_sent(self, message: Snapshot) -> None:
        self._hear(message.sender)
        mark = message.mark
        if mark.index <= self.log.committed:
            self._accept(message.sender, self.log.committed)
        elif self.log.has(mark.index, mark.term):
            # This log has all that the snapshot has, and perhaps more entries, for which this node may have answered.
            # So it must keep them, and the snapshot is not needed.
            self.log.commit(mark.index)
            self._accept(message.sender, mark.index)
        elif self._writing is not None:
            self._late_snapshot = message
        else:
            self.log.restore(mark)
            self._snapshot = message
            self._accept(message.sender, mark.index)

    def _answer_late(self, message: ConsensusMessage) -> None:
        """Answer a message of an earlier term, so that its sender, a leader or a candidate, learns of the later one."""
        if isinstance(message, Append | Heartbeat | Snapshot):
            self._send(AppendAnswer(message.sender, self.node, self.term, False, 0))
        elif isinstance(message, PreVote):
            self._send(PreVoteAnswer(message.sender, self.node, self.term, False))
        elif isinstance(message, Vote):
            self._send(VoteAnswer(message.sender, self.node, self.term, False))

    # -- what the leader receives ---

    def _append_answered(self, message: AppendAnswer) -> None:
        if self.leading is not None:
            self.leading.append_answered(message)
            self._progressed()

    def _heartbeat_answered(self, message: HeartbeatAnswer) -> None:
        if self.leading is not None:
            self.leading.heartbeat_answered(message)
            self._progressed()

    def _barrier_asked(self, message: Barrier) -> None:
        if self.leading is not None:
            self.leading.ask_barrier(message.sender, message.serial)
            self._progressed()

    def _barrier_answered(self, message: BarrierAnswer) -> None:
        self._barriers.append((message.serial, message.index))

    def _progressed(self) -> None:
        """If this node leads, do what the answer of a member may have made possible: commit entries, leave when this
        node is no longer a voter, ask the successor to begin an election, and pass barriers.
        """
        leader = self.leading
        if leader is None:
            return
        self._commit(leader.may_commit())
        if leader.is_removed:
            leader.leave()
            self._follow(self.term)
            return
        leader.ask_successor()
        for node, serial in leader.barriers_passed():
            if node == self.node:
                self._barriers.append((serial, self.log.committed))
            else:
                self._send(BarrierAnswer(node, self.node, self.term, serial, self.log.committed))

    def _commit(self, index: int) -> None:
        first = self.log.committed + 1
        if self.log.commit(index) and self.leading is not None:
            self.leading.committed(first, index)

    def _as_leader(self) -> Leader:
        if self.leading is None:
            known = f"{self.leader_name} does" if self.leader_name else "no leader is known"
            raise ProposalRefused(f"{self.node} does not lead the cluster; {known}")
        return self.leading
