"""`World`: a few nodes that agree by `Raft`, with disks and a network that may lose data, and laws that must hold.

Nothing happens by itself: a test ticks nodes, delivers or loses messages, ends writes, crashes and restarts nodes. The
disk of a node writes a `Ready` as a whole when the test says so; a crash before that loses it. After every step of a
node the laws are checked:

- *Election safety*: no term has two leaders.
- *Log matching*: entries of one index and term are equal, and so are all before them.
- *Leader completeness*: a leader has every entry that any node has ever committed.
- *State machine safety*: all nodes apply the same entry at the same index.
- *Barriers*: the answer to a barrier is not below an entry that was committed anywhere when the barrier was asked.
- *Contact*: a majority that has answered a leader elects no other within `HEARD_TICKS` after it was asked, unless this
  leader handed over. Leases rest on it. Worlds check it as long as all nodes tick together and no node has given up a
  leader because of its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from warren.cluster.consensus.core import Raft, RaftRole, Ready
from warren.cluster.consensus.election import HEARD_TICKS, Ballot
from warren.cluster.consensus.leader import ProposalRefused
from warren.cluster.consensus.log import COMMAND, Entry, Mark, RaftLog
from warren.cluster.consensus.membership import RaftMembers
from warren.cluster.consensus.messages import ConsensusMessage, Snapshot, TimeoutNow

#: How many messages a few nodes may send without a tick; more means that they answer each other endlessly.
MOST_MESSAGES = 3_000


class Violation(AssertionError):
    """The nodes have broken one of the laws that the module's docstring lists."""


@dataclass
class Disk:
    """What a node has written: its ballot, the log behind `start`, and the commands applied up to `applied`."""

    ballot: Ballot
    start: Mark
    entries: list[Entry] = field(default_factory=list)
    applied: int = 0
    state: tuple[bytes, ...] = ()

    def write(self, ready: Ready, state: tuple[bytes, ...], applied: int) -> None:
        if ready.ballot is not None:
            self.ballot = ready.ballot
        if ready.snapshot is not None:
            self.start, self.entries = ready.snapshot.mark, []
        if ready.entries:
            del self.entries[ready.entries[0].index - self.start.index - 1 :]
            self.entries += ready.entries
        self.state, self.applied = state, applied

    def compact(self, start: Mark) -> None:
        del self.entries[: start.index - self.start.index]
        self.start = start


