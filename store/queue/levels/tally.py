"""`Tally`: what the lanes of a queue have together, without a pass over all lanes for each question.

A queue asks for its length several times for each message, and may have hundreds of lanes. So each lane has the counts
with which it was last added up, and only lanes that were *touched* since, by any operation, are counted again.

Some counts change without an operation of the queue: a body that a read does not find is lost, and a message that was
moved to another queue leaves when the journal has recorded that. A lane that such a change may still reach is *unsure*:
it is counted again at each question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush

from ..backing_queue import Totals
from .lanes import FairLane

#: Entries of the heap of lengths for each lane, after which the heap is dropped: most of its entries no longer count.
LENGTHS_KEPT = 8


class Tally:
    """See the module."""

    __slots__ = ("_counted", "_lengths", "_news", "_stale", "_total", "moving", "reading")

    def __init__(self) -> None:
        self._total = Totals()
        #: The counts of each lane that are in the total. A lane without messages is not in it.
        self._counted: dict[FairLane, Totals] = {}
        self._stale: set[FairLane] = set()
        #: A heap of lanes by their length, the longest first, and by their number. An entry with a length that its lane
        #: no longer has does not count. None until the longest lane is asked for, and again when the heap has grown too
        #: large and was dropped.
        self._lengths: list[tuple[int, int, FairLane]] | None = None
        #: The lanes that were touched since `take_touched` was last called.
        self._news: set[FairLane] = set()
        #: The lanes that messages may leave when the journal has synced.
        self.moving: set[FairLane] = set()
        #: By purpose: the lane for which a job that reads its messages was given out last.
        self.reading: dict[str, FairLane] = {}

    def touch(self, lane: FairLane) -> None:
        """Note that an operation may change this lane in the present turn."""
        self._stale.add(lane)
        self._news.add(lane)

    def touch_all(self, lanes: Iterable[FairLane]) -> None:
        self._stale.update(lanes)
        self._news.update(lanes)

    def read_for(self, purpose: str, lane: FairLane | None) -> None:
        """Note that a job for this purpose is given out now, and reads messages of `lane`; None if there is no job.

        The job before it for the same purpose has ended.
        """
        before = self.reading.pop(purpose, None)
        if before is not None:
            self.touch(before)
        if lane is not None:
            self.touch(lane)
            self.reading[purpose] = lane

    def take_touched(self) -> list[int]:
        """The numbers of the lanes that may have changed since the last call."""
        found, self._news = self._news, set()
        return [lane.number for lane in found.union(self.moving, self.reading.values())]

    def totals(self) -> Totals:
        """What all lanes have."""
        if self.moving:
            self._stale |= self.moving
        if self.reading:
            self._stale.update(self.reading.values())
        if not self._stale:
            return self._total
        ready, pending, ready_bytes, pending_bytes = self._total
        counted = self._counted
        for lane in self._stale:
            old, new = counted.get(lane, _NOTHING), lane.level.totals()
            ready += new.ready - old.ready
            pending += new.pending - old.pending
            ready_bytes += new.ready_bytes - old.ready_bytes
            pending_bytes += new.pending_bytes - old.pending_bytes
            if self._lengths is not None and new.ready and new.ready != old.ready:
                heappush(self._lengths, (-new.ready, lane.number, lane))
            if new.ready or new.pending:
                counted[lane] = new
            else:
                counted.pop(lane, None)
            if not new.pending:
                self.moving.discard(lane)
        # A full queue asks for its longest lane all the time. But one that was full only once may never do so again, so
        # a heap that has grown is dropped.
        if self._lengths is not None and len(self._lengths) > LENGTHS_KEPT * (1 + len(counted)):
            self._lengths = None
        self._stale.clear()
        self._total = Totals(ready, pending, ready_bytes, pending_bytes)
        return self._total

    def lanes_with_messages(self) -> Collection[FairLane]:
        """The lanes that have a message, ready or pending."""
        self.totals()
        return self._counted.keys()

    def longest(self) -> tuple[FairLane, int] | None:
        """The lane with the most ready messages, and how many the second longest has; None if no message is ready."""
        self.totals()
        lengths = self._lengths
        if lengths is None:
            lengths = [(-each.ready, lane.number, lane) for lane, each in self._counted.items() if each.ready]
            heapify(lengths)
            self._lengths = lengths
        self._drop_old(lengths)
        if not lengths:
            return None
        first = heappop(lengths)
        lane = first[2]
        self._drop_old(lengths, lane)
        second = -lengths[0][0] if lengths else 0
        heappush(lengths, first)
        return lane, second

    def _drop_old(self, lengths: list[tuple[int, int, FairLane]], but: FairLane | None = None) -> None:
        """Remove entries from the top until the first one counts and is not of the lane `but`."""
        while lengths:
            length, _, lane = lengths[0]
            if lane is not but and self._counted.get(lane, _NOTHING).ready == -length:
                return
            heappop(lengths)


_NOTHING = Totals()
