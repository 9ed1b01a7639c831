"""The pairs of processes with credit between them, and what FC-12 and FC-59 require of each pair.

Conservation (FC-12), for each pair and after each step:

    credit left at the sender + unread messages + messages taken and not granted yet
    + grants that the receiver defers + grants that wait at the sender = the initial credit

The check counts messages where they wait: in the mailboxes, and in each process as its view shows them (`inspection` in
the folders of `actors`).

A step changes one process only, so after a step only the pairs with that process are checked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from ...actors.channel import Channel
from ...actors.channel.inspection import CONNECTION_PEER, ChannelView, publishes_in
from ...actors.connection import Connection
from ...actors.connection.channels import ChannelEntry
from ...actors.connection.inspection import ConnectionView
from ...actors.disk.inspection import JournalView, MessageStoreView
from ...actors.disk.journal import Journal
from ...actors.disk.message_store import MessageStore
from ...actors.queue.inspection import DiskLinks, QueueView
from ...actors.queue.process import Queue
from ...routing.rows import QueueRow
from ...runtime.credit import CreditFlow
from ...runtime.system.cell import Cell
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
        initial, more = pair.sender_credit.pair_with(pair.receiver_key)
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
        bound = initial if pair.receiver_key == pair.sender_key or pair.sender_key == CONNECTION_PEER else 2 * initial
        # A commit sends everything that the transaction holds at once, whatever the credit is.
        if pair.receiver.startswith(("channel", "queue")) and pair.unread > bound and not pair.is_commit:
            raise PromiseBroken(
                f"{pair.unread} messages of {pair.sender} wait for {pair.receiver}; the bound is {bound}"
            )


def pairs_from(cell: Cell, actor: object) -> Iterator[CreditPair]:
    """The pairs in which the process is the sender."""
    if type(actor) is Connection:
        connection = ConnectionView(actor)
        if connection.is_serving:
            for entry in connection.channels():
                yield from _to_channel(cell, connection, entry)
    elif type(actor) is Channel:
        channel = ChannelView(actor)
        if channel.is_running:
            for queue_id, row in channel.queues.items():
                yield from _to_queue(cell, channel, queue_id, row)
    elif type(actor) is Queue:
        yield from _from_queue(cell, QueueView(actor))


def pairs_with(cell: Cell, actor: object) -> Iterator[CreditPair]:
    """The pairs in which the process is the sender or the receiver."""
    yield from pairs_from(cell, actor)
    if type(actor) is Channel:
        yield from _to_started_channel(ChannelView(actor))
    elif type(actor) is Queue and actor.is_open:
        queue = QueueView(actor)
        for _, address in queue.channels():
            sender = cell_at(address)
            if sender is None or type(sender.actor) is not Channel:
                continue
            channel = ChannelView(sender.actor)
            if channel.is_running and queue.queue_id in channel.queues:
                yield from _to_queue(sender, channel, queue.queue_id, channel.queues[queue.queue_id])
    elif type(actor) is Journal or type(actor) is MessageStore:
        for writer in (JournalView(actor) if type(actor) is Journal else MessageStoreView(actor)).queues():
            sender = cell_at(writer)
            if sender is not None and sender.actor is not None:
                yield from _from_queue(sender, QueueView(sender.actor))


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


def _to_started_channel(channel: ChannelView) -> Iterator[CreditPair]:
    """The pair of a channel with its connection."""
    if not channel.is_started:
        return
    sender = cell_at(channel.owner)
    if sender is not None and type(sender.actor) is Connection:
        connection = ConnectionView(sender.actor)
        entry = connection.channel(channel.number)
        if connection.is_serving and entry is not None:
            yield from _to_channel(sender, connection, entry)


def _to_channel(cell: Cell, connection: ConnectionView, entry: ChannelEntry) -> Iterator[CreditPair]:
    receiver = cell_at(entry.address)
    if receiver is None or receiver.actor is None or entry.is_ended:
        return
    channel = ChannelView(receiver.actor)
    if not channel.is_running:
        return
    unread = channel.waiting_publishes + publishes_in(entry.events)
    unread += sum(publishes_in(message[1]) for message in _waiting(receiver, "input"))
    yield CreditPair(
        sender=f"connection {connection.name}",
        sender_credit=connection.credit,
        receiver_key=entry.channel_id,
        receiver=f"channel {channel.name}",
        receiver_credit=channel.credit,
        sender_key=CONNECTION_PEER,
        unread=unread,
        granted=_granted(cell, entry.channel_id),
    )


def _to_queue(cell: Cell, channel: ChannelView, queue_id: str, row: QueueRow) -> Iterator[CreditPair]:
    receiver = cell_at(row.address)
    if receiver is None or receiver.actor is None or not receiver.actor.is_open:
        return
    queue, channel_id = QueueView(receiver.actor), channel.channel_id
    unread = queue.delayed_publishes(channel_id)
    unread += sum(
        len(entry[1]) for message in _waiting(receiver, "publish") if message[1] == channel_id for entry in message[2]
    )
    yield CreditPair(
        sender=f"channel {channel.name}",
        sender_credit=channel.credit,
        receiver_key=queue_id,
        receiver=f"queue '{row.name}'",
        receiver_credit=queue.credit,
        sender_key=channel_id,
        unread=unread,
        granted=_granted(cell, queue_id),
        is_commit=channel.is_committing,
    )


def _from_queue(cell: Cell, queue: QueueView) -> Iterator[CreditPair]:
    """The pairs of a queue with the journal and the message stores."""
    disk = queue.disk if queue.is_open else None
    if disk is not None:
        yield from _to_journal(cell, queue, disk)
        yield from _to_stores(cell, queue, disk)


def _to_journal(cell: Cell, queue: QueueView, disk: DiskLinks) -> Iterator[CreditPair]:
    receiver, number = cell_at(disk.storage.journal), disk.number
    if receiver is None or receiver.actor is None:
        return
    journal = JournalView(receiver.actor)
    if not journal.knows(number, queue.address):
        return
    yield CreditPair(
        sender=f"queue '{queue.name}'",
        sender_credit=queue.credit,
        receiver_key="journal",
        receiver="the journal",
        receiver_credit=journal.credit,
        sender_key=number,
        unread=journal.waiting(number)
        + sum(part.messages for message in _waiting(receiver, "append") if message[1] == number for part in message[2]),
        granted=_granted(cell, "journal"),
    )


def _to_stores(cell: Cell, queue: QueueView, disk: DiskLinks) -> Iterator[CreditPair]:
    for which, address in ((PERSISTENT, disk.storage.persistent), (TRANSIENT, disk.storage.transient)):
        receiver = cell_at(address)
        if receiver is None or receiver.actor is None:
            continue
        store = MessageStoreView(receiver.actor)
        if store.knows(disk.client, queue.address):
            yield CreditPair(
                sender=f"queue '{queue.name}'",
                sender_credit=queue.credit,
                receiver_key=which,
                receiver=which,
                receiver_credit=store.credit,
                sender_key=disk.client,
                unread=sum(len(message[2]) for message in _waiting(receiver, "write") if message[1] == disk.client),
                granted=_granted(cell, which),
            )
