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
    if retained > WINDOW_BYTES and RING_PEER not in credit.credit_blocked:
        credit.relate(RING_PEER, kind=RING_PEER)
        credit.block(RING_PEER)
    elif retained <= WINDOW_BYTES // 2 and RING_PEER in credit.credit_blocked:
        credit.unblock(RING_PEER)
        credit.peer_down(RING_PEER)
        if not credit.blocked:
            replica.credit_freed()
