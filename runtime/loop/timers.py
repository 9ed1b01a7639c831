"""`Timers`: a heap of timers ordered by deadline, in which cancelled timers are removed late.

A cancelled entry stays in the heap, without owner and payload, until it comes to the top or until most entries are
cancelled. Then a sweep begins: the heap is set aside, and each later `cancel` moves `SWEPT` of its entries back, except
the cancelled ones. Rebuilding the heap in one go would block the loop, for 40 ms with 200,000 timers. So when a timer
is cancelled there are never more than three times as many entries as live timers, plus a few times `SLACK`, however
often timers are started and cancelled again, as heartbeats do.

    entry = [deadline, number, owner, payload]        the owner is None once the timer was cancelled or has fired
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain
from typing import Any

#: Cancelled entries that may always be kept.
SLACK = 64
#: Entries that a `cancel` moves during a sweep. With less than 4, cancelled entries could come faster than they leave.
SWEPT = 8

Entry = list[Any]
DEADLINE, NUMBER, OWNER, PAYLOAD = range(4)


class Timers:
    """The timers of one system. Deadlines are in seconds of the caller's clock.

    heap      its first entry is the earliest of all
    _aside    the heap that is swept; empty between sweeps. Its first entry is later than that of `heap`
    """

    __slots__ = ("_aside", "_cancelled", "_number", "heap")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self._aside: list[Entry] = []
        self._number = 0
        #: Cancelled entries, in both heaps.
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
        if self._aside:
            self._sweep()
        elif self._cancelled > SLACK and self._cancelled * 2 > len(self.heap):
            self.heap, self._aside = [], self.heap
            self._keep_earliest_first()
        return True

    def next_deadline(self) -> float | None:
        """The deadline of the earliest live timer; None if there is none."""
        heap = self.heap
        while heap and heap[0][OWNER] is None:
            heappop(heap)
            self._cancelled -= 1
            if self._aside:
                self._keep_earliest_first()
        return heap[0][DEADLINE] if heap else None

    def pop_due(self, now: float) -> Entry | None:
        """Remove and return the earliest live timer if it is due at `now`, otherwise None."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        entry = heappop(self.heap)
        if self._aside:
            self._keep_earliest_first()
        return entry

    def entries(self) -> Iterator[Entry]:
        """All entries in any order, also cancelled ones."""
        return chain(self.heap, self._aside)

    def __len__(self) -> int:
        return len(self.heap) + len(self._aside) - self._cancelled

    def _sweep(self) -> None:
        heap, aside = self.heap, self._aside
        for _ in range(min(SWEPT, len(aside))):
            entry = aside.pop()  # a heap without its last entry is still a heap
            if entry[OWNER] is None:
                self._cancelled -= 1
            else:
                heappush(heap, entry)

    def _keep_earliest_first(self) -> None:
        """Make the earliest entry of both heaps the first of `heap`, which is all that the loop reads."""
        heap, aside = self.heap, self._aside
        if not heap or aside[0] < heap[0]:
            heappush(heap, heappop(aside))
