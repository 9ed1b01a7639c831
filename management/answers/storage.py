"""Where the messages of a queue are, as RabbitMQ's items (CM-274, CM-349, CM-350), from the queue's statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...actors.statistics.storage_items import STORAGE_ITEMS
from ...routing.queue_types import STREAM

Row = dict[str, Any]

#: The items of a stream that are sums of others: all its messages are persistent.
_OF_STREAM = {
    "messages_persistent": ("messages",),
    "message_bytes_persistent": ("message_bytes_ready", "message_bytes_unacknowledged"),
}


def _stored(name: str) -> Callable[[Row], int]:
    value, of_stream = STORAGE_ITEMS[name], _OF_STREAM.get(name, ())

    def found(stats: Row) -> int:
        layers = stats.get("layers")
        if layers:
            return value(layers)
        # A stream and a group have nothing of their own in memory.
        return sum([stats.get(column) or 0 for column in of_stream]) if stats.get("type") == STREAM.name else value({})

    return found


#: How each item is read from the statistics of a queue.
STORED = {name: _stored(name) for name in STORAGE_ITEMS}
