"""`VhostSupervisor`: the parent of everything that belongs to one virtual host.

What fails here fails for this virtual host alone: if its queue supervisor ends, so does this process, and the node closes
the connections of the virtual host and no others (AB-171).
"""

from __future__ import annotations

from typing import Any

from ..runtime.process import Process
from .context import NodeContext
from .queue_supervisor import QueueSupervisor


class VhostSupervisor(Process):
    """('start', context) -> the address of the queue supervisor."""

    def on_start(self, sender: Any, context: NodeContext) -> Any:
        queues = self.createActor(QueueSupervisor)
        self.monitor(queues, "queues")
        self.send(queues, ("start", context))
        return queues

    def on_down(self, name: Any, reason: str) -> None:
        self.stop(reason)
