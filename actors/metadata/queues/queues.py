"""`Queues`: carries out declares and deletes of queues, which involves the queues' processes (AB-82 to AB-88), and
takes the reports of these processes and their supervisors (AB-63).

A queue's row is in the state from its declaration to its deletion. Channels find it in the routing table from the
moment when its process runs, with the process's address; while the process is restarted they find the old address, or
the state that is the reason why the queue cannot be used.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ....amqp.constants import NOT_IMPLEMENTED, PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....routing.changes import Change, QueuePut, QueueRemoved
from ....routing.phrases import queue_phrase, queue_unavailable
from ....routing.queue_types import QUORUM, STREAM
from ....routing.rows import QueueRow, QueueState
from ....routing.shards import shards_of
from ....routing.table import RoutingTable
from ....runtime.contract import Address
from ....runtime.errors import ProcessDown
from ....runtime.process import Process
from ....runtime.signal import Signal
from ....seams import seam
from ...contracts.queue import to_queue
from ..changing import Changing
from ..live_policies import LivePolicies
from ..state.commands import DeclareQueue, DeleteQueue, RestartQueue, SetQueueStates
from ..state.queues import check_owner
from ..state.state import State
from ..turns import Turns
from .homes import Homes
from .restart_waiters import RestartWaiters

if TYPE_CHECKING:
    from ...contracts.queue import ToQueue


class Queues:
    """Belongs to `process`, the Metadata."""

    def __init__(
        self,
        process: Process,
        turns: Turns,
        routing: RoutingTable,
        state: State,
        changing: Changing,
        policies: LivePolicies,
        homes: Homes,
        here: str,
        is_durable: bool,
    ) -> None:
        self._process = process
        self._turns = turns
        self._routing = routing
        self._state = state
        self._changing = changing
        self._policies = policies
        self._homes = homes
        #: The name of this node.
        self._here = here
        #: Whether durable queues outlive their processes.
        self._is_durable = is_durable
        #: The deletions of sharded queues that are under way, by the id of the logical queue.
        self._deletions: dict[str, _Deletion] = {}
        #: The users who delete queues whose processes have not left yet, by the id of the queue.
        self._deleted_by: dict[str, str] = {}
        self.restart_waiters = RestartWaiters(process, routing)

    # --- declared and deleted ---

    async def declare(self, command: DeclareQueue) -> tuple[QueueRow, bool]:
        """Return the queue's row, and whether the queue is new. Raises AmqpError if it cannot be declared or used."""
        vhost, name = command.row.vhost, command.row.name
        try:
            while True:
                applied = await self._changing.change(command)
                row = self._state.queue(vhost, name)
                if row is not None:
                    # This node may be starting the queue for a client of another node.
                    await self._changing.elsewhere.shown(vhost, name, row.queue_id)
                shown = self._routing.queue(vhost, name)
                if shown is not None:
                    return shown, bool(applied.changes)
                if self._state.queue(vhost, name) is not None:
                    raise queue_unavailable(vhost, name, "", command.row.node)  # its virtual host is being started
                # A client of another node has deleted the queue meanwhile. Like RabbitMQ, declare it again.
                command = self._with_other_ids(command)
        finally:
            for row in (command.row, *command.shards):
                self._homes.declared(row.node)

    def _with_other_ids(self, command: DeclareQueue) -> DeclareQueue:
        """The command with other ids, because each id is that of one life of a queue."""
        row, *shards = (
            replace(row, queue_id=self._process.random_bytes(16).hex()) for row in (command.row, *command.shards)
        )
        return command._replace(row=row, shards=tuple(shards))

    async def delete(self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str, by: str) -> int:
        """Return the number of ready messages that the queue had."""
        row = self._state.queue(vhost, name)
        if row is None:
            await self._changing.change(DeleteQueue(vhost, name, "", is_ended=True))
            # Another node may have declared it before this command.
            row = self._state.queue(vhost, name)
            if row is None:
                return 0
        check_owner(row, connection_id)
        if row.type == QUORUM.name and (if_unused or if_empty):
            flag = "if-unused" if if_unused else "if-empty"
            raise AmqpError(
                NOT_IMPLEMENTED,
                f"cannot delete {queue_phrase(vhost, name)}. queue.delete operations with {flag} flag set are not "
                "supported by quorum queues",
            )
        if if_empty and row.state == "down":
            raise _may_have_messages(row, row.node)
        if row.shards:
            return await self._delete_sharded(row, if_unused, if_empty, by)
        is_stream = row.type == STREAM.name
        if is_stream:
            if_unused = if_empty = False  # RabbitMQ's streams ignore these flags, and answer with 0 messages
        self._deleted_by[row.queue_id] = by
        try:
            ready, is_ended = await self._end(row, if_unused, if_empty)
        finally:
            del self._deleted_by[row.queue_id]
        # The process had its row removed before it ended, unless it was down or the disk refused that. So this mostly
        # changes nothing, and returns when no node of the cluster shows the queue any more.
        await self._changing.change(DeleteQueue(vhost, name, row.queue_id, is_ended, by))
        return 0 if is_stream else ready

    async def _end(self, row: QueueRow, if_unused: bool, if_empty: bool) -> tuple[int, bool]:
        """Have a queue's process end. Return its ready messages, and whether it was the queue's last process: False if
        it crashed while it ended and another one has replaced it, or if no process was asked.

        Raises AmqpError if the process refuses, or if there is a condition and the process did not answer.
        """
        vhost, name = row.vhost, row.name
        ready, is_ended = 0, False
        shown = self._routing.queue(vhost, name)
        if row.state == "running" and shown is not None:
            try:
                ready = await self._process.ask(shown.address, to_queue.delete(if_unused, if_empty))
                is_ended = not self._is_restarted(vhost, name, row.queue_id, shown.address)
            except ProcessDown as down:  # The queue crashed or ended just now, or its node cannot be reached.
                if if_unused or if_empty:
                    self._check_gone(row, down)
        return ready, is_ended

    def _check_gone(self, row: QueueRow, down: ProcessDown) -> None:
        """Raise AmqpError unless the queue whose process did not answer is deleted.

        A process that crashed, or whose node stops or cannot be reached, may have messages and consumers all the same:
        they are on the disk of the node, or another replica has them.
        """
        if self._row(row.vhost, row.name, row.queue_id) is not None:
            state = "down" if down.reason.is_noconnection else ""
            raise queue_unavailable(row.vhost, row.name, state, row.node) from None

    async def _delete_sharded(self, row: QueueRow, if_unused: bool, if_empty: bool, by: str) -> int:
        """Delete a logical queue with its shards, and return the sum of their ready messages (FC-96)."""
        shards = shards_of(self._routing, row)
        if if_empty:
            await self._check_empty(row, shards)
        deletion = self._deletions[row.queue_id] = _Deletion(self._process)
        try:
            # The logical queue refuses if it has consumers. Then no shard is asked.
            await deletion.begin({row.name: self._end(row, if_unused, False)})
            await deletion.begin({shard.name: self._end(shard, False, False) for shard in shards})
            # Any of the processes may have crashed while it ended, and been restarted since.
            await self._changing.change(DeleteQueue(row.vhost, row.name, row.queue_id, False, by))
        finally:
            del self._deletions[row.queue_id]
            deletion.rows_are_gone()
        return await deletion.finish()

    def _deletion_of(self, vhost: str, name: str) -> _Deletion | None:
        """The deletion of this logical queue, or of that of this shard: their rows are removed together."""
        row = self._state.queue(vhost, name)
        if row is not None and row.shard_of is not None:
            row = self._state.queue(vhost, row.shard_of)
        return None if row is None else self._deletions.get(row.queue_id)

    async def _check_empty(self, row: QueueRow, shards: Sequence[QueueRow]) -> None:
        """Raise AmqpError unless all shards are empty (FC-96)."""
        for shard in shards:
            if shard.state == "down":
                raise _may_have_messages(row, shard.node)
            if shard.state == "running":
                try:
                    ready, _ = await self._process.ask(shard.address, to_queue.counts())
                except ProcessDown as down:
                    self._check_gone(shard, down)
                    continue
                if ready:
                    raise AmqpError(PRECONDITION_FAILED, f"{queue_phrase(row.vhost, row.name)} not empty")

    async def leaves(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """Delete a queue whose process at `address` is about to end by itself."""
        deletion, leaving = self._deletion_of(vhost, name), self._changing.leaving
        is_ended = not self._is_restarted(vhost, name, queue_id, address)
        if is_ended:
            leaving[queue_id] = address
        try:
            if deletion is not None:
                await deletion.leaves(name)
                return
            by = self._deleted_by.get(queue_id, "")
            await self._changing.note(DeleteQueue(vhost, name, queue_id, is_ended, by))
        finally:
            if leaving.get(queue_id) == address:
                del leaving[queue_id]

    def _is_restarted(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> bool:
        """Whether the queue has another process than the one at `address`, which then crashed while it ended."""
        row = self._routing.queue(vhost, name)
        return row is not None and row.queue_id == queue_id and row.address != address

    async def delete_exclusive(self, connection_id: str) -> None:
        """Return when the exclusive queues of this connection are gone. Each deletion takes its turn among other
        operations on the name. An error of one means that its virtual host is down, and its queues with it.
        """
        await self._turns.run_all(self._exclusive_to(connection_id), self.delete, False, False, connection_id, "")

    @seam("which queues end with their connection")
    def _exclusive_to(self, connection_id: str) -> Iterator[tuple[str, str]]:
        """The virtual host and name of each queue that ends with this connection."""
        return self._state.queues_of(connection_id)

    # --- changes of state ---

    async def restarted(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """Handle that a queue runs at another address, whatever its state was before.

        A queue without a row was deleted: its process crashed while it ended, and the supervisor must not restart it.
        """
        self._changing.leaving.pop(queue_id, None)
        row = self._row(vhost, name, queue_id)
        if row is not None:
            generation = row.generation + 1
            self._changing.elsewhere.own_starts(row, generation, address)
            await self._changing.note(RestartQueue(vhost, name, queue_id, generation))
            row = self._row(vhost, name, queue_id)
        if row is None:
            self._changing.forget_queue(vhost, queue_id)
            return
        self._changing.show_own(row.at(address))
        # The queue has read the policies when it started, and they may have changed since.
        self._policies.queue_started(row.at(address), -1)
        self.restart_waiters.row_changed(vhost, name)

    def _row(self, vhost: str, name: str, queue_id: str) -> QueueRow | None:
        """The row of the queue with this id, if it has not been deleted."""
        row = self._state.queue(vhost, name)
        return row if row is not None and row.queue_id == queue_id else None

    async def crashed(self, vhost: str, name: str, queue_id: str) -> None:
        """Mark a queue crashed, because it has crashed too often and is not restarted."""
        row = self._state.queue(vhost, name)
        if row is None or row.queue_id != queue_id:
            self._changing.forget_queue(vhost, queue_id)
        await self._changing.note(SetQueueStates(vhost, ((name, queue_id, "crashed"),)))

    def was_killed(self, vhost: str, name: str, queue_id: str) -> Coroutine[object, None, None] | None:
        """Handle that the process of the queue has ended, either unasked or because the queue was deleted, and is not
        restarted.

        The messages that a durable queue has on the disk stay there.
        """
        row = self._state.queue(vhost, name)
        if row is None or row.queue_id != queue_id:
            return None
        if self._deletion_of(vhost, name) is not None:
            return None
        if row.durable and self._is_durable:
            return self._changing.note(SetQueueStates(vhost, ((name, queue_id, "stopped"),)))
        return self._changing.note(DeleteQueue(vhost, name, queue_id, is_ended=True))

    async def all_stopped(self, vhost: str) -> None:
        """Mark the queues of this virtual host on this node stopped, because its processes have ended. Queues that
        another node takes over are left out.
        """
        rows = self._state.vhosts.get(vhost)
        if rows is not None:
            state: QueueState = "stopped"
            own = [row for row in rows.queues.values() if row.node == self._here and _has_no_heir(row)]
            states = tuple((row.name, row.queue_id, state) for row in own)
            await self._changing.note(SetQueueStates(vhost, states))

    def published(self, changes: Sequence[Change]) -> None:
        """Answer the processes that waited for these changes, which the routing table has now."""
        for change in changes if self.restart_waiters.is_waited_for else ():
            if isinstance(change, (QueuePut, QueueRemoved)):
                self.restart_waiters.row_changed(change.row.vhost, change.row.name)


def _has_no_heir(row: QueueRow) -> bool:
    """Whether no other node takes over this queue, which is at home here. Only another member of its ring does, because
    a learner may lack messages.
    """
    return row.group is None or len(row.group.ring) == 1


def _may_have_messages(row: QueueRow, node: str) -> AmqpError:
    """The refusal to delete a queue with if-empty whose messages only this node can count, which is down."""
    return AmqpError(
        PRECONDITION_FAILED,
        f"{queue_phrase(row.vhost, row.name)} may have messages: its home node '{node}' is down or inaccessible. "
        "Start that node, or delete the queue without if-empty",
    )


class _Deletion:
    """The deletion of a sharded queue, which has several processes.

    All their rows are removed by one command. A process that has files deletes them only after that, so that a crash
    leaves either the whole logical queue or nothing of it (C-16). Each process therefore waits in `leaves` until all of
    them wait there or have ended.
    """

    __slots__ = ("_changed", "_error", "_gone", "_process", "_ready", "_running", "_waiting")

    def __init__(self, process: Process) -> None:
        self._process = process
        self._changed = Signal(process)
        #: The queues whose processes were asked to end and have not ended; those that wait until the rows are gone.
        self._running: set[str] = set()
        self._waiting: set[str] = set()
        self._gone = False
        self._ready = 0
        self._error: AmqpError | None = None

    async def begin(self, ends: Mapping[str, Coroutine[object, None, tuple[int, bool]]]) -> None:
        """Run the coroutines that end the processes, by the names of their queues, until each process waits in `leaves`
        or has ended. Raises the AmqpError of a process that refused to end.
        """
        self._running |= ends.keys()
        for name, end in ends.items():
            self._process.spawn(self._run(name, end))
        await self._changed.wait_for(lambda: self._running <= self._waiting)
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame

    async def _run(self, name: str, end: Coroutine[object, None, tuple[int, bool]]) -> None:
        try:
            ready, _ = await end
            self._ready += ready
        except AmqpError as error:
            self._error = error
        self._running.discard(name)
        self._changed.wake_all()

    async def leaves(self, name: str) -> None:
        """Note that the process of this queue is about to end. Return when its row is gone."""
        self._waiting.add(name)
        self._changed.wake_all()
        await self._changed.wait_for(lambda: self._gone)

    def rows_are_gone(self) -> None:
        """Let the processes end, because the rows were removed or the deletion was refused."""
        self._gone = True
        self._changed.wake_all()

    async def finish(self) -> int:
        """Return the ready messages of all when every process has ended."""
        await self._changed.wait_for(lambda: not self._running)
        return self._ready
