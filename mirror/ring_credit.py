"""Bounds what the master of a mirrored queue retains for other members: `bound` blocks its publishers meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..actors.queue.mirroring import RING_PEER

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica

#: A master blocks its publishers while it retains more bytes of instructions than this for other members.
WINDOW_BYTES = 8 << 20


def bound(replica: Replica, retained: int) -> None:
    """Block the publishers of this master, or unblock them, according to the bytes that its ring retains."""
    credit = replica.state.credit
    if retained > WINDOW_BYTES and not is_blocked(replica):
        credit.relate(RING_PEER, kind=RING_PEER)
        credit.block(RING_PEER)
    elif retained <= WINDOW_BYTES // 2 and is_blocked(replica):
        credit.unblock(RING_PEER)
        credit.peer_down(RING_PEER)
        if not credit.blocked:
            replica.credit_freed()


def is_blocked(replica: Replica) -> bool:
    """Whether the publishers of this master are blocked because of what its ring retains."""
    return RING_PEER in replica.state.credit.credit_blocked
