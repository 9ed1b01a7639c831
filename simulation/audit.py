"""The end of a schedule: the clients leave, and an auditor empties the queues.

Every message that must be in a queue has to come, in order, and no other. After that, queues and bindings must be those
that the model expects, and nothing may be left of any connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clients.block_read import BlockRead
from .model import invariants
from .model.copies import Copy, PromiseBroken
from .model.protocols import ObservedChannel
from .model.queue_model import QueueModel
from .plan import PLAIN, Action
from .queue_kinds import EXCHANGE

if TYPE_CHECKING:
    from .schedule import Schedule

#: The name of the client that empties the queues.
AUDITOR = "auditor"

#: A delivered message: its priority in the queue, the channel that published it, and its place among the publishes of
#: that channel.
Delivered = tuple[int, ObservedChannel, int]


def leave(schedule: Schedule) -> None:
    """Let every client receive the answers that it waits for, and close its connection."""
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
    _check_nothing_left(schedule)


def audit(schedule: Schedule) -> None:
    """Empty the queues. Raises PromiseBroken if anything is not as it was promised."""
    auditor = schedule.clients[AUDITOR]
    _check_names(schedule)
    # Empty the queue for dead letters last, so that it has by then the messages that died while the others were
    # emptied.
    queues = sorted(
        (queue for queue in schedule.queues.values() if queue.exists is not False),
        key=lambda queue: bool(queue.dead_letter_sources),
    )
    unseen = [copy for queue in queues for copy in queue.deaths.unseen()]
    for queue in queues:
        _empty(schedule, queue)
    _check_once(unseen)
    for queue in queues:
        missing = queue.missing()
        if missing:
            is_safe = any(copy.is_safe for copy in missing)
            raise PromiseBroken(f"lost: {', '.join(str(copy) for copy in missing)}{' (confirmed)' if is_safe else ''}")
    auditor.do(Action(AUDITOR, 0, "close"))
    schedule.until(lambda: not auditor.is_connected, lambda: "the auditor's connection is not closed")
    _check_nothing_left(schedule)
    _check_names(schedule)


def _check_once(unseen: list[Copy]) -> None:
    """Check that the auditor or a client received either each message or its dead letter, and received it once. No
    crash may lose both or leave both.
    """
    for copy in unseen:
        times = copy.seen + (copy.dead_letter.seen if copy.dead_letter is not None else 0)
        if times != 1:
            raise PromiseBroken(
                f"{copy} was confirmed, and it and its dead letter were there {times} times instead of once"
            )


def _check_nothing_left(schedule: Schedule) -> None:
    _rest(schedule)
    assert schedule.node.base is not None
    invariants.check_no_clients(schedule.node.base)


def _rest(schedule: Schedule) -> None:
    if not schedule.faults.rest():
        raise PromiseBroken("the node does not come to rest")


def _empty(schedule: Schedule, queue: QueueModel) -> None:
    """Consume everything in the queue, check it, and acknowledge it."""
    auditor, kind = schedule.clients[AUDITOR], queue.kind
    read = _read(schedule, queue) if kind.is_numbered else None
    auditor.do(Action(AUDITOR, PLAIN, "consume", {"queue": kind.name}))
    schedule.until(lambda: not auditor.waits_for(), lambda: "the auditor's consume is not answered")
    _rest(schedule)
    channel = auditor.channels.get(PLAIN)
    if channel is None:
        raise PromiseBroken(f"nobody can consume from queue '{kind.name}'")
    copies = [delivery.copy for delivery in channel.consuming.unacked.values()]
    if read is not None:
        _check_read(read, [copy.message.number for copy in copies], schedule)
    if kind.drops_head and kind.max_length is not None and len(copies) > kind.max_length:
        raise PromiseBroken(f"queue '{kind.name}' had {len(copies)} messages; its limit is {kind.max_length}")
    _check_order(
        queue,
        [
            (copy.message.priority if kind.has_priorities else 0, copy.message.channel, copy.message.order)
            for copy in copies
            if copy.source is None
        ],
    )
    _check_order_of_deaths(copies)
    channel.do(Action(AUDITOR, PLAIN, "settle", {"which": len(copies) - 1, "multiple": 1}))


def _read(schedule: Schedule, queue: QueueModel) -> BlockRead | None:
    """Read everything in the queue in blocks. None if the queue has gone meanwhile."""
    auditor = schedule.clients[AUDITOR]
    auditor.do(Action(AUDITOR, PLAIN, "read", {"queue": queue.kind.name}))
    schedule.until(lambda: not auditor.waits_for(), lambda: "the auditor's read is not answered")
    channel = auditor.channels.get(PLAIN)
    if channel is None or not channel.consuming.reads:
        return None
    read = list(channel.consuming.reads.values())[-1]
    schedule.until(lambda: read.has_ended, lambda: f"the blocks of queue '{queue.kind.name}' do not end")
    return read


def _check_read(read: BlockRead, delivered: list[int], schedule: Schedule) -> None:
    """Check that everything that the consumer got was in the blocks, in the same order. The blocks were read first, so
    they may contain messages that expired before the consumer came.
    """
    numbers = iter([schedule.number_in(body) for body in read.bodies])
    missing = [number for number in delivered if number not in numbers]  # `in` consumes the iterator
    if missing:
        raise PromiseBroken(
            f"queue '{read.queue}' delivered message {missing[0]}, which was not in its blocks at that place"
        )


def _check_order(queue: QueueModel, delivered: list[Delivered]) -> None:
    if queue.kind.is_sharded:
        return
    newest: dict[tuple[ObservedChannel, int], int] = {}
    lowest = 1 << 30
    for priority, channel, order in delivered:
        if queue.kind.has_priorities:
            priority = min(priority, int(queue.kind.arguments["x-max-priority"]))
            if priority > lowest:
                raise PromiseBroken(
                    f"queue '{queue.kind.name}' delivered a message of priority {priority} after one of {lowest}"
                )
            lowest = priority
        if newest.get((channel, priority), 0) > order:
            raise PromiseBroken(
                f"the messages of {channel} in queue '{queue.kind.name}' came out of order: "
                f"{[number for _, one, number in delivered if one is channel]}"
            )
        newest[channel, priority] = order


def _check_order_of_deaths(copies: list[Copy]) -> None:
    """Check that the dead letters of messages which died at the head of their queue are in the order of the queue."""
    newest: dict[tuple[QueueModel, ObservedChannel], Copy] = {}
    for copy in copies:
        source = copy.source
        if source is None or not source.stayed_in_line:
            continue
        before = newest.get((source.queue, source.message.channel))
        if before is not None and before.message.order > copy.message.order:
            raise PromiseBroken(f"{copy} came behind {before}, though it died before")
        newest[source.queue, source.message.channel] = copy


def _check_names(schedule: Schedule) -> None:
    """Check that the queues and bindings are those that the model expects."""
    queues = {row["name"] for row in schedule.node.listing("queues")}
    bound = {row["destination_name"] for row in schedule.node.listing("bindings") if row["source_name"] == EXCHANGE}
    for name, queue in schedule.queues.items():
        for what, expected, exists in (
            ("queue", queue.exists, name in queues),
            ("binding of queue", queue.is_bound, name in bound),
        ):
            if expected is not None and expected != exists:
                raise PromiseBroken(
                    f"{what} '{name}' {'is gone, though it was confirmed' if expected else 'is left after its end'}"
                )
