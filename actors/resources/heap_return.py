"""`HeapReturn`: decides when a node gives heap that it no longer needs back to the system (QS-16). The memory monitor
then gives it back.

A queue that is drained or purged frees its messages, but the C library keeps their pages: a purge of 300,000 messages
of 1 KB left 352 MB resident, of which 30 MB were in use. How much of the heap is free cannot be measured cheaply, while
an attempt with nothing to give back costs 0.03 ms. So the memory monitor simply tries, after a sample that

- shows at least `WORTH_IT` of memory in use, and no more than the sample before: a queue that fills has nothing to give
  back,
- and is far enough from the last attempt: `PAUSE` seconds, or, after one that gave back little, as long as keeps the
  cost of such attempts under `COST`.

Under a memory alarm publishers wait for what is given back. So size and growth do not matter then, and the pauses are
shorter. While the C library gives pages back, no other thread can allocate memory: 65 ms for the 300 MB that queues
page out in a second. So that is done twenty times a second, for a twentieth of it.
"""

from __future__ import annotations

import math

#: Bytes in use below which an attempt is not worth its cost.
WORTH_IT = 64 << 20
#: Bytes between two samples that count as growth.
GROWTH = 1 << 20
#: Bytes given back that make it worth trying again after `PAUSE`.
FRUITFUL = 16 << 20

#: Seconds between two attempts, and the share of the time that fruitless ones may take.
PAUSE = 5.0
LONGEST_PAUSE = 300.0
COST = 1 / 1000

#: The same under an alarm.
ALARM_PAUSE = 0.05
ALARM_COST = 1 / 20


class HeapReturn:
    """The attempts of one node. Times are monotonic seconds, memory is in bytes."""

    def __init__(self) -> None:
        self._used_before = 0
        #: When the last attempt ended, and how many seconds it took, 0 if it was fruitful.
        self._last = -math.inf
        self._cost = 0.0

    def is_due(self, now: float, used: int, alarmed: bool) -> bool:
        """Whether to try now; called once for each sample."""
        growing = used > self._used_before + GROWTH
        self._used_before = used
        since = now - self._last
        if alarmed:
            return since >= max(ALARM_PAUSE, self._cost / ALARM_COST)
        return used >= WORTH_IT and not growing and since >= min(max(PAUSE, self._cost / COST), LONGEST_PAUSE)

    def tried(self, now: float, seconds: float, before: int, after: int) -> None:
        """Record an attempt that took `seconds` and brought the memory in use from `before` to `after`."""
        self._last = now
        self._cost = 0.0 if before - after >= FRUITFUL else seconds
        self._used_before = after
