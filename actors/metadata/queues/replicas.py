"""`Replicas`: has this node run its replicas of mirrored queues, as the rows list them (cluster section 12).

A *life* is one process of a replica on this node, for one member of the group. When a row changes, the process of its
queue receives `group_changed` in the same turn, before any other process can act on the row, and the routing table gets
the address of the process that is the master now. What takes time is done by one coroutine for each queue (`_settle`),
which compares what runs with what the row says until they agree:

| the row | a life | then |
|---|---|---|
| has a member of this run of the node | none | start a process for it |
| has the member of the life | one | nothing |
| has no member or another one here | one | end the process: it was deposed, or is not wanted |
| has no member here, but this node is wanted | none | propose to be a learner |

The process of a new queue's master is started by the effect of its declare, and a node that starts recovers the queues
whose master it is; both enter their life here (`own_runs`). A replica whose process has ended is another member when it
starts again (CL-28), so it leaves the group first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....amqp.constants import PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....definitions.definitions import Definitions
from ....routing.changes import Change, QueuePut, QueueRemoved
from ....routing.phrases import queue_phrase
from ....routing.queue_types import STREAM
from ....routing.rows import Member, QueueRow
from ....routing.table import RoutingTable
from ....runtime.contract import Address, Sender
from ....runtime.errors import ProcessDown, ProcessError
from ....runtime.process import Process
from ....runtime.signal import Signal
from ....runtime.system.address import is_elsewhere, system_of
from ...context.peers import Peers
from ...contracts.node import to_queue_supervisor
from ...contracts.queue import to_queue
from ...disk.disk_retry import Backoff
from ...node.restart_policy import RestartIntensity
from ..changing import Changing
from ..state.commands import AddLearner, LoseMember, ReplaceMembers, SetQueueStates, TransferRing
from ..state.groups import fitted, has_live_ring, keeps_files
from ..state.state import State
from .moving import TooFewStay, await_enough
from .restart_waiters import RestartWaiters

if TYPE_CHECKING:
    from ...contracts.queue import ToQueue

log = logging.getLogger("warren.mirror")

#: For how many queues a node proposes to be a learner at once. Otherwise a node that starts with ten thousand queues
#: would hold up the changes of clients, and its own start.
JOINING_AT_ONCE = 64

#: Seconds within which a master comes to rest, or answers that it is too busy.
QUIESCE_SECONDS = 5.0


@dataclass(slots=True)
class _Life:
    """The process of one member on this node."""

    vhost: str
    name: str
    member: Member
    address: Address[ToQueue]


class Replicas:
    """Belongs to `process`, the Metadata of the node `here`."""

    def __init__(
        self,
        process: Process,
        here: str,
        routing: RoutingTable,
        state: State,
        changing: Changing,
        restart_waiters: RestartWaiters,
        peers: Peers,
        replace_seconds: float,
    ) -> None:
        self._process = process
        self._here = here
        #: The incarnation of this run of the node, in the node's record as long as the cluster counts the run as up.
        self._incarnation = system_of(process.myAddress).rpartition("-")[2]
        self._routing = routing
        self._state = state
        self._definitions: Definitions = state.definitions
        self._changing = changing
        self._restart_waiters = restart_waiters
        self._peers = peers
        #: For how long the place of a node that has gone is kept.
        self._replace_seconds = replace_seconds
        self._lives: dict[str, _Life] = {}
        #: The ids of the queues for which `_settle` runs, and the processes that wait for its end (`await_started`).
        self._settling: dict[str, list[Sender]] = {}
        #: By queue id, after a replica here has ended: the waits before this node proposes to be a learner again.
        self._waits: dict[str, Backoff] = {}
        #: By queue id: how often the only replica of the queue was started again.
        self._restarts: dict[str, RestartIntensity] = {}
        #: The ids of the queues for which a coroutine waits, because a node that has gone may come back.
        self._replacing: set[str] = set()
        #: Whether the node stops. Its masters move away then, and it does not come back to their rings.
        self.is_stopping = False
        #: For how many queues this node proposes to be a learner, and the signal for coroutines that wait until these
        #: are fewer.
        self._joining = 0
        self._can_join = Signal(process)
        #: The ids of the queues whose next replica here begins without messages, whatever the disk has.
        self._begins_anew: set[str] = set()
        #: Called with the row of a mirror that has started here, and the version of the definitions before that.
        self.on_mirror: Callable[[QueueRow, int], None] = _ignore
        #: The ids of the queues whose master here is being moved.
        self._moving: set[str] = set()

    # -- what the rows say ---

    def published(self, changes: Sequence[Change]) -> None:
        """Handle the mirrored queues among these changes, which are in the routing table already."""
        for change in changes:
            if isinstance(change, QueuePut):
                if change.row.group is not None or change.row.queue_id in self._lives:
                    self._changed(change.row)
            elif isinstance(change, QueueRemoved) and change.row.group is not None:
                self._removed(change.row)

    def _changed(self, row: QueueRow) -> None:
        group = row.group
        life = self._lives.get(row.queue_id)
        mine = self._mine(row)
        if life is None and group is not None and mine == group.master and group.epoch == group.members == 1:
            life = self._adopt(row, group.master)
        if life is not None:
            self._process.send(life.address, to_queue.group_changed(row))
            if row.node == self._here and (group is None or mine == life.member):
                self._show(row, life)
            if group is None:
                del self._lives[row.queue_id]
                if row.node != self._here:
                    self._changing.forget_queue(row.vhost, row.queue_id)
                else:
                    self._tell_supervisor(row)
                return
            if mine in group.ring:
                self._waits.pop(row.queue_id, None)
        self._move_master(row)
        if group is not None and mine == group.master and row.queue_id not in self._replacing and self._is_short(row):
            self._replacing.add(row.queue_id)
            self._process.spawn(self._replace(row.vhost, row.name, row.queue_id))
        if not self._agrees(row):
            self._begin(row)

    def _adopt(self, row: QueueRow, member: Member) -> _Life | None:
        """The life of a queue that has just got its group, and runs here already; None if it is being started."""
        shown = self._routing.queue(row.vhost, row.name)
        if shown is None or shown.address is None or is_elsewhere(shown.address, self._process.myAddress):
            return None
        life = self._lives[row.queue_id] = _Life(row.vhost, row.name, member, shown.address)
        self._tell_supervisor(row)
        return life

    def _tell_supervisor(self, row: QueueRow) -> None:
        supervisor = self._changing.supervisors.get(row.vhost)
        if supervisor is not None:
            self._process.send(supervisor, to_queue_supervisor.mirror_queue(row))

    def _show(self, row: QueueRow, life: _Life) -> None:
        shown = self._routing.queue(row.vhost, row.name)
        if shown is None or shown.address != life.address or shown != row.at(life.address):
            self._changing.show_own(row.at(life.address))
            self._restart_waiters.row_changed(row.vhost, row.name)

    def _removed(self, row: QueueRow) -> None:
        """Forget a deleted queue, and end its mirror here. A master ends by itself or by the effect of the deletion."""
        life = self._lives.pop(row.queue_id, None)
        self._waits.pop(row.queue_id, None)
        self._begins_anew.discard(row.queue_id)
        self._restarts.pop(row.queue_id, None)
        # A replica whose process has ended, and that was to start again, has left its files here.
        has_files = life is not None or row.durable and keeps_files(row.group, self._here)
        if has_files and row.node != self._here:
            self._changing.forget_queue(row.vhost, row.queue_id)

    def own_runs(self, row: QueueRow) -> None:
        """Note that the master of a mirrored queue runs here, at the address in `row`."""
        mine = self._mine(row)
        life = self._lives.get(row.queue_id)
        if mine is None or row.state != "running" or life is not None and life.address == row.address:
            return
        self._lives[row.queue_id] = _Life(row.vhost, row.name, mine, row.address)
        current = self._state.queue(row.vhost, row.name)
        if current is not None and current.queue_id == row.queue_id:
            # A process that was restarted may have begun before the queue got its group.
            if life is not None or current != row.at(None):
                self._changed(current)

    def vhost_started(self, vhost: str) -> None:
        """Have the replicas of a virtual host, which runs on this node from now on, brought in line with their rows."""
        rows = self._state.vhosts.get(vhost)
        for row in () if rows is None else list(rows.queues.values()):
            if row.group is not None and not self._agrees(row):
                self._begin(row)

    async def vhost_down(self, vhost: str) -> None:
        """Have the members here leave their groups, because the processes of this virtual host have ended here."""
        for queue_id, life in [each for each in self._lives.items() if each[1].vhost == vhost]:
            self._lives.pop(queue_id, None)
            await self._changing.note(LoseMember(vhost, life.name, queue_id, life.member))

    # -- comparing ---

    def _mine(self, row: QueueRow) -> Member | None:
        """The member of this run of this node."""
        member = None if row.group is None else row.group.member_on(self._here)
        return member if member is not None and member.incarnation == self._incarnation else None

    def _agrees(self, row: QueueRow) -> bool:
        life, mine = self._lives.get(row.queue_id), self._mine(row)
        if life is not None:
            return mine == life.member
        if mine is not None:
            # In two cases no process is to be started here: the effect of the declaration starts that of the first
            # member, and a queue that has crashed too often stays down.
            return mine.generation == 1 or row.state == "crashed"
        return not self._may_join(row)

    def _may_join(self, row: QueueRow) -> bool:
        group = row.group
        if group is None or self._here not in group.wanted or group.member_on(self._here) is not None:
            return False
        node = self._definitions.node(self._here)
        is_up = node is not None and node.incarnation == self._incarnation and not self.is_stopping
        return is_up and has_live_ring(self._definitions, group)

    # -- bringing about what the rows say ---

    def _begin(self, row: QueueRow) -> None:
        if row.queue_id not in self._settling:
            self._settling[row.queue_id] = []
            self._process.spawn(self._settle(row.vhost, row.name, row.queue_id))

    async def _settle(self, vhost: str, name: str, queue_id: str) -> None:
        with suppress(ProcessError):  # the virtual host stops or has ended, and with it all its replicas on this node
            while True:
                row = self._state.queue(vhost, name)
                if row is None or row.queue_id != queue_id:
                    break
                is_starting = vhost not in self._changing.supervisors or vhost in self._routing.recovering
                if is_starting or self._agrees(row):
                    break
                life, mine = self._lives.get(queue_id), self._mine(row)
                if life is not None:
                    await self._end(row)
                elif mine is not None:
                    await self._start(row, mine)
                elif not await self._join(row):
                    break
        for sender in self._settling.pop(queue_id):
            self._process.reply(sender, True)
        # A process was perhaps to be started here when a policy ended the mirroring.
        self._restart_unmirrored(vhost, name, queue_id)

    async def _start(self, row: QueueRow, mine: Member) -> None:
        """Start the process of this member. The only member of a ring starts from what the disk has. A learner compares
        what the disk has with the messages of other replicas if it may (`_may_compare`); otherwise it starts without
        messages.
        """
        assert row.group is not None
        supervisor = self._changing.supervisors[row.vhost]
        from_disk = row.group.ring == (mine,) or mine in row.group.learners and self._may_compare(row)
        self._begins_anew.discard(row.queue_id)
        read_version = self._definitions.version
        try:
            started = await self._process.ask(supervisor, to_queue_supervisor.start_replica(row, from_disk))
        except ProcessDown as error:
            log.error("%s cannot have a replica on this node: %s", queue_phrase(row.vhost, row.name), error)
            self._begins_anew.add(row.queue_id)
            await self._lost(row.vhost, row.name, row.queue_id, mine)
            return
        current = self._state.queue(row.vhost, row.name)
        if current is None or current.queue_id != row.queue_id:
            self._changing.forget_queue(row.vhost, row.queue_id)
            return
        life = self._lives[row.queue_id] = _Life(row.vhost, row.name, mine, started.address)
        if current != row:
            self._changed(current)
        elif row.node == self._here:
            self._show(row, life)
        if current.node != self._here:
            self.on_mirror(current, read_version)

    def address_of(self, queue_id: str) -> Address[ToQueue] | None:
        """The address of the replica here; None if none runs."""
        life = self._lives.get(queue_id)
        return None if life is None else life.address

    def _may_compare(self, row: QueueRow) -> bool:
        """Whether messages on the disk here are those that other replicas have under the same numbers.

        They need not be if an operator has forced a replica to lead that lacked some of them. A stream may give a
        number again that only its old leader had given.
        """
        group = row.group
        assert group is not None
        if not row.durable or row.type == STREAM.name or row.queue_id in self._begins_anew:
            return False
        left = next((epoch for node, epoch in group.was if node == self._here), 0)
        return all(epoch < left for _, epoch in group.forced)

    async def _end(self, row: QueueRow) -> None:
        """End the process here, because its member is not in the group any more. Its files are deleted, unless the
        group still wants this node.
        """
        self._lives.pop(row.queue_id, None)
        keeps = keeps_files(row.group, self._here)
        supervisor = self._changing.supervisors[row.vhost]
        log.info(
            "the replica of %s on this node leaves its group%s",
            queue_phrase(row.vhost, row.name),
            "" if keeps else ", and its messages are deleted",
        )
        await self._process.ask(supervisor, to_queue_supervisor.end_replica(row.queue_id, keeps))

    async def _join(self, row: QueueRow) -> bool:
        """Propose to be a learner. Return whether that has changed anything."""
        wait = self._waits.get(row.queue_id)
        if wait is not None:
            await self._process.sleep(wait.next())
            current = self._state.queue(row.vhost, row.name)
            if current is None or current.queue_id != row.queue_id or not self._may_join(current):
                return True
        await self._can_join.wait_for(lambda: self._joining < JOINING_AT_ONCE)
        self._joining += 1
        await self._changing.note(AddLearner(row.vhost, row.name, row.queue_id, self._here, self._incarnation))
        self._joining -= 1
        self._can_join.wake()
        current = self._state.queue(row.vhost, row.name)
        return current is not None and current.queue_id == row.queue_id and self._mine(current) is not None

    async def ended(self, vhost: str, name: str, queue_id: str, generation: int) -> None:
        """Handle the end of this member's process, which was not asked to end."""
        life = self._lives.get(queue_id)
        if life is not None and life.member.generation == generation:
            del self._lives[queue_id]
            await self._lost(vhost, name, queue_id, life.member)
        elif life is None:
            # A policy may have ended the mirroring, and with it the life, before this report arrived.
            self._restart_unmirrored(vhost, name, queue_id)

    async def unfit(self, vhost: str, name: str, queue_id: str, generation: int) -> None:
        """Have this learner leave, because the next replica here is to begin without messages."""
        life = self._lives.get(queue_id)
        if life is not None and life.member.generation == generation:
            self._begins_anew.add(queue_id)
            await self._changing.note(LoseMember(vhost, name, queue_id, life.member))

    async def _lost(self, vhost: str, name: str, queue_id: str, member: Member) -> None:
        """Have a member leave its group, because its process has ended or cannot start.

        If the process crashes too often, and no other member is in the ring, the queue is marked crashed (AB-63).
        """
        self._waits.setdefault(queue_id, Backoff())
        row = self._state.queue(vhost, name)
        is_alone = row is not None and row.group is not None and row.group.ring == (member,)
        if is_alone and not self._restarts.setdefault(queue_id, RestartIntensity()).allows(self._process.now()):
            await self._changing.note(SetQueueStates(vhost, ((name, queue_id, "crashed"),)))
        else:
            await self._changing.note(LoseMember(vhost, name, queue_id, member))
        # If a policy has ended the mirroring meanwhile, there is no group that the member could leave.
        self._restart_unmirrored(vhost, name, queue_id)

    def _restart_unmirrored(self, vhost: str, name: str, queue_id: str) -> None:
        """Have the supervisor restart a queue at home here that is not mirrored any more, unless it runs.

        Its process ended, or was to be started, while it was mirrored, so the supervisor left it to Metadata to start
        another one. Without a group no member follows, and nobody would restart the queue.
        """
        row, supervisor = self._state.queue(vhost, name), self._changing.supervisors.get(vhost)
        if supervisor is None or row is None or row.queue_id != queue_id or row.group is not None:
            return
        # While `_settle` runs, the supervisor may be starting or ending a process. Its end calls this as well.
        if row.node == self._here and row.state == "running" and queue_id not in self._settling:
            self._process.send(supervisor, to_queue_supervisor.restart_queue(row))

    def _is_short(self, row: QueueRow) -> bool:
        """Whether the queue would have replicas on other nodes if they were chosen among all that run."""
        group = row.group
        return group is not None and has_live_ring(self._definitions, group) and fitted(self._definitions, row) != row

    async def _replace(self, vhost: str, name: str, queue_id: str) -> None:
        """Have another node take the place of one that has not come back in `mirror_replace_wait` (CL-92). It waits
        because a node that only restarts must not cause a copy of the queue.
        """
        await self._process.sleep(self._replace_seconds)
        self._replacing.discard(queue_id)
        row = self._state.queue(vhost, name)
        if row is not None and row.queue_id == queue_id and row.group is not None:
            if row.group.master == self._mine(row) and self._is_short(row):
                await self._changing.note(ReplaceMembers(vhost, name, queue_id))

    def _move_master(self, row: QueueRow) -> None:
        """Move the master to a node on which the policy wants it, if the replica there has all messages."""
        if row.queue_id not in self._moving and self._move_of(row) is not None:
            self._moving.add(row.queue_id)
            self._process.spawn(self._move(row.vhost, row.name, row.queue_id))

    def _move_of(self, row: QueueRow | None) -> tuple[_Life, Member] | None:
        """The master here and the member that shall be the master; None if it shall stay, or is not here."""
        if row is None or row.group is None or row.group.master != self._mine(row) or self.is_stopping:
            return None
        group, life = row.group, self._lives.get(row.queue_id)
        to = next((member for member in group.ring if member.node == group.wanted[0]), group.master)
        return None if life is None or to == group.master else (life, to)

    async def _move(self, vhost: str, name: str, queue_id: str) -> None:
        """Move a master, and try again as long as the policy wants it elsewhere (CL-98)."""
        wait = Backoff()

        def current() -> QueueRow | None:
            row = self._state.queue(vhost, name)
            return row if row is not None and row.queue_id == queue_id else None

        while (row := current()) is not None and (move := self._move_of(row)) is not None:
            try:
                checked = await await_enough(self._process, self._definitions, self._peers, current)
                await self._transfer(checked or row, *move)
            except (AmqpError, ProcessError, TooFewStay) as error:
                reason = error.text if isinstance(error, AmqpError) else str(error)
                phrase = queue_phrase(vhost, name)
                seconds = wait.next()
                log.warning("%s: its master has not moved to %s: %s", phrase, move[1].node, reason)
                await self._process.sleep(seconds)
        self._moving.discard(queue_id)

    async def _transfer(self, row: QueueRow, life: _Life, to: Member) -> None:
        """Have the master come to rest, and propose that this member be the master. Raises AmqpError if it is too busy,
        and ProcessError if it has ended.
        """
        epoch = await self._process.ask(life.address, to_queue.quiesce(), timeout=QUIESCE_SECONDS)
        if row.group is not None and row.group.epoch == epoch:
            await self._changing.note(TransferRing(row.vhost, row.name, row.queue_id, epoch, to))
        current = self._state.queue(row.vhost, row.name)
        if current is not None and current.group is not None and current.group.master == life.member:
            self._process.send(life.address, to_queue.go_on())
            raise AmqpError(PRECONDITION_FAILED, "its replicas have changed meanwhile")

    def node_met(self, node: str) -> None:
        """Notify the replicas here that this node is connected, perhaps again, so that they go on with those there."""
        for life in self._lives.values():
            self._process.send(life.address, to_queue.node_met(node))

    # -- for others ---

    def await_started(self, sender: Sender, queue_id: str) -> None:
        """Answer True when this node runs what the row of this queue demands of it, or has failed to."""
        waiting = self._settling.get(queue_id)
        if waiting is None:
            self._process.reply(sender, True)
        else:
            waiting.append(sender)


def _ignore(row: QueueRow, version: int) -> None: ...
