"""`QueueSupervisors`: the queue supervisor of each virtual host that runs, for everything in Metadata that starts or
ends queues.
"""

from __future__ import annotations

from ...amqp.constants import CONNECTION_FORCED, INTERNAL_ERROR
from ...amqp.errors import AmqpError
from ...routing.table import RoutingTable
from ...runtime.contract import Address, Answer, Message
from ...runtime.errors import ProcessDown
from ...runtime.process import Process
from ..node.contract import ToQueueSupervisor, to_queue_supervisor


class QueueSupervisors:
    """`of` has the addresses by virtual host. A virtual host that is down has none."""

    def __init__(self, process: Process, routing: RoutingTable) -> None:
        self._process = process
        self._routing = routing
        self.of: dict[str, Address[ToQueueSupervisor]] = {}

    def check_vhost(self, name: str) -> None:
        """Raise AmqpError 320 if there is no such virtual host."""
        if not self._routing.has_vhost(name):
            # The asker has opened it before, so it was deleted; its connection is closed with the same text.
            raise AmqpError(CONNECTION_FORCED, f"vhost '{name}' is deleted")

    async def ask(self, vhost: str, message: Message[ToQueueSupervisor, Answer]) -> Answer:
        """The answer of this virtual host's queue supervisor.

        Raises AmqpError 541 if the virtual host is down, 320 if it is deleted.
        """
        supervisor = self.of.get(vhost)
        if supervisor is not None:
            try:
                return await self._process.ask(supervisor, message)
            except ProcessDown:
                pass  # The node notices it too, and sends `vhost_down`.
        self.check_vhost(vhost)
        raise AmqpError(INTERNAL_ERROR, f"vhost '{vhost}' is down")

    def forget_queue(self, vhost: str, queue_id: str) -> None:
        """Have a queue ended for good, if the virtual host runs. Nobody waits for it."""
        supervisor = self.of.get(vhost)
        if supervisor is not None:
            self._process.send(supervisor, to_queue_supervisor.forget_queue(queue_id))
