"""Finding the first message that arrived at some time, by a binary search over the numbers of a queue.

The times of arrival never decrease in a queue, and messages whose arrival is not known are older than the others.
"""

from __future__ import annotations

from ...amqp.frames import content_body
from ..errors import wrong_options
from ..rows.blocks import decode_block
from ..wire import BrokerConnection
from .offsets import QueueState

#: Numbers that the first read of `_first` covers. If no message has any of them, each further read covers more.
NEAR = 64
#: The size of a block that the reads ask for, which is the smallest that a node allows.
_BLOCK = 65_536


def number_at(connection: BrokerConnection, state: QueueState, moment: int) -> int:
    """The number of the first message that arrived at `moment` (microseconds since the epoch) or later; the queue's
    next number if all arrived before. It may be lower if no message has the numbers between. Raises SparkSourceError
    E4, Refused and Away.
    """
    if not {"arrival", "read-blocks"} <= connection.features:
        raise wrong_options(
            f"option 'startingTimestamp' of format 'warren': {connection.where} does not know when messages arrived. "
            "Begin at startingOffsets, or use a newer warren"
        )
    low, high = state.first, state.next
    while low < high:
        middle = (low + high) // 2
        found = _first(connection, state.name, middle, high)
        if found is None or found[1] >= moment:
            high = middle
        else:
            low = found[0] + 1
    return low


def _first(connection: BrokerConnection, queue: str, low: int, high: int) -> tuple[int, int] | None:
    """Number and arrival of the first message from `low` to before `high`; None if there is no message."""
    at, width = low, NEAR
    while at < high:
        stop = min(at + width, high)
        arguments = {
            "x-warren-read-from": at,
            "x-warren-read-to": stop - 1,
            "x-warren-blocks": _BLOCK,
            "x-warren-lenient": True,
            "x-warren-headers-only": True,
        }
        found = None
        for delivery in connection.consume(queue, arguments):
            messages = decode_block(content_body(delivery.content), True)
            if found is None and len(messages):
                found = int(messages.numbers[0]), messages.runs[0].arrived
        if found is not None:
            return found
        at, width = stop, 4 * width
    return None
