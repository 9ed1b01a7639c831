"""What must hold inside a node, whatever its clients do: looked at between two steps of the world, on the processes themselves.

    at every look    credit is conserved for every pair (FC-12), and no mailbox holds more credited messages than FC-59 allows
    at rest          mailboxes are empty; what queues and stores count is what they hold; nothing is known of a channel that is no more
    nobody there     and of no channel or connection at all
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..actors.channel import Channel
from ..actors.channel.process import CONNECTION
from ..actors.connection import Connection
from ..actors.journal import Journal
from ..actors.message_store import MessageStore
from ..actors.queue import Queue
from ..amqp.reader import OVERSIZED, RUN
from ..runtime.cell import Cell
from ..runtime.credit import CreditFlow
from ..runtime.sim_base import SimBase
from ..store.variable_queue import VariableQueue
from ..store.vhost_dir import PERSISTENT, TRANSIENT
from .book import Broken

#: Sender, its credit, and the receiver's name in it; receiver, its credit, and the sender's name in it; messages on the way, and grants; whether it is in transactions.
Pair = tuple[str, CreditFlow, Any, str, CreditFlow, Any, int, int, bool]


def check_credit(base: SimBase) -> None:
    """Raises Broken if credit was lost or made, or a mailbox overflows."""
    for sender, spent, there, receiver, taken, here, unread, granted, is_commit in _pairs(base):
        initial, more = spent._pair_of(there)
        if not initial:
            continue
        total = spent.credit_from(there) + unread + granted + more - taken.credit_to(here) + taken.deferred(here)
        if total != initial:
            raise Broken(
                f"credit of {sender} with {receiver} is not conserved: {spent.credit_from(there)} left + {unread} on the way + {more - taken.credit_to(here)} taken"
                f" + {taken.deferred(here)} kept back + {granted} granted on the way = {total}, not {initial}"
            )
        bound = initial if there == here or here == CONNECTION else 2 * initial
        # What a transaction commits goes to its queues at once, however much it is.
        if receiver.startswith(("channel", "queue")) and unread > bound and not is_commit:
            raise Broken(f"{unread} messages of {sender} wait for {receiver}; there may be {bound}")


def _pairs(base: SimBase) -> Iterator[Pair]:
    for cell in list(base.cells.values()):
        actor = cell.actor if isinstance(cell, Cell) else None
        if type(actor) is Connection and actor.state in ("running", "blocked"):
            yield from _of_connection(cell, actor)
        elif type(actor) is Channel and getattr(actor, "state", None) == "running":
            yield from _of_channel(cell, actor)
        elif type(actor) is Queue and actor.is_open and actor.durability is not None:
            yield from _of_queue(cell, actor)


def _of_connection(cell: Any, connection: Connection) -> Iterator[Pair]:
    for entry in connection.channels.values():
        receiver = _cell_at(entry.address)
        channel = receiver.actor if receiver is not None else None
        if channel is None or getattr(channel, "state", "closed") != "running" or entry.ended:
            continue
        unread = channel.taken + _credited(channel.backlog)
        unread += sum(_credited(message[1]) for message in _letters(receiver, "input")) + _credited(entry.events)
        granted = _granted(cell, entry.channel_id)
        yield f"connection {connection.name}", connection.credit, entry.channel_id, f"channel {channel.name}", channel.credit, CONNECTION, unread, granted, False


def _cell_at(address: Any) -> Any:
    """The mailbox there; None if that process is no more."""
    return getattr(address, "_cell", None)


def _credited(events: Any) -> int:
    return sum(len(event[4]) if event[0] == RUN else event[0] == OVERSIZED for event in events)


def _granted(cell: Any, peer: Any) -> int:
    return sum(message[2] for message in _letters(cell, "bump") if message[1] == peer)


def _letters(cell: Any, name: str) -> list[Any]:
    """The messages of that name that wait there."""
    return [message for _, message in cell.queue if type(message) is tuple and message[0] == name]


def _of_channel(cell: Any, channel: Channel) -> Iterator[Pair]:
    for queue_id, row in channel.queues.items():
        receiver = _cell_at(row.address)
        queue = receiver.actor if receiver is not None else None
        if queue is None or not queue.is_open:
            continue
        name = channel.channel_id
        waiting = [entries for _, one, entries in queue.intake.late if one == name]
        waiting += [message[2] for message in _letters(receiver, "publish") if message[1] == name]
        unread = sum(len(entry[1]) for entries in waiting for entry in entries)
        granted, is_commit = _granted(cell, queue_id), channel.publisher.transaction is not None
        yield f"channel {channel.name}", channel.credit, queue_id, f"queue '{row.name}'", queue.credit, name, unread, granted, is_commit


def _of_queue(cell: Any, queue: Queue) -> Iterator[Pair]:
    durability: Any = queue.durability
    name = f"queue '{queue.row.name}'"
    storage = durability.storage
    receiver = _cell_at(storage.journal)
    journal: Journal | None = receiver.actor if receiver is not None else None
    if journal is not None and not journal._is_committing and durability.number in journal._addresses:
        unread = journal._waiting.get(durability.number, (0, 0))[1]
        unread += sum(part.messages for message in _letters(receiver, "append") if message[1] == durability.number for part in message[2])
        yield name, queue.credit, "journal", "the journal", journal._credit, durability.number, unread, _granted(cell, "journal"), False
    for which, address in ((PERSISTENT, storage.persistent), (TRANSIENT, storage.transient)):
        receiver = _cell_at(address)
        store: MessageStore | None = receiver.actor if receiver is not None else None
        if store is not None and durability.client in store._addresses:
            unread = sum(len(message[2]) for message in _letters(receiver, "write") if message[1] == durability.client)
            yield name, queue.credit, which, which, store._credit, durability.client, unread, _granted(cell, which), False


# -- at rest ---------------------------------------------------------------------------------------------


def check_at_rest(base: SimBase) -> None:
    """Raises Broken if a node in which nothing moves is not what it should be."""
    check_credit(base)
    channels = {cell.actor.channel_id for cell in _cells(base) if type(cell.actor) is Channel}
    for cell in _cells(base):
        actor = cell.actor
        if cell.queue:
            raise Broken(f"{cell.address} does not read its mailbox: {cell.queue[0][1]!r:.200}")
        if type(actor) is Queue and actor.is_open:
            _check_queue(actor, channels)
        elif type(actor) is Channel and actor.state == "running":
            _check_unacked(actor)
        elif type(actor) is MessageStore and actor._engine is not None and not actor._is_syncing:
            actor.engine.check()
            _check_references(base, cell, actor)


def _cells(base: SimBase) -> Iterator[Cell]:
    return (cell for cell in base.cells.values() if isinstance(cell, Cell) and cell.actor is not None)


def _check_unacked(channel: Channel) -> None:
    """What a channel may still settle is what its queues hold for it."""
    transaction = channel.publisher.transaction
    held_back = [run for _, runs in transaction.settlements for run in runs] if transaction is not None else []
    tags: dict[str, set[int]] = {}
    for run in (*channel.subscriptions.unacked, *held_back):
        tags.setdefault(run.queue_id, set()).update(run.tags)
    for queue_id, row in channel.queues.items():
        cell = _cell_at(row.address)
        if cell is None or not cell.actor.is_open:
            continue
        record = cell.actor.channels.get(channel.channel_id)
        pending = set() if record is None else set(record.pending)
        if tags.get(queue_id, set()) != pending:
            raise Broken(f"channel {channel.name} may settle {sorted(tags.get(queue_id, ()))} of queue '{row.name}', which waits for {sorted(pending)}")


def _check_queue(queue: Queue, channels: set[str]) -> None:
    name = f"queue '{queue.row.name}'"
    gone = queue.channels.keys() - channels
    if gone:
        raise Broken(f"{name} still knows channels that are no more: {sorted(gone)}")
    for consumer in queue.consumers:
        held = sum(owner is consumer for owner in consumer.channel.pending.values())
        if consumer.unacked != held:
            raise Broken(f"{name} counts {consumer.unacked} unacknowledged messages of {consumer.tag}, which has {held}")
    pending = sum(len(record.pending) for record in queue.channels.values())
    if queue.backing.depth() - len(queue.backing) != pending:
        raise Broken(f"{name} has {queue.backing.depth() - len(queue.backing)} unacknowledged messages, its channels {pending}")
    durability: Any = queue.durability
    for level in durability.levels.values() if durability is not None else ():
        if isinstance(level, VariableQueue):
            level.check()
    if not queue.backing.depth() and (queue.backing.ready_bytes or queue.backing.unacked_bytes):
        raise Broken(f"{name} is empty and counts {queue.backing.ready_bytes} + {queue.backing.unacked_bytes} octets")


def _check_references(base: SimBase, cell: Cell, store: MessageStore) -> None:
    """Each reference that a queue has is counted; and no other, unless a client was lost or a queue is not there."""
    is_persistent = store._name == PERSISTENT
    queues = [other.actor for other in _cells(base) if type(other.actor) is Queue and getattr(other.actor, "durability", None) is not None]
    referred: Counter[bytes] = Counter()
    are_open = True
    for queue in queues:
        durability: Any = queue.durability
        if _cell_at(durability.storage.persistent if is_persistent else durability.storage.transient) is not cell:
            continue
        are_open = are_open and queue.is_open
        for level in durability.levels.values() if queue.is_open else ():
            referred.update(message_id for persistent, message_id in level.references() if persistent == is_persistent)
    counts = Counter(store.engine.reference_counts())
    if not counts >= referred:
        raise Broken(f"{store._name} misses references: {[message_id.hex() for message_id in referred - counts]}")
    if counts != referred and are_open and not store.engine.is_tainted:
        raise Broken(f"{store._name} counts references that no queue has: {[message_id.hex() for message_id in counts - referred]}")


def check_nobody_there(base: SimBase) -> None:
    """Raises Broken if anything is left of connections when the last one has gone."""
    check_at_rest(base)
    for cell in _cells(base):
        actor = cell.actor
        if type(actor) in (Connection, Channel):
            raise Broken(f"{cell.address} is left, in state {actor.state}, though no client is connected")
        if type(actor) is Queue and actor.is_open:
            left = (len(actor.consumers), len(actor.channels), len(actor.intake.awaiting))
            if any(left):
                raise Broken(f"queue '{actor.row.name}' knows {left[0]} consumers, {left[1]} channels and {left[2]} unconfirmed publishes of clients that are no more")
            peers = {peer for table in (actor.credit._credit_from, actor.credit._credit_to) for peer in table} - {"journal", "segments", PERSISTENT, TRANSIENT}
            if peers:
                raise Broken(f"queue '{actor.row.name}' keeps credit of {peers}")
        for watcher in cell.monitors.values():
            if _cell_at(watcher) is None or _cell_at(watcher).actor is None:
                raise Broken(f"{cell.address} is watched by {watcher}, which is no more")
