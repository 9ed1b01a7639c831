"""The master of a mirrored queue comes to rest, so that another member may become the master (CL-98).

From the beginning the master takes no publishes and delivers nothing; what clients send it waits. It still takes
acknowledgements for a moment (`settled`), because those that wait are lost if another member becomes the master, and
their messages come again. From then on it adds nothing to its stream. When all members have received and stored
whatever it has told them, and its publishers have their confirms (`rest`), it answers, and whoever asked proposes the
transfer. If that is refused the queue goes on. If it is in force, what waited was never taken: channels publish it
again to the next master.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..routing.phrases import queue_phrase

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica

#: Seconds in which the queue must come to rest, and seconds between two looks.
REST_SECONDS, LOOK_SECONDS = 1.0, 0.002

#: Seconds for which the queue still takes acknowledgements, and seconds without one that end that time.
SETTLE_SECONDS, QUIET_SECONDS = 0.1, 0.02

#: Seconds after which a queue at rest goes on if nobody has said what has become of its transfer. If the transfer is in
#: force later than that, publishers and consumers see a failover.
TRANSFER_SECONDS = 3.0


async def settled(replica: Replica) -> None:
    """Return when consumers have acknowledged what they were about to, or a moment later."""
    began = changed = replica.now()
    unacked = _unacked(replica)
    while unacked and replica.now() < min(began + SETTLE_SECONDS, changed + QUIET_SECONDS):
        await replica.sleep(LOOK_SECONDS)
        left = _unacked(replica)
        if left != unacked:
            unacked, changed = left, replica.now()


def _unacked(replica: Replica) -> int:
    return sum([len(record.pending) for record in replica.state.channels.values()])


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
