"""What must hold inside a node, whatever its clients do. Checked between two steps of the world.

    after each step      Credit is conserved and mailboxes are within their bounds (`credit_pairs`), and a queue's
                         counts are those of its runs. Only the process that has acted is checked, since a step changes
                         one process.
    at rest              The same for all processes. Mailboxes are empty, queues and message stores count what they
                         hold, and no process keeps anything about a channel that has ended.
    without clients      No process keeps anything about any channel or connection.

The checks read what processes show of their bookkeeping: the views in `inspection.py` of each folder of `actors`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...actors.channel import Channel
from ...actors.channel.inspection import ChannelView
from ...actors.connection import Connection
from ...actors.connection.inspection import ConnectionView
from ...actors.disk.inspection import MessageStoreView
from ...actors.disk.message_store import MessageStore
from ...actors.queue.group.inspection import GroupView
from ...actors.queue.group.process import GroupQueue
from ...actors.queue.inspection import QueueView
from ...actors.queue.process import Queue
from ...runtime.sim.client import SimStream
from ...runtime.sim.sim_base import SimBase
from ...runtime.sim.world import FIRST_CLIENT_PORT
from ...runtime.system.cell import Cell
from ...store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from . import credit_pairs
from .copies import PromiseBroken
from .credit_pairs import cell_at


def check_step(acted: Cell) -> None:
    """Check the process that has acted. Raises PromiseBroken."""
    actor = acted.actor
    if actor is None:
        return
    credit_pairs.check_with(acted, actor)
    if type(actor) is Queue and actor.is_open:
        _check_counts(QueueView(actor))


def check_credit(base: SimBase) -> None:
    """Check the credit of all processes. Raises PromiseBroken."""
    for cell in _cells(base):
        credit_pairs.check_from(cell, cell.actor)


def check_at_rest(base: SimBase) -> None:
    """Check a node in which nothing moves. Raises PromiseBroken."""
    check_credit(base)
    channels = {ChannelView(cell.actor).channel_id for cell in _cells(base) if type(cell.actor) is Channel}
    channels |= {GroupView(group).take_id for group in _open_groups(base)}
    for cell in _cells(base):
        actor = cell.actor
        if cell.queue:
            raise PromiseBroken(f"{cell.address} does not read its mailbox: {cell.queue[0][1]!r:.200}")
        if type(actor) is Queue and actor.is_open:
            _check_queue(QueueView(actor), channels)
        elif type(actor) is GroupQueue and actor.is_open:
            _check_group(base, GroupView(actor))
        elif type(actor) is Channel and ChannelView(actor).is_running:
            _check_unacked(ChannelView(actor))
        elif type(actor) is MessageStore and MessageStoreView(actor).is_settled:
            MessageStoreView(actor).check()
            _check_references(base, cell, MessageStoreView(actor))


def open_queues(base: SimBase) -> list[QueueView]:
    return [QueueView(cell.actor) for cell in _cells(base) if type(cell.actor) is Queue and cell.actor.is_open]


def check_no_clients(base: SimBase) -> None:
    """Check a node whose last client has left. Raises PromiseBroken if anything is left of connections."""
    check_at_rest(base)
    groups = {GroupView(group).take_id for group in _open_groups(base)}
    for group in _open_groups(base):
        if GroupView(group).channels():
            raise PromiseBroken(f"group '{GroupView(group).name}' keeps channels of clients that have left")
    for cell in _cells(base):
        actor = cell.actor
        if type(actor) is Connection or type(actor) is Channel:
            state = (ConnectionView(actor) if type(actor) is Connection else ChannelView(actor)).state
            raise PromiseBroken(f"{cell.address} is left, in state {state}, though no client is connected")
        if type(actor) is Queue and actor.is_open:
            _check_no_channels(QueueView(actor), groups)
        for watcher in cell.monitors.values():
            watching = cell_at(watcher)
            if watching is None or watching.actor is None:
                raise PromiseBroken(f"{cell.address} is monitored by {watcher}, which has ended")


def check_silent_closed(base: SimBase, stream: SimStream) -> None:
    """Check that the broker has ended a connection that has been silent for long enough. Raises PromiseBroken."""
    for cell in _cells(base):
        if type(cell.actor) is Connection and is_of(stream, ConnectionView(cell.actor).name):
            raise PromiseBroken(f"{cell.address} is kept, though nothing arrives from its client any more")


def is_of(stream: SimStream, name: str) -> bool:
    """Whether a connection of that name, or a channel of it, is the other end of the stream.

    Names of connections begin with the client's host and port.
    """
    return f":{FIRST_CLIENT_PORT + stream.number} " in name


def _cells(base: SimBase) -> Iterator[Cell]:
    """The processes that run."""
    return (cell for cell in list(base.cells.values()) if isinstance(cell, Cell) and cell.actor is not None)


def _open_groups(base: SimBase) -> Iterator[GroupQueue]:
    for cell in _cells(base):
        if type(cell.actor) is GroupQueue and cell.actor.is_open:
            yield cell.actor


# -- channels and queues ---


def _check_unacked(channel: ChannelView) -> None:
    """Check that the deliveries which the channel may settle are exactly those that its queues have pending for it."""
    tags = channel.settleable()
    for queue_id, row in channel.queues.items():
        cell = cell_at(row.address)
        if cell is None or not cell.actor.is_open:
            continue
        pending = QueueView(cell.actor).pending(channel.channel_id)
        if tags.get(queue_id, set()) != pending:
            raise PromiseBroken(
                f"channel {channel.name} may settle {sorted(tags.get(queue_id, ()))} of queue '{row.name}', "
                f"where {sorted(pending)} are pending"
            )


def _check_queue(queue: QueueView, channels: set[str]) -> None:
    """Check that the queue is in the routing table, that it keeps records of channels that exist only, and that it
    counts as many unacknowledged messages as those channels hold.
    """
    name = f"queue '{queue.name}'"
    if not queue.is_routed:
        raise PromiseBroken(f"{name} runs, but is not in the routing table")
    known = [channel_id for channel_id, _ in queue.channels()]
    ended = set(known) - channels
    if ended:
        raise PromiseBroken(f"{name} keeps records of channels that have ended: {sorted(ended)}")
    for tag, counted, held in queue.consumers():
        if counted != held:
            raise PromiseBroken(f"{name} counts {counted} unacknowledged messages of {tag}, which has {held}")
    pending = sum(len(queue.pending(channel_id)) for channel_id in known)
    if queue.unacked != pending:
        raise PromiseBroken(f"{name} has {queue.unacked} unacknowledged messages, its channels have {pending}")
    _check_counts(queue)


def _check_counts(queue: QueueView) -> None:
    """Check that a queue's counters of messages and bytes agree with a new count of its runs.

    The memory monitor, the length limits and the listings use these counts.
    """
    queue.check_backing()
    for counted, found in queue.counts():
        if counted != found:
            raise PromiseBroken(
                f"queue '{queue.name}' counts {counted.messages} messages of {counted.body_bytes} bytes and "
                f"{counted.persistent} persistent ones of {counted.persistent_bytes}, but has {found.messages} of "
                f"{found.body_bytes} and {found.persistent} of {found.persistent_bytes}"
            )


def _check_group(base: SimBase, group: GroupView) -> None:
    """Check that the consumers of a group hold exactly what each member has pending for the group."""
    if group.reserved():
        raise PromiseBroken(f"group '{group.name}' waits for {group.reserved()} messages that do not come")
    for queue_id, held in group.held().items():
        for cell in _cells(base):
            if type(cell.actor) is Queue and cell.actor.is_open and cell.actor.queue_id == queue_id:
                pending = QueueView(cell.actor).pending(group.take_id)
                if held != pending:
                    raise PromiseBroken(
                        f"group '{group.name}' holds {sorted(held)} of queue '{QueueView(cell.actor).name}', "
                        f"where {sorted(pending)} are pending for it"
                    )


def _check_no_channels(queue: QueueView, groups: set[str]) -> None:
    channels = [channel_id for channel_id, _ in queue.channels() if channel_id not in groups]
    left = sum(1 for _ in queue.consumers()), len(channels), queue.unconfirmed_publishes
    if any(left):
        raise PromiseBroken(
            f"queue '{queue.name}' keeps {left[0]} consumers, {left[1]} channels and {left[2]} unconfirmed "
            "publishes of clients that have left"
        )
    peers = queue.credit.peers() - {"journal", "segments", PERSISTENT, TRANSIENT}
    if peers:
        raise PromiseBroken(f"queue '{queue.name}' keeps credit of {peers}")


# -- message stores ---


def _check_references(base: SimBase, cell: Cell, store: MessageStoreView) -> None:
    """Check that a message store counts each reference that a queue has.

    It may count others only if a queue is not open or has crashed: that queue's references may still be counted.
    """
    is_persistent = store.name == PERSISTENT
    referred: Counter[bytes] = Counter()
    are_open = True
    for other in _cells(base):
        if type(other.actor) is not Queue:
            continue
        queue = QueueView(other.actor)
        disk = queue.disk
        if disk is None or cell_at(disk.storage.persistent if is_persistent else disk.storage.transient) is not cell:
            continue
        are_open = are_open and queue.is_open
        if queue.is_open:
            referred.update(queue.references(is_persistent))
    counts = store.references()
    if not counts >= referred:
        missing = [message_id.hex() for message_id in referred - counts]
        raise PromiseBroken(f"{store.name} misses references: {missing}")
    if counts != referred and are_open and not store.is_tainted:
        surplus = [message_id.hex() for message_id in counts - referred]
        raise PromiseBroken(f"{store.name} counts references that no queue has: {surplus}")
