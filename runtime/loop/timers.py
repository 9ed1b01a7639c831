"""Timers: a heap ordered by deadline, with lazy cancellation.

A cancelled entry stays in the heap, emptied, until it surfaces or until the heap is mostly cancelled
entries; then the heap is rebuilt. So the heap holds at most twice the live timers plus `SLACK`, however
often a timer is set and cancelled again (heartbeats do so all day).

    entry = [deadline, number, owner, payload]        owner None = cancelled or fired
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

SLACK = 64

Entry = list[Any]
DEADLINE, NUMBER, OWNER, PAYLOAD = range(4)


class Timers:
    """Deadlines are in the seconds of whatever clock the caller reads."""

    __slots__ = ("_cancelled", "_number", "heap")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self._number = 0
        self._cancelled = 0

    def start(self, deadline: float, owner: Any, payload: Any) -> Entry:
        # The number keeps equal deadlines in starting order and comparisons away from the owner.
        self._number += 1
        entry = [deadline, self._number, owner, payload]
        heappush(self.heap, entry)
        return entry

    def cancel(self, entry: Entry) -> bool:
        """True if the timer was still waiting in the heap."""
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
        """Of the earliest live timer; None if there is none."""
        heap = self.heap
        while heap and heap[0][OWNER] is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][DEADLINE] if heap else None

    def pop_due(self, now: float) -> Entry | None:
        """Take out the earliest live timer with a deadline not after `now`."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        return heappop(self.heap)

    def __len__(self) -> int:
        return len(self.heap) - self._cancelled
