"""`RingCredit`: bounds what the master of a mirrored queue retains for other members, by blocking its publishers.

A master that retains more than `mirror_window` bytes, or `WINDOW_INSTRUCTIONS` instructions that not all members have
received, takes no more publishes until it retains half of that (CL-69). If all masters of a node together retain more
than `RETAINED_MOST`, each may retain an equal share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..actors.queue.mirroring import RING_PEER

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica

#: Instructions that not all members have received. An instruction takes memory beside its bytes.
WINDOW_INSTRUCTIONS = 4_096


class RingCredit:
    """Belongs to the replica `replica`, which may be or become the master."""

    __slots__ = ("_replica", "_retained")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: The bytes that the node counts for this replica.
        self._retained = 0

    def bound(self, retained: int, instructions: int) -> None:
        """Block the publishers of this master, or unblock them, according to what its ring retains."""
        replica, context = self._replica, self._replica.context
        node = context.replica_limits.retained
        if retained != self._retained:
            node.change(self._retained, retained)
            self._retained = retained
        window = node.window(context.settings.mirror_window)
        if not is_blocked(replica):
            if retained > window or instructions > WINDOW_INSTRUCTIONS:
                replica.state.credit.relate(RING_PEER, kind=RING_PEER)
                replica.state.credit.block(RING_PEER)
        elif retained <= window // 2 and instructions <= WINDOW_INSTRUCTIONS // 2:
            replica.state.credit.unblock(RING_PEER)
            replica.state.credit.peer_down(RING_PEER)
            if not replica.state.credit.blocked:
                replica.credit_freed()

    def process_ended(self) -> None:
        """Have the node count nothing for this replica any more."""
        self._replica.context.replica_limits.retained.change(self._retained, 0)


def is_blocked(replica: Replica) -> bool:
    """Whether the publishers of this master are blocked because of what its ring retains."""
    return RING_PEER in replica.state.credit.credit_blocked
