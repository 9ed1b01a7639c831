"""`Shipping`: sends the shipments of a queue to their targets, until each has taken its part (`Shipment`).

Each target gets one request at a time, so that its dead letters stay in order, and the next request has all that came
meanwhile. If the target fails, moves or cannot be reached, the same dead letters are sent again to whichever process
the routing table has for it then. It may have taken them already, so they are marked as redelivered. A target that is
deleted needs no dead letters any more.
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

#: Seconds after which dead letters are sent again if the target has not answered.
ANSWER_SECONDS = 30.0

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
        self._ways: dict[str, deque[tuple[Shipment, list[AtMostOnceEntry]]]] = {}

    def ship(self, shipment: Shipment) -> None:
        """Begin to send a shipment."""
        for queue_id, (row, entries) in shipment.targets.items():
            way = self._ways.get(queue_id)
            if way is not None:
                way.append((shipment, entries))
            else:
                way = self._ways[queue_id] = deque([(shipment, entries)])
                self._process.spawn(self._send(row, way))

    async def _send(self, row: QueueRow, way: deque[tuple[Shipment, list[AtMostOnceEntry]]]) -> None:
        while way:
            count, request = _first(way)
            seconds, is_repeated = RETRY_SECONDS, False
            while not await self._has_taken(row, request, is_repeated):
                is_repeated = True
                await self._process.sleep(seconds)
                seconds = min(2 * seconds, RETRY_MOST)
            for _ in range(count):
                shipment, _ = way.popleft()
                shipment.waits_for -= 1
                if not shipment.waits_for:
                    shipment.arrived(shipment)
                    await self._process.next_turn()
        del self._ways[row.queue_id]

    async def _has_taken(self, row: QueueRow, entries: list[AtMostOnceEntry], is_repeated: bool) -> bool:
        """Send dead letters to their target; return whether it has them safe, or does not need them any more."""
        process = self._process
        current = process.context.routing.queue(row.vhost, row.name)
        if current is None or current.queue_id != row.queue_id:
            return True
        if current.address is None:
            return False
        try:
            return await process.ask(current.address, to_queue.take_dead_letters(entries, is_repeated), ANSWER_SECONDS)
        except UnknownMessage:  # its node has an older version
            process.send(current.address, to_queue.publish_at_most_once(entries))
            return True
        except (AmqpError, ProcessError):
            return False


def _first(way: deque[tuple[Shipment, list[AtMostOnceEntry]]]) -> tuple[int, list[AtMostOnceEntry]]:
    """How many shipments the next request has, and their dead letters."""
    request: list[AtMostOnceEntry] = []
    size = count = 0
    for _, entries in way:
        request += entries
        count += 1
        size += sum([entry[2] for entry in entries])
        if size >= REQUEST_BYTES:
            break
    return count, request
