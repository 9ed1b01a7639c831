"""`NodeMirroring`: makes the replicas of mirrored queues for a node (`Mirroring`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .replication import MirrorReplication

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica


class NodeMirroring:
    """Makes a `MirrorReplication` for each replica of a node."""

    def replication(self, replica: Replica) -> MirrorReplication:
        """See `Mirroring`."""
        return MirrorReplication(replica)
