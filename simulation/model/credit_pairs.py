"""The pairs of processes with credit between them, and what FC-12 and FC-59 require of each pair.

Conservation (FC-12), for each pair and after each step:

    credit left at the sender + unread messages + messages taken and not granted yet
    + grants that the receiver defers + grants that wait at the sender = the initial credit

The check counts messages where they wait: in the mailboxes, and in each process as its view shows them (`inspection` in
the folders of `actors`).

A step changes one process only, so after a step only the pairs with that process are checked. These
checks run some 600 times in a schedule, so they make no text and read no empty mailbox.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

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

#: Whatever takes part in credit flow.
View = ConnectionView | ChannelView | QueueView | JournalView | MessageStoreView


def _check(
    sender: View,
    sender_credit: CreditFlow,
    receiver_key: Hashable,
    receiver: View,
    receiver_credit: CreditFlow,
    sender_key: Hashable,
    unread: int,
    granted: int,
    is_commit: bool = False,
) -> None:
    """Raises PromiseBroken if credit is not conserved between two processes, or if too many messages wait.

    sender           view of the process that sends
    sender_credit    the sender's credit, in which the receiver has the name `receiver_key`
    receiver         view of the process that receives
    receiver_credit  the receiver's credit, in which the sender has the name `sender_key`
    unread           messages that the receiver has not taken
    granted          credit that waits in the sender's mailbox
    is_commit        whether the sender is committing a transaction
    """
    initial, more = sender_credit.pair_with(receiver_key)
    if not initial:
        return
    left = sender_credit.credit_from(receiver_key)
    taken = more - receiver_credit.credit_to(sender_key)
    deferred = receiver_credit.deferred(sender_key)
    total = left + unread + granted + taken + deferred
    if total != initial:
        raise PromiseBroken(
            f"credit of {_name(sender)} with {_name(receiver)} is not conserved: {left} left + {unread} unread + "
            f"{taken} taken + {deferred} deferred + {granted} granted and unread = {total}, not {initial}"
        )
    # A commit sends everything that the transaction holds at once, whatever the credit is.
    if unread > initial and not is_commit and isinstance(receiver, (ChannelView, QueueView)):
        bound = initial if receiver_key == sender_key or sender_key == CONNECTION_PEER else 2 * initial
        if unread > bound:
            raise PromiseBroken(
                f"{unread} messages of {_name(sender)} wait for {_name(receiver)}; the bound is {bound}"
            )


def _name(view: View) -> str:
    """The process of this view, for people."""
    if isinstance(view, ConnectionView):
        return f"connection {view.name}"
    if isinstance(view, ChannelView):
        return f"channel {view.name}"
    if isinstance(view, QueueView):
        return f"queue '{view.name}'"
    return "the journal" if isinstance(view, JournalView) else view.name


def check_from(cell: Cell, actor: object) -> None:
    """Check the pairs in which the process is the sender. Raises PromiseBroken."""
    if type(actor) is Connection:
        connection = ConnectionView(actor)
        if connection.is_serving:
            for entry in connection.channels():
                _to_channel(cell, connection, entry)
    elif type(actor) is Channel:
        channel = ChannelView(actor)
        if channel.is_running:
            for queue_id, row in channel.queues.items():
                _to_queue(cell, channel, queue_id, row)
    elif type(actor) is Queue:
        _from_queue(cell, QueueView(actor))


def check_with(cell: Cell, actor: object) -> None:
    """Check the pairs in which the process is the sender or the receiver. Raises PromiseBroken."""
    check_from(cell, actor)
    if type(actor) is Channel:
        _to_started_channel(ChannelView(actor))
    elif type(actor) is Queue and actor.is_open:
        queue = QueueView(actor)
        for _, address in queue.channels():
            sender = cell_at(address)
            if sender is None or type(sender.actor) is not Channel:
                continue
            channel = ChannelView(sender.actor)
            if channel.is_running and queue.queue_id in channel.queues:
                _to_queue(sender, channel, queue.queue_id, channel.queues[queue.queue_id])
    elif type(actor) is Journal or type(actor) is MessageStore:
        for writer in (JournalView(actor) if type(actor) is Journal else MessageStoreView(actor)).queues():
            sender = cell_at(writer)
            if sender is not None and sender.actor is not None:
                _from_queue(sender, QueueView(sender.actor))


def cell_at(address: object) -> Cell | None:
    """The mailbox at that address; None if there never was a process."""
    cell: Cell | None = getattr(address, "_cell", None)
    return cell


def _waiting(cell: Cell, name: str) -> list[Any]:
    """The messages of that name in a mailbox."""
    return [message for _, message in cell.queue if type(message) is tuple and message[0] == name]


def _granted(cell: Cell, peer: Hashable) -> int:
    """Credit of `peer` that waits in a mailbox."""
    if not cell.queue:
        return 0
    return sum(message[2] for message in _waiting(cell, "bump") if message[1] == peer)


def _to_started_channel(channel: ChannelView) -> None:
    """Check the pair of a channel with its connection."""
    if not channel.is_started:
        return
    sender = cell_at(channel.owner)
    if sender is not None and type(sender.actor) is Connection:
        connection = ConnectionView(sender.actor)
        entry = connection.channel(channel.number)
        if connection.is_serving and entry is not None:
            _to_channel(sender, connection, entry)


def _to_channel(cell: Cell, connection: ConnectionView, entry: ChannelEntry) -> None:
    receiver = cell_at(entry.address)
    if receiver is None or receiver.actor is None or entry.is_ended:
        return
    channel = ChannelView(receiver.actor)
    if not channel.is_running:
        return
    unread = channel.waiting_publishes
    if entry.events:
        unread += publishes_in(entry.events)
    if receiver.queue:
        unread += sum(publishes_in(message[1]) for message in _waiting(receiver, "input"))
    key = entry.channel_id
    granted = _granted(cell, key)
    _check(connection, connection.credit, key, channel, channel.credit, CONNECTION_PEER, unread, granted)


def _to_queue(cell: Cell, channel: ChannelView, queue_id: str, row: QueueRow) -> None:
    receiver = cell_at(row.address)
    if receiver is None or receiver.actor is None or not receiver.actor.is_open:
        return
    queue, channel_id = QueueView(receiver.actor), channel.channel_id
    unread = queue.delayed_publishes(channel_id)
    if receiver.queue:
        publishes = (message for message in _waiting(receiver, "publish") if message[1] == channel_id)
        unread += sum(len(entry[1]) for message in publishes for entry in message[2])
    granted, is_commit = _granted(cell, queue_id), channel.is_committing
    _check(channel, channel.credit, queue_id, queue, queue.credit, channel_id, unread, granted, is_commit)


def _from_queue(cell: Cell, queue: QueueView) -> None:
    """Check the pairs of a queue with the journal and the message stores."""
    disk = queue.disk if queue.is_open else None
    if disk is not None:
        _to_journal(cell, queue, disk)
        _to_store(cell, queue, disk.client, PERSISTENT, disk.storage.persistent)
        _to_store(cell, queue, disk.client, TRANSIENT, disk.storage.transient)


def _to_journal(cell: Cell, queue: QueueView, disk: DiskLinks) -> None:
    receiver, number = cell_at(disk.storage.journal), disk.number
    if receiver is None or receiver.actor is None:
        return
    journal = JournalView(receiver.actor)
    if not journal.knows(number, queue.address):
        return
    unread = journal.waiting(number)
    if receiver.queue:
        appends = (message for message in _waiting(receiver, "append") if message[1] == number)
        unread += sum(part.messages for message in appends for part in message[2])
    granted = _granted(cell, "journal")
    _check(queue, queue.credit, "journal", journal, journal.credit, number, unread, granted)


def _to_store(cell: Cell, queue: QueueView, client: str, which: str, address: object) -> None:
    receiver = cell_at(address)
    if receiver is None or receiver.actor is None:
        return
    store = MessageStoreView(receiver.actor)
    if not store.knows(client, queue.address):
        return
    unread = 0
    if receiver.queue:
        unread = sum(len(message[2]) for message in _waiting(receiver, "write") if message[1] == client)
    _check(queue, queue.credit, which, store, store.credit, client, unread, _granted(cell, which))
