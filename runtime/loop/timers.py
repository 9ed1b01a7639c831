"""`Timers`: a heap of timers ordered by deadline, in which cancelled timers are removed late.

A cancelled entry stays in the heap, without owner and payload, until it comes to the top or until most entries are
cancelled; then the heap is rebuilt. So the heap never has more than twice as many entries as there are live timers,
plus `SLACK`, however often timers are started and cancelled again, as heartbeats do.

    entry = [deadline, number, owner, payload]        the owner is None once the timer was cancelled or has fired
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

#: Cancelled entries that the heap may always hold.
SLACK = 64

Entry = list[Any]
DEADLINE, NUMBER, OWNER, PAYLOAD = range(4)


class Timers:
    """The timers of one system. Deadlines are in seconds of the caller's clock."""

    __slots__ = ("_cancelled", "_number", "heap")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self._number = 0
        self._cancelled = 0

    def start(self, deadline: float, owner: Any, payload: Any) -> Entry:
        # The number keeps timers with the same deadline in their order, and keeps owners out of the comparison.
        self._number += 1
        entry = [deadline, self._number, owner, payload]
        heappush(self.heap, entry)
        return entry

    def cancel(self, entry: Entry) -> bool:
        """Cancel a timer; False if it has fired or was cancelled before."""
        if entry[OWNER] is None:
            return False
        entry[OWNER] = entry[PAYLOAD] = None
        self._cancelled += 1
        if self._cancelled > SLACK and self._cancelled * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[OWNER] is not None]
            heapify(self.heap)
            self._cancelled = 0
        return True

    def next_deadline(self) -> float | None:
        """The deadline of the earliest live timer; None if there is none."""
        heap = self.heap
        while heap and heap[0][OWNER] is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][DEADLINE] if heap else None

    def pop_due(self, now: float) -> Entry | None:
        """Remove and return the earliest live timer if it is due at `now`, otherwise None."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        return heappop(self.heap)

    def __len__(self) -> int:
        return len(self.heap) - self._cancelled
