"""`Recovery`: recovers the data directory when the node starts, and later the virtual hosts that could not be started
then.

Before `Metadata` answers its start, it puts the rows of the store into the state and has the queues recovered with
their virtual hosts. A queue may let messages go (expire, dead-letter) only when the routing table has every exchange,
binding and queue through which their dead letters could go, so queues get `recovered` last (queue-and-store section
10.1). A virtual host that cannot be started is down, and its queues are stopped; the others run. The node decides when
to try again (`revive`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...definitions.features import FEATURES
from ...definitions.records import EnabledFeature
from ...routing.rows import QueueRow, QueueState
from ...routing.table import RoutingTable
from ...routing.vhost_rows import DEFAULT_EXCHANGES, VhostRows
from ...runtime.contract import Address
from ...runtime.errors import ProcessDown, ProcessError
from ...runtime.process import Process
from ...runtime.side_by_side import side_by_side
from ...store.data_dir.data_dir import DataDir, queue_number
from ...version import __version__
from ..contracts.node import to_node, to_queue_supervisor
from ..disk.errors import StorageError
from .changing import Changing
from .live_policies import LivePolicies
from .log.log import Log
from .log.row_encoding import StoredRows
from .queues.queues import Queues
from .state.commands import SetQueueStates
from .state.groups import keeps_files
from .state.state import State

if TYPE_CHECKING:
    from ..contracts.node import ToNode, ToQueueSupervisor

log = logging.getLogger("warren.metadata")

#: Queues that are shown in one turn.
ROWS_AT_A_TIME = 1_000

#: Virtual hosts that are started at the same time. Each waits for the disk several times. More would need more memory,
#: because each may have a journal of 64 MiB to read.
STARTED_AT_ONCE = 8


class Recovery:
    """Belongs to `process`, the Metadata; `node` starts the processes of a virtual host."""

    def __init__(
        self,
        process: Process,
        node: Address[ToNode],
        routing: RoutingTable,
        state: State,
        changing: Changing,
        queues: Queues,
        policies: LivePolicies,
        node_name: str,
    ) -> None:
        self._process = process
        self._node = node
        self._routing = routing
        self._state = state
        self._changing = changing
        self._queues = queues
        self._policies = policies
        self._node_name = node_name
        #: Whether the state is still being filled, so that the routing table shows nothing of it yet.
        self.is_reading = False

    async def recover(self, directory: DataDir | None, stored: Log) -> None:
        """Fill state and routing table from `directory`. Raises StorageError for metadata that cannot be read."""
        routing, vhosts = self._routing, self._state.vhosts
        self.is_reading = True
        self._changing.elsewhere.recovers()
        found = await stored.open(directory)
        if directory is not None:
            _check_features(directory.path, found)
        if not any(record.table == "nodes" for record in found.records):
            # The node that reads a queue's files is its home, whatever it was called when it wrote them.
            found.queues = [replace(row, node=self._node_name, replicas=(self._node_name,)) for row in found.queues]
        fill(self._state, found)
        await stored.catch_up()
        self._changing.elsewhere.recovers()
        if directory is not None:
            await self._process.run_blocking(directory.sweep_vhosts, sorted(vhosts))
        # Other nodes may have created and deleted some during that.
        names = sorted(vhosts)
        routing.recovering.update(names)
        self.is_reading = False
        self._changing.lives.recovers(names)
        for name in names:
            routing.add_vhost(name, vhosts[name])
            self._policies.recovered(name)
        await side_by_side(self._process, STARTED_AT_ONCE, self._start_vhost, names)
        for name in names:
            self._finish(name)
        self._changing.elsewhere.recovered()
        if directory is not None:
            _log_recovered(directory.path, self._state)

    async def _start_vhost(self, name: str) -> None:
        """Have the queues of a virtual host recovered, and show them in the routing table.

        Another node may delete the virtual host meanwhile. Its processes end when all have been started.
        """
        if not self._changing.lives.begins(name):
            return
        shown = self._shown(name)
        rows = self._own_rows(name)
        try:
            supervisor, rows = await self._process.ask(self._node, to_node.start_vhost(name, rows, self._kept(name)))
        except ProcessError as error:
            if isinstance(error, ProcessDown) and not error.reason.is_fault:
                raise  # The node is ending.
            log.error("vhost '%s' is down: %s", name, error)
            self._routing.set_down(name)
            await self._queues.all_stopped(name)
        else:
            await self._started(name, supervisor, shown, rows)

    def _own_rows(self, vhost: str) -> list[QueueRow]:
        """The rows of the queues at home here. Puts the rows of other nodes' queues into the routing table at once."""
        rows = list(self._state.vhosts[vhost].queues.values())
        for row in rows:
            if row.node != self._node_name:
                self._changing.elsewhere.show_queue(row)
        return [row for row in rows if row.node == self._node_name]

    def _kept(self, vhost: str) -> frozenset[int]:
        """The numbers of the queues whose files this node keeps although their master is elsewhere: when no other
        member of the group is left, an operator may make this node the only member (CL-100).
        """
        rows = [row for row in self._state.vhosts[vhost].queues.values() if row.durable and row.node != self._node_name]
        return frozenset(queue_number(row.queue_id) for row in rows if keeps_files(row.group, self._node_name))

    def _shown(self, vhost: str) -> dict[str, QueueRow]:
        """The queues of a virtual host in the routing table, by id."""
        return {row.queue_id: row for row in self._routing.queues(vhost)}

    async def _started(
        self,
        vhost: str,
        supervisor: Address[ToQueueSupervisor],
        shown: Mapping[str, QueueRow],
        rows: Sequence[QueueRow],
        is_revived: bool = False,
    ) -> None:
        """Show the queues that were recovered. `shown` has what the routing table showed of them before.

        If it shows something else by now, the queue's supervisor has reported a newer state of the queue, which arrived
        before the answer with `rows`. `is_revived`: the virtual host was down, and the cluster may not have agreed yet
        that its queues have stopped.
        """
        self._changing.supervisors[vhost] = supervisor
        for at in range(0, len(rows), ROWS_AT_A_TIME):
            await self._show(vhost, shown, rows[at : at + ROWS_AT_A_TIME], is_revived)
            await self._process.next_turn()

    async def _show(
        self, vhost: str, shown: Mapping[str, QueueRow], rows: Sequence[QueueRow], is_revived: bool
    ) -> None:
        routing, state = self._routing, self._state
        states: list[tuple[str, str, QueueState]] = []
        news = []
        for row in rows:
            name, queue_id = row.name, row.queue_id
            current = state.queue(vhost, name)
            if current is None or current.queue_id != queue_id:
                # The queue was deleted meanwhile.
                self._changing.forget_queue(vhost, queue_id)
            elif routing.queue(vhost, name) is shown.get(queue_id):
                news.append(row)
                # States that were reported before may not have reached the log yet. This one follows them.
                if is_revived or current.state != row.state:
                    states.append((name, queue_id, row.state))
            elif current.state == "stopped":
                # The queue has been restarted since. The report of that put the address of the new process into the
                # routing table, but no state.
                states.append((name, queue_id, "running"))
        if states:
            await self._changing.note(SetQueueStates(vhost, tuple(states)))
        for row in news:
            # Agreeing with other nodes takes time, and the queue may be deleted meanwhile.
            current = state.queue(vhost, row.name)
            if current is not None and current.queue_id == row.queue_id:
                self._changing.show_own(row)
            else:
                self._changing.forget_queue(vhost, row.queue_id)

    def _finish(self, vhost: str) -> None:
        """Let a virtual host begin to work, because the routing table has all its rows."""
        self._routing.recovering.discard(vhost)
        supervisor = self._changing.supervisors.get(vhost)
        if supervisor is not None:
            self._process.send(supervisor, to_queue_supervisor.recovered())
            self._changing.lives.on_vhost(vhost)
        self._changing.lives.release(vhost)

    async def revive(self, name: str) -> None:
        """Try once more to start a virtual host that could not be started."""
        routing, changing = self._routing, self._changing
        await changing.lives.hold(name)
        if name not in self._state.vhosts or name in changing.supervisors:
            changing.lives.release(name)
            return
        routing.recovering.add(name)
        shown = self._shown(name)
        wanted = [replace(row, state="running") for row in self._own_rows(name) if row.durable]
        try:
            supervisor, rows = await self._process.ask(self._node, to_node.start_vhost(name, wanted, self._kept(name)))
        except ProcessError as error:
            log.info("vhost '%s' is still down: %s", name, error)
            routing.recovering.discard(name)
            changing.lives.release(name)
            return
        await self._started(name, supervisor, shown, rows, is_revived=True)
        routing.set_down(name, False)
        self._finish(name)
        log.info("vhost '%s' is up again, with %d queues", name, len(rows))


