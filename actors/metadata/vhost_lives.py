"""`VhostLives`: starts and ends the processes of virtual hosts on this node, as the state has them.

A *life* of a virtual host is the time from its creation to its deletion. Any node may create and delete virtual hosts,
and starting or ending one takes long. So the effects of several commands about one name may be performed in another
order than that of the log, or while the node recovers its queues. What counts is the state: `settle` ends what runs for
an earlier life, and starts what does not run yet. It works on one name at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...routing.table import RoutingTable
from ...runtime.contract import Address
from ...runtime.errors import ProcessError
from ...runtime.process import Process
from ...runtime.signal import Signal
from ..contracts.node import ToQueueSupervisor, to_node
from .elsewhere import Elsewhere
from .live_policies import LivePolicies
from .state.effects import Effect, StartVhost, StopVhost
from .state.state import State

if TYPE_CHECKING:
    from ..contracts.node import ToNode


class VhostLives:
    """Belongs to `process`, the Metadata of the node `here`; `node` starts and ends the processes."""

    def __init__(
        self,
        process: Process,
        here: str,
        node: Address[ToNode],
        routing: RoutingTable,
        state: State,
        policies: LivePolicies,
        elsewhere: Elsewhere,
    ) -> None:
        self._process = process
        self._here = here
        self._node = node
        self._routing = routing
        self._state = state
        self._policies = policies
        self._elsewhere = elsewhere
        #: The queue supervisor of each virtual host that runs. A virtual host that is down has none.
        self.supervisors: dict[str, Address[ToQueueSupervisor]] = {}
        #: Called when a virtual host runs on this node.
        self.on_vhost: Callable[[str], None] = lambda vhost: None
        self._last = 0
        #: By name: the number of the life in the state, and of the one for which processes were started.
        self._wanted: dict[str, int] = {}
        self._started: dict[str, int] = {}
        #: The names whose processes are being started or ended.
        self._busy: set[str] = set()
        self._is_free = Signal(process)

    def note(self, effects: Iterable[Effect]) -> None:
        """Note the lives that commands begin and end, in the order of the log."""
        for effect in effects:
            if isinstance(effect, StartVhost):
                self._last += 1
                self._wanted[effect.name] = self._last
            elif isinstance(effect, StopVhost):
                self._wanted.pop(effect.name, None)

    # -- one at a time ---

    async def hold(self, name: str) -> None:
        """Return when nothing is started or ended for this name, and nothing will be before `release`."""
        await self.until_free(name)
        self._busy.add(name)

    async def until_free(self, name: str) -> None:
        await self._is_free.wait_for(lambda: name not in self._busy)

    def release(self, name: str) -> None:
        self._busy.discard(name)
        self._is_free.wake_all()

    # -- the recovery, which starts what the disk has ---

    def recovers(self, names: Iterable[str]) -> None:
        """Hold these names, which the state has when the node starts. `begins` and `release` follow for each."""
        self.note(StartVhost(name) for name in names)
        self._busy.update(names)

    def begins(self, name: str) -> bool:
        """Note that a held name is about to be started; False if it was deleted meanwhile."""
        life = self._wanted.get(name)
        if life is not None:
            self._started[name] = life
        return life is not None

    # -- the effects of commands ---

    async def settle(self, name: str) -> None:
        """Bring the processes in line with the state. Raises ProcessError if they cannot be started: the virtual host
        is down then.
        """
        await self.hold(name)
        try:
            while self._started.get(name) != self._wanted.get(name):
                if self._started.pop(name, None) is not None:
                    await self._stop(name)
                else:
                    self._started[name] = self._wanted[name]
                    await self._start(name)
        finally:
            self.release(name)

    async def _start(self, name: str) -> None:
        rows = self._state.vhosts[name]
        self._routing.add_vhost(name, rows)
        for row in rows.queues.values():
            if row.node != self._here:
                self._elsewhere.show_queue(row)
        try:
            request = to_node.start_vhost(name, [], frozenset())
            self.supervisors[name], _ = await self._process.ask(self._node, request)
        except ProcessError:
            self._routing.set_down(name)
            raise
        self._policies.recovered(name)
        self.on_vhost(name)

    async def _stop(self, name: str) -> None:
        self.supervisors.pop(name, None)
        self._policies.vhost_removed(name)
        await self._process.ask(self._node, to_node.stop_vhost(name))
