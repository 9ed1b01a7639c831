"""`Queues`: declares and deletes queues (AB-82 to AB-88), and keeps their rows true while they crash and restart
(AB-63).

A queue's row is in the routing table while its process runs, and stays there while the process is restarted; `update`
then gives it the new address or state. The row leaves the table when the queue is deleted, whether a client asked for
that or the queue itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...amqp.constants import CONNECTION_FORCED
from ...amqp.errors import AmqpError
from ...routing.arguments import check_queue_arguments, check_server_named
from ...routing.equivalence import check_queue_equivalence
from ...routing.phrases import check_not_reserved, queue_locked, queue_phrase, queue_unavailable
from ...routing.rows import QueueRow
from ...routing.table import Removed, RoutingTable
from ...runtime.contract import Address
from ...runtime.errors import ProcessDown
from ...runtime.process import Process
from ...seams import seam
from ...store.data_dir.metadata_store import Change
from ..node.contract import to_queue_supervisor
from ..queue.contract import to_queue
from .contract import ToMetadata, to_metadata
from .restart_waiters import RestartWaiters
from .row_encoding import queue_change
from .supervisors import QueueSupervisors
from .table_writer import TableWriter

if TYPE_CHECKING:
    from ..queue.contract import ToQueue

#: How many connections that ended are remembered, because a declare of theirs may still be running.
ENDED_REMEMBERED = 1_000


class Queues:
    """Belongs to `process`, the Metadata."""

    def __init__(
        self,
        process: Process,
        routing: RoutingTable,
        node_name: str,
        writer: TableWriter,
        supervisors: QueueSupervisors,
    ) -> None:
        self._process = process
        self._routing = routing
        self._node_name = node_name
        self._writer = writer
        self._supervisors = supervisors
        self.restart_waiters = RestartWaiters(process, routing, node_name)
        #: By connection id: virtual host and name of each exclusive queue.
        self._exclusive: dict[str, dict[tuple[str, str], None]] = {}
        self._ended: deque[str] = deque(maxlen=ENDED_REMEMBERED)
        #: While the table is being filled at the start: updates of queues whose rows are not in it yet. Otherwise None.
        self._held_updates: list[tuple[str, str, str, dict[str, Any]]] | None = None

    # --- declared and deleted ---

    async def declare(self, wanted: QueueRow, server_named: bool) -> tuple[QueueRow, bool]:
        """Return the queue's row, and whether the queue is new."""
        vhost, name = wanted.vhost, wanted.name
        self._supervisors.check_vhost(vhost)
        if server_named:
            check_server_named(wanted.arguments)
        else:
            check_not_reserved("queue", name)
        row = self._routing.queue(vhost, name)
        if row is not None:
            if row.state != "running":
                raise queue_unavailable(vhost, name, row.state, self._node_name)
            if row.exclusive_owner != wanted.exclusive_owner:
                raise queue_locked(vhost, name)
            old = row.durable, row.auto_delete, row.arguments
            check_queue_equivalence(vhost, name, old, (wanted.durable, wanted.auto_delete, wanted.arguments))
            return row, False
        check_queue_arguments(vhost, name, wanted.arguments, self._node_name)
        is_written = wanted.durable and self._writer.is_durable
        if is_written:
            await self._writer.write(queue_change(wanted))
        try:
            row = await self._supervisors.ask(vhost, to_queue_supervisor.start_queue(wanted))
            # The virtual host may have been deleted while the queue started.
            self._supervisors.check_vhost(vhost)
        except AmqpError:
            if is_written:
                self._writer.note_removed(self._routing, vhost, Removed([], []), wanted)
            raise
        self._routing.put_queue(row)
        if row.exclusive_owner is not None:
            self._exclusive.setdefault(row.exclusive_owner, {})[vhost, name] = None
            if row.exclusive_owner in self._ended:
                # The connection has asked to delete its queues before this one existed, so nobody else would delete it.
                await self.delete(vhost, name, False, False, row.exclusive_owner)
                raise AmqpError(
                    CONNECTION_FORCED, f"the connection that declared {queue_phrase(vhost, name)} has ended"
                )
        return row, True

    async def delete(self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> int:
        """Return the number of ready messages that the queue had."""
        row = self._routing.queue(vhost, name)
        if row is None:
            await self._writer.await_pending(Change("queues", (vhost, name), None))
            return 0
        check_owner(row, connection_id)
        ready, has_process = 0, True
        if row.state == "running":
            with suppress(ProcessDown):  # The queue crashed or ended just now.
                ready = await self._process.ask(row.address, to_queue.delete(if_unused, if_empty))
                has_process = self._is_restarted(vhost, name, row.queue_id, row.address)
        try:
            if self.remove(vhost, name, row.queue_id):
                await self._writer.write()
            else:
                # The queue had its row deleted before it deleted its files; on a full disk that is still pending.
                await self._writer.await_pending(Change("queues", (vhost, name), None))
        finally:
            if has_process and vhost in self._supervisors.of:
                # The supervisor must not restart it (AB-63), and deletes its files last (C-17). A virtual host that is
                # down has no supervisor: it deletes the files when it is started again.
                await self._supervisors.ask(vhost, to_queue_supervisor.forget_queue(row.queue_id))
        return ready

    def leaves(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> None:
        """Take a queue out of the table whose process at `address` is about to end by itself."""
        has_process = self._is_restarted(vhost, name, queue_id, address)
        self.remove(vhost, name, queue_id)
        if has_process:
            self._supervisors.forget_queue(vhost, queue_id)

    def _is_restarted(self, vhost: str, name: str, queue_id: str, address: Address[ToQueue]) -> bool:
        """Whether the queue has another process than the one at `address`, which then crashed while it ended."""
        row = self._routing.queue(vhost, name)
        return row is not None and row.queue_id == queue_id and row.address != address

    def remove(self, vhost: str, name: str, queue_id: str) -> bool:
        """Take a queue and its bindings out of the table (AB-86); return whether the disk has to be changed too.

        Does nothing if the name belongs to another queue by now.
        """
        row = self._routing.queue(vhost, name)
        if row is None or row.queue_id != queue_id:
            return False
        removed = self._routing.remove_queue(vhost, name)
        self.restart_waiters.row_changed(vhost, name)
        if row.exclusive_owner is not None:
            owned = self._exclusive[row.exclusive_owner]
            del owned[vhost, name]
            if not owned:
                del self._exclusive[row.exclusive_owner]
        return self._writer.note_removed(self._routing, vhost, removed, row)

    # --- owners ---

    def owner_ended(self, connection_id: str) -> None:
        """Remember that this connection ended: a declare of it that is still running must not leave a queue behind."""
        self._ended.append(connection_id)

    async def delete_exclusive(self, connection_id: str) -> None:
        """Wait until the exclusive queues of this connection are gone."""
        # Metadata asks itself, so that each deletion takes its turn among other operations on the name.
        me: Address[ToMetadata] = self._process.myAddress
        answers = [
            self._process.ask(me, to_metadata.delete_queue(vhost, name, False, False, connection_id))
            for vhost, name in self._exclusive_to(connection_id)
        ]
        for answer in answers:
            # An error means that the virtual host is down, and its queues with it.
            with suppress(AmqpError):
                await answer

    @seam("which queues end with their connection")
    def _exclusive_to(self, connection_id: str) -> Sequence[tuple[str, str]]:
        """The virtual host and name of each queue that ends with this connection."""
        return tuple(self._exclusive.get(connection_id, ()))

    # --- changes of state ---

    def hold_updates(self) -> None:
        """Rows are about to be put into the table: keep updates of queues whose rows are not there yet until
        `release_updates`.
        """
        self._held_updates = []

    def release_updates(self) -> None:
        held, self._held_updates = self._held_updates or [], None
        for update in held:
            self.update(*update)

    def update(self, vhost: str, name: str, queue_id: str, changes: dict[str, Any]) -> None:
        """Change these fields of the queue's row, as its supervisor reports.

        A queue without a row was deleted: its process crashed while it ended, and the supervisor must not restart it.
        """
        row = self._routing.queue(vhost, name)
        if row is not None and row.queue_id == queue_id:
            self.put(replace(row, **changes))
        elif self._held_updates is not None:
            self._held_updates.append((vhost, name, queue_id, changes))
        else:
            self._supervisors.forget_queue(vhost, queue_id)

    def was_killed(self, vhost: str, name: str, queue_id: str) -> None:
        """The queue's process ended though nobody asked it to.

        The messages that a durable queue has on the disk stay there.
        """
        row = self._routing.queue(vhost, name)
        if row is not None and row.durable and self._writer.is_durable:
            if row.queue_id == queue_id:
                self.put(replace(row, state="stopped"))
        else:
            self.remove(vhost, name, queue_id)

    def all_stopped(self, vhost: str) -> None:
        for row in self._routing.queues(vhost):
            self.put(replace(row, state="stopped"))

    def put(self, row: QueueRow) -> None:
        """Put this row in the place of the queue's old one, and answer those who waited for that."""
        self._routing.put_queue(row)
        self.restart_waiters.row_changed(row.vhost, row.name)


def check_owner(row: QueueRow, connection_id: str) -> None:
    """Raise AmqpError 405 if the queue belongs to another connection (AB-84)."""
    if row.exclusive_owner is not None and row.exclusive_owner != connection_id:
        raise queue_locked(row.vhost, row.name)
