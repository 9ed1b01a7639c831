"""What has to be true before the master of a mirrored queue may move: enough replicas stay in sync (CL-123)."""

from __future__ import annotations

from collections.abc import Callable

from ....definitions.definitions import Definitions
from ....routing.phrases import queue_phrase
from ....routing.rows import QueueRow
from ....runtime.process import Process
from ...context.peers import Peers
from ...contracts.queue import to_queue
from ..state.replica_rules import min_in_sync

#: Seconds in which a replica must answer.
ANSWER_SECONDS = 5.0

#: Seconds for which a move waits until another replica has copied the queue, and seconds between two checks of that.
COPY_SECONDS, COPY_LOOK_SECONDS = 5.0, 0.05


class TooFewStay(Exception):
    """Without its master the queue would have too few replicas in sync. The text is for operators."""


async def await_enough(
    process: Process, definitions: Definitions, peers: Peers, current: Callable[[], QueueRow | None]
) -> QueueRow | None:
    """Wait while the queue would have too few replicas in sync without its master, and another one copies it.

    The master leaves the ring when it moves, and the queue would refuse publishes. `current` returns the present row of
    the queue, None if it is deleted. Returns the row for which that was found: in another epoch other replicas are in
    sync. Raises TooFewStay.
    """
    end = process.now() + COPY_SECONDS
    while (row := current()) is not None and (group := row.group) is not None:
        needed = min_in_sync(definitions, row)
        if needed <= 1:
            return row
        # The ring may still have a master that has moved just now.
        others = [peers.replica(row.queue_id, member) for member in group.ring[1:]]
        answers = await process.ask_each([(other, to_queue.standing()) for other in others], ANSWER_SECONDS)
        running = {member.node for member, answer in zip(group.ring[1:], answers) if not isinstance(answer, Exception)}
        nodes = [definitions.node(name) for name in group.wanted if name not in (group.master.node, *running)]
        if len(running) >= needed or not any(node is not None and node.incarnation for node in nodes):
            return row
        if process.now() >= end:
            raise TooFewStay(
                f"{queue_phrase(row.vhost, row.name)} would have {len(running)} replicas in sync without its master and"
                f" needs {needed} of them, or it refuses publishes; try again when another replica has copied it"
            )
        await process.sleep(COPY_LOOK_SECONDS)
    return row
