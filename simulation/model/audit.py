"""The end of a schedule: the clients leave, and an auditor takes out of the queues what is in them: everything that must be there, in order, and nothing that must not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..clients.declaring import EXCHANGE
from ..plan import PLAIN, Action
from . import invariants
from .book import Broken
from .queue_book import QueueBook

if TYPE_CHECKING:
    from ..schedule import Schedule

AUDITOR = "auditor"

#: Of a delivery: the message's priority in its queue, who published it, and as which of theirs.
Found = tuple[int, Any, int]


def leave(schedule: Schedule) -> None:
    """Let everybody get what they wait for, and go."""
    clients = schedule.clients.values()
    for client in clients:
        client.stall(False)
    schedule.until(
        lambda: not any(client.waits_for() for client in clients),
        lambda: "; ".join(filter(None, (client.waits_for() for client in clients))),
    )
    for client in clients:
        client.do(Action(client.name, 0, "close"))
    schedule.until(lambda: not any(client.is_connected for client in clients), lambda: "a connection is not closed")
    _leave_nothing(schedule)


def audit(schedule: Schedule) -> None:
    """Raises Broken if anything is not as it was promised."""
    auditor = schedule.clients[AUDITOR]
    _check_names(schedule)
    # The graves last: what dies under the auditor's eyes is there then.
    queues = sorted(
        (queue for queue in schedule.queues.values() if queue.exists is not False),
        key=lambda queue: bool(queue.sources),
    )
    for queue in queues:
        _take_out(schedule, queue)
    for queue in queues:
        missing = queue.missing()
        if missing:
            raise Broken(
                f"lost: {', '.join(str(copy) for copy in missing)}{' (confirmed)' if any(copy.is_safe for copy in missing) else ''}"
            )
    auditor.do(Action(AUDITOR, 0, "close"))
    schedule.until(lambda: not auditor.is_connected, lambda: "the auditor's connection is not closed")
    _leave_nothing(schedule)
    _check_names(schedule)


def _leave_nothing(schedule: Schedule) -> None:
    if not schedule.mishaps.rest():
        raise Broken("the node does not come to rest")
    assert schedule.node.base is not None
    invariants.check_nobody_there(schedule.node.base)


def _take_out(schedule: Schedule, queue: QueueBook) -> None:
    auditor, kind = schedule.clients[AUDITOR], queue.kind
    auditor.do(Action(AUDITOR, PLAIN, "consume", {"queue": kind.name}))
    schedule.until(lambda: not auditor.waits_for(), lambda: "nobody answers who consumes")
    if not schedule.mishaps.rest():
        raise Broken("the node does not come to rest")
    channel = auditor.channels.get(PLAIN)
    if channel is None:
        raise Broken(f"nobody can consume from queue '{kind.name}'")
    copies = [delivery.copy for delivery in channel.consuming.unacked.values()]
    if kind.drops_head and kind.most is not None and len(copies) > kind.most:
        raise Broken(f"queue '{kind.name}' had {len(copies)} messages, and may have {kind.most}")
    _check_order(
        queue,
        [
            (copy.message.priority if kind.has_priorities else 0, copy.message.channel, copy.message.order)
            for copy in copies
            if copy.source is None
        ],
    )
    channel.do(Action(AUDITOR, PLAIN, "settle", {"which": len(copies) - 1, "multiple": 1}))


def _check_order(queue: QueueBook, found: list[Found]) -> None:
    newest: dict[Any, int] = {}
    lowest = 1 << 30
    for priority, channel, order in found:
        if queue.kind.has_priorities:
            priority = min(priority, int(queue.kind.arguments["x-max-priority"]))
            if priority > lowest:
                raise Broken(f"queue '{queue.kind.name}' gave a message of priority {priority} after one of {lowest}")
            lowest = priority
        if newest.get((channel, priority), 0) > order:
            raise Broken(
                f"what {channel} published to queue '{queue.kind.name}' came out of order: {[number for _, one, number in found if one is channel]}"
            )
        newest[channel, priority] = order


def _check_names(schedule: Schedule) -> None:
    queues = {row["name"] for row in schedule.node.listing("queues")}
    bound = {row["destination_name"] for row in schedule.node.listing("bindings") if row["source_name"] == EXCHANGE}
    for name, queue in schedule.queues.items():
        for what, known, there in (
            ("queue", queue.exists, name in queues),
            ("binding of queue", queue.is_bound, name in bound),
        ):
            if known is not None and known != there:
                raise Broken(
                    f"{what} '{name}' {'is gone, though it was answered for' if known else 'is there, though its end was answered for'}"
                )
