"""Queues: the checks of queue.declare in their order (AB-82 to AB-88), deletion, and states (AB-63)."""

from __future__ import annotations

from dataclasses import replace

from ....amqp.constants import PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....routing.arguments import check_queue_declaration, check_server_named
from ....routing.changes import Change, QueuePut
from ....routing.equivalence import check_queue_equivalence
from ....routing.phrases import check_not_reserved, queue_locked, queue_unavailable
from ....routing.rows import QueueRow
from ....routing.vhost_rows import VhostRows
from .commands import DeclareQueue, DeleteQueue, SetQueueStates
from .effects import Applied, Effect, EndQueue


def new_queue(rows: VhostRows, command: DeclareQueue, max_queues: int | None) -> QueueRow | None:
    """The row to add; None if an equivalent queue exists. Raises AmqpError."""
    wanted = command.row
    vhost, name = wanted.vhost, wanted.name
    if command.server_named:
        check_server_named(wanted.arguments)
    else:
        check_not_reserved("queue", name)
    row = rows.queues.get(name)
    if row is not None:
        if row.state != "running":
            raise queue_unavailable(vhost, name, row.state, row.node)
        if row.exclusive_owner != wanted.exclusive_owner:
            raise queue_locked(vhost, name)
        old = row.durable, row.auto_delete, row.arguments
        check_queue_equivalence(vhost, name, old, (wanted.durable, wanted.auto_delete, wanted.arguments))
        return None
    if max_queues is not None and len(rows.queues) >= max_queues:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"cannot declare queue '{name}': queue limit in vhost '{vhost}' ({max_queues}) is reached",
        )
    check_queue_declaration(wanted)
    return wanted


def delete_queue(rows: VhostRows, command: DeleteQueue) -> Applied:
    row = rows.queues.get(command.name)
    is_there = row is not None and row.queue_id == command.queue_id
    # The process is ended even if the row is gone already: a queue that has deleted its row may crash while it ends,
    # and its supervisor must not restart it.
    effects: list[Effect] = [] if command.is_ended else [EndQueue(command.vhost, command.queue_id)]
    return Applied(rows.remove_queue(command.name) if is_there else [], effects)


def set_queue_states(rows: VhostRows, command: SetQueueStates) -> list[Change]:
    changes: list[Change] = []
    for name, queue_id, state in command.states:
        row = rows.queues.get(name)
        if row is not None and row.queue_id == queue_id and row.state != state:
            row = replace(row, state=state)
            rows.put_queue(row)
            changes.append(QueuePut(row))
    return changes


def check_owner(row: QueueRow, connection_id: str) -> None:
    """Raise AmqpError 405 if the queue belongs to another connection (AB-84)."""
    if row.exclusive_owner is not None and row.exclusive_owner != connection_id:
        raise queue_locked(row.vhost, row.name)
