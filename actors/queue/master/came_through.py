"""`CameThrough`: which messages of a queue came through an exchange that deduplicates (SP-30).

The queue follows the way of each kind of messages through the exchanges, as the routing table of its own node has them.
If the bindings change while a message is on its way to the queue, the queue may decide as for a message that was
published a moment later.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....amqp.frames import content_properties
from ....amqp.properties import decode_properties
from ....routing.rows import QueueRow
from ....routing.table import RoutingTable
from ....store.messages.message import Origin, Origins, each_of

#: How many kinds of messages are remembered at most, each with the answer for it. Messages with the same exchange and
#: routing keys are of one kind.
KINDS_KEPT = 512


class CameThrough:
    """Answers for the messages of the queue `row`. Those of a shard were routed to its logical queue."""

    __slots__ = ("_known", "_name", "_routing", "_version", "_vhost")

    def __init__(self, routing: RoutingTable, row: QueueRow) -> None:
        self._routing = routing
        self._vhost = row.vhost
        self._name = row.shard_of or row.name
        #: The answer for each exchange with its routing keys, at this version of the routing table; None: the headers
        #: of each message decide.
        self._known: dict[tuple[str, tuple[str, ...]], bool | None] = {}
        self._version = -1

    def which(self, origins: Origins, contents: Sequence[bytes]) -> Sequence[bool]:
        """For each of these messages, whether it came through an exchange that deduplicates; empty if none did."""
        if self._version != self._routing.version or len(self._known) > KINDS_KEPT:
            self._known.clear()
            self._version = self._routing.version
        if isinstance(origins, Origin):
            answer = self._of(origins)
            if answer is not None:
                return [True] * len(contents) if answer else ()
        found = [
            self._by_headers(origin, content) if (answer := self._of(origin)) is None else answer
            for origin, content in zip(each_of(origins, len(contents)), contents)
        ]
        return found if any(found) else ()

    def _of(self, origin: Origin) -> bool | None:
        kind = origin.exchange, origin.routing_keys
        if kind not in self._known:
            exchange, routing = origin.exchange, self._routing
            windows = routing.exchange_windows(self._vhost)
            if windows is not None and exchange in windows.exchanges:
                self._known[kind] = True
            elif routing.depends_on_headers(self._vhost, exchange):
                self._known[kind] = None
            else:
                self._known[kind] = routing.came_through(self._vhost, exchange, origin.routing_keys, None, self._name)
        return self._known[kind]

    def _by_headers(self, origin: Origin, content: bytes) -> bool:
        headers = decode_properties(content_properties(content)).headers
        return self._routing.came_through(self._vhost, origin.exchange, origin.routing_keys, headers, self._name)
