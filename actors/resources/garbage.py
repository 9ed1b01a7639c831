"""`Garbage`: decides when a node that is above its memory limit collects all garbage. The memory monitor then does so.

Reference counting frees what clients leave behind, so there is garbage only if something makes cycles that outlive
their first examination: a fault, or an extension. A full collection stops all processes, with 1,000 connections for 100
ms, and the collector cannot do a part of it. So the alarm goes on without one, unless there is a sign of cycles: the
collector counts the objects that it has found in cycles while these were young. Cycles may leave no such sign. So there
is a collection as well when an alarm has lasted for `ALARM_SECONDS`, since publishers would otherwise be blocked for as
long as the garbage lies there. If it finds next to nothing, the time to the next one doubles, as long as the alarm is
on.
"""

from __future__ import annotations

import math

#: The least seconds between two collections.
COLLECT_SECONDS = 30.0
#: Objects in cycles that are a sign of more, and that are worth a collection.
CYCLES = 1_000
#: Seconds of an alarm after which there is a collection without a sign, and the most between two of them.
ALARM_SECONDS = 60.0
LONGEST_PAUSE = 600.0


class Garbage:
    """The collections of one node. Times are monotonic seconds; `found` counts the objects in cycles that the collector
    has found since the program began.
    """

    def __init__(self, found: int) -> None:
        self._found = found
        self._last = -math.inf
        #: When the alarm went on; None if it is off.
        self._alarmed_at: float | None = None
        self._pause = ALARM_SECONDS

    def alarmed(self, now: float, on: bool) -> None:
        """Note that the alarm goes on or off."""
        self._alarmed_at = now if on else None
        self._pause = ALARM_SECONDS

    def is_due(self, now: float, found: int) -> bool:
        """Whether to collect now; asked while more than the limit is in use."""
        if now - self._last < COLLECT_SECONDS:
            return False
        if found - self._found >= CYCLES:
            return True
        return self._alarmed_at is not None and now - max(self._alarmed_at, self._last) >= self._pause

    def collected(self, now: float, found: int) -> None:
        """Note a collection that has just been made; `found` includes what it has found."""
        if found - self._found < CYCLES:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._last, self._found = now, found
