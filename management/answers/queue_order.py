"""By what lists of queues are sorted, without building an object of each queue: only the queues of a page are built.

It is the slow part of a page: 10,000 queues take 0.4 s to build, and a page that is open asks again in each interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...actors.statistics.counts import MESSAGE_COUNTERS
from ...routing.queue_types import GROUP
from ..call import ApiCall
from ..copy.counted import QUEUE_LENGTHS, Name
from .measures import DELIVER_GET
from .storage import STORED

Row = dict[str, Any]

#: Fields of what a queue was declared with.
DECLARED = frozenset(("name", "vhost", "durable", "auto_delete", "type", "node"))
#: Fields of its statistics, which are 0 if these lack them.
COUNTED = frozenset((*QUEUE_LENGTHS, "consumers"))
#: Fields that are the sums of others.
SUMS = {
    "message_bytes": ("message_bytes_ready", "message_bytes_unacknowledged"),
    "message_bytes_ready": ("message_bytes_ready",),
    "message_bytes_unacknowledged": ("message_bytes_unacknowledged",),
}
#: The counters whose rates a list can be sorted by, and the columns of a queue's history that make them up.
_FIRST = len(QUEUE_LENGTHS)
RATES = {
    **{f"{name}_details.rate": (at,) for at, name in enumerate(QUEUE_LENGTHS)},
    **{
        f"message_stats.{name}_details.rate": (_FIRST + MESSAGE_COUNTERS.index(name),)
        for name in ("publish", "redeliver", "ack")
    },
    "message_stats.deliver_get_details.rate": tuple(_FIRST + MESSAGE_COUNTERS.index(name) for name in DELIVER_GET),
}


def queue_value(call: ApiCall, column: str) -> Callable[[Name], Any] | None:
    """How to get the value of this column for a queue; None if the queue's object has to be built for it."""
    state = call.state
    if column in DECLARED:
        return lambda name: state.queues[name][column]
    value = _of_statistics(call, column)
    if value is None or any(row["type"] == GROUP.name for row in state.queues.values()):
        return None  # a group has the messages of its members

    def found(name: Name) -> Any:
        row, stats = state.queues[name], state.queue_stats.get(name)
        if row["state"] != "running" or (row["node"] != state.node_name and not stats):
            return None
        return value(name, stats or {})

    return found


def _of_statistics(call: ApiCall, column: str) -> Callable[[Name, Row], Any] | None:
    history = call.state.history
    if column in COUNTED:
        return lambda name, stats: stats.get(column) or 0
    if column in STORED:
        stored = STORED[column]
        return lambda name, stats: stored(stats)
    if column in SUMS:
        parts = SUMS[column]
        return lambda name, stats: sum([stats.get(part) or 0 for part in parts])
    if column not in RATES:
        return None
    columns, is_counter = RATES[column], column.startswith("message_stats.")

    def rate(name: Name, stats: Row) -> float | None:
        if is_counter and not any(stats.get("counts", ())):
            return None
        track = history.get(("queue", name))
        return 0.0 if track is None else round(sum([track.rate(each, history.tick) for each in columns]), 6)

    return rate
