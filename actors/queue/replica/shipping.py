"""`Shipping`: sends the shipments of a queue to their targets, until each has taken its part (`Shipment`).

Each target gets one request at a time, so that its dead letters stay in order, and the next request has all that came
meanwhile. If the target fails, moves or cannot be reached, the same dead letters are sent again to whichever process
the routing table has for it then. It may have taken them already, so they are marked as redelivered. A target that is
deleted needs no dead letters any more.

A target may take long to answer, for example while its disk is full. As long as its process can be reached it has the
request, so nothing is sent again: each time would leave another copy there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Protocol

from ....amqp.errors import AmqpError
from ....runtime.errors import ProcessError, UnknownMessage
from ...contracts.queue import to_queue

if TYPE_CHECKING:
    from ....routing.rows import QueueRow
    from ....runtime.contract import Address, Answer, C, ProcessMessage
    from ...context.node_context import NodeContext
    from ...contracts.queue import AtMostOnceEntry
    from ..master.dead_letters.shipment import Shipment

#: Bytes of dead letters in one request, unless a single shipment has more.
REQUEST_BYTES = 1 << 20

#: Seconds between two attempts to reach a target: at first, and then twice as long each time, up to a maximum.
RETRY_SECONDS, RETRY_MOST = 0.1, 5.0


class ShippingProcess(Protocol):
    """The process of a replica, as its shipping sees it."""

    def send(self, address: Address[object], message: object) -> None: ...

    def ask(
        self, address: Address[C], message: ProcessMessage[C, Answer], timeout: float | None = None
    ) -> Awaitable[Answer]: ...

    def spawn(self, coroutine: Coroutine[object, None, None]) -> None: ...

    def sleep(self, seconds: float) -> Awaitable[None]: ...

    def next_turn(self) -> Awaitable[None]: ...

    @property
    def context(self) -> NodeContext: ...


class Shipping:
    """Belongs to the replica whose process is `process`."""

    __slots__ = ("_process", "_ways")

    def __init__(self, process: ShippingProcess) -> None:
        self._process = process
        #: By the id of each target that has not taken everything: what it has still to get.
        self._ways: dict[str, _Way] = {}

    def ship(self, shipment: Shipment) -> None:
        """Begin to send a shipment."""
        for queue_id, (row, entries) in shipment.targets.items():
            way = self._ways.get(queue_id)
            if way is None:
                way = self._ways[queue_id] = _Way(row)
                self._process.spawn(self._send(way))
            way.waiting.append((shipment, entries))

    def send_rest(self) -> None:
        """Send at most once what no request has yet, because the queue ends and waits for no answer any more."""
        for way in self._ways.values():
            current = self._current(way.row)
            rest = [entry for _, entries in list(way.waiting)[way.requested :] for entry in entries]
            if rest and current is not None and current.address is not None:
                self._process.send(current.address, to_queue.publish_at_most_once(rest))
            while len(way.waiting) > way.requested:
                way.waiting.pop()

    async def _send(self, way: _Way) -> None:
        await self._process.next_turn()  # so that the first request has what dies in this turn
        while way.waiting:
            request = way.take()
            seconds, is_repeated = RETRY_SECONDS, False
            while not await self._has_taken(way.row, request, is_repeated):
                is_repeated = True
                await self._process.sleep(seconds)
                seconds = min(2 * seconds, RETRY_MOST)
            for _ in range(way.requested):
                shipment, _ = way.waiting.popleft()
                way.requested -= 1
                shipment.waits_for -= 1
                if not shipment.waits_for:
                    shipment.arrived(shipment)
                    await self._process.next_turn()
        del self._ways[way.row.queue_id]

    def _current(self, row: QueueRow) -> QueueRow | None:
        """The present row of a target; None if it was deleted."""
        current = self._process.context.routing.queue(row.vhost, row.name)
        return current if current is not None and current.queue_id == row.queue_id else None

    async def _has_taken(self, row: QueueRow, entries: list[AtMostOnceEntry], is_repeated: bool) -> bool:
        """Send dead letters to their target; return whether it has them safe, or does not need them any more."""
        process, current = self._process, self._current(row)
        if current is None:
            return True
        if current.address is None:
            return False
        try:
            return await process.ask(current.address, to_queue.take_dead_letters(entries, is_repeated))
        except UnknownMessage:  # its node has an older version
            process.send(current.address, to_queue.publish_at_most_once(entries))
            return True
        except (AmqpError, ProcessError):
            return False


class _Way:
    """What one target has still to get. A request has the first `requested` of the waiting shipments."""

    __slots__ = ("requested", "row", "waiting")

    def __init__(self, row: QueueRow) -> None:
        self.row = row
        self.waiting: deque[tuple[Shipment, list[AtMostOnceEntry]]] = deque()
        self.requested = 0

    def take(self) -> list[AtMostOnceEntry]:
        """The dead letters of the next request."""
        request: list[AtMostOnceEntry] = []
        size = 0
        for _, entries in self.waiting:
            request += entries
            self.requested += 1
            size += sum([entry[2] for entry in entries])
            if size >= REQUEST_BYTES:
                break
        return request
