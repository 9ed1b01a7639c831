"""The dead letters of a queue (amqp-broker section 12).

`DeadLetterer` counts dead messages, makes dead letters of them and sends these to the queues that the dead-letter
exchange routes them to. They are sent at most once: without confirm, credit or mandatory. `Rejections` brings it the
messages that consumers reject.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ...amqp.dead_letter_headers import REJECTED, dead_letter, is_cycle
from ...amqp.fields import Table
from ...amqp.frames import content_properties, with_properties
from ...amqp.properties import decode_properties, encode_properties
from ...routing.arguments import QueueSettings
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...runtime.process import Process
from ...seams import seam
from ...store.messages.message import Origin, QueuedMessage, body_size
from ...store.messages.message_ids import SharedIds
from ...store.queue.backing_queue import BackingQueue
from ...store.queue.placement import EMBED_BELOW
from .contract import to_queue

if TYPE_CHECKING:
    from ...runtime.contract import Sender
    from .contract import AtMostOnceEntry
    from .disk_loader import DiskLoader

    #: The queues that dead letters are routed to, by id, each with the entries for it.
    Targets = dict[str, tuple[QueueRow, list[AtMostOnceEntry]]]

log = logging.getLogger("warren.queue")

#: Pairs of queues whose cycle is logged; further ones are dropped silently, so that the log stays bounded.
CYCLES_REMEMBERED = 100


class DeadLetterer:
    """The dead letters of the queue `row`, whose process is `process`."""

    def __init__(self, process: Process, routing: RoutingTable, row: QueueRow, settings: QueueSettings) -> None:
        self._process = process
        self._routing = routing
        self._row = row
        self._exchange = settings.dead_letter_exchange
        self._routing_key = settings.dead_letter_routing_key
        #: Dead messages by reason, whether or not they became dead letters (AB-154).
        self.counters = {"expired": 0, "rejected": 0, "maxlen": 0}
        self._ids = SharedIds(process.random_bytes)
        self._cycles: set[tuple[str, str]] = set()

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
            self._process.send(row.address, to_queue.publish_at_most_once(entries))

    def _route(self, reason: str, exchange: str, messages: list[QueuedMessage], props: bytes, targets: Targets) -> None:
        """Add the dead letters of messages with one origin and equal properties to `targets`."""
        origin = messages[0].origin
        dead, keys = dead_letter(
            decode_properties(props),
            reason,
            self._row.name,
            origin.exchange,
            origin.routing_keys,
            int(self._process.wall_clock()),
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
    """The messages of one queue that consumers reject.

    With a dead-letter exchange they become dead letters, and bodies that are on the disk are read for that first.
    Without one they are dropped. `loader` is None if the queue keeps everything in memory.
    """

    __slots__ = ("_backing", "_dead_letterer", "_loader", "_process", "_reads", "_waiter")

    def __init__(
        self, process: Process, backing: BackingQueue, dead_letterer: DeadLetterer, loader: DiskLoader | None
    ) -> None:
        self._process = process
        self._backing = backing
        self._dead_letterer = dead_letterer
        self._loader = loader
        #: Rejections whose bodies are being read from the disk.
        self._reads = 0
        self._waiter: Sender | None = None

    def reject(self, tags: Sequence[int]) -> None:
        loader = self._loader
        if loader is not None and self._dead_letterer.is_enabled and self._backing.prepare_pending(tags) is not None:
            self._reads += 1
            self._process.spawn(self._reject_from_disk(loader, tags))
        else:
            self._drop(tags)

    async def _reject_from_disk(self, loader: DiskLoader, tags: Sequence[int]) -> None:
        await loader.prepare_pending(tags)
        self._drop(tags)
        self._reads -= 1
        self._answer_waiter()

    def _drop(self, tags: Sequence[int]) -> None:
        if self._dead_letterer.is_enabled:
            self._dead_letterer.publish("rejected", self._backing.pending_messages(tags))
        else:
            self._dead_letterer.count("rejected", len(tags))
        self._backing.ack(tags)

    def answer_when_done(self, waiter: Sender) -> None:
        """Answer `waiter` True when all messages rejected so far have become dead letters."""
        self._waiter = waiter
        self._answer_waiter()

    def _answer_waiter(self) -> None:
        if self._waiter is not None and not self._reads:
            self._process.reply(self._waiter, True)
            self._waiter = None
