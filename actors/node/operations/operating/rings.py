"""The operations about the rings of mirrored queues (CL-101)."""

from __future__ import annotations

from .....amqp.errors import AmqpError
from .....routing.queue_types import QUORUM
from .....routing.rows import Member, MirrorGroup, QueueRow
from .....runtime.errors import ProcessDown, ProcessTimeout
from ....metadata.info_items import InfoItems
from ....queue.contract import to_queue
from ..registry import ANSWER_SECONDS, OperationError, Operator, operation


@operation()
async def show_ring(operator: Operator, *, name: str, vhost: str) -> dict[str, object]:
    """The ring of a mirrored queue: its members in order, the master first, and then its learners.

    `received` and `stored` are positions of the stream, and None for a member that does not answer. `lag` is how many
    instructions of the master a member has not received, and `unstored` how many it has received and not stored. The
    members answer one after the other, so a busy ring shows small differences.
    """
    row, group = _mirrored(operator, vhost, name)
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
    }


async def _member(operator: Operator, row: QueueRow, group: MirrorGroup, member: Member) -> InfoItems:
    role = "master" if member == group.master else "mirror" if member in group.ring else "learner"
    items: InfoItems = {"node": member.node, "role": role, "stage": None, "received": None, "stored": None}
    items |= {"lag": 0, "unstored": 0, "waiting": None, "messages": None}
    return {**items, **(await _status(operator, row, member) or {})}


async def _status(operator: Operator, row: QueueRow, member: Member) -> InfoItems | None:
    """How far this member is; None if it does not run or does not answer."""
    address = operator.context.peers.replica(row.queue_id, member)
    try:
        answer: InfoItems = await operator.process.ask(address, to_queue.replica_status(), timeout=ANSWER_SECONDS)
    except (AmqpError, ProcessDown, ProcessTimeout):
        return None
    return answer


def _mirrored(operator: Operator, vhost: str, name: str) -> tuple[QueueRow, MirrorGroup]:
    """The row of a queue, and its group. The refusals are RabbitMQ's."""
    row = operator.context.routing.queue(vhost, name)
    if row is None:
        raise OperationError("unavailable", "not_found")
    if row.group is None:
        raise OperationError("unavailable", "quorum_queue_not_supported" if row.type == QUORUM.name else "not_mirrored")
    return row, row.group
