"""What must hold inside a node, whatever its clients do: looked at between two steps of the world, on the processes themselves.

at every step    credit is conserved for every pair (FC-12), and no mailbox holds more credited messages than FC-59 allows; what a queue counts in memory is there.
                 A step is one process's, and what concerns others alone is as it was: so who has acted is looked at, and all pairs that it is in
at rest          all of that for everybody; mailboxes are empty; what queues and stores count is what they hold; nothing is known of a channel that is no more
nobody there     and of no channel or connection at all
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...actors.channel import Channel
from ...actors.channel.process import CONNECTION
from ...actors.connection import Connection
from ...actors.disk.journal import Journal
from ...actors.disk.message_store import MessageStore
from ...actors.queue.process import Queue
from ...amqp.reader import OVERSIZED, RUN
from ...runtime.cell import Cell
from ...runtime.credit import CreditFlow
from ...runtime.sim.client import SimStream
from ...runtime.sim.sim_base import SimBase
from ...runtime.sim.world import FIRST_CLIENT_PORT
from ...store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from ...store.messages.message import body_size
from ...store.queue.priority_queue import PriorityQueue
from ...store.queue.variable_queue import VariableQueue
from .book import Broken

#: Sender, its credit, and the receiver's name in it; receiver, its credit, and the sender's name in it; messages on the way, and grants; whether it is in transactions.
Pair = tuple[str, CreditFlow, Any, str, CreditFlow, Any, int, int, bool]


def check_step(acted: Cell) -> None:
    """Raises Broken if the process that has just acted has lost or made credit, flooded a mailbox, or miscounted what it holds."""
    actor = acted.actor
    if actor is None:
        return
    _check_pairs(_pairs_with(acted, actor))
    if type(actor) is Queue and actor.is_open:
        _check_accounts(actor)


def check_credit(base: SimBase) -> None:
    """The same of everybody."""
    for cell in list(base.cells.values()):
        if isinstance(cell, Cell) and cell.actor is not None:
            _check_pairs(_pairs_from(cell, cell.actor))


def _check_pairs(pairs: Iterator[Pair]) -> None:
    for sender, spent, there, receiver, taken, here, unread, granted, is_commit in pairs:
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


def _pairs_from(cell: Cell, actor: Any) -> Iterator[Pair]:
    """Those in which it is the sender."""
    if type(actor) is Connection and actor.state in ("running", "blocked"):
        for entry in actor.channels.by_number.values():
            yield from _to_channel(cell, actor, entry)
    elif type(actor) is Channel and getattr(actor, "state", None) == "running":
        for queue_id, row in actor.queues.rows.items():
            yield from _to_queue(cell, actor, queue_id, row)
    elif type(actor) is Queue and actor.is_open and actor.durability is not None:
        yield from _to_disk(cell, actor)


def _pairs_with(cell: Cell, actor: Any) -> Iterator[Pair]:
    """Those that it is in."""
    yield from _pairs_from(cell, actor)
    if type(actor) is Channel and hasattr(actor, "config"):
        sender = _cell_at(actor.connection)
        connection = sender.actor if sender is not None else None
        if (
            type(connection) is Connection
            and connection.state in ("running", "blocked")
            and actor.config.number in connection.channels.by_number
        ):
            yield from _to_channel(sender, connection, connection.channels.by_number[actor.config.number])
    elif type(actor) is Queue and actor.is_open:
        for record in actor.channels.values():
            sender = _cell_at(record.address)
            channel = sender.actor if sender is not None else None
            if channel is not None and channel.state == "running" and actor.queue_id in channel.queues.rows:
                yield from _to_queue(sender, channel, actor.queue_id, channel.queues.rows[actor.queue_id])
    elif type(actor) in (Journal, MessageStore):
        for address in actor._addresses.values():
            sender = _cell_at(address)
            if sender is not None and sender.actor.is_open and sender.actor.durability is not None:
                yield from _to_disk(sender, sender.actor)


def _to_channel(cell: Any, connection: Connection, entry: Any) -> Iterator[Pair]:
    receiver = _cell_at(entry.address)
    channel = receiver.actor if receiver is not None else None
    if channel is None or getattr(channel, "state", "closed") != "running" or entry.is_ended:
        return
    unread = channel.taken + _credited(channel.backlog)
    unread += sum(_credited(message[1]) for message in _letters(receiver, "input")) + _credited(entry.events)
    granted = _granted(cell, entry.channel_id)
    yield (
        f"connection {connection.name}",
        connection.credit,
        entry.channel_id,
        f"channel {channel.name}",
        channel.credit,
        CONNECTION,
        unread,
        granted,
        False,
    )


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


def _to_queue(cell: Any, channel: Channel, queue_id: str, row: Any) -> Iterator[Pair]:
    receiver = _cell_at(row.address)
    queue = receiver.actor if receiver is not None else None
    if queue is None or not queue.is_open:
        return
    name = channel.config.channel_id
    waiting = [entries for _, one, entries in queue.publish_delay.delayed if one == name]
    waiting += [message[2] for message in _letters(receiver, "publish") if message[1] == name]
    unread = sum(len(entry[1]) for entries in waiting for entry in entries)
    granted, is_commit = _granted(cell, queue_id), channel.publisher.held_back is not None
    yield (
        f"channel {channel.name}",
        channel.credit,
        queue_id,
        f"queue '{row.name}'",
        queue.credit,
        name,
        unread,
        granted,
        is_commit,
    )


def _to_disk(cell: Any, queue: Queue) -> Iterator[Pair]:
    durability: Any = queue.durability
    name = f"queue '{queue.row.name}'"
    storage = durability.storage
    receiver = _cell_at(storage.journal)
    journal: Journal | None = receiver.actor if receiver is not None else None
    if journal is not None and durability.number in journal._addresses:
        unread = sum(batch.get(durability.number, (0, 0))[1] for batch in (journal._waiting, journal._in_commit))
        unread += sum(
            part.messages
            for message in _letters(receiver, "append")
            if message[1] == durability.number
            for part in message[2]
        )
        yield (
            name,
            queue.credit,
            "journal",
            "the journal",
            journal._credit,
            durability.number,
            unread,
            _granted(cell, "journal"),
            False,
        )
    for which, address in ((PERSISTENT, storage.persistent), (TRANSIENT, storage.transient)):
        receiver = _cell_at(address)
        store: MessageStore | None = receiver.actor if receiver is not None else None
        if store is not None and durability.client in store._addresses:
            unread = sum(len(message[2]) for message in _letters(receiver, "write") if message[1] == durability.client)
            yield (
                name,
                queue.credit,
                which,
                which,
                store._credit,
                durability.client,
                unread,
                _granted(cell, which),
                False,
            )


# -- at rest ---------------------------------------------------------------------------------------------


def check_at_rest(base: SimBase) -> None:
    """Raises Broken if a node in which nothing moves is not what it should be."""
    check_credit(base)
    channels = {cell.actor.config.channel_id for cell in _cells(base) if type(cell.actor) is Channel}
    for cell in _cells(base):
        actor = cell.actor
        if cell.queue:
            raise Broken(f"{cell.address} does not read its mailbox: {cell.queue[0][1]!r:.200}")
        if type(actor) is Queue and actor.is_open:
            _check_is_known(actor)
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
    unacked = channel.deliveries.unacked
    held_back = [run for _, runs in unacked.held_back or () for run in runs]
    tags: dict[str, set[int]] = {}
    for run in (*unacked, *held_back):
        tags.setdefault(run.queue_id, set()).update(run.tags)
    for queue_id, row in channel.queues.rows.items():
        cell = _cell_at(row.address)
        if cell is None or not cell.actor.is_open:
            continue
        record = cell.actor.channels.get(channel.config.channel_id)
        pending = set() if record is None else set(record.pending)
        if tags.get(queue_id, set()) != pending:
            raise Broken(
                f"channel {channel.name} may settle {sorted(tags.get(queue_id, ()))} of queue '{row.name}', which waits for {sorted(pending)}"
            )


def _check_is_known(queue: Queue) -> None:
    row = queue.context.routing.queue(queue.row.vhost, queue.row.name)
    if row is None or row.queue_id != queue.queue_id or row.address != queue.myAddress:
        raise Broken(f"queue '{queue.row.name}' runs, and is not in the routing table")


def _check_queue(queue: Queue, channels: set[str]) -> None:
    name = f"queue '{queue.row.name}'"
    gone = queue.channels.keys() - channels
    if gone:
        raise Broken(f"{name} still knows channels that are no more: {sorted(gone)}")
    for consumer in queue.consumers:
        held = sum(owner is consumer for owner in consumer.channel.pending.values())
        if consumer.unacked != held:
            raise Broken(
                f"{name} counts {consumer.unacked} unacknowledged messages of {consumer.tag}, which has {held}"
            )
    pending = sum(len(record.pending) for record in queue.channels.values())
    if queue.backing.depth() - len(queue.backing) != pending:
        raise Broken(
            f"{name} has {queue.backing.depth() - len(queue.backing)} unacknowledged messages, its channels {pending}"
        )
    _check_accounts(queue)


def _check_accounts(queue: Queue) -> None:
    """What a queue counts, messages and octets, is what its runs hold: of it memory monitor, limits and listings are told."""
    backing: Any = queue.backing
    levels: list[Any] = [level for _, level in backing._levels] if isinstance(backing, PriorityQueue) else [backing]
    for level in levels:
        if isinstance(level, VariableQueue):
            level.check()
            sub = level.sub_queues
            parts: list[Any] = [sub.q1, sub.q2, sub.q3, sub.q4, level._pending]
        else:
            parts = [level._ready, level._pending]
        for part in parts:
            count = octets = 0
            for run in part.runs:
                for content in run.contents:
                    if content is not None:
                        count += 1
                        octets += body_size(content)
            if (count, octets) != (part.count, part.body_bytes):
                raise Broken(
                    f"queue '{queue.row.name}' counts {part.count} messages of {part.body_bytes} octets and has {count} of {octets}"
                )


def is_of(stream: SimStream, name: str) -> bool:
    """Whether a connection of that name, or a channel of it, is the other end of the stream: names begin with where the client connected from."""
    return f":{FIRST_CLIENT_PORT + stream.number} " in name


def check_hung_up(base: SimBase, stream: SimStream) -> None:
    """Raises Broken if the broker still keeps a connection that has been silent for so long."""
    for cell in _cells(base):
        if type(cell.actor) is Connection and is_of(stream, cell.actor.name):
            raise Broken(f"connection {cell.actor.name} is kept, though nothing comes from it any more")


def _check_references(base: SimBase, cell: Cell, store: MessageStore) -> None:
    """Each reference that a queue has is counted; and no other, unless a client was lost or a queue is not there."""
    is_persistent = store._name == PERSISTENT
    queues = [
        other.actor
        for other in _cells(base)
        if type(other.actor) is Queue and getattr(other.actor, "durability", None) is not None
    ]
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
        raise Broken(
            f"{store._name} counts references that no queue has: {[message_id.hex() for message_id in counts - referred]}"
        )


def check_nobody_there(base: SimBase) -> None:
    """Raises Broken if anything is left of connections when the last one has gone."""
    check_at_rest(base)
    for cell in _cells(base):
        actor = cell.actor
        if type(actor) in (Connection, Channel):
            raise Broken(f"{cell.address} is left, in state {actor.state}, though no client is connected")
        if type(actor) is Queue and actor.is_open:
            left = (len(actor.consumers), len(actor.channels), len(actor.confirms.awaiting))
            if any(left):
                raise Broken(
                    f"queue '{actor.row.name}' knows {left[0]} consumers, {left[1]} channels and {left[2]} unconfirmed publishes of clients that are no more"
                )
            peers = {peer for table in (actor.credit._credit_from, actor.credit._credit_to) for peer in table} - {
                "journal",
                "segments",
                PERSISTENT,
                TRANSIENT,
            }
            if peers:
                raise Broken(f"queue '{actor.row.name}' keeps credit of {peers}")
        for watcher in cell.monitors.values():
            if _cell_at(watcher) is None or _cell_at(watcher).actor is None:
                raise Broken(f"{cell.address} is watched by {watcher}, which is no more")
