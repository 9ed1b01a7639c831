"""Queues: declared and deleted (AB-82 to AB-88), owned by a connection (AB-84), and what their supervisors tell of them (AB-63).

A queue's row is in the table while its process runs, and stays there while that is restarted; `changed` says what has become of it. It goes when the queue is deleted, by
whoever asked for it or of itself.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...amqp.constants import CONNECTION_FORCED
from ...amqp.errors import AmqpError
from ...routing import phrases as resources
from ...routing.arguments import check_queue_arguments, check_queue_equivalence, check_server_named
from ...routing.rows import QueueRow
from ...routing.table import Removed
from ...runtime.errors import ProcessDown
from ...store.data_dir.metadata_store import Change
from .row_encoding import queue_change

if TYPE_CHECKING:
    from .process import Metadata

ENDED_REMEMBERED = 1_000
"""Connections; the last so many."""


class Queues:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.exclusive: dict[str, dict[tuple[str, str], None]] = {}  # connection id -> (vhost, name) of its queues
        self._ended: deque[str] = deque(
            maxlen=ENDED_REMEMBERED
        )  # connection ids; a declare of theirs may still be under way
        self._early: list[tuple[Any, ...]] | None = (
            None  # while recovering: what is heard of queues whose rows are not in the table yet
        )

    # --- declared and deleted -----------------------------------------------------------------------------------------

    async def declare(self, wanted: QueueRow, server_named: bool) -> tuple[QueueRow, bool]:
        """The queue's row, and whether it was made."""
        metadata = self._metadata
        vhost, name = wanted.vhost, wanted.name
        metadata.vhosts.check(vhost)
        if server_named:
            check_server_named(wanted.arguments)
        else:
            resources.check_not_reserved("queue", name)
        row = metadata.routing.queue(vhost, name)
        if row is not None:
            if row.state != "running":
                raise resources.queue_unavailable(vhost, name, row.state, metadata.context.node_name)
            if row.exclusive_owner != wanted.exclusive_owner:
                raise resources.queue_locked(vhost, name)
            old = row.durable, row.auto_delete, row.arguments
            check_queue_equivalence(vhost, name, old, (wanted.durable, wanted.auto_delete, wanted.arguments))
            return row, False
        check_queue_arguments(vhost, name, wanted.arguments, metadata.context.node_name)
        is_kept = wanted.durable and metadata.durable.is_kept
        if is_kept:
            await metadata.durable.write(queue_change(wanted))
        try:
            row = await metadata.vhosts.ask_supervisor(vhost, ("start_queue", wanted))
            metadata.vhosts.check(vhost)  # it may have been deleted meanwhile
        except AmqpError:
            if is_kept:
                metadata.durable.note_removed(vhost, Removed([], []), wanted)
            raise
        metadata.routing.put_queue(row)
        if row.exclusive_owner is not None:
            self.exclusive.setdefault(row.exclusive_owner, {})[vhost, name] = None
            if row.exclusive_owner in self._ended:
                # Nobody else would ever delete it.
                await self.delete(vhost, name, False, False, row.exclusive_owner)
                raise AmqpError(
                    CONNECTION_FORCED, f"the connection that declared {resources.queue_phrase(vhost, name)} has ended"
                )
        return row, True

    async def delete(self, vhost: str, name: str, if_unused: bool, if_empty: bool, connection_id: str) -> int:
        """The ready messages it had."""
        metadata = self._metadata
        row = metadata.routing.queue(vhost, name)
        if row is None:
            await metadata.durable.settled(Change("queues", (vhost, name), None))
            return 0
        check_owner(row, connection_id)
        ready, is_left = 0, True
        if row.state == "running":
            with suppress(ProcessDown):  # it crashed or ended just now
                ready = await metadata.ask(row.address, ("delete", if_unused, if_empty))
                is_left = self._is_restarted(vhost, name, row.queue_id, row.address)
        try:
            if self.remove(vhost, name, row.queue_id):
                await metadata.durable.write()
            else:
                # The queue saw to it before it deleted its files, unless the disk is full.
                await metadata.durable.settled(Change("queues", (vhost, name), None))
        finally:
            if is_left and vhost in metadata.vhosts.supervisors:
                # Not to be started again (AB-63). Its files go last (C-17); without a supervisor, when the virtual host is started again.
                await metadata.vhosts.ask_supervisor(vhost, ("forget_queue", row.queue_id))
        return ready

    def ended(self, vhost: str, name: str, queue_id: str, address: Any) -> None:
        """A queue that is about to end at that address wants to be out of the table."""
        is_left = self._is_restarted(vhost, name, queue_id, address)
        self.remove(vhost, name, queue_id)
        if is_left:
            self._forget(vhost, queue_id)

    def _is_restarted(self, vhost: str, name: str, queue_id: str, address: Any) -> bool:
        """Its process there crashed as it ended, and there is a new one by now."""
        row = self._metadata.routing.queue(vhost, name)
        return row is not None and row.queue_id == queue_id and row.address != address

    def _forget(self, vhost: str, queue_id: str) -> None:
        supervisor = self._metadata.vhosts.supervisors.get(vhost)
        if supervisor is not None:
            self._metadata.send(supervisor, ("forget_queue", queue_id))

    def remove(self, vhost: str, name: str, queue_id: str) -> bool:
        """Take a queue and its bindings out of the table (AB-86), unless the name has meanwhile passed to another queue; True if something is to be written."""
        metadata = self._metadata
        row = metadata.routing.queue(vhost, name)
        if row is None or row.queue_id != queue_id:
            return False
        gone = metadata.routing.remove_queue(vhost, name)
        metadata.restarts.look(vhost, name)
        if row.exclusive_owner is not None:
            owned = self.exclusive[row.exclusive_owner]
            del owned[vhost, name]
            if not owned:
                del self.exclusive[row.exclusive_owner]
        return metadata.durable.note_removed(vhost, gone, row)

    # --- owners -------------------------------------------------------------------------------------------------------

    def owner_ended(self, connection_id: str) -> None:
        """A declare of that connection that is still under way is for nothing."""
        self._ended.append(connection_id)

    async def delete_exclusive(self, connection_id: str) -> None:
        """Return when the queues of that connection are gone."""
        metadata = self._metadata
        # To itself, so that each waits its turn among what others do with the name.
        answers = [
            metadata.ask(metadata.myAddress, ("delete_queue", vhost, name, False, False, connection_id))
            for vhost, name in self.exclusive.get(connection_id, ())
        ]
        for answer in answers:
            try:
                await answer
            except AmqpError:
                pass  # the virtual host is down, and its queues with it

    # --- what becomes of them -----------------------------------------------------------------------------------------

    def hold_news(self) -> None:
        """Rows are being put into the table: what is heard of queues whose row is not there yet is kept until `release_news`."""
        self._early = []

    def release_news(self) -> None:
        early, self._early = self._early or [], None
        for changed in early:
            self.changed(*changed)

    def changed(self, vhost: str, name: str, queue_id: str, changes: dict[str, Any]) -> None:
        """Its row has other fields now. One that has gone crashed as it ended, and is not to run again."""
        row = self._metadata.routing.queue(vhost, name)
        if row is not None and row.queue_id == queue_id:
            self.put(replace(row, **changes))
        elif self._early is not None:
            self._early.append((vhost, name, queue_id, changes))
        else:
            self._forget(vhost, queue_id)

    def was_killed(self, vhost: str, name: str, queue_id: str) -> None:
        """It ended without having been asked to. Its messages, if they are on the disk, are not to be lost for that."""
        row = self._metadata.routing.queue(vhost, name)
        if row is not None and row.durable and self._metadata.durable.is_kept:
            if row.queue_id == queue_id:
                self.put(replace(row, state="stopped"))
        else:
            self.remove(vhost, name, queue_id)

    def all_stopped(self, vhost: str) -> None:
        for row in self._metadata.routing.queues(vhost):
            self.put(replace(row, state="stopped"))

    def put(self, row: QueueRow) -> None:
        """This is its row now; who waits for its restart is told what that means."""
        self._metadata.routing.put_queue(row)
        self._metadata.restarts.look(row.vhost, row.name)


def check_owner(row: QueueRow, connection_id: str) -> None:
    """Raises AmqpError 405 if the queue belongs to another connection (AB-84)."""
    if row.exclusive_owner is not None and row.exclusive_owner != connection_id:
        raise resources.queue_locked(row.vhost, row.name)
