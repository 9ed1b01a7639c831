"""The operations that move the masters of mirrored queues (CL-98, CM-65)."""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

from .....amqp.errors import AmqpError
from .....definitions.errors import DefinitionError
from .....definitions.policies import queue_kind
from .....routing.phrases import queue_phrase
from .....routing.rows import Member, MirrorGroup, QueueRow
from .....runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from .....runtime.signal import Signal
from ....contracts.membership import to_membership
from ....contracts.metadata import to_metadata
from ....contracts.node import to_node
from ....contracts.queue import to_queue
from ....metadata.queues.moving import TooFewStay, await_enough
from ....metadata.state.commands import ForceRing, TransferRing
from ..registry import ANSWER_SECONDS, OperationError, Operator, Rows, operation
from .rings import mirrored_queue, replica_status

log = logging.getLogger("warren.mirror")

#: Seconds that the members may take to agree on a change.
CHANGE_SECONDS = 15.0

#: How often a move is begun, if the ring changes while the master comes to rest.
ATTEMPTS = 3

#: How many masters leave a node at once, and seconds that all of them may take. A node that stops waits no longer.
MOVED_AT_ONCE = 32
MOVING_SECONDS = 15.0

#: Seconds between two looks at whether the node still reaches a majority.
LOOK_SECONDS = 0.25


@operation()
async def promote(
    operator: Operator, *, name: str, vhost: str, node: str, is_forced: bool = False, accept_loss: bool = False
) -> bool:
    """Make the replica on this node, which must be in sync, the master of its queue. False if it is already.

    If `is_forced`, a replica that is not in sync may be chosen, or one of a queue that is down. It is the only one
    then, and messages that it lacks are lost, so that needs `accept_loss` (CL-100).
    """
    row, group = mirrored_queue(operator, vhost, name)
    is_up = row.state != "down"
    if group.master.node == node and is_up:
        return False
    to = next((member for member in group.ring if member.node == node and is_up), None)
    if to is None and is_forced:
        await _force(operator, row, group, node, accept_loss)
        return True
    if to is None:
        others = ", ".join(member.node for member in group.ring[1:]) or "no other node"
        raise OperationError(
            "unavailable",
            f"{node} has no replica of {queue_phrase(vhost, name)} that is in sync; {others} may be chosen",
        )
    await _move(operator, row, to)
    return True


async def _force(operator: Operator, row: QueueRow, group: MirrorGroup, node: str, accept_loss: bool) -> None:
    """Make the replica on this node the only one, and have the queue go on with what it has. Raises OperationError."""
    context, phrase = operator.context, queue_phrase(row.vhost, row.name)
    choices = {member.node: await _choice(operator, row, group, member) for member in group.everyone}
    for left, epoch in reversed(group.was):
        choices.setdefault(left, f"left the ring at epoch {epoch} of {group.epoch} with all messages of that moment")
    running = {found.name for found in context.definitions.nodes.values() if found.incarnation}
    lines = [f"{name}: {text}{'' if name in running else ', does not run'}" for name, text in choices.items()]
    if node not in choices or node not in running:
        why = "has never had a replica that was in sync" if node not in choices else "does not run"
        raise OperationError("unavailable", f"{node} {why}. Replicas of {phrase}:", tuple(lines))
    if not accept_loss:
        text = (
            f"{phrase} loses each message that the replica on {node} lacks, and all other replicas begin without"
            " messages. Repeat the command with --accept-loss if that is wanted. Replicas:"
        )
        raise OperationError("unavailable", text, tuple(lines))
    command = ForceRing(row.vhost, row.name, row.queue_id, node, f"an operator of {context.node_name}")
    try:
        answer = operator.process.ask(context.metadata, to_metadata.change_definitions(command), CHANGE_SECONDS)
        changed = await answer
    except (DefinitionError, ProcessDown, ProcessTimeout, ProcessError) as error:
        raise OperationError("unavailable", f"the nodes have not agreed to force {phrase}: {error}") from None
    if not changed:
        raise OperationError("unavailable", f"the replicas of {phrase} have changed meanwhile; try again")
    log.warning("%s: an operator has made the replica on %s the only one; messages may be lost", phrase, node)


