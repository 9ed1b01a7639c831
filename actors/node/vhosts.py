"""`Vhosts`: the virtual hosts that run on a node."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ...amqp.constants import CONNECTION_FORCED
from ...runtime.errors import ProcessDown
from ...runtime.side_by_side import side_by_side
from ...runtime.signal import Signal
from ...store.data_dir.data_dir import DataDir
from ..context.starting import to_new_vhost
from ..contracts.connection import to_connection
from ..contracts.metadata import to_metadata
from ..contracts.node import NodeError, to_vhost
from ..disk.disk_retry import Backoff
from ..disk.errors import StorageError
from .vhost_supervisor import VhostSupervisor

if TYPE_CHECKING:
    from ...routing.rows import QueueRow
    from ...runtime.contract import Address
    from ...runtime.exit_reason import ExitReason
    from ...runtime.process import Process
    from ..context.node_context import NodeContext
    from ..context.starting import ToNewVhost
    from ..contracts.node import ToQueueSupervisor, ToVhost
    from .gate import Gate

log = logging.getLogger("warren.node")

#: Virtual hosts that write what they have to the disk at the same time when the node stops.
TERMINATED_AT_ONCE = 16


class Vhosts:
    """Belongs to `process`, the supervisor of the node, whose monitors of virtual hosts are named `("vhost", name)`."""

    def __init__(self, process: Process, context: NodeContext, gate: Gate) -> None:
        self._process = process
        self._context = context
        self._gate = gate
        #: The supervisors of the virtual hosts that run.
        self._supervisors: dict[str, Address[ToVhost]] = {}
        #: Virtual hosts that have processes, even if they are down, by the address of the supervisor.
        self._alive: dict[str, str] = {}
        self._gone = Signal(process)
        #: By virtual host that could not be started: how long to wait before the next attempt.
        self._revivals: dict[str, Backoff] = {}

    def check(self, name: str) -> None:
        """Raise NodeError if there is no such virtual host."""
        if not self._context.routing.has_vhost(name):
            raise NodeError(f"Virtual host '{name}' does not exist")

    async def start(
        self, name: str, rows: list[QueueRow], kept: frozenset[int]
    ) -> tuple[Address[ToQueueSupervisor], list[QueueRow]]:
        """Start the processes of a virtual host (`ToNewVhost.start`). If it raises StorageError, a timer calls `revive`
        later.
        """
        process = self._process
        address: Address[ToNewVhost] = process.createActor(VhostSupervisor)
        self._supervisors[name] = address
        self._alive[address.actorAddressString] = name
        process.monitor(address, ("vhost", name))
        try:
            started = await process.ask(address, to_new_vhost.start(self._context, name, rows, kept))
        except StorageError:
            # A later attempt may succeed: the disk of the virtual host may have room then, or be mounted again.
            process.start_timer(self._revivals.setdefault(name, Backoff()).next(), name)
            raise
        self._revivals.pop(name, None)
        return started

    def revive(self, name: str) -> None:
        """Try again to start a virtual host that could not be started."""
        self._process.send(self._context.metadata, to_metadata.revive_vhost(name))

    async def close_connections(self, name: str, text: str) -> None:
        """Close the connections that opened this virtual host with 320 (AB-31).

        The node keeps no list of them: every connection gets the message and compares the virtual host with its own.
        """
        for address in await self._gate.connections():
            self._process.send(address, to_connection.close_if_on(name, CONNECTION_FORCED, text))

    async def stop(self, name: str) -> None:
        """End the processes of a virtual host that was deleted, and remove its files."""
        process = self._process
        address = self._supervisors.pop(name, None)
        if address is not None:
            process.demonitor(("vhost", name))
            # The queues end first, in many turns. If they all ended at once with their supervisors, one turn of a
            # supervisor would take longer the more queues there are, and one turn of a queue the more messages it has.
            with suppress(ProcessDown):
                await process.ask(address, to_vhost.end_queues())
            process.request_exit(address)
        # A store that still runs when its directory is gone could not close its index, whose memory would never be
        # freed.
        await self._gone.wait_for(lambda: name not in self._alive.values())
        if self._context.settings.data_dir is not None:
            await self._remove_files(DataDir(self._context.settings.data_dir), name)

    def child_exited(self, address: Address[object]) -> None:
        """Handle the end of a process that the node has started; it may be the supervisor of a virtual host."""
        if self._alive.pop(address.actorAddressString, None) is not None:
            self._gone.wake_all()

    async def _remove_files(self, data_dir: DataDir, name: str) -> None:
        """Remove the files of a virtual host.

        If that fails, the next start removes them, because no metadata names them.
        """
        try:
            await self._process.run_blocking(data_dir.remove_vhost, name)
        except OSError as error:
            log.warning("the files of vhost '%s', which is deleted, could not be removed: %s", name, error)

    async def went_down(self, name: str, reason: ExitReason) -> None:
        """Handle that the supervisor of a virtual host has ended by itself."""
        del self._supervisors[name]
        log.error("vhost '%s' is down: %s", name, reason)
        self._process.send(self._context.metadata, to_metadata.vhost_down(name))
        await self.close_connections(name, f"vhost '{name}' is down")

    async def terminate(self) -> None:
        """End all virtual hosts in order: their queues write everything to disk first."""
        await side_by_side(self._process, TERMINATED_AT_ONCE, self._terminate, list(self._supervisors.items()))

    async def _terminate(self, vhost: tuple[str, Address[ToVhost]]) -> None:
        name, address = vhost
        self._process.demonitor(("vhost", name))
        with suppress(ProcessDown):
            await self._process.ask(address, to_vhost.terminate())
