"""The info items that every replica of a queue has, whatever its role, for listings (AB-176)."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import TYPE_CHECKING

from ...store.queue.backing_queue import BackingQueue
from ...store.queue.range_read import SupportsRangeRead
from ...store.queue.streams.stream_segments import StreamBacking
from .consumers.consumer import ChannelRecord

if TYPE_CHECKING:
    from ..contracts.info_items import InfoItems
    from .replica_state import ReplicaState


#: The `unsent` of a channel record. Read in C: a queue may have 65,535 channels, and their sum is shown in one turn.
_unsent = attrgetter("unsent")


def replica_items(state: ReplicaState, channels: Collection[ChannelRecord], unacked: int = 0) -> InfoItems:
    """rabbitmqctl's info items of a queue, without those of consumers.

    `unacked` are the messages that channels have to acknowledge.
    """
    row, backing, credit = state.row, state.backing, state.credit
    totals = backing.totals()
    items: InfoItems = {
        "name": row.name,
        "vhost": row.vhost,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "owner": row.exclusive_owner,
        "arguments": row.arguments,
        "type": row.type,
        "messages_ready": totals.ready,
        "messages_unacknowledged": unacked,
        "messages": totals.ready + unacked,
        "state": "short" if state.is_short else "flow" if credit.in_flow() else "running",
        "message_bytes_ready": totals.ready_bytes,
        "message_bytes_unacknowledged": totals.pending_bytes,
        "message_bytes": totals.ready_bytes + totals.pending_bytes,
        "unsent": sum(map(_unsent, channels)),
        "blocked_by": list(map(str, credit.blockers())),
        "blocked_seconds_by": credit.blocked_seconds_by_kind(),
    }
    items |= credit.flow_items()
    return items


def reading_items(backing: BackingQueue, consumers: int, dedup: int) -> InfoItems:
    """The items for clients that read the queue by number (SP-21). Readers get the numbers from `first` to before
    `next`, which the queue gives to no other message even after a crash. `dedup` is how many messages the queue
    remembers, so that it keeps none that is published again.
    """
    totals = backing.totals()
    items: InfoItems = {
        "messages": totals.depth,
        "message_bytes": totals.ready_bytes + totals.pending_bytes,
        "unacked": totals.pending,
        "consumers": consumers,
        "dedup": dedup,
    }
    is_stream = isinstance(backing, StreamBacking)
    if is_stream or not isinstance(backing, SupportsRangeRead):
        numbers: InfoItems = dict.fromkeys(("life", "first", "next"))
        reason = (
            "it is a stream, whose consumers begin at an x-stream-offset"
            if is_stream
            else "it has priorities or fair lanes, which deliver out of the order of numbers"
        )
        return {**items, **numbers, "gaps": [], "readable": False, "reason": reason}
    kept, lives = backing.kept_numbers(), backing.lives
    return {
        **items,
        "life": lives.life,
        "gaps": [list(gap) for gap in lives.gaps],
        "first": kept.start,
        "next": kept.stop,
        "readable": True,
        "reason": None,
    }


#: The items of `Durability.items` of a queue without a data directory.
NO_DISK: InfoItems = {"disk_reads": 0, "disk_writes": 0}
