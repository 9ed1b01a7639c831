"""What must hold inside a node, whatever its clients do. Checked between two steps of the world.

    after each step      Credit is conserved and mailboxes are within their bounds (`credit_pairs`), and a queue's
                         counts are those of its runs. Only the process that has acted is checked, since a step changes
                         one process.
    at rest              The same for all processes. Mailboxes are empty, queues and message stores count what they
                         hold, and no process keeps anything about a channel that has ended.
    without clients      No process keeps anything about any channel or connection.

The checks read private attributes: what they compare is the processes' own bookkeeping, which has no other reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...actors.channel import Channel
from ...actors.connection import Connection
from ...actors.disk.message_store import MessageStore
from ...actors.queue.process import Queue
from ...runtime.cell import Cell
from ...runtime.sim.client import SimStream
from ...runtime.sim.sim_base import SimBase
from ...runtime.sim.world import FIRST_CLIENT_PORT
from ...store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from ...store.messages.message import body_size
from ...store.messages.pending_runs import PendingRuns
from ...store.messages.run_queue import RunQueue
from ...store.queue.memory_queue import MemoryQueue
from ...store.queue.priority_queue import PriorityQueue
from ...store.queue.variable_queue import VariableQueue
from . import credit_pairs
from .copies import PromiseBroken
from .credit_pairs import cell_at


def check_step(acted: Cell) -> None:
    """Check the process that has acted. Raises PromiseBroken."""
    actor = acted.actor
    if actor is None:
        return
    credit_pairs.check(credit_pairs.pairs_with(acted, actor))
    if type(actor) is Queue and actor.is_open:
        _check_counts(actor)


def check_credit(base: SimBase) -> None:
    """Check the credit of all processes. Raises PromiseBroken."""
    for cell in _cells(base):
        credit_pairs.check(credit_pairs.pairs_from(cell, cell.actor))


def check_at_rest(base: SimBase) -> None:
    """Check a node in which nothing moves. Raises PromiseBroken."""
    check_credit(base)
    channels = {cell.actor.config.channel_id for cell in _cells(base) if type(cell.actor) is Channel}
    for cell in _cells(base):
        actor = cell.actor
        if cell.queue:
            raise PromiseBroken(f"{cell.address} does not read its mailbox: {cell.queue[0][1]!r:.200}")
        if type(actor) is Queue and actor.is_open:
            _check_is_routed(actor)
            _check_queue(actor, channels)
        elif type(actor) is Channel and actor.state == "running":
            _check_unacked(actor)
        elif type(actor) is MessageStore and actor._engine is not None and not actor._is_syncing:
            actor.engine.check()
            _check_references(base, cell, actor)


def check_no_clients(base: SimBase) -> None:
    """Check a node whose last client has left. Raises PromiseBroken if anything is left of connections."""
    check_at_rest(base)
    for cell in _cells(base):
        actor = cell.actor
        if type(actor) in (Connection, Channel):
            raise PromiseBroken(f"{cell.address} is left, in state {actor.state}, though no client is connected")
        if type(actor) is Queue and actor.is_open:
            _check_no_channels(actor)
        for watcher in cell.monitors.values():
            watching = cell_at(watcher)
            if watching is None or watching.actor is None:
                raise PromiseBroken(f"{cell.address} is monitored by {watcher}, which has ended")


def check_silent_closed(base: SimBase, stream: SimStream) -> None:
    """Check that the broker has ended a connection that has been silent for long enough. Raises PromiseBroken."""
    for cell in _cells(base):
        if type(cell.actor) is Connection and is_of(stream, cell.actor.name):
            raise PromiseBroken(f"connection {cell.actor.name} is kept, though nothing arrives from it any more")


def is_of(stream: SimStream, name: str) -> bool:
    """Whether a connection of that name, or a channel of it, is the other end of the stream.

    Names of connections begin with the client's host and port.
    """
    return f":{FIRST_CLIENT_PORT + stream.number} " in name


def _cells(base: SimBase) -> Iterator[Cell]:
    """The processes that run."""
    return (cell for cell in list(base.cells.values()) if isinstance(cell, Cell) and cell.actor is not None)


# -- channels and queues ---


def _check_unacked(channel: Channel) -> None:
    """A channel may settle exactly the deliveries that its queues have pending for it."""
    unacked = channel.deliveries.unacked
    held_back = [run for _, runs in unacked.held_back or () for run in runs]
    tags: dict[str, set[int]] = {}
    for run in (*unacked, *held_back):
        tags.setdefault(run.queue_id, set()).update(run.tags)
    for queue_id, row in channel.queues.rows.items():
        cell = cell_at(row.address)
        if cell is None or not cell.actor.is_open:
            continue
        record = cell.actor.channels.get(channel.config.channel_id)
        pending = set() if record is None else set(record.pending)
        if tags.get(queue_id, set()) != pending:
            raise PromiseBroken(
                f"channel {channel.name} may settle {sorted(tags.get(queue_id, ()))} of queue '{row.name}', "
                f"where {sorted(pending)} are pending"
            )


def _check_is_routed(queue: Queue) -> None:
    row = queue.context.routing.queue(queue.row.vhost, queue.row.name)
    if row is None or row.queue_id != queue.queue_id or row.address != queue.myAddress:
        raise PromiseBroken(f"queue '{queue.row.name}' runs, but is not in the routing table")


def _check_queue(queue: Queue, channels: set[str]) -> None:
    """A queue has the channels that exist, and counts as many unacknowledged messages as they hold."""
    name = f"queue '{queue.row.name}'"
    ended = queue.channels.keys() - channels
    if ended:
        raise PromiseBroken(f"{name} keeps records of channels that have ended: {sorted(ended)}")
    for consumer in queue.consumers:
        held = sum(owner is consumer for owner in consumer.channel.pending.values())
        if consumer.unacked != held:
            raise PromiseBroken(
                f"{name} counts {consumer.unacked} unacknowledged messages of {consumer.tag}, which has {held}"
            )
    pending = sum(len(record.pending) for record in queue.channels.values())
    unacked = queue.backing.depth() - len(queue.backing)
    if unacked != pending:
        raise PromiseBroken(f"{name} has {unacked} unacknowledged messages, its channels have {pending}")
    _check_counts(queue)


def _check_counts(queue: Queue) -> None:
    """A queue's counts of messages and bytes are those of its runs.

    The memory monitor, the length limits and the listings use these counts.
    """
    backing = queue.backing
    levels = [level for _, level in backing._levels] if isinstance(backing, PriorityQueue) else [backing]
    for level in levels:
        parts: list[RunQueue | PendingRuns]
        if isinstance(level, VariableQueue):
            level.check()
            sub = level.sub_queues
            parts = [sub.q1, sub.q2, sub.q3, sub.q4, level._pending]
        else:
            assert isinstance(level, MemoryQueue)
            parts = [level._ready, level._pending]
        for part in parts:
            count = body_bytes = 0
            for run in part.runs:
                for content in run.contents:
                    if content is not None:
                        count += 1
                        body_bytes += body_size(content)
            if (count, body_bytes) != (part.count, part.body_bytes):
                raise PromiseBroken(
                    f"queue '{queue.row.name}' counts {part.count} messages of {part.body_bytes} bytes, "
                    f"but has {count} of {body_bytes}"
                )


def _check_no_channels(queue: Queue) -> None:
    left = (len(queue.consumers), len(queue.channels), len(queue.confirms.awaiting))
    if any(left):
        raise PromiseBroken(
            f"queue '{queue.row.name}' keeps {left[0]} consumers, {left[1]} channels and {left[2]} unconfirmed "
            "publishes of clients that have left"
        )
    peers = {peer for table in (queue.credit._credit_from, queue.credit._credit_to) for peer in table}
    peers -= {"journal", "segments", PERSISTENT, TRANSIENT}
    if peers:
        raise PromiseBroken(f"queue '{queue.row.name}' keeps credit of {peers}")


# -- message stores ---


def _check_references(base: SimBase, cell: Cell, store: MessageStore) -> None:
    """A message store counts each reference that a queue has.

    It counts no other, unless a queue is not open or has crashed: then its references may still be counted.
    """
    is_persistent = store._name == PERSISTENT
    referred: Counter[bytes] = Counter()
    are_open = True
    for other in _cells(base):
        queue = other.actor
        durability = getattr(queue, "durability", None) if type(queue) is Queue else None
        if type(queue) is not Queue or durability is None:
            continue
        if cell_at(durability.storage.persistent if is_persistent else durability.storage.transient) is not cell:
            continue
        are_open = are_open and queue.is_open
        for level in durability.levels.values() if queue.is_open else ():
            referred.update(message_id for persistent, message_id in level.references() if persistent == is_persistent)
    counts = Counter(store.engine.reference_counts())
    if not counts >= referred:
        missing = [message_id.hex() for message_id in referred - counts]
        raise PromiseBroken(f"{store._name} misses references: {missing}")
    if counts != referred and are_open and not store.engine.is_tainted:
        surplus = [message_id.hex() for message_id in counts - referred]
        raise PromiseBroken(f"{store._name} counts references that no queue has: {surplus}")
