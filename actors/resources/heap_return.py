"""When a node gives the heap that it no longer needs back to the system (QS-16): the rule, without doing it.

A queue that is drained or purged frees its messages, but the C library keeps their pages (a purge of 300,000 messages of 1 KB left 352 MB resident, of
which 30 MB were in use). How much of the heap is free cannot be known cheaply, while an attempt with nothing to give back costs 0.03 ms.
So it is simply tried, after a sample that

- shows at least `WORTH_IT` of memory in use, and no more than at the sample before: a queue that fills has nothing to give back,
- and is far enough from the last attempt: `PAUSE`, or, after one that gave back little, as long as keeps the cost of such attempts under `COST`.

Under a memory alarm publishers wait for what is given back, so size and growth do not matter then, and the pauses are shorter.
"""

from __future__ import annotations

import math

WORTH_IT = 64 << 20  # bytes in use; below, nobody misses them
GROWTH = 1 << 20  # bytes between two samples that count as growing
FRUITFUL = 16 << 20  # bytes given back that make it worth coming back soon

PAUSE = 5.0  # s
LONGEST_PAUSE = 300.0  # s
COST = 1 / 1000  # seconds of fruitless attempts in a second

ALARM_PAUSE = 1.0  # s; QS-16 allows no more often
ALARM_COST = 1 / 20


class HeapReturn:
    """One node's attempts. Times are monotonic seconds, memory is bytes."""

    def __init__(self) -> None:
        self._used_before = 0
        self._last = -math.inf  # when the last attempt ended
        self._cost = 0.0  # seconds that it took, 0 if it was fruitful

    def is_due(self, now: float, used: int, alarmed: bool) -> bool:
        """Whether to try now. To be asked once a sample."""
        growing = used > self._used_before + GROWTH
        self._used_before = used
        since = now - self._last
        if alarmed:
            return since >= max(ALARM_PAUSE, self._cost / ALARM_COST)
        return used >= WORTH_IT and not growing and since >= min(max(PAUSE, self._cost / COST), LONGEST_PAUSE)

    def tried(self, now: float, seconds: float, before: int, after: int) -> None:
        """An attempt took so long and brought the memory in use from `before` to `after`."""
        self._last = now
        self._cost = 0.0 if before - after >= FRUITFUL else seconds
        self._used_before = after
