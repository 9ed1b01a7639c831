"""`RestartWaiters`: answers channels that wait for the restart of a queue that has crashed (AB-63, AB-126).

From the crash to the restart the routing table still has the address of the dead process. A channel that finds it dead
asks `Metadata` for the next one. The queue's supervisor reports to `Metadata` what becomes of the queue: it is
restarted, it has crashed for good, it was killed, or it was deleted meanwhile. One of these reports always comes, so no
channel waits for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....amqp.errors import AmqpError
from ....routing.phrases import no_queue, queue_unavailable
from ....routing.rows import QueueRow
from ....routing.table import RoutingTable
from ....runtime.contract import Address, Sender
from ....runtime.process import Process

if TYPE_CHECKING:
    from ...contracts.queue import ToQueue


class RestartWaiters:
    """Belongs to `process`, which calls `row_changed` after every change of a queue's row.

    If the queue was restarted twice before a channel asks, the channel does not notice: it found the first process dead
    and gets the address of the third.
    """

    def __init__(self, process: Process, routing: RoutingTable) -> None:
        self._process = process
        self._routing = routing
        #: By virtual host and queue: each sender, and the address that it found dead.
        self._waiting: dict[tuple[str, str], list[tuple[Sender, Address[ToQueue]]]] = {}

    @property
    def is_waited_for(self) -> bool:
        """Whether any sender waits for any queue."""
        return bool(self._waiting)

    def wait(self, sender: Sender, vhost: str, name: str, address: Address[ToQueue]) -> None:
        """Answer `sender` with the queue's row once its address is another one than `address`.

        Answer with AmqpError 404 once the queue is gone or cannot be used.
        """
        self._waiting.setdefault((vhost, name), []).append((sender, address))
        self.row_changed(vhost, name)

    def row_changed(self, vhost: str, name: str) -> None:
        """Answer the senders that wait for this queue, if its row now has another address, or the state of a queue that
        is gone or cannot be used.
        """
        waiting = self._waiting.pop((vhost, name), None)
        if waiting is None:
            return
        row = self._routing.queue(vhost, name)
        refusal = self._refusal(vhost, name, row)
        undecided = []
        for sender, address in waiting:
            if refusal is not None:
                self._process.reply_error(sender, refusal)
            elif row is not None and row.address != address:
                self._process.reply(sender, row)
            else:
                undecided.append((sender, address))
        if undecided:
            self._waiting[vhost, name] = undecided

    def _refusal(self, vhost: str, name: str, row: QueueRow | None) -> AmqpError | None:
        if row is None:
            return no_queue(vhost, name)
        if row.state != "running":
            return queue_unavailable(vhost, name, row.state, row.node)
        return None