class Node:
    """A node that runs or is down (`raft` is None), and its disk."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.name = name
        self.disk = disk
        self.raft: Raft | None = None
        #: The commands that were applied, and up to which entry.
        self.state: tuple[bytes, ...] = ()
        self.applied = 0
        #: What is being written.
        self.writing: Ready | None = None
        self.started = 0
        self.role: tuple[RaftRole, int] | None = None
        #: The term of an election that began because its leader handed over, which the law of contact allows.
        self.urged = 0

    @property
    def live(self) -> Raft:
        assert self.raft is not None
        return self.raft


class World:
    """A world of nodes, as the module describes it. `draw` decides when the elections of a node begin; `told` gets a
    line for every event.
    """

    def __init__(
        self,
        members: RaftMembers,
        draw: Callable[[str, int, int], int],
        told: Callable[[str], None] = lambda line: None,
        strangers: tuple[str, ...] = (),
    ) -> None:
        self._draw = draw
        self.told = told
        self.nodes: dict[str, Node] = {}
        self.in_flight: list[ConsensusMessage] = []
        #: Messages that a test has held back with `delay`.
        self.delayed: list[ConsensusMessage] = []
        #: Pairs (sender, receiver) whose messages are lost.
        self.cut: set[tuple[str, str]] = set()
        self.now = 0
        #: Whether the law of contact is checked: so far all nodes have ticked together, and no node gave up its leader.
        self.is_in_step = True
        self.leaders: dict[int, str] = {}
        self.history: dict[int, Entry] = {}
        self._known: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._barriers: dict[int, int] = {}
        self.passed: dict[int, int] = {}
        #: For each node that has led, the tick of its latest contact with a majority.
        self._contacts: dict[str, int] = {}
        for name in members.everyone:
            self.nodes[name] = Node(name, Disk(Ballot(0, None), Mark(0, 0, members)))
        for name in strangers:
            # A node that is not a member yet has no log, and learns from it who the members are.
            self.nodes[name] = Node(name, Disk(Ballot(0, None), Mark(0, 0, RaftMembers(()))))
        for name in self.nodes:
            self.start(name)

    # -- what tests do ---

    def start(self, name: str) -> None:
        node = self.nodes[name]
        disk = node.disk
        log = RaftLog(disk.start, disk.entries, disk.applied)
        node.raft = Raft(name, disk.ballot, log, partial(self._draw, name))
        node.state, node.applied, node.writing = disk.state, disk.applied, None
        node.started, node.role = self.now, None
        self.settle(node)

    def crash(self, name: str, is_written: bool = False) -> None:
        """The node crashes. Its write in progress is on the disk afterwards if `is_written`, and otherwise lost."""
        node = self.nodes[name]
        if is_written and node.writing is not None:
            self._write(node)
        node.raft, node.writing = None, None
        for other in self.nodes.values():
            if other.raft is not None:
                self.broken(other.name, name)

    def tick(self, name: str) -> None:
        """Time passes for one node alone."""
        self.is_in_step = False
        self._tick(self.nodes[name])

    def tick_all(self) -> None:
        self.now += 1
        for node in self.nodes.values():
            if node.raft is not None:
                self._tick(node)

    def _tick(self, node: Node) -> None:
        node.live.tick()
        self.settle(node)

    def deliver(self, message: ConsensusMessage) -> None:
        """The message, which the caller took out of `in_flight`, arrives unless its receiver is down."""
        node = self.nodes[message.to]
        if node.raft is not None and (message.sender, message.to) not in self.cut:
            node.raft.step(message)
            if isinstance(message, TimeoutNow) and node.raft.role is RaftRole.CANDIDATE:
                node.urged = node.raft.term
            self.settle(node)
        else:
            self.lose(message)

    def lose(self, message: ConsensusMessage) -> None:
        """The message is lost. The sender of a snapshot is informed, as it is when a connection breaks."""
        sender = self.nodes[message.sender]
        if isinstance(message, Snapshot) and sender.raft is not None:
            self.broken(message.sender, message.to)

    def finish_write(self, name: str) -> None:
        """The write of the node has reached its disk."""
        node = self.nodes[name]
        ready = node.writing
        if ready is None:
            return
        self._write(node)
        node.writing = None
        self._send(node, ready.answers)
        node.live.advance()
        self.settle(node)

    def _write(self, node: Node) -> None:
        assert node.writing is not None
        for entry in node.writing.committed:
            self._is_committed(node, entry)
        node.disk.write(node.writing, node.state, node.applied)

    def leader(self) -> Node | None:
        """The running leader with the latest term."""
        leading = [node for node in self.nodes.values() if node.raft is not None and node.raft.leading is not None]
        return max(leading, key=lambda node: node.live.term, default=None)

    def propose(self, name: str, data: bytes) -> int:
        """Raises ProposalRefused."""
        return self._on(name, lambda raft: raft.propose(data))

    def change(self, name: str, change: Callable[[RaftMembers], RaftMembers]) -> int:
        """Raises ProposalRefused."""
        return self._on(name, lambda raft: raft.change_members(change(raft.log.members)))

    def transfer(self, name: str, to: str | None = None) -> None:
        """Raises ProposalRefused."""
        self._on(name, lambda raft: raft.transfer(to))

    def barrier(self, name: str, serial: int) -> None:
        self._barriers[serial] = max(self.history, default=0)
        self._on(name, lambda raft: raft.barrier(serial))

    def give_up(self, name: str, leader: str) -> None:
        """The node's connection to the leader broke, and could not be made again."""
        self.is_in_step = False
        self._on(name, lambda raft: raft.leader_lost(leader))

    def broken(self, name: str, member: str) -> None:
        """The leader's connection to this member broke."""
        self._on(name, lambda raft: raft.unreachable(member))

    def compact(self, name: str, keep: int = 0) -> None:
        """Have the node drop the applied entries of its log, except for the last `keep`."""
        node = self.nodes[name]
        raft = node.live
        index = min(node.disk.applied, raft.log.applied) - keep
        if index > raft.log.start.index and node.writing is None:
            raft.compact(index)
            node.disk.compact(raft.log.start)

    def _on(self, name: str, act: Callable[[Raft], Any]) -> Any:
        node = self.nodes[name]
        try:
            return act(node.live)
        finally:
            self.settle(node)

    def heal(self, ticks: int = 200) -> None:
        """Start all nodes and lose nothing, while time passes and all messages and writes arrive."""
        self.cut.clear()
        for node in self.nodes.values():
            if node.raft is None:
                self.start(node.name)
        for _ in range(ticks):
            self.tick_all()
            self.run()

    def run(self) -> None:
        """Deliver messages and finish writes until there are none."""
        moves = True
        count = 0
        while moves:
            moves = False
            while self.in_flight:
                moves = True
                count += 1
                self._law(count < MOST_MESSAGES, "the nodes send each other messages without end")
                self.deliver(self.in_flight.pop(0))
            for node in self.nodes.values():
                if node.writing is not None:
                    moves = True
                    self.finish_write(node.name)

    # -- a node has taken a step ---

    def settle(self, node: Node) -> None:
        """Take from the node's core what it has to send and to write, and check the laws."""
        raft = node.live
        role = raft.role, raft.term
        if role != node.role:
            node.role = role
            if raft.term:
                self.told(f"{node.name} is {raft.role.value} in term {raft.term}")
            if raft.leading is not None:
                self._elected(node)
        self._send(node, raft.take_messages())
        for to in raft.take_snapshots_due():
            # Send the state of the disk, because a sole voter may lose what it has applied while it is still being
            # written.
            assert raft.leading is not None
            raft.leading.snapshot_sent(to, self._mark(node).index)
            self._send(node, [Snapshot(to, node.name, raft.term, self._mark(node), node.disk.state)])
        for serial, index in raft.take_barriers():
            self._passed(node, serial, index)
        if raft.leading is not None:
            if raft.leading.contact >= 0:
                self._contacts[node.name] = raft.leading.contact + node.started
        if node.writing is None:
            ready = raft.ready()
            if ready is not None:
                self._begin_write(node, ready)

    def _mark(self, node: Node) -> Mark:
        log = node.live.log
        term = log.term_at(node.disk.applied)
        assert term is not None
        return Mark(node.disk.applied, term, log.members_at(node.disk.applied))

    def _begin_write(self, node: Node, ready: Ready) -> None:
        if ready.snapshot is not None:
            node.state, node.applied = ready.snapshot.state, ready.snapshot.mark.index
        for entry in ready.entries:
            self._appended(node, entry)
        for entry in ready.committed:
            self._applies(node, entry)
        node.writing = ready

    def _send(self, node: Node, messages: list[ConsensusMessage]) -> None:
        for message in messages:
            self.in_flight.append(message)

    # -- the laws ---

    def _elected(self, node: Node) -> None:
        raft = node.live
        before = self.leaders.setdefault(raft.term, node.name)
        self._law(before == node.name, f"term {raft.term} has two leaders, {before} and {node.name}")
        log = raft.log
        for index, entry in self.history.items():
            has = index <= log.start.index or log.has(index, entry.term)
            self._law(has, f"{node.name} leads in term {raft.term} without the committed entry {index}")
        if self.is_in_step and node.urged != raft.term:
            for other, contact in self._contacts.items():
                is_late = other == node.name or self.now >= contact + HEARD_TICKS
                self._law(is_late, f"{node.name} was elected {self.now - contact} ticks after {other} had contact")

    def _appended(self, node: Node, entry: Entry) -> None:
        before = node.live.log.term_at(entry.index - 1)
        if before is not None:
            known = self._known.setdefault((entry.index, entry.term), (entry, before))
            self._law(known == (entry, before), f"{node.name} has another entry {entry.index} of term {entry.term}")

    def _applies(self, node: Node, entry: Entry) -> None:
        self._law(entry.index == node.applied + 1, f"{node.name} skips entries before {entry.index}")
        if entry.index <= node.live.log.committed:
            self._is_committed(node, entry)
        node.applied = entry.index
        if entry.kind == COMMAND:
            node.state += (entry.data,)
            self.told(f"{node.name} applies {entry.index}: {entry.data[:20].decode()}")

    def _is_committed(self, node: Node, entry: Entry) -> None:
        """Check a committed entry against the laws. An entry of a sole voter counts only when it is written."""
        known = self.history.setdefault(entry.index, entry)
        self._law(known == entry, f"{node.name} applies {entry} where another node applied {known}")

    def _passed(self, node: Node, serial: int, index: int) -> None:
        self.told(f"{node.name} passes barrier {serial} at {index}")
        self._law(index >= self._barriers[serial], f"barrier {serial} misses what was committed before it was asked")
        self.passed[serial] = index

    @staticmethod
    def _law(is_kept: bool, text: str) -> None:
        if not is_kept:
            raise Violation(text)


__all__ = ["Disk", "Node", "ProposalRefused", "RaftMembers", "Violation", "World"]
