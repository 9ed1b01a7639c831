"""Who waits for a queue that has crashed and is about to be restarted (AB-63, AB-126).

Between the two the routing table still has the row of the dead process. Whoever meets that asks `Metadata`, which hears from the queue's supervisor what comes of it:
restarted, crashed for good, killed, or deleted meanwhile. One of these always comes, so an entry here goes with the next news of its queue.
"""

from __future__ import annotations

from typing import Any

from ...amqp.errors import AmqpError
from ...routing.phrases import no_queue, queue_unavailable
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...runtime.process import Process


class RestartWaiters:
    """Belongs to `process`, which calls `look` after every change of a queue's row. A limit: nobody is told of a queue that is restarted twice before it is asked for."""

    def __init__(self, process: Process, routing: RoutingTable, node_name: str) -> None:
        self._process = process
        self._routing = routing
        self._node_name = node_name
        self._waiting: dict[
            tuple[str, str], list[tuple[Any, Any]]
        ] = {}  # (vhost, queue) -> asker, address it found dead

    def wait(self, sender: Any, vhost: str, name: str, address: Any) -> None:
        """Answer `sender` with the queue's row once that has another address than `address`; with AmqpError 404 once the queue is gone or cannot be used."""
        self._waiting.setdefault((vhost, name), []).append((sender, address))
        self.look(vhost, name)

    def look(self, vhost: str, name: str) -> None:
        """The row of this queue may have changed: answer those for whom it decides something."""
        waiting = self._waiting.pop((vhost, name), None)
        if waiting is None:
            return
        row = self._routing.queue(vhost, name)
        refusal = self._refusal(vhost, name, row)
        left = []
        for sender, address in waiting:
            if refusal is not None:
                self._process.reply_error(sender, refusal)
            elif row is not None and row.address != address:
                self._process.reply(sender, row)
            else:
                left.append((sender, address))
        if left:
            self._waiting[vhost, name] = left

    def _refusal(self, vhost: str, name: str, row: QueueRow | None) -> AmqpError | None:
        if row is None:
            return no_queue(vhost, name)
        if row.state != "running":
            return queue_unavailable(vhost, name, row.state, self._node_name)
        return None