def _check_features(path: str, found: StoredRows) -> None:
    """Raise StorageError if the metadata may have a form that this version cannot read (CL-26)."""
    missing = [
        record.name for record in found.records if isinstance(record, EnabledFeature) and record.name not in FEATURES
    ]
    if missing:
        raise StorageError(
            f"the metadata in '{path}' needs features that warren {__version__} does not have: {', '.join(missing)}. "
            "They were enabled by a newer version; start that one"
        )


def fill(state: State, found: StoredRows) -> None:
    """Put stored rows into an empty state."""
    for name in found.vhosts:
        state.vhosts[name] = VhostRows(name)
    for record in found.records:
        state.definitions.put(record)
    for exchange in found.exchanges:
        state.vhosts[exchange.vhost].put_exchange(exchange)
    for queue in found.queues:
        state.vhosts[queue.vhost].put_queue(queue)
    for vhost, binding in found.bindings:
        rows = state.vhosts[vhost]
        ends = rows.exchanges if binding.kind == "exchange" else rows.queues
        rows.add_binding(binding, rows.exchanges[binding.source].durable and ends[binding.destination].durable)


def _log_recovered(path: str, state: State) -> None:
    vhosts = state.vhosts.values()
    counts = {
        "vhost": len(vhosts),
        "exchange": sum(len(rows.exchanges) - len(DEFAULT_EXCHANGES) for rows in vhosts),
        "queue": sum(len(rows.queues) for rows in vhosts),
        "binding": sum(sum(1 for _ in rows.bindings()) for rows in vhosts),
    }
    parts = [f"{count} {noun}{'s' * (count > 1)}" for noun, count in counts.items() if count]
    if parts:
        log.info("recovered from '%s': %s", path, ", ".join(parts))
    else:
        log.info("data directory '%s' is new", path)
