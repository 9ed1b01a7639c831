"""Reads messages of a queue and leaves them as they are.

`look_up` reads those with some numbers, `browse` those from a number on, and `peek` the one at a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ....amqp.frames import content_body, content_properties
from ....store.messages.message import QueuedMessage
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.range_read import SupportsRangeRead
from ...contracts.queue import Browsed, LookedUp, Peeked
from ..consumers.consumer import ChannelRecord
from ..disk.disk_loader import DiskLoader
from .indexing import read_range

#: Bytes of messages that one look-up returns; further ones are returned without their content.
LOOK_UP_BYTES = 16 << 20

#: Batches that `browse` reads at most.
BATCHES_MAX = 200

#: Bytes of the body that `peek` returns.
PEEKED_BYTES = 64


async def look_up(
    numbers: Iterable[int],
    backing: BackingQueue,
    loader: DiskLoader,
    channels: Mapping[str, ChannelRecord],
    is_open: Callable[[], bool],
) -> list[LookedUp]:
    """The messages with these numbers that are still in the queue. A queue with priorities cannot be read by number, so
    its messages come without their content.
    """
    found = []
    size = 0
    for number in numbers:
        # The channel that has the message unacknowledged.
        owner = next((record.channel_id for record in channels.values() if number in record.pending), None)
        messages: list[QueuedMessage] = []
        if size < LOOK_UP_BYTES and is_open() and isinstance(backing, SupportsRangeRead):
            messages, _ = await read_range(backing, loader, number, number)
            if not messages:
                continue  # it has left the queue
        message = messages[0] if messages else None
        size += len(message.content) if message is not None else 0
        found.append(LookedUp(number, owner, message))
    return found


async def browse(
    first: int | None,
    most: int,
    backing: BackingQueue,
    loader: DiskLoader | None,
    channels: Mapping[str, ChannelRecord],
    is_open: Callable[[], bool],
) -> Browsed | None:
    """Up to `most` messages with numbers from `first` on, or from the lowest one; None if the queue does not number all
    its messages in one order, as with priorities.

    Messages are read in batches, and others have their turns between two batches. The answer ends early after
    `LOOK_UP_BYTES`, or after `BATCHES_MAX` batches, which may all be empty if most messages have left.
    """
    if not isinstance(backing, SupportsRangeRead):
        return None
    numbers = backing.numbers()
    at = numbers.start if first is None else max(first, numbers.start)
    found: list[QueuedMessage] = []
    size = batches = 0
    while at < numbers.stop and len(found) < most and size < LOOK_UP_BYTES and batches < BATCHES_MAX and is_open():
        messages, at = await read_range(backing, loader, at, numbers.stop - 1)
        if len(found) + len(messages) > most:
            messages = messages[: most - len(found)]
            at = messages[-1].tag + 1
        found += messages
        size += sum(len(each.content) for each in messages)
        batches += 1
    busy = [record for record in channels.values() if record.pending]
    shown = [
        LookedUp(each.tag, next((record.channel_id for record in busy if each.tag in record.pending), None), each)
        for each in found
    ]
    return Browsed(numbers.start, numbers.stop, shown, at if at < numbers.stop else None)


async def peek(
    position: int,
    backing: BackingQueue,
    loader: DiskLoader | None,
    channels: Mapping[str, ChannelRecord],
    is_open: Callable[[], bool],
) -> Peeked | None:
    """The ready message at this place, where 1 is the head; None if there is none.

    Messages are read in batches from the head on, and others have their turns between two batches.
    """
    if not isinstance(backing, SupportsRangeRead):
        return None
    first, stop = backing.numbers().start, backing.numbers().stop
    while first < stop and is_open():
        messages, first = await read_range(backing, loader, first, stop - 1)
        ready = [each for each in messages if not any(each.tag in record.pending for record in channels.values())]
        if position <= len(ready):
            message = ready[position - 1]
            content, origin = message.content, message.origin
            body = content_body(content)[:PEEKED_BYTES]
            returns = backing.returns.get(message.tag, 0)
            return origin.exchange, list(origin.routing_keys), content_properties(content), body, returns
        position -= len(ready)
    return None
