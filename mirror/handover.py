"""The master of a mirrored queue comes to rest, so that another member may become the master (CL-98).

From the beginning the master takes no publishes and delivers nothing; it keeps what clients send. It still takes
acknowledgements for a moment (`settled`): kept acknowledgements are lost if this master fails before it has handed
them over, and then their messages are delivered again. After that moment the master adds nothing to its stream. When
all members have received and stored whatever it has sent them, and its publishers have their confirms (`rest`), it
answers, and the asker proposes the transfer. If the transfer is refused, the queue goes on. If it is in force, the old
master sends the next one the numbers of the messages whose acknowledgements it has kept (`Handover`). The next master
begins when it has removed these messages. Kept publishes were never taken: channels publish them again to the next
master.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..actors.contracts.queue import to_queue
from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..routing.phrases import queue_phrase
from ..routing.queue_types import STREAM
from . import instructions

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica
    from ..routing.rows import Member, MirrorGroup
    from .backing.mirrored_queue import MirroredQueue

#: Seconds in which the queue must come to rest, and seconds between two checks.
REST_SECONDS, LOOK_SECONDS = 1.0, 0.002

#: Seconds for which the queue still takes acknowledgements, and seconds without one that end that time.
SETTLE_SECONDS, QUIET_SECONDS = 0.1, 0.02

#: Seconds that a new master waits for the old one. If the old one's node is lost, acknowledged messages come again.
HANDOVER_SECONDS = 1.0

#: Seconds after which a queue at rest goes on if it has received no outcome of its transfer. If the transfer is in
#: force later than that, publishers and consumers see a failover.
TRANSFER_SECONDS = 3.0


async def settled(replica: Replica) -> None:
    """Return when nothing is unacknowledged, when no acknowledgement has come for `QUIET_SECONDS`, or after
    `SETTLE_SECONDS`.
    """
    began = changed = replica.now()
    unacked = _unacked(replica)
    while unacked and replica.now() < min(began + SETTLE_SECONDS, changed + QUIET_SECONDS):
        await replica.sleep(LOOK_SECONDS)
        left = _unacked(replica)
        if left != unacked:
            unacked, changed = left, replica.now()


def _unacked(replica: Replica) -> int:
    return sum([len(record.pending) for record in replica.state.channels.values()])


def is_level(replica: Replica, backing: MirroredQueue, last: int) -> bool:
    """Whether all members have received and stored what this master has sent them, up to the position `last`, and its
    publishers have their confirms.
    """
    confirming, role = backing.confirming, replica.role
    told = min(confirming.received, confirming.stored) >= last
    told = told and role.is_quiet and not role.awaits_targets
    return told and not backing.out and not confirming.is_waiting and not replica.state.confirms.unconfirmed


async def rest(replica: Replica, is_level: Callable[[], bool]) -> None:
    """Return when the queue is at rest. Raises AmqpError if it does not come to rest in time."""
    deadline = replica.now() + REST_SECONDS
    while not is_level():
        if replica.now() > deadline:
            phrase = queue_phrase(replica.row.vhost, replica.row.name)
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{phrase} is too busy: not all of its replicas have everything within {REST_SECONDS:.0f} s",
            )
        await replica.sleep(LOOK_SECONDS)


def hand_over(replica: Replica, group: MirrorGroup, is_resting: bool) -> None:
    """As the old master, send the new one of this group which messages were acknowledged while this one was at rest."""
    numbers = replica.acknowledged() if is_resting and replica.row.type != STREAM.name else []
    acknowledged = instructions.remove(numbers)[1] if numbers else b""
    address = replica.context.peers.replica(replica.row.queue_id, group.master)
    replica.send(address, to_queue.handover(group.epoch, acknowledged))


class Handover:
    """What a replica that becomes the master gets from the old master."""

    __slots__ = ("_before", "_came", "_epoch", "removed")

    def __init__(self) -> None:
        #: The old master, as long as this replica waits for it.
        self._before: Member | None = None
        #: The epoch at which this replica has become the master.
        self._epoch = 0
        #: The epoch of a master, and the acknowledgements that the old master has sent for it, as the content of a
        #: REMOVE.
        self._came: tuple[int, bytes] = (0, b"")
        #: The numbers of the messages that were removed, as the content of a REMOVE; empty if there are none.
        self.removed = b""

    @property
    def is_awaited(self) -> bool:
        return self._before is not None

    def begin(self, before: Member, group: MirrorGroup) -> None:
        """Note that this replica is the master of this group, and that `before` was. If `before` is still in the ring,
        it has come to rest, and sends the acknowledgements that it has kept.
        """
        self._epoch = group.epoch
        self._before = before if before in group.ring and self._came[0] != group.epoch else None

    def row_changed(self, group: MirrorGroup) -> None:
        """Wait no longer for an old master that has left the ring."""
        if self._before not in group.ring:
            self._before = None

    def give_up(self) -> None:
        """Wait no longer."""
        self._before = None

    def came(self, epoch: int, acknowledged: bytes) -> None:
        """Note the acknowledgements that the old master has sent for the master of this epoch."""
        self._came = epoch, acknowledged
        self._before = None

    def take(self) -> list[range]:
        """The messages to remove before this replica serves as the master. Returns them once."""
        if self._came[0] != self._epoch or self.removed or not self._came[1]:
            return []
        self.removed = self._came[1]
        return list(instructions.removed(self.removed))
