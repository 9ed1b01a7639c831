"""What a queue says of itself in listings: rabbitmqctl's info items of the queue and of its consumers (AB-176)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from .head import head_message_timestamp

if TYPE_CHECKING:
    from .process import Queue


def queue_items(queue: Queue) -> dict[str, Any]:
    backing, row = queue.backing, queue.row
    ready, unacked = len(backing), sum(len(record.pending) for record in queue.channels.values())
    active = queue.consumers.active
    numbers = queue.range_readers.numbers()
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
        "consumers": len(queue.consumers),
        "state": "flow" if queue.credit.in_flow() else "running",
        "message_bytes_ready": backing.ready_bytes,
        "message_bytes_unacknowledged": backing.unacked_bytes,
        "message_bytes": backing.ready_bytes + backing.unacked_bytes,
        "head_message_timestamp": head_message_timestamp(
            backing, chain.from_iterable(record.pending for record in queue.channels.values())
        ),
        "queue_mode": queue.queue_mode,
        "single_active_consumer_tag": active.tag if active else "",
        "unsent": sum(record.unsent for record in queue.channels.values()),
        "dead_lettered": dict(queue.dead_letterer.counters),
        "readers": len(queue.range_readers.readers),
        "first_number": None if numbers is None else numbers.start,
        "next_number": None if numbers is None else numbers.stop,
    }


def consumer_items(queue: Queue) -> list[dict[str, Any]]:
    single = queue.consumers.single_active
    return [
        {
            "queue_name": queue.row.name,
            "vhost": queue.row.vhost,
            "channel": consumer.channel.channel_id,
            "consumer_tag": consumer.tag,
            "ack_required": not consumer.no_ack,
            "exclusive": consumer.exclusive,
            "prefetch_count": consumer.prefetch,
            "priority": consumer.priority,
            "active": not single or consumer is queue.consumers.active,
            "activity_status": "up"
            if not single
            else "single_active"
            if consumer is queue.consumers.active
            else "waiting",
            "arguments": consumer.arguments,
            "user": consumer.user,
        }
        for consumer in queue.consumers
    ] + queue.range_readers.info()