async def _choice(operator: Operator, row: QueueRow, group: MirrorGroup, member: Member) -> str:
    """What is known of a member that an operator may choose."""
    status = await replica_status(operator, row, member)
    has = "" if status is None else f", {status['messages']} messages"
    if member in group.ring:
        return f"in sync at epoch {group.epoch}{has}"
    return f"not in sync{has}" if status is None else f"not in sync ({status['stage']}){has}"


async def _move(operator: Operator, row: QueueRow, to: Member) -> None:
    """Have the master come to rest, and make this member the master. Raises OperationError."""
    phrase = queue_phrase(row.vhost, row.name)
    for _ in range(ATTEMPTS):
        current = await _enough_stay(operator, row)
        if current is None or current.group is None or to not in current.group.ring:
            break
        try:
            changed = await _move_once(operator, current, to)
        except AmqpError as error:
            raise OperationError("unavailable", error.text) from None
        except (DefinitionError, ProcessDown, ProcessTimeout, ProcessError) as error:
            # The master stays at rest for a while: the change may still be made.
            raise OperationError("unavailable", f"the master of {phrase} has not moved: {error}") from None
        if changed:
            return
        # A replica has come or gone meanwhile, such as the one that was the master before this one.
    raise OperationError("unavailable", f"the replicas of {phrase} have changed meanwhile; try again")


def _current(operator: Operator, row: QueueRow) -> QueueRow | None:
    current = operator.context.routing.queue(row.vhost, row.name)
    return current if current is not None and current.queue_id == row.queue_id else None


async def _enough_stay(operator: Operator, row: QueueRow) -> QueueRow | None:
    """Wait until the queue would have enough replicas in sync without its master, and return its row then. Raises
    OperationError.
    """
    context = operator.context
    try:
        return await await_enough(operator.process, context.definitions, context.peers, lambda: _current(operator, row))
    except TooFewStay as error:
        raise OperationError("unavailable", str(error)) from None


async def _move_once(operator: Operator, row: QueueRow, to: Member) -> bool:
    process, context = operator.process, operator.context
    assert row.group is not None
    master = context.peers.replica(row.queue_id, row.group.master)
    epoch = await process.ask(master, to_queue.quiesce(), timeout=ANSWER_SECONDS)
    changed = False
    if epoch == row.group.epoch:
        command = TransferRing(row.vhost, row.name, row.queue_id, epoch, to)
        changed = bool(await process.ask(context.metadata, to_metadata.change_definitions(command), CHANGE_SECONDS))
    if not changed:
        process.send(master, to_queue.go_on())
    return changed


async def move_masters_away(operator: Operator) -> None:
    """Have replicas on other nodes become the masters of the queues whose masters are here (CM-65). A queue that cannot
    be moved, or has no other replica in sync, stays.
    """
    here = operator.context.node_name
    usable = {node.name for node in operator.context.definitions.nodes.values() if not node.in_maintenance}
    led = Counter(row.node for row in _replicated(operator))
    moves: deque[tuple[QueueRow, Member]] = deque()
    for row in _replicated(operator):
        assert row.group is not None
        others = [member for member in row.group.ring[1:] if member.node in usable]
        if row.node == here and others:
            to = min(others, key=lambda member: (led[member.node], member.node))
            led[to.node] += 1
            moves.append((row, to))
    running = min(MOVED_AT_ONCE, len(moves))
    is_done = Signal(operator.process)

    async def move_some() -> None:
        nonlocal running
        while moves:
            row, to = moves.popleft()
            try:
                await _move(operator, row, to)
            except OperationError as error:
                log.warning("%s", error)
        running -= 1
        is_done.wake_all()

    for _ in range(running):
        operator.process.spawn(move_some())
    if not await _done_in_time(operator, is_done, lambda: not running):
        moves.clear()
        log.warning(
            "not all masters have left %s: it took more than %g s, or the node cannot reach a majority of its cluster",
            here,
            MOVING_SECONDS,
        )


