"""`OwnerWaiters`: delays declares of the exclusive queues of a connection that is ending (AB-84).

A connection that has lost its client first ends its channels, and then has its exclusive queues deleted. Until then the
routing table has them, and another client that declares one of their names would be refused as if the owner lived.
"""

from __future__ import annotations

from ....routing.table import RoutingTable
from ....runtime.contract import Sender
from ....runtime.process import Process


class OwnerWaiters:
    """Belongs to `process`, the Metadata."""

    def __init__(self, process: Process, routing: RoutingTable) -> None:
        self._process = process
        self._routing = routing
        #: By id of each connection that is ending: the senders that wait for the end of its queues.
        self._waiting: dict[str, list[Sender]] = {}

    def owner_ending(self, connection_id: str) -> None:
        self._waiting.setdefault(connection_id, [])

    def wait(self, sender: Sender, vhost: str, name: str) -> None:
        """Answer True when the queue's owner has ended, False at once if no owner of it is ending."""
        row = self._routing.queue(vhost, name)
        owner = None if row is None else row.exclusive_owner
        if owner in self._waiting:
            self._waiting[owner].append(sender)
        else:
            self._process.reply(sender, row is None)

    def owner_ended(self, connection_id: str) -> None:
        """Answer all that wait for the end of this connection's exclusive queues, which are gone."""
        for sender in self._waiting.pop(connection_id, ()):
            self._process.reply(sender, True)
