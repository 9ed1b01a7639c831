"""The info items of many queues, for listings (AB-176).

Each question to a process is a turn of that process, and every busy client has a turn as well before the next question
of the listing is answered. So a queue that has nothing to do is not asked. It is read between two turns, as statistics
are (`statistics.activity`), because what it has now is what it would answer. Asked are queues that have a message to
handle, that are dormant or at home on another node, and groups, which ask their members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ...routing.queue_types import GROUP
from ...runtime.errors import ProcessDown, ProcessTimeout
from ..contracts.queue import to_queue
from ..queue.process import Queue

if TYPE_CHECKING:
    from ...routing.rows import QueueRow
    from ...runtime.contract import ProcessMessage
    from ...runtime.process import Process
    from ..context.node_context import NodeContext
    from ..contracts.info_items import InfoItems
    from ..contracts.queue import ToQueue

#: Queues that are read in one turn. One takes 15 µs.
READ = 50

T = TypeVar("T")


async def queue_infos(
    process: Process, context: NodeContext, rows: Sequence[QueueRow], timeout: float
) -> list[InfoItems | None]:
    """The info items of each queue; None for one that does not run, or does not answer within `timeout` seconds."""
    found: list[InfoItems | None] = [None] * len(rows)
    asked: list[int] = []
    for at, row in enumerate(rows):
        found[at] = _read(process, context, row)
        if found[at] is None:
            asked.append(at)
        if at % READ == READ - 1:
            await process.next_turn()
    answers = await ask_running(process, [rows[at] for at in asked], to_queue.info(), timeout)
    for at, answer in zip(asked, answers):
        found[at] = answer
    return found


def _read(process: Process, context: NodeContext, row: QueueRow) -> InfoItems | None:
    """What a queue would answer; None if it has to be asked, or does not run."""
    if row.state != "running" or row.type == GROUP.name or not process.has_no_work(row.address):
        return None
    _, queue = context.activity.members.get(row.queue_id, (None, None))
    return queue.info_items() if isinstance(queue, Queue) and queue.is_open else None


async def ask_running(
    process: Process, rows: Sequence[QueueRow], question: ProcessMessage[ToQueue, T], timeout: float
) -> list[T | None]:
    """The answer of each queue; None for one that does not run, or does not answer within `timeout` seconds."""
    running = [row for row in rows if row.state == "running"]
    answers = iter(await process.ask_each([(row.address, question) for row in running], timeout))
    return [if_answered(next(answers)) if row.state == "running" else None for row in rows]


def if_answered(answer: T | Exception) -> T | None:
    """The answer, or None if there is none because the process is ending or did not answer in time.

    Raises any other error that the process answered with.
    """
    if not isinstance(answer, Exception):
        return answer
    if isinstance(answer, (ProcessDown, ProcessTimeout)):
        return None
    raise answer
