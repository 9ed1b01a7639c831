"""`Recovery`: recovers the data directory when the node starts, and later the virtual hosts that could not be started
then.

Before `Metadata` answers its start, it puts the rows of the store into the routing table and has the queues recovered
with their virtual hosts. A queue may let messages go (expire, dead-letter) only when the table has every exchange,
binding and queue through which their dead letters could go, so queues get `recovered` last (queue-and-store section
10.1). A virtual host that cannot be started is down, and its queues are stopped; the others run. The node decides when
to try again (`revive`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ...routing.table import RoutingTable
from ...runtime.contract import Address
from ...runtime.errors import ProcessDown, ProcessError
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir
from ..node.contract import to_node
from ..queue.contract import to_queue
from .queues import Queues
from .row_encoding import StoredRows
from .supervisors import QueueSupervisors
from .table_writer import TableWriter

if TYPE_CHECKING:
    from ..node.contract import ToNode

log = logging.getLogger("warren.metadata")


class Recovery:
    """Belongs to `process`, the Metadata; `node` starts the processes of a virtual host."""

    def __init__(
        self,
        process: Process,
        node: Address[ToNode],
        routing: RoutingTable,
        writer: TableWriter,
        supervisors: QueueSupervisors,
        queues: Queues,
    ) -> None:
        self._process = process
        self._node = node
        self._routing = routing
        self._writer = writer
        self._supervisors = supervisors
        self._queues = queues

    async def recover(self, directory: DataDir) -> None:
        """Fill the routing table from `directory`. Raises StorageError for metadata that cannot be read."""
        routing = self._routing
        found = await self._writer.open(directory)
        await self._process.run_blocking(directory.sweep_vhosts, list(found.vhosts))
        for name in found.vhosts:
            routing.add_vhost(name)
        for exchange in found.exchanges:
            routing.put_exchange(exchange)
        self._queues.hold_updates()
        routing.recovering.update(found.vhosts)
        for name in found.vhosts:
            await self._start_vhost(name, found)
        self._queues.release_updates()
        for vhost, binding in found.bindings:
            routing.add_binding(vhost, binding)
        for name in found.vhosts:
            self._finish(name)
        self._writer.note(*found.stale)
        _log_recovered(directory.path, found)

    async def _start_vhost(self, name: str, found: StoredRows) -> None:
        """Have the queues of a virtual host recovered, and put their rows into the table."""
        rows = [row for row in found.queues if row.vhost == name]
        try:
            self._supervisors.of[name], rows = await self._process.ask(self._node, to_node.start_vhost(name, rows))
        except ProcessError as error:
            if isinstance(error, ProcessDown) and not error.reason.is_fault:
                raise  # The node is ending.
            log.error("vhost '%s' is down: %s", name, error)
            self._routing.set_down(name)
            rows = [replace(row, state="stopped") for row in rows]
        for row in rows:
            self._routing.put_queue(row)

    def _finish(self, vhost: str) -> None:
        """The table has everything of this virtual host now."""
        self._routing.recovering.discard(vhost)
        for row in self._routing.queues(vhost):
            if row.state == "running":
                self._process.send(row.address, to_queue.recovered())

    async def revive(self, name: str) -> None:
        """Try once more to start a virtual host that could not be started."""
        routing, queues, supervisors = self._routing, self._queues, self._supervisors
        if not routing.has_vhost(name) or name in supervisors.of:
            return
        before = {row.queue_id: row for row in routing.queues(name) if row.durable}
        routing.recovering.add(name)
        wanted = [replace(row, address=None, state="running") for row in before.values()]
        try:
            supervisor, rows = await self._process.ask(self._node, to_node.start_vhost(name, wanted))
        except ProcessError as error:
            log.info("vhost '%s' is still down: %s", name, error)
            routing.recovering.discard(name)
            return
        supervisors.of[name] = supervisor
        for row in rows:
            current = routing.queue(name, row.name)
            if current is before[row.queue_id]:
                queues.put(row)
            elif current is None or current.queue_id != row.queue_id:
                # The queue was deleted meanwhile.
                supervisors.forget_queue(name, row.queue_id)
            elif current.state == "stopped":
                queues.put(replace(current, state="running"))
            # Any other state was reported after `rows` were made: the queue has crashed since.
        routing.set_down(name, False)
        self._finish(name)
        log.info("vhost '%s' is up again, with %d queues", name, len(rows))


def _log_recovered(path: str, found: StoredRows) -> None:
    counts = {
        "vhost": len(found.vhosts),
        "exchange": len(found.exchanges),
        "queue": len(found.queues),
        "binding": len(found.bindings),
    }
    parts = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    if parts:
        log.info("recovered from '%s': %s", path, ", ".join(parts))
    else:
        log.info("data directory '%s' is new", path)
