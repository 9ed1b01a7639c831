"""The pairs of processes with credit between them, and what FC-12 and FC-59 require of each pair.

Conservation (FC-12), for each pair and after each step:

    credit left at the sender + unread messages + messages taken and not granted yet
    + grants that the receiver defers + grants that wait at the sender = the initial credit

The check counts messages where they wait, so it reads private attributes of the processes and of `CreditFlow`: the
mailboxes, what a channel or queue has read and not handled, and what the journal has in the current commit.

A step changes one process only, so after a step only the pairs with that process are checked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from ...actors.channel import Channel
from ...actors.channel.process import CONNECTION
from ...actors.connection import Connection
from ...actors.connection.channels import ChannelEntry
from ...actors.disk.journal import Journal
from ...actors.disk.message_store import MessageStore
from ...actors.queue.process import Queue
from ...amqp.parser.reader import OVERSIZED, RUN, Event
from ...routing.rows import QueueRow
from ...runtime.cell import Cell
from ...runtime.credit import CreditFlow
from ...store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from .copies import PromiseBroken


class CreditPair(NamedTuple):
    """A sender and a receiver of credited messages.

    sender_credit    the sender's credit, in which the receiver has the name `receiver_key`
    receiver_credit  the receiver's credit, in which the sender has the name `sender_key`
    unread           messages that the receiver has not taken
    granted          credit that waits in the sender's mailbox
    is_commit        whether the sender is committing a transaction
    """

    sender: str
    sender_credit: CreditFlow
    receiver_key: Hashable
    receiver: str
    receiver_credit: CreditFlow
    sender_key: Hashable
    unread: int
    granted: int
    is_commit: bool = False


def check(pairs: Iterable[CreditPair]) -> None:
    """Raises PromiseBroken if credit is not conserved, or if too many messages wait."""
    for pair in pairs:
        initial, more = pair.sender_credit._pair_of(pair.receiver_key)
        if not initial:
            continue
        left = pair.sender_credit.credit_from(pair.receiver_key)
        taken = more - pair.receiver_credit.credit_to(pair.sender_key)
        deferred = pair.receiver_credit.deferred(pair.sender_key)
        total = left + pair.unread + pair.granted + taken + deferred
        if total != initial:
            raise PromiseBroken(
                f"credit of {pair.sender} with {pair.receiver} is not conserved: {left} left + {pair.unread} unread "
                f"+ {taken} taken + {deferred} deferred + {pair.granted} granted and unread = {total}, not {initial}"
            )
        bound = initial if pair.receiver_key == pair.sender_key or pair.sender_key == CONNECTION else 2 * initial
        # A commit sends everything that the transaction holds at once, whatever the credit is.
        if pair.receiver.startswith(("channel", "queue")) and pair.unread > bound and not pair.is_commit:
            raise PromiseBroken(
                f"{pair.unread} messages of {pair.sender} wait for {pair.receiver}; the bound is {bound}"
            )


def pairs_from(cell: Cell, actor: object) -> Iterator[CreditPair]:
    """The pairs in which the process is the sender."""
    if type(actor) is Connection and actor.state in ("running", "blocked"):
        for entry in actor.channels.by_number.values():
            yield from _to_channel(cell, actor, entry)
    elif type(actor) is Channel and getattr(actor, "state", None) == "running":
        for queue_id, row in actor.queues.rows.items():
            yield from _to_queue(cell, actor, queue_id, row)
    elif type(actor) is Queue and actor.is_open and actor.durability is not None:
        yield from _to_disk(cell, actor)


def pairs_with(cell: Cell, actor: object) -> Iterator[CreditPair]:
    """The pairs in which the process is the sender or the receiver."""
    yield from pairs_from(cell, actor)
    if type(actor) is Channel and hasattr(actor, "config"):
        sender = cell_at(actor.connection)
        connection = sender.actor if sender is not None else None
        if (
            sender is not None
            and type(connection) is Connection
            and connection.state in ("running", "blocked")
            and actor.config.number in connection.channels.by_number
        ):
            yield from _to_channel(sender, connection, connection.channels.by_number[actor.config.number])
    elif type(actor) is Queue and actor.is_open:
        for record in actor.channels.values():
            sender = cell_at(record.address)
            channel = sender.actor if sender is not None else None
            if sender is not None and channel is not None and channel.state == "running":
                if actor.queue_id in channel.queues.rows:
                    yield from _to_queue(sender, channel, actor.queue_id, channel.queues.rows[actor.queue_id])
    elif type(actor) is Journal or type(actor) is MessageStore:
        for address in actor._addresses.values():
            sender = cell_at(address)
            if sender is not None and sender.actor.is_open and sender.actor.durability is not None:
                yield from _to_disk(sender, sender.actor)


def cell_at(address: object) -> Cell | None:
    """The mailbox at that address; None if there never was a process."""
    cell: Cell | None = getattr(address, "_cell", None)
    return cell


def _waiting(cell: Cell, name: str) -> list[Any]:
    """The messages of that name in a mailbox."""
    return [message for _, message in cell.queue if type(message) is tuple and message[0] == name]


def _granted(cell: Cell, peer: Hashable) -> int:
    """Credit of `peer` that waits in a mailbox."""
    return sum(message[2] for message in _waiting(cell, "bump") if message[1] == peer)


def _credited(events: Iterable[Event]) -> int:
    """How many publishes these events are."""
    return sum(len(event[4]) if event[0] == RUN else event[0] == OVERSIZED for event in events)


def _to_channel(cell: Cell, connection: Connection, entry: ChannelEntry) -> Iterator[CreditPair]:
    receiver = cell_at(entry.address)
    channel = receiver.actor if receiver is not None else None
    if receiver is None or channel is None or getattr(channel, "state", "closed") != "running" or entry.is_ended:
        return
    unread = channel.taken + _credited(channel.backlog)
    unread += sum(_credited(message[1]) for message in _waiting(receiver, "input")) + _credited(entry.events)
    yield CreditPair(
        sender=f"connection {connection.name}",
        sender_credit=connection.credit,
        receiver_key=entry.channel_id,
        receiver=f"channel {channel.name}",
        receiver_credit=channel.credit,
        sender_key=CONNECTION,
        unread=unread,
        granted=_granted(cell, entry.channel_id),
    )


def _to_queue(cell: Cell, channel: Channel, queue_id: str, row: QueueRow) -> Iterator[CreditPair]:
    receiver = cell_at(row.address)
    queue = receiver.actor if receiver is not None else None
    if receiver is None or queue is None or not queue.is_open:
        return
    channel_id = channel.config.channel_id
    waiting = [entries for _, sender_id, entries in queue.publish_delay.delayed if sender_id == channel_id]
    waiting += [message[2] for message in _waiting(receiver, "publish") if message[1] == channel_id]
    yield CreditPair(
        sender=f"channel {channel.name}",
        sender_credit=channel.credit,
        receiver_key=queue_id,
        receiver=f"queue '{row.name}'",
        receiver_credit=queue.credit,
        sender_key=channel_id,
        unread=sum(len(entry[1]) for entries in waiting for entry in entries),
        granted=_granted(cell, queue_id),
        is_commit=channel.publisher.held_back is not None,
    )


def _to_disk(cell: Cell, queue: Queue) -> Iterator[CreditPair]:
    durability = queue.durability
    assert durability is not None
    name = f"queue '{queue.row.name}'"
    storage, number = durability.storage, durability.number
    receiver = cell_at(storage.journal)
    journal: Journal | None = receiver.actor if receiver is not None else None
    if receiver is not None and journal is not None and number in journal._addresses:
        unread = sum(batch[number].messages for batch in (journal._waiting, journal._in_commit) if number in batch)
        unread += sum(
            part.messages for message in _waiting(receiver, "append") if message[1] == number for part in message[2]
        )
        yield CreditPair(
            sender=name,
            sender_credit=queue.credit,
            receiver_key="journal",
            receiver="the journal",
            receiver_credit=journal._credit,
            sender_key=number,
            unread=unread,
            granted=_granted(cell, "journal"),
        )
    client = durability.client
    for which, address in ((PERSISTENT, storage.persistent), (TRANSIENT, storage.transient)):
        receiver = cell_at(address)
        store: MessageStore | None = receiver.actor if receiver is not None else None
        if receiver is not None and store is not None and client in store._addresses:
            yield CreditPair(
                sender=name,
                sender_credit=queue.credit,
                receiver_key=which,
                receiver=which,
                receiver_credit=store._credit,
                sender_key=client,
                unread=sum(len(message[2]) for message in _waiting(receiver, "write") if message[1] == client),
                granted=_granted(cell, which),
            )
