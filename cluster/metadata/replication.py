"""`LogReplication`: drives the core of consensus: its clock, its disk, and what it sends and receives.

It is the caller that `consensus/core` describes. One coroutine, the *writer*, takes what is to be written from the
core, applies the entries that are committed, writes log and rows in one transaction, and sends the answers that had to
wait for that. So between two writes the state in memory is the state on the disk, and a snapshot of it is taken only
then. What is committed is applied in several turns if it is much (CL-36).

**A sole voter.** Its write commits, so what the writer applies is not certain before the write has ended. Nobody gets
an answer before then, and no queue is started. When the disk refuses the write, the writer repeats it until the disk
accepts it, because an entry cannot be taken back; until then proposals are refused (`is_failing`), except removals, by
which operators make room.

**In force.** A change is answered when every member that runs has applied it (`InForce`). A leader whose disk refuses
writes hands over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...actors.disk.disk_retry import DiskRetry
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...store.data_dir.log_tables import LogWrite
from ...store.data_dir.metadata_store import Change, MetadataStore, MetadataWriteError
from ..consensus.core import Raft, Ready
from ..consensus.leader import HEARTBEAT_TICKS, ProposalRefused
from ..consensus.log import Entry, Mark
from ..consensus.messages import Heartbeat, Snapshot
from ..consensus_store import compaction, write_of
from . import digest, wire
from .in_force import TICK, AnswerTimeouts, InForce
from .log_members import LogMembers
from .replicated_state import COMMANDS_A_TURN, ReplicatedState
from .snapshots import SnapshotReceiver, SnapshotSending

if TYPE_CHECKING:
    from ...actors.metadata.state.effects import Applied
    from ...definitions.definitions import Definitions

log = logging.getLogger("warren.cluster")

#: Ticks that are taken at a time while there is a leader and nothing waits: as many as between two heartbeats.
CALM_TICKS = HEARTBEAT_TICKS
#: By how many ticks a follower sets its timer later: normally the leader's heartbeat comes before, and the follower
#: then takes its ticks without being woken by the timer.
LATE_TICKS = 1
#: Ticks that are made up for after the process has stood still. Any election has ended by then.
MOST_TICKS = 100
#: Seconds that a link to the leader may be broken before this node counts the leader as lost (CL-17).
BROKEN_SECONDS = 0.3
#: Ticks after which the leader is asked again for barriers that it has not answered.
BARRIER_TICKS = 20
#: Applied entries that the log keeps for members that lag (CL-24), and how many more there are when it drops them. The
#: same for their bytes: an entry has up to 128 KiB, and one command more, so 6,000 of them could fill the memory.
KEPT_ENTRIES = 5_000
COMPACT_AT = 1_000
KEPT_BYTES = 64 << 20
COMPACT_AT_BYTES = 16 << 20
#: Seconds until a write that was refused is repeated.
RETRY_SECONDS = 1.0

CONSEQUENCE = "This node confirms no changes of metadata"


class LogReplication:
    """Belongs to `process`, a Metadata, whose `after_batch` calls `pump`.

    send        sends bytes to another node, or drops them if it is not linked
    store       None on a node without a data directory, whose vote and log are only in memory
    replaced    called when the state was replaced by that of a snapshot
    in_force    called with the index up to which everything is in force on all nodes
    led         called when the leader or the term has changed
    ticked      called at every tick, or for several that are taken together
    beat        called every `HEARTBEAT_TICKS`, just before this node sends its own heartbeats if it leads
    took_digest called when this node leads and has a digest to compare
    timeouts    for how long the answers to changes wait for a member
    """

    def __init__(
        self,
        process: Process,
        raft: Raft,
        store: MetadataStore | None,
        state: ReplicatedState,
        definitions: Definitions,
        send: Callable[[str, bytes], None],
        replaced: Callable[[Applied], None],
        in_force: Callable[[int], None],
        led: Callable[[], None],
        ticked: Callable[[], None],
        beat: Callable[[], None],
        took_digest: Callable[[digest.CompareDigest], None],
        timeouts: AnswerTimeouts,
    ) -> None:
        self.raft = raft
        self._process = process
        self._store = store
        self._state = state
        self._members = LogMembers(raft, definitions)
        self._send_bytes = send
        self._replaced = replaced
        self._in_force = InForce(raft, self._members, in_force, timeouts)
        self._report_leader = led
        self._ticked = ticked
        self._beat = beat
        self._report_digest = took_digest
        self._retry = DiskRetry(process, "the log of the cluster's metadata", None, CONSEQUENCE)
        #: What goes to each node at the end of the turn.
        self._outbox: dict[str, list[wire.Said]] = {}
        self._snapshots = SnapshotSending(process, raft)
        self._receiver = SnapshotReceiver()
        self._leader: tuple[str | None, int] = (None, -1)
        #: The last entry that this node has applied for good, and the last one that its state has.
        self.applied = self.in_state = raft.log.applied
        process.set_applied(self.applied)
        self._is_writing = False
        self._compacted: Mark | None = None
        self._last_tick = self._last_beat = process.now()
        self._is_closed = False
        #: Whether the members of the log differ from the table of nodes.
        self._are_members_changing = False
        #: The nodes whose link broke.
        self._broken: set[str] = set()
        #: The barriers that somebody waits for: the index of each, None until the leader has answered.
        self._barriers: dict[int, int | None] = {}
        self._last_barrier = 0
        self._until_barriers = BARRIER_TICKS
        self._progressed = Signal(process)
        self._timer = 0
        self._wind()

    @property
    def is_failing(self) -> bool:
        """Whether the disk refuses what is to be written."""
        return self._retry.is_failing

    @property
    def in_force(self) -> int:
        """Up to where everything is in force on all nodes."""
        return self._in_force.index

    @property
    def leads(self) -> bool:
        return self.raft.leading is not None

    @property
    def has_leader(self) -> bool:
        """Whether this node has a leader, which may be itself."""
        return self.raft.leader_name is not None

    @property
    def contact(self) -> float:
        """Of a leader: when it sent the latest heartbeats that a majority has answered, or up to a tick before that;
        0.0 if there is none.

        A tick is taken up to half a tick before the moment that it stands for, and its heartbeats leave at once. A
        lease that counted from the later moment would last longer than CL-51 allows.
        """
        leading = self.raft.leading
        if leading is None or leading.contact < 0:
            return 0.0
        return self._last_tick - (leading.contact_age + 0.5) * TICK

    def close(self) -> None:
        self._is_closed = True

    # -- what comes from outside ---

    def received(self, node: str, data: bytes) -> None:
        """Handle what another node has sent. What has the wrong form is logged and dropped.

        A sole voter takes nothing from nodes that its log does not list: their messages are about the log of another
        cluster, which this node has asked to join.
        """
        members = self.raft.log.members
        if members.voters == (self.raft.node,) and node not in members.everyone:
            return
        try:
            said = wire.received(data, node, self.raft.node)
        except wire.WireError as error:
            log.error("%s has sent what is no message about the log: %s", node, error)
            return
        for each in said:
            if isinstance(each, wire.Propose):
                self.propose(each.batches)
            elif isinstance(each, wire.AppliedUpTo):
                self._say_in_force(self._in_force.member_applied(node, each.index, self.applied))
            elif isinstance(each, wire.InForceUpTo):
                self._in_force.reached(each.index)
            elif isinstance(each, wire.SnapshotPart):
                self._part_arrived(node, each)
            elif isinstance(each, wire.SnapshotTaken):
                self._snapshots.taken(node, each)
            else:
                self.raft.step(each)
                if isinstance(each, Heartbeat):
                    self._take_ticks_with_leader()
        self._process.request_turn()

    def propose(self, batches: Sequence[bytes]) -> None:
        """Have these batches of commands appended to the log if this node leads, else sent to the leader.

        They may be lost on the way, so whoever proposes them does it again when nothing comes of them.
        """
        leader = self.raft.leader_name
        if self.raft.leading is None:
            if leader is not None and batches:
                self._say(leader, wire.Propose(tuple(batches)))
            return
        for batch in batches:
            try:
                self.raft.propose(batch)
            except ProposalRefused:
                return

    def link_up(self, node: str) -> None:
        """Note that messages to this node arrive from now on."""
        self._broken.discard(node)
        if node == self.raft.leader_name:
            self._say(node, wire.AppliedUpTo(self.applied))

    def link_down(self, node: str) -> None:
        """Note that the last messages to this node may be lost."""
        self.raft.unreachable(node)
        if node not in self._broken:
            self._broken.add(node)
            self._process.spawn(self._give_up(node))
        self._snapshots.stop(node)

    def transfer(self, to: str | None) -> str:
        """See `Raft.transfer`; empty if no node can take the leadership over."""
        try:
            return self.raft.transfer(to)
        except ProposalRefused as refusal:
            log.info("leadership stays where it is: %s", refusal)
            return ""

    async def barrier(self) -> int:
        """Wait until this node has applied everything that is committed now; return the index."""
        self._last_barrier += 1
        serial = self._last_barrier
        self._barriers[serial] = None
        self.raft.barrier(serial)
        self.pump()
        await self._progressed.wait_for(lambda: self._is_passed(serial))
        index = self._barriers.pop(serial)
        assert index is not None
        return index

    def _is_passed(self, serial: int) -> bool:
        index = self._barriers[serial]
        return index is not None and index <= self.applied

    # -- time ---

    def _wind(self) -> None:
        """Start the timer for the next tick, or for the next few if nothing waits for a tick."""
        self._process.cancel_timer(self._timer)
        is_restless = not self.has_leader or self._barriers or self._snapshots or self._are_members_changing
        ticks = 1 if is_restless else CALM_TICKS if self.leads else CALM_TICKS + LATE_TICKS
        self._timer = self._process.start_timer(ticks * TICK)

    def timer_due(self) -> None:
        """Handle the timer that this object has started through its process, and that has fired."""
        if not self._is_closed:
            self._process.spawn(self._beat_and_take_ticks())

    async def _beat_and_take_ticks(self) -> None:
        if self._is_beat_due():
            # Members sends its heartbeats in the turn after this one, and those of the consensus leave in the same
            # frames if they come one turn later too.
            self._call_beat()
            await self._process.next_turn()
        self._take_ticks()

    def _take_ticks_with_leader(self) -> None:
        """Take the ticks that have passed if the leader has taken its own, so that the timer need not wake the node."""
        if self._process.now() - self._last_tick >= (CALM_TICKS - LATE_TICKS) * TICK:
            if self._is_beat_due():
                self._call_beat()
            self._take_ticks()

    def _is_beat_due(self) -> bool:
        return self._process.now() - self._last_beat >= (HEARTBEAT_TICKS - 0.5) * TICK

    def _call_beat(self) -> None:
        self._last_beat = self._process.now()
        self._beat()

    def _take_ticks(self) -> None:
        """Take the ticks that have passed."""
        if self._is_closed:
            return
        now = self._process.now()
        ticks = min(int((now - self._last_tick) / TICK + 0.5), MOST_TICKS)
        self._last_tick = now if ticks == MOST_TICKS else self._last_tick + ticks * TICK
        for _ in range(ticks):
            self.raft.tick()
        for node in self._snapshots.ticked(ticks):
            self.raft.unreachable(node)
        if self.leads:
            self._in_force.ticked(ticks)
            if self.is_failing and len(self.raft.log.members.voters) > 1:
                self.transfer(None)
        self._are_members_changing = self._members.follow_table()
        self._say_in_force(self._in_force.find(self.applied))
        self._repeat_barriers(ticks)
        self._ticked()
        self._wind()
        self.pump()

    async def _give_up(self, node: str) -> None:
        """Count this node as lost if it leads and is not linked again soon, and have another leader elected."""
        await self._process.sleep(BROKEN_SECONDS)
        if node in self._broken and not self._is_closed:
            self.raft.leader_lost(node)
            self._take_ticks()

    def _repeat_barriers(self, ticks: int) -> None:
        """Ask again for barriers without an answer: the question may have been lost, as when there was no leader."""
        self._until_barriers -= ticks
        if self._until_barriers <= 0:
            self._until_barriers = BARRIER_TICKS
            for serial in [serial for serial, index in self._barriers.items() if index is None]:
                self.raft.barrier(serial)

    # -- what goes out ---

    def _say(self, node: str, said: wire.Said) -> None:
        self._outbox.setdefault(node, []).append(said)

    def _say_in_force(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self._say(node, wire.InForceUpTo(self._in_force.index))

    def pump(self) -> None:
        """Take from the core what it has to send and to write. Called when a turn ends."""
        raft = self.raft
        for message in raft.take_messages():
            self._say(message.to, message)
        for node, part in self._snapshots.take():
            self._say(node, part)
        for serial, index in raft.take_barriers():
            if serial in self._barriers:
                self._barriers[serial] = index
                self._progressed.wake_all()
        led = raft.leader_name, raft.term
        if led != self._leader:
            self._leader_changed(led)
        outbox, self._outbox = self._outbox, {}
        for node, said in outbox.items():
            for piece in wire.packed(said):
                self._send_bytes(node, piece)
        if not self._is_writing:
            self._is_writing = True
            self._process.spawn(self._write_all())

    def _leader_changed(self, led: tuple[str | None, int]) -> None:
        leader, before = led[0], self._leader[0]
        self._leader = led
        if leader is not None and leader != before:
            log.info("%s leads the cluster's metadata in term %d", leader, led[1])
            self._in_force.leader_changed()
            if leader != self.raft.node:
                self._say(leader, wire.AppliedUpTo(self.applied))
        self._report_leader()

    # -- the writer ---

    async def _write_all(self) -> None:
        """Write until there is nothing to write."""
        while not self._is_closed:
            for node in self.raft.take_snapshots_due():
                self._send_snapshot(node)
            ready = self.raft.ready()
            if ready is None:
                break
            await self._write(ready)
        self._is_writing = False

    async def _write(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            assert isinstance(ready.snapshot.state, list)
            self._replaced(self._state.replace(ready.snapshot.state))
            self.applied = self.in_state = ready.snapshot.mark.index
            self._process.set_applied(self.applied)
        is_certain = not ready.committed or ready.committed[-1].index <= self.raft.log.committed
        commands = 0
        for entry in ready.committed:
            if commands >= COMMANDS_A_TURN:
                commands = 0
                await self._process.next_turn()
            commands += await self._apply(entry)
            self.in_state = entry.index
            # The routing table shows the entry from now on, so processes may act on it in whatever they send next.
            self._process.set_applied(entry.index)
            if entry.index % digest.EVERY == 0:
                self._state.digests.begins(entry.index)
                self._process.spawn(self._take_digest(entry.index, self._state.rows()))
        if is_certain:
            self._has_applied(ready)
        changes = self._state.take_changes()
        compacted, self._compacted = self._compacted, None
        await self._write_disk(changes, write_of(ready, compacted))
        for answer in ready.answers:
            self._say(answer.to, answer)
        self.raft.advance()
        if not is_certain:
            self._has_applied(ready)
        self._compact()
        self.pump()

    def _compact(self) -> None:
        """Forget entries if the log is long. A member that gets a snapshot needs those behind it, unless they are so
        many that another snapshot is smaller.
        """
        entries, needed_from = self.raft.log, self._snapshots.needed_from
        length, size = entries.applied - entries.start.index, entries.size
        if length >= KEPT_ENTRIES + COMPACT_AT or size >= KEPT_BYTES + COMPACT_AT_BYTES:
            if length >= 10 * KEPT_ENTRIES or size >= 2 * KEPT_BYTES:
                needed_from = None
            self._compacted = compaction(self.raft, KEPT_ENTRIES, KEPT_BYTES, needed_from)

    async def _apply(self, entry: Entry) -> int:
        """Apply an entry, in several turns if it changes much, and return how many commands it has."""
        slices = self._state.apply(entry)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                return int(end.value)
            # Processes may act on what they see already, so other nodes must have the whole entry before they handle
            # what these processes send.
            self._process.begin_applying(entry.index)
            await self._process.next_turn()

    async def _take_digest(self, index: int, rows: Iterable[Change]) -> None:
        taken = await digest.digest_of(self._process, rows)
        self._state.digests.took(index, taken)
        if self.leads and not self._is_closed:
            self._report_digest(digest.CompareDigest(index, taken))

    async def _write_disk(self, changes: list[Change], write: LogWrite) -> None:
        while self._store is not None:
            try:
                await self._process.run_blocking(self._store.apply, changes, write)
            except MetadataWriteError as error:
                self._retry.failed(error, RETRY_SECONDS)
                await self._process.sleep(RETRY_SECONDS)
            else:
                self._retry.worked()
                return

    def _has_applied(self, ready: Ready) -> None:
        """Report how far this node has applied the log. Called after a write, when all that it has applied is certain
        to be committed.
        """
        if ready.committed:
            self.applied = ready.committed[-1].index
        elif ready.snapshot is None:
            return
        self._progressed.wake_all()
        leader = self.raft.leader_name
        if leader is not None and leader != self.raft.node:
            self._say(leader, wire.AppliedUpTo(self.applied))
        self._say_in_force(self._in_force.find(self.applied))
        self.pump()

    # -- snapshots ---

    def _send_snapshot(self, node: str) -> None:
        """Begin to send the state, which is that on the disk between two writes, to a member."""
        entries = self.raft.log
        term = entries.term_at(entries.applied)
        assert term is not None
        mark = Mark(entries.applied, term, entries.members_at(entries.applied))
        log.info("%s gets the cluster's metadata as of entry %d", node, mark.index)
        self._snapshots.begin(node, mark, self._state.rows())

    def _part_arrived(self, node: str, part: wire.SnapshotPart) -> None:
        if part.term < self.raft.term:
            return
        state = self._receiver.take(node, part)
        self._say(node, wire.SnapshotTaken(part.mark.index, part.number))
        if state is not None:
            log.info("this node has the cluster's metadata as of entry %d from %s", part.mark.index, node)
            self.raft.step(Snapshot(self.raft.node, node, part.term, part.mark, state))
