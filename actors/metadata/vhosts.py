"""Virtual hosts: created and deleted whole (AB-169 to AB-171), and the queue supervisor of each.

One that is deleted leaves the table first, in one go; what had begun in it finds it gone and takes back what it wrote. One that is down keeps its rows: its queues
are stopped, and no new ones can be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...amqp.constants import CONNECTION_FORCED, INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...runtime.errors import ProcessDown
from .row_encoding import removal, vhost_change

if TYPE_CHECKING:
    from .process import Metadata


class VirtualHosts:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.supervisors: dict[str, Any] = {}  # virtual host -> address of its queue supervisor

    async def create(self, name: str) -> None:
        metadata = self._metadata
        if metadata.routing.has_vhost(name):
            return
        await metadata.durable.write(vhost_change(name))
        self.supervisors[name], _ = await metadata.ask(metadata.node, ("start_vhost", name, []))
        metadata.routing.add_vhost(name)

    async def delete(self, name: str) -> bool:
        """True, when nothing of it is left; False if there is none."""
        metadata = self._metadata
        routing, durable = metadata.routing, metadata.durable
        if not routing.has_vhost(name):
            await durable.settled(removal(vhost_change(name)))
            return False
        # First out of the table, in one go: nobody can open it, and nothing can be declared in it, from here on.
        for queue in routing.queues(name):
            metadata.queues.remove(name, queue.name, queue.queue_id)
        for exchange in routing.exchanges(name):
            if routing.exchange(name, exchange.name) is not None:  # else it was auto-delete and went with another
                durable.note_removed(name, routing.remove_exchange(name, exchange.name), exchange)
        routing.remove_vhost(name)
        self.supervisors.pop(name, None)
        durable.note(removal(vhost_change(name)))
        await metadata.ask(metadata.node, ("stop_vhost", name))
        # What had begun before finds it gone and takes back what it wrote; a virtual host created under the same name must not inherit that.
        await metadata.turns.all_of(name)
        await durable.write()
        return True

    def went_down(self, name: str) -> None:
        """Its queues are stopped and no new ones can be made (AB-63, AB-171)."""
        self.supervisors.pop(name, None)
        self._metadata.routing.set_down(name)
        self._metadata.queues.all_stopped(name)

    def check(self, name: str) -> None:
        """Raises AmqpError 320 if there is no such virtual host."""
        if not self._metadata.routing.has_vhost(name):
            # Whoever asks had opened it; this says the same as what its connection is about to be told.
            raise AmqpError(CONNECTION_FORCED, f"vhost '{name}' is deleted")

    async def ask_supervisor(self, name: str, message: tuple[Any, ...]) -> Any:
        """The answer of this virtual host's queue supervisor. Raises AmqpError if the virtual host is down (541) or deleted (320)."""
        supervisor = self.supervisors.get(name)
        if supervisor is not None:
            try:
                return await self._metadata.ask(supervisor, message)
            except ProcessDown:
                pass  # the node hears of it too and calls `vhost_down`
        self.check(name)
        raise AmqpError(INTERNAL_ERROR, f"vhost '{name}' is down")
