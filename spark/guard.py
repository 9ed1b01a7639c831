"""`Guard`: checks what an exactly-once sink relies on: that each queue drops rows that are published twice (SP-83).

A row is published to a queue by its name, through the default exchange. No client can find out to which queues another
exchange routes, so the sink refuses rows for it. The deduplication window of each queue must be at least as long as the
rows of one task, because a task that fails publishes all of them again.
"""

from __future__ import annotations

import json
from collections import Counter

from ..amqp.frames import content_body
from .errors import not_deduplicated
from .options import SinkOptions
from .reading.catalogue import CATALOGUE
from .wire import Connection


class Guard:
    """Checks the rows of one task. Raises SparkSourceError E13, Refused and Away."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        #: By queue, how many messages its deduplication remembers at least.
        self._windows: dict[str, int] = {}
        #: By queue, how many rows this task has published to it.
        self._rows: Counter[str] = Counter()

    @property
    def smallest(self) -> int | None:
        """The smallest window of the queues that got rows; None if none did."""
        return min(self._windows.values(), default=None)

    def admit(self, exchange: str, queue: str) -> None:
        """Check a row before it is published."""
        if exchange:
            raise not_deduplicated(
                f"no client can find out to which queues exchange '{exchange}' routes. Leave it out, and publish to "
                "queues by their names as routing keys"
            )
        window = self._windows.get(queue)
        if window is None:
            window = self._windows[queue] = self._ask(queue)
        self._rows[queue] += 1
        if self._rows[queue] > window:
            raise not_deduplicated(
                f"queue '{queue}' remembers {window:,} messages, and a task has more rows for it, which it would have "
                "twice if the task ran again. Use smaller micro-batches, or a queue with a larger window"
            )

    def _ask(self, queue: str) -> int:
        connection = Connection(self._options, "spark exactly-once")
        try:
            rows: list[dict[str, object]] = []
            for delivery in connection.consume(CATALOGUE, {"x-warren-queues": [queue]}):
                rows += json.loads(content_body(delivery.content))
            connection.close()
        finally:
            connection.abort()
        if not rows:
            raise not_deduplicated(f"queue '{queue}' does not exist, does not run, or may not be read by this user")
        windows = [window for row in rows if isinstance(window := row["dedup"], int)]
        if not all(windows):
            raise not_deduplicated(f"queue '{queue}' keeps messages that are published twice")
        return min(windows)
