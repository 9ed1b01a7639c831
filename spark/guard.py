"""`Guard`: checks what an exactly-once sink relies on: that each queue drops rows that are published twice (SP-83).

A row is published to a queue by its name, through the default exchange, or to another exchange. Then the exchange or
each queue that it may lead to must deduplicate; the broker's catalogue has that. The deduplication window of each queue
must be at least as long as the rows of one task, because a task that fails publishes all of them again.
"""

from __future__ import annotations

import json
from collections import Counter

from ..amqp.frames import content_body
from .errors import not_deduplicated
from .options import SinkOptions
from .reading.catalogue import CATALOGUE
from .wire import BrokerConnection


class Guard:
    """Checks the rows of one task. Raises SparkSourceError E13, Refused and Away."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        #: By exchange and queue, how many messages the queue remembers at least. For an exchange other than the default
        #: one, the queue is '' and the number is that of its queue with the smallest window.
        self._windows: dict[tuple[str, str], int] = {}
        #: In the same way, how many rows this task has published.
        self._rows: Counter[tuple[str, str]] = Counter()

    @property
    def smallest(self) -> int | None:
        """The smallest window of the queues that got rows; None if none did."""
        return min(self._windows.values(), default=None)

    def admit(self, exchange: str, queue: str, rows: int) -> None:
        """Check rows before they are published."""
        place = (exchange, "") if exchange else ("", queue)
        window = self._windows.get(place)
        if window is None:
            window = self._windows[place] = self._of_exchange(exchange) if exchange else self._of_queue(queue)
        self._rows[place] += rows
        if self._rows[place] > window:
            of = f"a queue of exchange '{exchange}'" if exchange else f"queue '{queue}'"
            raise not_deduplicated(
                f"{of} remembers {window:,} messages, and a task has more rows for it, which it would have "
                "twice if the task ran again. Use smaller micro-batches, or a larger window"
            )

    def _of_exchange(self, exchange: str) -> int:
        rows = self._ask({"x-warren-exchanges": [exchange]})
        if not rows:
            raise not_deduplicated(f"exchange '{exchange}' does not exist, or this user may not publish to it")
        window, queue = rows[0]["dedup"], rows[0]["queue"]
        if not isinstance(window, int) or not window:
            of = "a queue" if queue is None else f"queue '{queue}'"
            raise not_deduplicated(f"exchange '{exchange}' leads to no queue, or {of} of it does not deduplicate")
        return window

    def _ask(self, arguments: dict[str, object]) -> list[dict[str, object]]:
        """The rows of the broker's catalogue for these arguments."""
        connection = BrokerConnection(self._options, "spark exactly-once")
        try:
            rows: list[dict[str, object]] = []
            for delivery in connection.consume(CATALOGUE, arguments):
                rows += json.loads(content_body(delivery.content))
            connection.close()
        finally:
            connection.abort()
        return rows

    def _of_queue(self, queue: str) -> int:
        rows = self._ask({"x-warren-queues": [queue]})
        if not rows:
            raise not_deduplicated(f"queue '{queue}' does not exist, does not run, or may not be read by this user")
        windows = [window for row in rows if isinstance(window := row["dedup"], int)]
        if not all(windows):
            raise not_deduplicated(f"queue '{queue}' keeps messages that are published twice")
        return min(windows)
