"""The dead letters of a queue (amqp-broker section 12).

`DeadLetterer` counts dead messages, makes dead letters of them and sends these to the queues that the dead-letter
exchange routes them to. They are sent at most once: without confirm, credit or mandatory. `Rejections` brings it the
messages that consumers reject.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from ....amqp.dead_letter_headers import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED, dead_letter, is_cycle
from ....amqp.fields import Table
from ....amqp.frames import content_properties, with_properties
from ....amqp.properties import decode_properties, encode_properties
from ....routing.arguments import QueueSettings
from ....routing.rows import QueueRow
from ....routing.table import RoutingTable
from ....seams import seam
from ....store.messages.message import Origin, QueuedMessage, body_size
from ....store.messages.message_ids import SharedIds
from ....store.queue.backing_queue import BackingQueue
from ....store.queue.placement import EMBED_BELOW
from ..contract import to_queue
from ..disk_loader import PendingRead
from ..effects import Effects

if TYPE_CHECKING:
    from ..contract import AtMostOnceEntry

    #: The queues that dead letters are routed to, by id, each with the entries for it.
    Targets = dict[str, tuple[QueueRow, list[AtMostOnceEntry]]]

log = logging.getLogger("warren.queue")

#: Pairs of queues whose cycle is logged; further ones are dropped silently, so that the log stays bounded.
CYCLES_REMEMBERED = 100


class DeadLetterer:
    """The dead letters of the queue `row`. `wall_clock` gives seconds since the epoch."""

    def __init__(
        self,
        routing: RoutingTable,
        row: QueueRow,
        effects: Effects,
        wall_clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._routing = routing
        self._row = row
        self._effects = effects
        self._wall_clock = wall_clock
        self._exchange: str | None = None
        self._routing_key: str | None = None
        #: Dead messages by reason, whether or not they became dead letters (AB-154).
        self.counters = {EXPIRED: 0, REJECTED: 0, MAXLEN: 0, DELIVERY_LIMIT: 0}
        self._ids = SharedIds(random_bytes)
        self._cycles: set[tuple[str, str]] = set()

    def apply(self, settings: QueueSettings) -> None:
        """Messages that die from now on go to the dead-letter exchange of `settings`, with its routing key."""
        self._exchange = settings.dead_letter_exchange
        self._routing_key = settings.dead_letter_routing_key

    @property
    def is_enabled(self) -> bool:
        return self._exchange is not None

    def count(self, reason: str, number: int) -> None:
        self.counters[reason] += number

    @seam("which dead messages become dead letters")
    def publish(self, reason: str, messages: Sequence[QueuedMessage]) -> None:
        """Count dead messages and, if there is a dead-letter exchange, send their dead letters there, in order."""
        self.count(reason, len(messages))
        exchange = self._exchange
        if exchange is None or self._routing.exchange(self._row.vhost, exchange) is None:
            return
        targets: Targets = {}
        # Messages of one origin that die together with equal properties become equal dead letters (their time is in
        # seconds), so these are computed once for a run of them.
        for (_, props), group in groupby(messages, key=_origin_and_properties):
            self._route(reason, exchange, list(group), props, targets)
        for row, entries in targets.values():
            self._effects.send(row.address, to_queue.publish_at_most_once(entries))

    def _route(self, reason: str, exchange: str, messages: list[QueuedMessage], props: bytes, targets: Targets) -> None:
        """Add the dead letters of messages with one origin and equal properties to `targets`."""
        origin = messages[0].origin
        dead, keys = dead_letter(
            decode_properties(props),
            reason,
            self._row.name,
            origin.exchange,
            origin.routing_keys,
            int(self._wall_clock()),
            self._routing_key,
        )
        rows: tuple[QueueRow, ...] = self._routing.route(self._row.vhost, exchange, keys, dead.headers)
        if reason != REJECTED:
            rows = tuple(row for row in rows if not self._is_cycle(dead.headers, row))
        if not rows:
            return
        new_props = encode_properties(dead)
        contents = [with_properties(message.content, new_props) for message in messages]
        shared = self._ids.take(contents, EMBED_BELOW) if len(rows) > 1 else 0
        entry = (
            Origin(exchange, keys, dead.delivery_mode == 2, origin.priority, None),
            contents,
            sum(map(body_size, contents)),
            shared,
        )
        for row in rows:
            targets.setdefault(row.queue_id, (row, []))[1].append(entry)

    def _is_cycle(self, headers: Table | None, row: QueueRow) -> bool:
        """Whether messages with these headers came back to queue `row` without a rejection (AB-153).

        Logged once for each cycle.
        """
        if not is_cycle(headers, row.name):
            return False
        cycle = (self._row.name, row.name)
        if cycle not in self._cycles and len(self._cycles) < CYCLES_REMEMBERED:
            self._cycles.add(cycle)
            log.warning(
                "queue '%s' in vhost '%s': dead letters that came back to queue '%s' are dropped",
                self._row.name,
                self._row.vhost,
                row.name,
            )
        return True


def _origin_and_properties(message: QueuedMessage) -> tuple[int, bytes]:
    return id(message.origin), content_properties(message.content)


class Rejections:
    """The messages of one queue that consumers reject, or return too often.

    With a dead-letter exchange they become dead letters, and bodies that are on the disk are read for that first.
    Without one they are dropped.
    """

    __slots__ = ("_backing", "_dead_letterer", "_effects", "reads")

    def __init__(self, backing: BackingQueue, dead_letterer: DeadLetterer, effects: Effects) -> None:
        self._backing = backing
        self._dead_letterer = dead_letterer
        self._effects = effects
        #: Rejections whose bodies are being read from the disk.
        self.reads = 0

    def reject(self, tags: Sequence[int], reason: str = REJECTED) -> None:
        if self._dead_letterer.is_enabled and self._backing.prepare_pending(tags) is not None:
            self.reads += 1
            self._effects.run(PendingRead(tags, partial(self._bodies_read, reason)))
        else:
            self._drop(reason, tags)

    def _bodies_read(self, reason: str, tags: Sequence[int]) -> None:
        self.reads -= 1
        self._drop(reason, tags)

    def _drop(self, reason: str, tags: Sequence[int]) -> None:
        if self._dead_letterer.is_enabled:
            self._dead_letterer.publish(reason, self._backing.pending_messages(tags))
        else:
            self._dead_letterer.count(reason, len(tags))
        self._backing.ack(tags)
