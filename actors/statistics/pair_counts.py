"""`PairCounts`: what one channel has published to each exchange and queue, and got from each queue (CM-275).

Only channels of a node whose `management_rates_mode` is `detailed` count so: each run costs a few additions more, and
each pair an entry. A channel counts `MOST` pairs of either kind; what exceeds them is counted for the channel alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from .counts import MessageCounts, NodeCounts

if TYPE_CHECKING:
    from ...routing.rows import QueueRow
    from ..contracts.info_items import InfoItems

#: Pairs of an exchange and a queue, and queues that deliver.
MOST = 1_000

#: Stands for the queue in the entry of an exchange alone.
ANY_QUEUE = ""


class PairCounts:
    """See the module. `node` counts the publishes of all channels."""

    __slots__ = ("_node", "_of_queues", "_published")

    def __init__(self, node: NodeCounts) -> None:
        self._node = node
        #: By exchange and queue id: the messages published; all of an exchange under `ANY_QUEUE`.
        self._published: dict[tuple[str, str], int] = {}
        #: By queue id: what the queue has delivered to the channel, and got back.
        self._of_queues: dict[str, MessageCounts] = {}

    def published(self, vhost: str, exchange: str, count: int, rows: Sequence[QueueRow]) -> None:
        """Count messages that were published to the exchange and go to these queues, also for the node."""
        self._node.published(vhost, exchange, count, rows)
        self._add(exchange, ANY_QUEUE, count)
        for row in islice(rows, MOST):
            self._add(exchange, row.queue_id, count)

    def _add(self, exchange: str, queue_id: str, count: int) -> None:
        known = self._published.get((exchange, queue_id))
        if known is not None:
            self._published[exchange, queue_id] = known + count
        elif len(self._published) < MOST:
            self._published[exchange, queue_id] = count

    def of_queue(self, queue_id: str) -> MessageCounts | None:
        """The counters of what this queue delivers; None if there are too many queues."""
        found = self._of_queues.get(queue_id)
        if found is None and len(self._of_queues) < MOST:
            found = self._of_queues[queue_id] = MessageCounts()
        return found

    def items(self) -> InfoItems:
        """Both kinds of pairs as plain values, for the management process."""
        return {
            "publishes": [[exchange, queue_id, count] for (exchange, queue_id), count in self._published.items()],
            "deliveries": [[queue_id, counts.values()] for queue_id, counts in self._of_queues.items()],
        }
