"""`GroupWatch`: notifies the groups at home on this node when a queue is added, changed or removed (QP-75)."""

from __future__ import annotations

from ....routing.table import RoutingTable
from ....runtime.process import Process
from ...contracts.group import to_group


class GroupWatch:
    """Belongs to `process`, the Metadata of the node `here`."""

    __slots__ = ("_here", "_process", "_routing")

    def __init__(self, process: Process, here: str, routing: RoutingTable) -> None:
        self._process = process
        self._here = here
        self._routing = routing

    def queue_changed(self, vhost: str, name: str) -> None:
        """Notify the groups after the routing table's row of this queue was put or removed.

        While a virtual host recovers, no group has looked for its members yet, so none is notified.
        """
        routing = self._routing
        if vhost in routing.recovering:
            return
        for group in routing.groups(vhost):
            if group.node == self._here and group.name != name and group.state == "running":
                self._process.send(group.address, to_group.queue_changed(name))
