"""`VirtualHosts`: creates and deletes virtual hosts, and notes those that failed (AB-169 to AB-171).

A deletion first removes the rows of the virtual host from the state. If there are very many, several commands remove
them, and the last command removes the rest together with the virtual host. Operations that began before it then fail,
because they no longer find the virtual host. A virtual host that is down keeps its rows: its queues are stopped, and no
new ones can be declared.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...routing.rows import ExchangeRow
from ...routing.table import RoutingTable
from .changing import Changing
from .state.commands import CreateVhost, DeclareExchange, DeleteVhost
from .turns import Turns


class VirtualHosts:
    """Belongs to the Metadata."""

    def __init__(
        self,
        routing: RoutingTable,
        changing: Changing,
        turns: Turns,
        system_exchanges: Sequence[tuple[str, str]],
    ) -> None:
        """`system_exchanges` are topic exchanges, each with its virtual host, that the broker itself publishes to."""
        self._routing = routing
        self._changing = changing
        self._turns = turns
        self._system_exchanges = system_exchanges

    async def create(self, name: str) -> None:
        await self._changing.change(CreateVhost(name))
        for vhost, exchange in self._system_exchanges:
            if vhost == name:
                row = ExchangeRow(vhost, exchange, "topic", internal=True)
                await self._changing.change(DeclareExchange(row, is_system=True))

    async def delete(self, name: str) -> bool:
        """Return True when nothing of the virtual host is left, False if there is none."""
        await self._changing.trim_vhost(name)
        applied = await self._changing.change(DeleteVhost(name))
        # Operations on its queues that had begun end now; a virtual host created under the same name must not inherit
        # a queue from them.
        await self._turns.all_of(name)
        return bool(applied.changes)

    def went_down(self, name: str) -> None:
        """Note that a virtual host has failed: no queues can be declared in it (AB-171)."""
        self._changing.supervisors.pop(name, None)
        self._routing.set_down(name)
