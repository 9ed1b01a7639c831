"""The info items of a queue, for listings (AB-176)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ....amqp.frames import content_properties
from ....amqp.properties import decode_properties
from ....routing.rows import QueueRow
from ....runtime.credit import CreditFlow
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.priority_queue import LEVEL_SHIFT
from ..consumers import ChannelRecord, Consumers
from .dead_letterer import DeadLetterer
from .range_readers import RangeReaders

if TYPE_CHECKING:
    from ...metadata.info_items import InfoItems


def queue_items(
    row: QueueRow,
    queue_mode: str,
    backing: BackingQueue,
    channels: Collection[ChannelRecord],
    consumers: Consumers,
    range_readers: RangeReaders,
    dead_letterer: DeadLetterer,
    credit: CreditFlow,
) -> InfoItems:
    """rabbitmqctl's info items of a queue."""
    ready, unacked = len(backing), sum(len(record.pending) for record in channels)
    active = consumers.active
    # An exclusive consumer is the only one of its queue.
    exclusive = next(iter(consumers)) if consumers.has_exclusive() else None
    numbers = range_readers.numbers()
    return {
        "name": row.name,
        "vhost": row.vhost,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "owner": row.exclusive_owner,
        "arguments": row.arguments,
        "type": row.type,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "messages": ready + unacked,
        "consumers": len(consumers),
        "state": "flow" if credit.in_flow() else "running",
        "message_bytes_ready": backing.ready_bytes,
        "message_bytes_unacknowledged": backing.unacked_bytes,
        "message_bytes": backing.ready_bytes + backing.unacked_bytes,
        "head_message_timestamp": _head_timestamp(backing),
        "queue_mode": queue_mode,
        "single_active_consumer_tag": active.tag if active else "",
        "exclusive_consumer_tag": exclusive.tag if exclusive else "",
        "exclusive_consumer": exclusive.channel.channel_id if exclusive else None,
        "unsent": sum(record.unsent for record in channels),
        "dead_lettered": dict(dead_letterer.counters),
        "blocked_by": list(map(str, credit.blockers())),
        "blocked_seconds_by": credit.blocked_seconds_by_kind(),
        **credit.flow_items(),
        "readers": len(range_readers.readers),
        "first_number": None if numbers is None else numbers.start,
        "next_number": None if numbers is None else numbers.stop,
    }


def _head_timestamp(backing: BackingQueue) -> int | str:
    """The timestamp of the oldest message of the highest priority that has any; '' if the message has none.

    Unacknowledged messages count, unless their body is on the disk: a listing must not wait for the disk.
    """
    ready, pending = backing.head(), backing.oldest_pending()
    tags = [tag for tag in (pending, None if ready is None else ready.tag) if tag is not None]
    if not tags:
        return ""
    oldest = max(tags, key=lambda tag: (tag >> LEVEL_SHIFT, -tag))
    if ready is not None and ready.tag == oldest or backing.prepare_pending([oldest]) is not None:
        found = ready
    else:
        found = next(iter(backing.pending_messages([oldest])), None)
    if found is None or not found.content:
        return ""
    timestamp = decode_properties(content_properties(found.content)).timestamp
    return "" if timestamp is None else timestamp
