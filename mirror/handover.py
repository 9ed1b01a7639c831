"""`quiesce`: the master of a mirrored queue comes to rest, so that another member may become the master (CL-98).

The master stops its publishers by their credit, and waits until all other members have received and stored whatever it
has told them. Then it answers, and whoever asked proposes the transfer. A publisher that has credit left may send more
before the transfer is in force; that is treated as after a failover: it is in the queue once, or refused. If nobody
becomes the master in time, publishers go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..amqp.constants import PRECONDITION_FAILED
from ..amqp.errors import AmqpError
from ..routing.phrases import queue_phrase

if TYPE_CHECKING:
    from ..actors.queue.mirroring import Replica

#: The name under which a transfer blocks a queue's credit.
TRANSFER = "transfer"

#: Seconds in which the queue must come to rest, and seconds between two looks.
REST_SECONDS, LOOK_SECONDS = 1.0, 0.002

#: Seconds for which a queue at rest waits for its transfer.
TRANSFER_SECONDS = 2.0


async def quiesce(replica: Replica, is_level: Callable[[], bool]) -> None:
    """Return when the queue is at rest; `resume` must follow. Raises AmqpError if it does not come to rest in time."""
    credit = replica.state.credit
    credit.relate(TRANSFER, kind="ring")
    credit.block(TRANSFER)
    deadline = replica.now() + REST_SECONDS
    while not is_level():
        if replica.now() > deadline:
            phrase = queue_phrase(replica.row.vhost, replica.row.name)
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{phrase} is too busy: not all of its replicas have everything within {REST_SECONDS:.0f} s",
            )
        await replica.sleep(LOOK_SECONDS)


def resume(replica: Replica) -> None:
    """Publishers go on. A replica that has ended has none."""
    credit = replica.state.credit
    if TRANSFER in credit.credit_blocked:
        credit.unblock(TRANSFER)
        credit.peer_down(TRANSFER)