async def _done_in_time(operator: Operator, is_done: Signal, check: Callable[[], bool]) -> bool:
    """Wait for `check` for `MOVING_SECONDS`, and no longer than the node is connected to a majority: without one,
    nothing is agreed on. Return whether it holds.
    """
    process = operator.process
    end = process.now() + MOVING_SECONDS
    while not check():
        try:
            await is_done.wait_for(check, LOOK_SECONDS)
        except ProcessTimeout:
            if process.now() >= end or not await has_majority(operator):
                return False
    return True


async def has_majority(operator: Operator) -> bool:
    """Whether the node is connected to a majority of its cluster, and may act for it."""
    context, process = operator.context, operator.process
    if context.members is None:
        return False
    try:
        status = await process.ask(context.members, to_membership.membership(), timeout=ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return False
    linked = [member["node"] for member in status["members"] if member["is_linked"]]
    reached = sum(voter in linked for voter in status["voters"])
    return status["stage"] == "running" and 2 * reached > len(status["voters"])


@operation()
async def rebalance(
    operator: Operator,
    *,
    kind: Literal["all", "classic", "quorum"] = "all",
    vhost_pattern: str = "",
    queue_pattern: str = "",
    is_waiting: bool = True,
) -> Rows:
    """Spread the masters of replicated queues evenly over their nodes, by moving them to replicas that are in sync.

    Returns how many queues each running member leads then, or at once without `is_waiting`.
    """
    try:
        patterns = re.compile(vhost_pattern), re.compile(queue_pattern)
    except re.error as error:
        raise OperationError("data", f"Bad argument: a pattern is no regular expression: {error}") from None
    if is_waiting:
        await _spread(operator, kind, *patterns)
    else:
        # The process of this operation ends when its client has the answer, so the node's process moves the masters.
        arguments: dict[str, object] = {"kind": kind, "vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
        operator.process.send(operator.node, to_node.go_on_with("rebalance", arguments))
    return _led(operator)


async def _spread(operator: Operator, kind: str, vhosts: re.Pattern[str], queues: re.Pattern[str]) -> None:
    """Move masters as long as that makes the numbers of two nodes more equal. Each queue moves once at most."""
    nodes = {node.name for node in operator.context.definitions.nodes.values() if not node.in_maintenance}
    rows = [
        row
        for row in _replicated(operator)
        if kind in ("all", queue_kind(row.type)) and vhosts.search(row.vhost) and queues.search(row.name)
    ]
    led = Counter(row.node for row in rows)
    for row in sorted(rows, key=lambda row: (row.vhost, row.name)):
        current = operator.context.routing.queue(row.vhost, row.name)
        if current is None or current.group is None or current.queue_id != row.queue_id:
            continue
        others = [member for member in current.group.ring[1:] if member.node in nodes]
        to = min(others, key=lambda member: (led[member.node], member.node), default=None)
        if to is None or led[to.node] + 1 >= led[current.node]:
            continue
        try:
            await _move(operator, current, to)
        except OperationError as error:
            log.warning("%s", error)
            if not await has_majority(operator):
                # Each of the other moves would fail after a quarter of a minute.
                raise OperationError(
                    "unavailable",
                    "the other masters have not been moved, because the node cannot reach a majority of its cluster",
                ) from None
        else:
            led[current.node] -= 1
            led[to.node] += 1


def _replicated(operator: Operator) -> list[QueueRow]:
    routing = operator.context.routing
    return [row for vhost in routing.vhosts() for row in routing.queues(vhost) if row.group is not None]


def _led(operator: Operator) -> Rows:
    nodes = [node.name for node in operator.context.definitions.nodes.values() if node.incarnation]
    led = Counter((queue_kind(row.type), row.node) for row in _replicated(operator))
    return [
        {
            "Node name": name,
            "Number of quorum queues": led["quorum", name],
            "Number of replicated classic queues": led["classic", name],
        }
        for name in sorted(nodes) or [operator.context.node_name]
    ]
