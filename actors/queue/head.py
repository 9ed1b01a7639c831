"""Which message of a queue is its head, for listings (AB-176)."""

from __future__ import annotations

from collections.abc import Iterable

from ...amqp.properties import decode_properties
from ...store.messages.message import QueuedMessage
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.priority_queue import LEVEL_SHIFT


def head_message_timestamp(backing: BackingQueue, pending: Iterable[int]) -> int | str:
    """The timestamp of the oldest message, one of those with the `pending` ack tags included, of the highest priority that has any; '' if it has none."""
    ready = backing.head()
    tags = [*pending, *(() if ready is None else (ready.tag,))]
    if not tags:
        return ""
    oldest = max(tags, key=lambda tag: (tag >> LEVEL_SHIFT, -tag))
    if ready is not None and ready.tag == oldest or backing.prepare_pending([oldest]) is not None:
        found = ready  # what is unacknowledged counts only while its body is in memory: a listing must not wait for the disk
    else:
        found = backing.ackfold(_this, None, [oldest])
    timestamp = decode_properties(found.origin.props).timestamp if found is not None else None
    return "" if timestamp is None else timestamp


def _this(message: QueuedMessage, _: QueuedMessage | None) -> QueuedMessage | None:
    return message
