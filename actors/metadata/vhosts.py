"""`VirtualHosts`: creates and deletes virtual hosts whole (AB-169 to AB-171).

A virtual host that is deleted leaves the routing table first, in one go; an operation that had begun in it finds it
gone and takes back what it wrote. A virtual host that is down keeps its rows: its queues are stopped, and no new ones
can be declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...routing.table import RoutingTable
from ...runtime.contract import Address
from ...runtime.process import Process
from ..node.contract import to_node
from .queues import Queues
from .row_encoding import removal, vhost_change
from .supervisors import QueueSupervisors
from .table_writer import TableWriter
from .turns import Turns

if TYPE_CHECKING:
    from ..node.contract import ToNode


class VirtualHosts:
    """Belongs to `process`, the Metadata; `node` starts and stops the processes of a virtual host."""

    def __init__(
        self,
        process: Process,
        node: Address[ToNode],
        routing: RoutingTable,
        writer: TableWriter,
        supervisors: QueueSupervisors,
        queues: Queues,
        turns: Turns,
    ) -> None:
        self._process = process
        self._node = node
        self._routing = routing
        self._writer = writer
        self._supervisors = supervisors
        self._queues = queues
        self._turns = turns

    async def create(self, name: str) -> None:
        if self._routing.has_vhost(name):
            return
        await self._writer.write(vhost_change(name))
        self._supervisors.of[name], _ = await self._process.ask(self._node, to_node.start_vhost(name, []))
        self._routing.add_vhost(name)

    async def delete(self, name: str) -> bool:
        """Return True when nothing of the virtual host is left, False if there is none."""
        routing, writer = self._routing, self._writer
        if not routing.has_vhost(name):
            await writer.await_pending(removal(vhost_change(name)))
            return False
        # The rows go first and in one go: from here on no client can open the virtual host or declare anything in it.
        for queue in routing.queues(name):
            self._queues.remove(name, queue.name, queue.queue_id)
        for exchange in routing.exchanges(name):
            # An auto-delete exchange may have gone already, with the one before it.
            if routing.exchange(name, exchange.name) is not None:
                writer.note_removed(routing, name, routing.remove_exchange(name, exchange.name), exchange)
        routing.remove_vhost(name)
        self._supervisors.of.pop(name, None)
        writer.note(removal(vhost_change(name)))
        await self._process.ask(self._node, to_node.stop_vhost(name))
        # Operations that had begun take back what they wrote; a virtual host created under the same name must not
        # inherit it.
        await self._turns.all_of(name)
        await writer.write()
        return True

    def went_down(self, name: str) -> None:
        """Stop the queues of a virtual host that failed; no new ones can be declared in it (AB-63, AB-171)."""
        self._supervisors.of.pop(name, None)
        self._routing.set_down(name)
        self._queues.all_stopped(name)
