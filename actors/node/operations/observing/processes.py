"""What the processes of a node do (CM-207)."""

from __future__ import annotations

import heapq
from itertools import islice

from .....runtime.system.meter import Figures, Meter
from ..registry import OperationError, Operator, Rows, operation

#: Processes that are looked at in one turn.
SLICE = 1000

#: The most processes that one answer has.
MOST = 1000


@operation(while_booting=True)
async def processes(operator: Operator, *, most: int = 100) -> Rows:
    """What the busiest processes of the node have done since the last request of this session, and those with the
    longest mailboxes. The first request begins to measure, which ends with the session.

    `busy` is the share of the time, in per cent. Python does not count memory by process, so the rows have none.
    """
    if not 1 <= most <= MOST:
        raise OperationError("data", f"Bad argument: the number of processes must be from 1 to {MOST}: {most}")
    process = operator.process
    reading = operator.kept.get("processes")
    if not isinstance(reading, _Reading):
        meter = process.meter()
        if meter is None:
            raise OperationError("unavailable", "the processes of this node are programs of their own: use `ps`, `top`")
        reading = operator.kept["processes"] = _Reading(meter, process.now())
    seconds, reading.at = process.now() - reading.at, process.now()
    busiest: list[Figures] = []
    found = reading.meter.read()
    while piece := list(islice(found, SLICE)):
        some = [each for each in piece if each is not None]
        busiest = heapq.nlargest(most, [*busiest, *some], key=lambda each: (each.seconds, each.mailbox))
        await process.next_turn()
    return [
        {
            "process": each.process,
            "kind": each.kind,
            "name": each.label,
            "mailbox": each.mailbox,
            "messages": each.messages,
            "turns": each.turns,
            "message_rate": round(each.messages / seconds, 1) if seconds else 0.0,
            "busy": round(100 * each.seconds / seconds, 2) if seconds else 0.0,
        }
        for each in busiest
    ]


class _Reading:
    """What one session has read until now."""

    def __init__(self, meter: Meter, at: float) -> None:
        self.meter = meter
        self.at = at

    def close(self) -> None:
        self.meter.close()
