"""Queues: the checks of queue.declare in their order (AB-82 to AB-88), deletion, and states (AB-63)."""

from __future__ import annotations

from dataclasses import replace

from ....amqp.constants import NOT_FOUND, PRECONDITION_FAILED
from ....amqp.errors import AmqpError
from ....definitions import patterns
from ....definitions.definitions import Definitions
from ....definitions.features import LIVE_HOMES
from ....routing.arguments.equivalence import check_queue_equivalence
from ....routing.arguments.group_arguments import PATTERN
from ....routing.arguments.queue_arguments import check_queue_declaration, check_server_named
from ....routing.changes import Change, QueuePut
from ....routing.phrases import check_not_reserved, queue_locked, queue_phrase, queue_unavailable, value_text
from ....routing.queue_types import GROUP
from ....routing.rows import QueueRow
from ....routing.shards import check_not_shard, shard_name
from ....routing.vhost_rows import VhostRows
from .commands import DeclareQueue, DeleteQueue, RestartQueue, SetQueueStates
from .effects import Applied, Effect, EndQueue
from .groups import declared, is_running

#: The longest name that a client can write into a method, in bytes.
NAME_MAX = 255


def new_queues(
    rows: VhostRows, command: DeclareQueue, max_queues: int | None, definitions: Definitions
) -> tuple[QueueRow, ...]:
    """The rows to add; none if an equivalent queue exists. The rows of shards come before that of their logical queue,
    so that it never runs before one of its shards. Raises AmqpError.
    """
    wanted = command.row
    vhost, name = wanted.vhost, wanted.name
    if command.server_named:
        check_server_named(wanted.arguments)
    else:
        check_not_reserved("queue", name)
    row = rows.queues.get(name)
    check_not_shard(row)
    if row is not None:
        if row.state != "running":
            raise queue_unavailable(vhost, name, row.state, row.node)
        if row.exclusive_owner != wanted.exclusive_owner:
            raise queue_locked(vhost, name)
        old = row.durable, row.auto_delete, row.arguments
        check_queue_equivalence(vhost, name, old, (wanted.durable, wanted.auto_delete, wanted.arguments))
        return ()
    if max_queues is not None and len(rows.queues) - rows.shard_count >= max_queues:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"cannot declare queue '{name}': queue limit in vhost '{vhost}' ({max_queues}) is reached",
        )
    check_queue_declaration(wanted)
    _check_group_pattern(wanted)
    for shard in command.shards:
        _check_shard_name(rows, wanted, shard.name)
    new = tuple(declared(definitions, row) for row in (*command.shards, wanted))
    for row in new:
        _check_home(definitions, row)
    return new


def _check_home(definitions: Definitions, row: QueueRow) -> None:
    """Raise AmqpError 404 if the home of a new queue has ended since it was chosen (CL-58).

    No command would give the queue the state `down`, or remove it if it is transient: the one that declared the end of
    the home has been applied before. A node that is alone is listed nowhere.
    """
    is_checked = definitions.nodes and (LIVE_HOMES,) in definitions.features
    if is_checked and not is_running(definitions, row.node):
        raise AmqpError(
            NOT_FOUND,
            f"cannot declare {queue_phrase(row.vhost, row.name)}: node '{row.node}', which was chosen as its home, is"
            " down. Declare it again",
        )


def _check_group_pattern(wanted: QueueRow) -> None:
    """Raise AmqpError 406 if the pattern for the members of a group is not a regular expression (QP-75)."""
    found = wanted.arguments.get(PATTERN) if wanted.type == GROUP.name else None
    fault = "" if found is None else patterns.fault(value_text(found[1]))
    if fault:
        phrase = queue_phrase(wanted.vhost, wanted.name)
        raise AmqpError(
            PRECONDITION_FAILED, f"invalid arg '{PATTERN}' for {phrase}: it is not a regular expression: {fault}"
        )


def _check_shard_name(rows: VhostRows, wanted: QueueRow, name: str) -> None:
    """Raise AmqpError 406 if a shard cannot have this name (FC-88)."""
    if len(name.encode("utf-8", "surrogateescape")) > NAME_MAX:
        # The queue's own name would leave no room for anything else in the reply text.
        raise AmqpError(
            PRECONDITION_FAILED,
            f"cannot declare {wanted.shards} shards: their names would have more than {NAME_MAX} bytes. "
            "Choose a shorter name for the queue.",
        )
    if name in rows.queues:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"cannot declare {queue_phrase(wanted.vhost, wanted.name)} with {wanted.shards} shards: "
            f"queue '{name}' exists already. Delete it, or choose another name.",
        )


def delete_queue(rows: VhostRows, command: DeleteQueue) -> Applied:
    row = rows.queues.get(command.name)
    is_there = row is not None and row.queue_id == command.queue_id
    # The process is ended even if the row is gone already: a queue that has deleted its row may crash while it ends,
    # and its supervisor must not restart it.
    effects: list[Effect] = [] if command.is_ended else [EndQueue(command.vhost, command.queue_id)]
    if row is None or not is_there:
        return Applied([], effects)
    changes = rows.remove_queue(command.name)
    for index in range(row.shards):
        shard = rows.queues.get(shard_name(row.name, index))
        if shard is not None and shard.shard_of == row.name:
            changes += rows.remove_queue(shard.name)
            effects.append(EndQueue(command.vhost, shard.queue_id))
    return Applied(changes, effects)


def set_queue_states(rows: VhostRows, command: SetQueueStates) -> list[Change]:
    changes: list[Change] = []
    for name, queue_id, state in command.states:
        row = rows.queues.get(name)
        if row is not None and row.queue_id == queue_id and row.state != state:
            row = replace(row, state=state)
            rows.put_queue(row)
            changes.append(QueuePut(row))
    return changes


def restart_queue(rows: VhostRows, command: RestartQueue) -> list[Change]:
    row = rows.queues.get(command.name)
    if row is None or row.queue_id != command.queue_id or row.generation >= command.generation:
        return []
    row = replace(row, state="running", generation=command.generation)
    rows.put_queue(row)
    return [QueuePut(row)]


def check_owner(row: QueueRow, connection_id: str) -> None:
    """Raise AmqpError 405 if the queue belongs to another connection (AB-84)."""
    if row.exclusive_owner is not None and row.exclusive_owner != connection_id:
        raise queue_locked(row.vhost, row.name)
