"""`PairTotals`: how many messages went from each exchange to each queue, over all channels of a node (CM-275).

Channels count them only if the node's `management_rates_mode` is `detailed`. A channel that ends takes its counts with
it, so what it had counted at the last reading stays in the totals here, until the queue is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Row = dict[str, Any]
Name = tuple[str, str]


class PairTotals:
    """See the module. `names_by_id` has the name of each declared queue by its id."""

    def __init__(self, names_by_id: Mapping[str, Name]) -> None:
        self._names_by_id = names_by_id
        #: By queue: the messages from each exchange of its virtual host.
        self._of_queue: dict[Name, dict[str, int]] = {}

    def take(self, before: Row | None, row: Row) -> Iterator[tuple[str, Name]]:
        """Replace the ids in the row of a channel by names, and add what it has counted since the row before.

        Yield each exchange and queue between which there is more.
        """
        published: dict[tuple[str, str | None], int] = {}
        for exchange, queue_id, count in row["publishes"]:
            name = self._names_by_id.get(queue_id)
            if not queue_id or name is not None:
                published[exchange, None if name is None else name[1]] = count
        names = ((self._names_by_id.get(queue_id), counts) for queue_id, counts in row["deliveries"])
        row["publishes"], row["deliveries"] = published, {name[1]: counts for name, counts in names if name is not None}
        known: dict[tuple[str, str | None], int] = {} if before is None else before.get("publishes", {})
        for (exchange, queue), count in published.items():
            more = count - known.get((exchange, queue), 0)
            if queue is not None and more > 0:
                of_queue = self._of_queue.setdefault((row["vhost"], queue), {})
                of_queue[exchange] = of_queue.get(exchange, 0) + more
                yield exchange, (row["vhost"], queue)

    def forget_queue(self, name: Name) -> list[str]:
        """Forget a queue that was deleted. Return the exchanges from which it had messages."""
        return list(self._of_queue.pop(name, {}))

    def of_queue(self, name: Name) -> Mapping[str, int]:
        """By exchange: the messages that went to this queue."""
        return self._of_queue.get(name, {})

    def of_exchange(self, name: Name) -> dict[str, int]:
        """By queue: the messages that came from this exchange."""
        vhost, exchange = name
        return {
            queue: counts[exchange]
            for (of_vhost, queue), counts in self._of_queue.items()
            if of_vhost == vhost and exchange in counts
        }
