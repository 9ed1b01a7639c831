"""`Leader`: the state and the work of a node while it leads. Another term makes another object.

- **Replication.** Entries are appended to the log at once and sent by `send_appends`, which the core calls once a turn:
  all entries of a turn travel together. `progress.py` bounds what is in flight.
- **Commit.** An entry is committed when a majority of the voters has written it. Only entries of the leader's own term
  are counted; those before are committed with them. An entry of an earlier term that a majority has may still be
  replaced by a leader that has a later term in its log.
- **Contact.** Each heartbeat has the leader's tick, which the answer returns. `contact` is the tick at which the leader
  sent the latest heartbeats that a majority has answered. It serves three ends: a leader without contact steps down
  (check-quorum), leases are counted from it, and a barrier needs a contact that is later than the barrier.
- **Members.** A change is an entry, in force when it is appended. The leader refuses a change while another one is not
  committed, and until an entry of its term is committed (CL-18).
- **Transfer.** A leader that hands over takes no more commands. When the successor has everything, the leader asks it
  to begin an election. The successor wins it unless a message is lost; in that case this leader goes on after
  `TRANSFER_TICKS`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...seams import seam
from .log import COMMAND, EMPTY, MEMBERS, Entry, RaftLog
from .membership import RaftMembers
from .messages import Append, AppendAnswer, ConsensusMessage, Heartbeat, HeartbeatAnswer, TimeoutNow
from .progress import Progress, Sending

#: Ticks from one heartbeat to the next.
HEARTBEAT_TICKS = 5
#: Ticks without contact to a majority after which a leader steps down.
QUORUM_TICKS = 40
#: Ticks after which a leader that hands over gives up.
TRANSFER_TICKS = 20
#: Heartbeats that a learner answers in a row, while it lacks few entries, until it is fit to vote.
LEVEL_ROUNDS = 2
#: Bytes of entries in one append, so that the frame stays below 1 MiB.
APPEND_BYTES = 512 << 10
#: Bytes of entries that may wait to be committed.
UNCOMMITTED_BYTES = 64 << 20


class ProposalRefused(Exception):
    """The node cannot take this proposal now; the text is the reason."""


class Leader:
    """See the module. `now` is the present tick; `send` takes the messages, which may leave at once."""

    def __init__(self, node: str, term: int, log: RaftLog, now: int, send: Callable[[ConsensusMessage], None]) -> None:
        self._node = node
        self._term = term
        self._log = log
        self._now = now
        self._elected = now
        self._next_heartbeat = now
        self._send = send
        self.progress: dict[str, Progress] = {}
        #: Members that need the state; the core hands them to its caller.
        self.snapshots_due: list[str] = []
        #: Barriers that wait for a contact: the tick of each, who asked, and its number there.
        self._barriers: list[tuple[int, str, int]] = []
        self.successor: str | None = None
        self._successor_asked = False
        self._transfer_ends = 0
        self._uncommitted_bytes = sum(len(entry.data) for entry in log.between(log.committed + 1, log.last_index))
        self._first_index = log.last_index + 1
        self.append(EMPTY, b"")
        self._follow_members()

    # -- proposals ---

    def append(self, kind: int, data: bytes) -> int:
        """Append an entry of this term and return its index."""
        index = self._log.last_index + 1
        self._log.append([Entry(index, self._term, kind, data)])
        self._uncommitted_bytes += len(data)
        return index

    def propose(self, data: bytes) -> int:
        """Append a command and return its index. Raises ProposalRefused."""
        if self.successor is not None:
            raise ProposalRefused(f"{self._node} hands leadership over to {self.successor}")
        if self._uncommitted_bytes > UNCOMMITTED_BYTES:
            raise ProposalRefused(f"{self._uncommitted_bytes} bytes of changes already wait for a majority")
        return self.append(COMMAND, data)

    @seam("consensus: when the members may change")
    def change_refusal(self, members: RaftMembers) -> str | None:
        """Why the members cannot become these now; None if they can."""
        if self._log.members_index > self._log.committed:
            return "another change of the members is not committed yet"
        if not self.has_committed_in_term:
            return f"{self._node} has committed no entry of its term yet"
        return self._log.members.why_not(members)

    def change_members(self, members: RaftMembers) -> int:
        """Append a change of the members, which is in force at once; return its index. Raises ProposalRefused."""
        refusal = self.change_refusal(members)
        if refusal is not None:
            raise ProposalRefused(refusal)
        index = self.append(MEMBERS, members.packed())
        self._follow_members()
        return index

    def _follow_members(self) -> None:
        """Keep a progress for each member but this node, and for no other node."""
        others = [node for node in self._log.members.everyone if node != self._node]
        next_index = self._log.last_index
        self.progress = {node: self.progress.get(node) or Progress(next_index) for node in others}

    # -- what members answer ---

    def append_answered(self, answer: AppendAnswer) -> None:
        progress = self.progress.get(answer.sender)
        if progress is None:
            return
        if answer.is_accepted:
            progress.accepted(answer.index)
            if progress.state is Sending.PROBING:
                progress.replicate()
            elif progress.state is Sending.SNAPSHOT and progress.match >= self._snapshot_end(progress):
                progress.probe()
        elif progress.is_rejection_of(answer.index):
            progress.probe(self._next_after(answer))

    def _snapshot_end(self, progress: Progress) -> int:
        """The entry up to which the member has the log when it has the state that it was sent, or needs none."""
        start = self._log.start.index
        return start if progress.snapshot is None else min(start, progress.snapshot)

    def snapshot_sent(self, node: str, index: int) -> None:
        """Note that the state as of this entry is being sent to the member."""
        progress = self.progress.get(node)
        if progress is not None and progress.state is Sending.SNAPSHOT:
            progress.snapshot = index

    def _next_after(self, answer: AppendAnswer) -> int:
        """The entry with which the next append begins, after the member has rejected one. The terms in the answer show
        that the two logs cannot agree behind `shared`.
        """
        shared = self._log.last_at_most(answer.last_index, answer.last_term)
        if self._log.has(shared, answer.last_term):
            return shared + 1
        # The member's entries of that term are not in this log, so the next attempt passes over all of them.
        return min(shared + 1, answer.first_of_term)

    def heartbeat_answered(self, answer: HeartbeatAnswer) -> None:
        progress = self.progress.get(answer.sender)
        if progress is None:
            return
        progress.heartbeat_answered(answer.asked, self._log.last_index)
        if progress.match < self._log.last_index and progress.state is Sending.REPLICATING:
            # The last append may be lost, so send one even if it has no entries: the member rejects it if it has not
            # received what came before, and accepts it if it has.
            self._send_append(answer.sender, progress, must_ask=True)
        elif progress.state is Sending.SNAPSHOT:
            # The member may have the snapshot already, and only its answer is lost. Then it accepts this append.
            start, committed = self._log.start, self._log.committed
            self._send(Append(answer.sender, self._node, self._term, start.index, start.term, (), committed))

    def unreachable(self, node: str) -> None:
        """Note that the last messages to this member may be lost."""
        progress = self.progress.get(node)
        if progress is not None:
            progress.probe(is_waiting=True)

    # -- commit ---

    @seam("consensus: which entries are committed")
    def may_commit(self) -> int:
        """The last entry that a majority has written, if it is of this term; otherwise what is committed already."""
        index = self._log.members.reached_by_majority(self._match)
        return index if self._log.has(index, self._term) else self._log.committed

    def _match(self, node: str) -> int:
        if node == self._node:
            return self._log.written
        progress = self.progress.get(node)
        return 0 if progress is None else progress.match

    def committed(self, first: int, last: int) -> None:
        """Note that the entries from `first` to `last` are committed now."""
        self._uncommitted_bytes -= sum(len(entry.data) for entry in self._log.between(first, last))

    @property
    def has_committed_in_term(self) -> bool:
        return self._log.committed >= self._first_index

    @property
    def is_removed(self) -> bool:
        """Whether a committed change has taken this node's vote."""
        members, index = self._log.members, self._log.members_index
        return self._node not in members.voters and index <= self._log.committed

    # -- what is sent ---

    def send_appends(self) -> None:
        """Send each member the entries that it lacks, as far as its progress allows, and what is committed."""
        for node, progress in self.progress.items():
            while progress.may_send and (progress.next <= self._log.last_index or self._owes_commit(progress)):
                if not self._send_append(node, progress):
                    break

    def _owes_commit(self, progress: Progress) -> bool:
        return progress.commit_sent < self._log.committed and progress.state is Sending.REPLICATING

    def _send_append(self, node: str, progress: Progress, must_ask: bool = False) -> bool:
        """Send an append, or have the state sent if the log no longer has the entries; return whether it was sent."""
        if not (progress.may_send or must_ask) or progress.state is Sending.SNAPSHOT:
            return False
        previous = progress.next - 1
        term = self._log.term_at(previous)
        if term is None:
            progress.send_snapshot()
            self.snapshots_due.append(node)
            return False
        entries = tuple(self._log.batch(progress.next, APPEND_BYTES)) if progress.may_send else ()
        committed = self._log.committed
        self._send(Append(node, self._node, self._term, previous, term, entries, committed))
        progress.sent(previous + len(entries), sum(len(entry.data) for entry in entries), committed, self._now)
        return True

    # -- time ---

    def tick(self, now: int) -> None:
        """Send the heartbeats that are due, and give up a transfer that takes too long."""
        self._now = now
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_TICKS
            for node, progress in self.progress.items():
                # Send no higher index than what the member is known to have. Behind that its log may have entries that
                # differ from this log, and it would take them for committed.
                committed = min(self._log.committed, progress.match)
                self._send(Heartbeat(node, self._node, self._term, committed, now))
        if self.successor is not None and now >= self._transfer_ends:
            self.successor = None

    @property
    def contact(self) -> int:
        """The latest tick of which a majority has answered a heartbeat; -1 if there is none."""
        return self._log.members.reached_by_majority(self._contact_with)

    @property
    def contact_age(self) -> int:
        """Ticks since `contact`."""
        return self._now - self.contact

    def _contact_with(self, node: str) -> int:
        if node == self._node:
            return self._now
        progress = self.progress.get(node)
        return -1 if progress is None else progress.contact

    def is_heard(self, node: str, ticks: int) -> bool:
        """Whether this member has answered a heartbeat of the last `ticks`, or this node has not led for that long."""
        progress = self.progress.get(node)
        contact = -1 if progress is None else progress.contact
        return self._now - max(contact, self._elected) <= ticks

    @property
    def has_lost_majority(self) -> bool:
        """Whether a majority has left every heartbeat unanswered for too long."""
        return self._now - max(self._elected, self.contact) > QUORUM_TICKS

    @property
    def level_learners(self) -> list[str]:
        """The learners that have nearly everything and answer: what they lack does not delay commits if they vote."""
        progress = self.progress
        return [node for node in self._log.members.learners if progress[node].level_rounds >= LEVEL_ROUNDS]

    # -- barriers ---

    def ask_barrier(self, node: str, serial: int) -> None:
        """Note that `node` asks how far it must apply to have seen everything that is committed now."""
        self._barriers.append((self._now, node, serial))

    def barriers_passed(self) -> list[tuple[str, int]]:
        """Take the barriers that can be answered: a majority has followed this leader after they were asked."""
        if not self._barriers or not self.has_committed_in_term:
            return []
        contact = self._barrier_contact()
        passed = [(node, serial) for at, node, serial in self._barriers if at < contact]
        self._barriers = [barrier for barrier in self._barriers if barrier[0] >= contact]
        return passed

    @seam("consensus: when a barrier is passed")
    def _barrier_contact(self) -> int:
        """Barriers that were asked before this tick are passed. A sole voter needs no answers, so all of its are."""
        if self._log.members.is_sole_voter(self._node):
            return self._now + 1
        return self.contact

    # -- transfer ---

    def transfer(self, to: str | None = None) -> str:
        """Hand over to this voter, or to the one that has most; return its name. Raises ProposalRefused."""
        successor = to or self._fittest()
        if successor is None or successor not in self._log.members.voters or successor == self._node:
            raise ProposalRefused(
                f"{self._node} cannot hand leadership over to {to or 'anybody'}: no other voter of that name"
            )
        if self.successor != successor:
            self.successor = successor
            self._successor_asked = False
            self._transfer_ends = self._now + TRANSFER_TICKS
        return successor

    def _fittest(self) -> str | None:
        """The other voter that should lead: not a witness if there is another, and with the most entries."""
        members = self._log.members
        others = [node for node in members.voters if node != self._node]
        return max(others, key=lambda node: (node not in members.witnesses, self._match(node), node), default=None)

    def relieve_witness(self) -> None:
        """If this node is a witness, hand over as soon as another voter has every committed entry and answers."""
        members = self._log.members
        if self.successor is None and self._node in members.witnesses:
            fittest = self._fittest()
            if fittest is not None and fittest not in members.witnesses and self.has_committed_in_term:
                recently = self._now - self._contact_with(fittest) <= 2 * HEARTBEAT_TICKS
                if recently and self._match(fittest) >= self._log.committed:
                    self.transfer(fittest)

    def ask_successor(self) -> None:
        """Have the successor begin an election when it has everything. It is asked once."""
        if self.successor is not None and not self._successor_asked:
            if self._match(self.successor) == self._log.last_index:
                self._successor_asked = True
                self._send(TimeoutNow(self.successor, self._node, self._term))

    def leave(self) -> None:
        """Tell the members what is committed, and have the fittest one elected, because this node has no vote now."""
        self.send_appends()
        fittest = self._fittest()
        if fittest is not None:
            self._send(TimeoutNow(fittest, self._node, self._term))
