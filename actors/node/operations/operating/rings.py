"""The operations about the rings of mirrored queues (CL-101)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from .....amqp.errors import AmqpError
from .....routing.queue_types import QUORUM
from .....routing.rows import Member, MirrorGroup, QueueRow
from .....runtime.errors import ProcessDown, ProcessTimeout
from ....contracts.info_items import InfoItems
from ....contracts.node import to_node
from ....contracts.queue import to_queue
from ..registry import ANSWER_SECONDS, OperationError, Operator, Rows, operation

#: Rings whose members are asked together.
RINGS_AT_ONCE = 50

#: Seconds between two requests for the status of the learners of a queue that is being synchronised.
SYNC_SECONDS = 0.25

#: What a learner reports of its copy (`CopyProgress` in `mirror/sync/copy_progress.py`); each is None for a learner
#: that does not answer or has an older version.
PROGRESS = ("compared", "copied", "copied_bytes", "left", "bytes_per_second", "seconds_left", "alarms")

#: Seconds for which a synchronisation waits for a node that lacks its replica.
REPLACED_SECONDS = 10.0


@operation()
async def show_ring(operator: Operator, *, name: str, vhost: str) -> dict[str, object]:
    """The ring of a mirrored queue: its members in order, the master first, and then its learners.

    `received` and `stored` are positions of the stream, and None for a member that does not answer. `lag` is how many
    instructions of the master a member has not received, and `unstored` how many it has received and not stored. A
    learner has the items of `PROGRESS` too. The members answer one after the other, so a busy ring shows small
    differences.
    """
    row, group = mirrored_queue(operator, vhost, name)
    members = [await _member(operator, row, group, member) for member in group.everyone]
    last = members[0]["received"]
    for member in members[1:]:
        received, stored = member["received"], member["stored"]
        known = received is not None and last is not None
        member["lag"] = max(0, last - received) if known else None
        member["unstored"] = max(0, received - stored) if received is not None else None
    there = {member.node for member in group.everyone}
    return {
        "name": row.name,
        "vhost": row.vhost,
        "state": row.state,
        "epoch": group.epoch,
        "reign": group.reign,
        "members": members,
        "missing": [node for node in group.wanted if node not in there],
        "evicted": [{"node": node, "reason": reason} for node, reason in group.evicted],
        "forced": [{"by": by, "epoch": epoch} for by, epoch in group.forced],
    }


@operation()
async def rings(operator: Operator, *, vhost: str, name: str | None = None) -> Rows:
    """A row for the ring of each mirrored queue of a virtual host, or of one queue (CM-68).

    members           the nodes of the ring in order, the master first
    learners          nodes that have a replica and are not in the ring yet
    view_version      the epoch of the ring
    alive, dead       how many replicas answer, and the nodes that do not or that lack a replica
    pending_messages  instructions of the master that some member has not stored, as far as they answer
    """
    if name is not None:
        mirrored_queue(operator, vhost, name)
    elif not operator.context.routing.has_vhost(vhost):
        raise OperationError("data", f"Virtual host '{vhost}' does not exist")
    found = [
        row for row in operator.context.routing.queues(vhost) if row.group is not None and name in (None, row.name)
    ]
    listed: Rows = []
    for start in range(0, len(found), RINGS_AT_ONCE):
        rows = found[start : start + RINGS_AT_ONCE]
        members = [(row, member) for row in rows if row.group is not None for member in row.group.everyone]
        answers = await operator.process.ask_each(
            [
                (operator.context.peers.replica(row.queue_id, member), to_queue.replica_status())
                for row, member in members
            ],
            ANSWER_SECONDS,
        )
        standing: dict[str, dict[str, InfoItems | None]] = {}
        for (row, member), answer in zip(members, answers):
            status = None if isinstance(answer, Exception) else answer
            standing.setdefault(row.name, {})[member.node] = status
        listed += [_ring_row(row, row.group, standing[row.name]) for row in rows if row.group is not None]
    return listed


def _ring_row(row: QueueRow, group: MirrorGroup, standing: dict[str, InfoItems | None]) -> dict[str, object]:
    there = [member.node for member in group.everyone]
    ring = [member.node for member in group.ring]
    known = [status for node in ring if (status := standing[node]) is not None]
    last = max((status["received"] for status in known), default=0)
    return {
        "queue": row.name,
        "type": row.type,
        "state": row.state,
        "master": group.master.node,
        "members": ring,
        "learners": [member.node for member in group.learners],
        "view_version": group.epoch,
        "alive": sum(status is not None for status in standing.values()),
        "dead": [
            *[node for node, status in standing.items() if status is None],
            *[node for node in group.wanted if node not in there],
        ],
        "pending_messages": max((last - status["stored"] for status in known), default=0),
    }


@operation()
async def sync_queue(operator: Operator, *, name: str, vhost: str) -> AsyncIterator[Rows]:
    """Have the learners of a mirrored queue copy it (CM-165). Ends when no learner is left, or when an operator has
    stopped them. Yields every `SYNC_SECONDS`, for each learner, its stage, how many messages it has, how many the
    queue has, and the items of `PROGRESS`; the stage of one that does not answer is None. In the last rows `is_stopped`
    is true: these learners do not copy the queue, because an operator has stopped them.
    """
    asked: set[Member] = set()
    complete_at = operator.process.now()
    while True:
        row, group = _classic(operator, vhost, name)
        facts = [(member, await replica_status(operator, row, member)) for member in group.learners]
        known = [(member, status) for member, status in facts if status is not None]
        # When a replica joins the ring, the others that copy the queue begin anew, and have forgotten that they were
        # asked. Before that, their nodes have none for a moment.
        left = [(member, status) for member, status in known if member not in asked or not _is_stopped(status)]
        now = operator.process.now()
        if left or not _lacks_replica(operator, group):
            complete_at = now
        if not left and len(known) == len(facts) and (complete_at == now or now - complete_at > REPLACED_SECONDS):
            if known:
                yield [_sync_row(member, status, None) | {"is_stopped": True} for member, status in known]
            return
        for member, status in left:
            if member not in asked or status["stage"] == "waiting":
                if await _synchronise(operator, row, member, True) is not None:
                    asked.add(member)
        master = await replica_status(operator, row, group.master)
        total = None if master is None else master["messages"]
        yield [_sync_row(member, status or {}, total) for member, status in facts]
        await operator.process.sleep(SYNC_SECONDS)


def _sync_row(member: Member, status: InfoItems, total: int | None) -> dict[str, object]:
    row: dict[str, object] = {"node": member.node, "total": total, "is_stopped": False}
    return row | {name: status.get(name) for name in ("stage", "messages", *PROGRESS)}


def _is_stopped(status: InfoItems) -> bool:
    """Whether a learner that was asked waits because an operator has stopped it. One of an older version does not
    report why it waits.
    """
    return status["stage"] == "waiting" and bool(status.get("is_stopped", True))


def _lacks_replica(operator: Operator, group: MirrorGroup) -> bool:
    """Whether a running node that should have a replica has none now."""
    there = {member.node for member in group.everyone}
    running = {node.name for node in operator.context.definitions.nodes.values() if node.incarnation}
    return any(node in running and node not in there for node in group.wanted)


@operation()
async def cancel_sync_queue(operator: Operator, *, name: str, vhost: str) -> bool:
    """Have the learners of a mirrored queue stop copying it (CM-166). They keep what they have, and wait. Returns
    whether any of them was copying.
    """
    row, group = _classic(operator, vhost, name)
    return any([await _synchronise(operator, row, member, False) for member in group.learners])


@operation()
async def queue_action(operator: Operator, *, name: str, vhost: str, action: Literal["sync", "cancel_sync"]) -> bool:
    """Begin or stop to synchronise a queue without waiting. A queue without replicas has nothing to do."""
    row = operator.context.routing.queue(vhost, name)
    learners = () if row is None or row.group is None else row.group.learners
    for member in learners:
        assert row is not None
        await _synchronise(operator, row, member, action == "sync")
    if learners and action == "sync":
        operator.process.send(operator.node, to_node.go_on_with("sync_queue", {"name": name, "vhost": vhost}))
    return True


async def _synchronise(operator: Operator, row: QueueRow, member: Member, is_wanted: bool) -> bool | None:
    """Have the learner copy the queue, or stop copying. Returns whether it changed anything; None without an answer."""
    address = operator.context.peers.replica(row.queue_id, member)
    try:
        answer: bool = await operator.process.ask(address, to_queue.synchronise(is_wanted), timeout=ANSWER_SECONDS)
    except (AmqpError, ProcessDown, ProcessTimeout):
        return None
    return answer


async def _member(operator: Operator, row: QueueRow, group: MirrorGroup, member: Member) -> InfoItems:
    role = "master" if member == group.master else "mirror" if member in group.ring else "learner"
    items: InfoItems = {"node": member.node, "role": role, "stage": None, "received": None, "stored": None}
    items |= {"lag": 0, "unstored": 0, "waiting": None, "messages": None}
    items |= dict.fromkeys(PROGRESS if role == "learner" else ())
    status = await replica_status(operator, row, member) or {}
    return {key: status.get(key, value) for key, value in items.items()}


async def replica_status(operator: Operator, row: QueueRow, member: Member) -> InfoItems | None:
    """How far this member is; None if it does not run or does not answer."""
    address = operator.context.peers.replica(row.queue_id, member)
    try:
        answer: InfoItems = await operator.process.ask(address, to_queue.replica_status(), timeout=ANSWER_SECONDS)
    except (AmqpError, ProcessDown, ProcessTimeout):
        return None
    return answer


def mirrored_queue(operator: Operator, vhost: str, name: str) -> tuple[QueueRow, MirrorGroup]:
    """The row of a queue, and its group. The refusals are RabbitMQ's."""
    row = operator.context.routing.queue(vhost, name)
    if row is None:
        raise OperationError("unavailable", "not_found")
    if row.group is None:
        raise OperationError("unavailable", "quorum_queue_not_supported" if row.type == QUORUM.name else "not_mirrored")
    return row, row.group


def _classic(operator: Operator, vhost: str, name: str) -> tuple[QueueRow, MirrorGroup]:
    """As `mirrored_queue`, for a classic queue only: RabbitMQ refuses to synchronise quorum queues."""
    row, group = mirrored_queue(operator, vhost, name)
    if row.type == QUORUM.name:
        raise OperationError("unavailable", "quorum_queue_not_supported")
    return row, group
