"""`LaneExpiries`: which lane has the message that expires first, of those at the heads of lanes.

It is a heap with at most one entry that counts for each lane. The entry may be too early, because it is not moved when
the head of its lane leaves: it is corrected when it comes to the top. Entries of lanes that have no message any more
are dropped there as well. When they are the majority, the heap is replaced in steps: nothing enters the old one, and
each entry of a lane moves the last few entries of the old one that still count.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from .lane_numbers import NEVER
from .lanes import FairLane

#: Entries beyond two for each lane, after which the heap is replaced.
SPARE_ENTRIES = 1024

#: Entries of the old heap that are moved or dropped for each one that enters.
MOVED = 4

#: Expiry, a number that distinguishes entries of one expiry, and the lane.
Entry = tuple[int, int, FairLane]


class LaneExpiries:
    """See the module."""

    __slots__ = ("_heap", "_made", "_old")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._old: list[Entry] = []
        self._made = 0

    def head_changed(self, lane: FairLane, lanes: int) -> None:
        """Note that the lane has another head. There are about `lanes` lanes."""
        expiry = lane.numbers.first_expiry
        if expiry == NEVER or NEVER < lane.known_expiry <= expiry:
            return
        lane.known_expiry = expiry
        self._enter(expiry, lane)
        if self._old:
            self._move()
        elif len(self._heap) > 2 * lanes + SPARE_ENTRIES:
            self._old, self._heap = self._heap, []

    def _enter(self, expiry: int, lane: FairLane) -> None:
        self._made += 1
        heappush(self._heap, (expiry, self._made, lane))

    def _move(self) -> None:
        for expiry, _, lane in self._old[: -MOVED - 1 : -1]:
            if lane.known_expiry == expiry:
                if lane.numbers.count:
                    self._enter(expiry, lane)
                else:
                    lane.known_expiry = NEVER
        del self._old[-MOVED:]  # what is left is a heap still

    def first(self) -> tuple[int, FairLane] | None:
        """The first expiry of a head, and its lane; None if no head expires."""
        found = [(heap[0], heap) for heap in (self._heap, self._old) if _correct(heap)]
        if not found:
            return None
        expiry, _, lane = min(found)[0]
        return expiry, lane

    def __len__(self) -> int:
        return len(self._heap) + len(self._old)


def _correct(heap: list[Entry]) -> bool:
    """Have the first entry of the heap be the expiry of its lane's head; returns whether there is one."""
    while heap:
        expiry, made, lane = heap[0]
        actual = lane.numbers.first_expiry
        if expiry != lane.known_expiry:
            heappop(heap)
        elif actual == NEVER:
            lane.known_expiry = NEVER
            heappop(heap)
        elif actual != expiry:
            lane.known_expiry = actual
            heapreplace(heap, (actual, made, lane))
        else:
            return True
    return False
