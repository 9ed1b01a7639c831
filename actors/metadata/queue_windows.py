"""`QueueWindows`: has queues follow the exchanges with `x-warren-deduplicate` that lead to them (SP-30).

Metadata has the bindings of each queue. When they change in a virtual host that has such an exchange, this part finds
out how many messages the exchanges have a queue remember, shows it in the routing table, and sends the queue its
settings. A queue that is bound to an exchange has them before the client has its bind-ok. When bindings between
exchanges or alternate exchanges change, very many queues may be affected, and some of them follow in later turns.

Every node does this for all queues, because a replica that becomes the master looks up what it has to remember. The
settings go to the queues that are at home on this node.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ...routing.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ExchangePut,
    ExchangeRemoved,
    QueuePut,
    VhostAdded,
    VhostRemoved,
)
from ...routing.exchanges.exchange_windows import ExchangeWindows
from ...routing.queue_types import CLASSIC
from ...routing.shards import shards_of
from ...routing.table import RoutingTable
from ...routing.vhost_rows import VhostRows
from ...runtime.process import Process
from .live_policies import LivePolicies
from .state.state import State

#: Queues that are looked at in one turn.
SLICE = 200


class QueueWindows:
    """Belongs to `process`, the Metadata."""

    def __init__(self, process: Process, routing: RoutingTable, state: State, policies: LivePolicies) -> None:
        self._process = process
        self._routing = routing
        self._state = state
        self._policies = policies

    def published(self, changes: Iterable[Change]) -> None:
        """Follow changes that the routing table shows already."""
        vhosts: set[str] = set()
        queues: dict[tuple[str, str], None] = {}
        for change in changes:
            if isinstance(change, (VhostAdded, VhostRemoved)):
                continue
            if isinstance(change, (BindingAdded, BindingRemoved)):
                vhost, binding = change.vhost, change.binding
                is_of_queue, queue = binding.kind == "queue", binding.destination
            else:
                vhost, queue = change.row.vhost, change.row.name
                is_of_queue = not isinstance(change, (ExchangePut, ExchangeRemoved))
            windows = self._routing.exchange_windows(vhost)
            if windows is None or not (windows.exchanges or windows.carried):
                continue
            if not is_of_queue:
                vhosts.add(vhost)
            elif not isinstance(change, QueuePut) or "" in windows.carried:
                queues[vhost, queue] = None
        for vhost in sorted(vhosts):
            self.exchanges_changed(vhost)
        for vhost, queue in queues:
            self._update(vhost, queue)

    def exchanges_changed(self, vhost: str) -> None:
        """Follow a change of where the exchanges of a virtual host lead to.

        If the virtual host is being recovered, its queues will read their windows when they start. So all windows are
        updated in this turn, and not in later ones.
        """
        if not self._routing.find_carried(vhost):
            return
        if vhost in self._routing.recovering:
            for queue in self._candidates(vhost):
                self._update(vhost, queue)
        else:
            self._process.spawn(self._update_all(vhost))

    async def behind(self, vhost: str, exchange: str) -> tuple[int, str | None]:
        """The number of messages published to this exchange that every queue behind it remembers at least, and the
        name of the queue that remembers the fewest; 0 and None if there is no queue.

        If the exchange has no `x-warren-deduplicate`, its messages may reach a queue without passing an exchange that
        has one. Then a queue that does not deduplicate by its own arguments or policies counts as remembering none.
        """
        windows, rows = self._windows(vhost)
        if windows is None or rows is None:
            return 0, None
        is_for_all = exchange in windows.exchanges
        exchanges = self._routing.exchanges_behind(vhost, exchange)
        bound = (each.destination for name in exchanges for each in rows.bindings_of(name) if each.kind == "queue")
        found: list[tuple[int, str]] = []
        for done, queue in enumerate(tuple(dict.fromkeys(rows.queues if "" in exchanges else bound)), 1):
            row = self._routing.queue(vhost, queue)
            if row is not None:
                shards = shards_of(self._routing, row) if row.shards else (row,)
                for settings in map(self._policies.settings_of, shards):
                    is_checked = is_for_all or settings.deduplicate is not None
                    found.append((settings.window or 0 if is_checked else 0, queue))
            if done % SLICE == 0:
                await self._process.next_turn()
        return min(found, default=(0, None))

    async def _update_all(self, vhost: str) -> None:
        for done, queue in enumerate(self._candidates(vhost), 1):
            self._update(vhost, queue)
            if done % SLICE == 0:
                await self._process.next_turn()

    def _candidates(self, vhost: str) -> tuple[str, ...]:
        """The queues whose window may have changed."""
        windows, rows = self._windows(vhost)
        if windows is None or rows is None:
            return ()
        if "" in windows.carried:
            return tuple(dict.fromkeys(chain(windows.queues, rows.queues)))
        bindings = chain.from_iterable(map(rows.bindings_of, windows.carried))
        bound = (binding.destination for binding in bindings if binding.kind == "queue")
        return tuple(dict.fromkeys(chain(windows.queues, bound)))

    def _windows(self, vhost: str) -> tuple[ExchangeWindows | None, VhostRows | None]:
        return self._routing.exchange_windows(vhost), self._state.vhosts.get(vhost)

    def _update(self, vhost: str, queue: str) -> None:
        windows, rows = self._windows(vhost)
        if windows is None or rows is None:
            return  # the virtual host has been deleted meanwhile
        window = _window_of(windows, rows, queue)
        if window == windows.queues.get(queue):
            return
        self._routing.set_queue_window(vhost, queue, window)
        row = self._routing.queue(vhost, queue)
        if row is not None and row.type == CLASSIC.name:
            for each in shards_of(self._routing, row) if row.shards else (row,):
                self._policies.apply(each)


def _window_of(windows: ExchangeWindows, rows: VhostRows, queue: str) -> int | None:
    """The widest window of the exchanges that lead to the queue."""
    carried = windows.carried
    if not carried or queue not in rows.queues:
        return None
    found, most = carried.get("", 0), max(carried.values())
    for binding in rows.bindings_of(("queue", queue)):
        if found == most:
            break  # a queue may have very many bindings
        found = max(found, carried.get(binding.source, 0))
    return found or None
