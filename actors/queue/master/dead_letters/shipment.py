"""`Shipment`: dead letters in flight to queues that are kept elsewhere than the queue of the dead messages.

The messages stay in their queue, pending, until every target has reported that its dead letters are safe there, on all
replicas if it has several. If the queue fails meanwhile, the messages are ready again, and may die a second time.
`Shipping` sends the dead letters, and sends them again if a target fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .....routing.rows import QueueRow
    from .....store.messages.message import QueuedMessage
    from ....contracts.queue import AtMostOnceEntry


class Shipment:
    """The dead letters of messages that die in one step."""

    __slots__ = ("arrived", "sizes", "targets", "waits_for")

    def __init__(self, arrived: Callable[[Shipment], None]) -> None:
        #: Called when all targets have taken their dead letters.
        self.arrived = arrived
        #: The bytes of each dead message, by its ack tag.
        self.sizes: dict[int, int] = {}
        #: By the id of each target: its row, and what it gets.
        self.targets: dict[str, tuple[QueueRow, list[AtMostOnceEntry]]] = {}
        #: How many targets have not taken their dead letters yet.
        self.waits_for = 0

    def add(self, messages: Sequence[QueuedMessage], rows: Sequence[QueueRow], entry: AtMostOnceEntry) -> None:
        """Add the dead letters of these messages, which each of the queues gets."""
        for message in messages:
            self.sizes[message.tag] = len(message.content)
        for row in rows:
            self.targets.setdefault(row.queue_id, (row, []))[1].append(entry)
        self.waits_for = len(self.targets)
