"""Where a queue's dead messages go (AB section 12): counts them, works out what they become, and sends them to the queues behind the dead-letter exchange.

At most once: no confirm, no credit, no mandatory. Messages that share an origin die alike within a second, so what they become is worked out once for a run of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...amqp.dead_letter_headers import REJECTED, dead_letter, is_cycle
from ...amqp.frames import with_properties
from ...amqp.properties import decode_properties, encode_properties
from ...routing.arguments import QueueSettings
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...store.messages.message import Origin, QueuedMessage, body_size
from ...store.messages.message_ids import SharedIds
from ...store.queue.placement import EMBED_BELOW

if TYPE_CHECKING:
    from .process import Queue

log = logging.getLogger("warren.queue")

CYCLES_REMEMBERED = 100


class DeadLetterer:
    """The dead letters of one queue."""

    def __init__(self, queue: "Queue", routing: RoutingTable, row: QueueRow, settings: QueueSettings) -> None:
        self.queue = queue
        self.routing = routing
        self.row = row
        self.exchange = settings.dead_letter_exchange
        self.routing_key = settings.dead_letter_routing_key
        self.counters = {"expired": 0, "rejected": 0, "maxlen": 0}  # AB-154
        self._ids = SharedIds(queue.random_bytes)
        self._cycles: set[tuple[str, str]] = set()

    @property
    def is_enabled(self) -> bool:
        return self.exchange is not None

    def count(self, reason: str, number: int) -> None:
        self.counters[reason] += number

    def publish(self, reason: str, messages: Sequence[QueuedMessage]) -> None:
        """Counts the dead and, if there is a dead-letter exchange, sends them there, in order."""
        self.count(reason, len(messages))
        exchange = self.exchange
        if exchange is None or self.routing.exchange(self.row.vhost, exchange) is None:
            return
        targets: dict[str, tuple[QueueRow, list[tuple]]] = {}
        for _, group in groupby(messages, key=lambda message: id(message.origin)):
            self._address(reason, exchange, list(group), targets)
        for row, entries in targets.values():
            self.queue.send(row.address, ("publish_at_most_once", entries))

    def _address(
        self,
        reason: str,
        exchange: str,
        messages: list[QueuedMessage],
        targets: dict[str, tuple[QueueRow, list[tuple]]],
    ) -> None:
        origin = messages[0].origin
        dead, keys = dead_letter(
            decode_properties(origin.props),
            reason,
            self.row.name,
            origin.exchange,
            origin.routing_keys,
            int(self.queue.wall_clock()),
            self.routing_key,
        )
        rows: tuple[QueueRow, ...] = self.routing.route(self.row.vhost, exchange, keys, dead.headers)
        if reason != REJECTED:
            rows = tuple(row for row in rows if not self._is_cycle(dead.headers, row))
        if not rows:
            return
        props = encode_properties(dead)
        contents = [with_properties(message.content, props) for message in messages]
        shared = self._ids.take(contents, EMBED_BELOW) if len(rows) > 1 else 0
        entry = (
            Origin(exchange, keys, props, dead.delivery_mode == 2, origin.priority, None),
            contents,
            sum(map(body_size, contents)),
            shared,
        )
        for row in rows:
            targets.setdefault(row.queue_id, (row, []))[1].append(entry)

    def _is_cycle(self, headers: Any, row: QueueRow) -> bool:
        """Whether the message came back to this queue by itself (AB-153); logged once for each cycle."""
        if not is_cycle(headers, row.name):
            return False
        cycle = (self.row.name, row.name)
        if cycle not in self._cycles and len(self._cycles) < CYCLES_REMEMBERED:
            self._cycles.add(cycle)
            log.warning(
                "queue '%s' in vhost '%s': dead letters that came back to queue '%s' are dropped",
                self.row.name,
                self.row.vhost,
                row.name,
            )
        return True
