"""`QueueSupervisor`: the parent of the queues of one virtual host.

A queue that ends by itself (deleted, expired, auto-deleted) is forgotten. One that crashes is started again from what is on
disk: from nothing, if nothing is. One that crashes too often (`restarts`) is left alone and marked crashed, so that clients
hear why it cannot be used (AB-63) until somebody deletes it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from thespian.actors import ActorExitRequest

from ..runtime.process import Process
from .context import NodeContext
from .queue import Queue
from .resources import queue_phrase
from .restarts import RestartIntensity, is_fault
from .routing import QueueRow

log = logging.getLogger("warren.queue")


@dataclass(slots=True)
class _Supervised:
    row: QueueRow
    restarts: RestartIntensity = field(default_factory=RestartIntensity)


class QueueSupervisor(Process):
    """
    ('start', context)
    ('start_queue', row, recovering)    -> the row with the address of a new queue
    ('forget_queue', queue_id)          -> True; ends the queue if it runs, and does not restart it

    To Metadata: ('queue_killed', vhost, name, queue_id), ('queue_restarted', vhost, name, queue_id, address),
    ('queue_crashed', vhost, name, queue_id).
    """

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, _Supervised] = {}

    def on_start(self, sender: Any, context: NodeContext) -> None:
        self.context = context

    def on_start_queue(self, sender: Any, row: QueueRow, recovering: bool) -> QueueRow:
        supervised = self.queues[row.queue_id] = _Supervised(row)
        return self._start_queue(supervised, recovering)

    def on_forget_queue(self, sender: Any, queue_id: str) -> bool:
        supervised = self.queues.pop(queue_id, None)
        if supervised is not None:
            self.demonitor(queue_id)
            self.send(supervised.row.address, ActorExitRequest())
        return True

    def on_down(self, queue_id: Any, reason: str) -> None:
        supervised = self.queues[queue_id]
        row = supervised.row
        if not is_fault(reason):
            del self.queues[queue_id]
            # A queue that is to go says so itself before it ends; this is for one that was killed.
            self.send(self.context.metadata, ("queue_killed", row.vhost, row.name, queue_id))
        elif supervised.restarts.allows(self.now()):
            log.error("%s is restarted; it ended with %s", queue_phrase(row.vhost, row.name), reason)
            address = self._start_queue(supervised, recovering=True).address
            self.send(self.context.metadata, ("queue_restarted", row.vhost, row.name, queue_id, address))
        else:
            del self.queues[queue_id]
            log.error("%s has crashed too often and stays down: %s", queue_phrase(row.vhost, row.name), reason)
            self.send(self.context.metadata, ("queue_crashed", row.vhost, row.name, queue_id))

    def _start_queue(self, supervised: _Supervised, recovering: bool) -> QueueRow:
        address = self.createActor(Queue)
        row = supervised.row = replace(supervised.row, address=address)
        self.send(address, ("start", self.context, row, recovering))
        self.monitor(address, row.queue_id)  # after start: where monitors are messages, it is not ready for them before
        return row
