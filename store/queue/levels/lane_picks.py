"""`LanePicks`: which messages of a queue with lanes leave next, and what must be read from the disk for that.

Messages leave in the order of the round, or as the first of the lane whose head expires first, or as the first of the
longest lane. Each pick takes no more than is in memory.
"""

from __future__ import annotations

from itertools import chain, islice, zip_longest

from .lane_source import LaneSource
from .lane_sources import LaneSources, Picks
from .lane_table import LaneTable
from .lanes import FairLane

#: Lanes at the front of the round whose next messages are read from the disk before they are needed, and how many
#: messages in all.
READ_AHEAD = 512

#: Lanes that one call visits in vain, because their next messages are larger than their credit. Another turn goes on.
VISITS_IN_VAIN = 2000

#: How many messages `available` looks at for each that it may count.
MOST_LOOKS = 4


class LanePicks:
    """See the module."""

    __slots__ = ("_awaited", "_sources", "_table", "is_turning")

    def __init__(self, table: LaneTable, sources: LaneSources) -> None:
        self._table = table
        self._sources = sources
        #: A lane whose head must be read from the disk before it can be dropped or expires.
        self._awaited: FairLane | None = None
        #: Whether the next lane was not found within `VISITS_IN_VAIN`.
        self.is_turning = False

    def in_turn(self, count: int) -> Picks:
        """Take up to `count` messages in the order of delivery, as their lanes and keys."""
        picks: Picks = []
        are_all, counts_bytes = self._sources.have_all_in_memory, self._table.round.rules.counts_bytes
        while count > 0 and (front := self.front()) is not None:
            lane, allowed = front
            here = self._sources.readable(lane, min(allowed, count), are_all)
            if not here:
                break
            size = self._sources.next_size(lane) if counts_bytes else here
            picks += self.take(lane, here)
            count -= here
            if lane.numbers.count:
                self._table.round.delivered(lane, size or 0)
        return picks

    def front(self) -> tuple[FairLane, int] | None:
        """The lane that delivers next, and how many messages in this visit: 0 if the size of the next one must be read
        from the disk. None if there is no lane, or none was found yet.
        """
        self.is_turning = False
        round_ = self._table.round
        counts_bytes = round_.rules.counts_bytes
        for _ in range(VISITS_IN_VAIN):
            lane = round_.front()
            if lane is None:
                return None
            size = self._sources.next_size(lane) if counts_bytes else 1
            if size is None:
                return lane, 0
            allowed = round_.visit(lane, size)
            if allowed:
                return lane, allowed
        self.is_turning = True
        return None

    def take(self, lane: FairLane, count: int) -> Picks:
        """Take ready messages from the head of the lane."""
        taken = self._table.take(lane, count)
        for keys in taken:
            self._sources.at(keys.start)[0].ready -= len(keys)
        return [(lane, keys) for keys in taken]

    def expired(self, now: int, limit: int) -> Picks:
        """Take up to `limit` messages that expire no later than `now` from the heads of lanes."""
        picks: Picks = []
        while limit > 0 and (found := self._table.expiries.first()) is not None and found[0] <= now:
            lane = found[1]
            here = self._sources.readable(lane, lane.numbers.expired(now, limit))
            if not here:
                self._awaited = lane
                break
            limit -= here
            picks += self.take(lane, here)
        return picks

    def longest_first(self, count: int) -> Picks:
        """Take up to `count` messages from the heads of the longest lanes."""
        picks: Picks = []
        while count > 0 and (longest := self._table.longest()) is not None:
            lane, second = longest
            # No more than until the second longest lane may be longer.
            here = self._sources.readable(lane, min(count, max(1, lane.numbers.count - second)))
            if not here:
                break
            count -= here
            picks += self.take(lane, here)
        return picks

    def is_droppable(self) -> bool:
        """Whether the head of the longest lane is in memory."""
        longest = self._table.longest()
        if longest is None or self._sources.readable(longest[0], 1):
            return longest is not None
        self._awaited = longest[0]
        return False

    def available(self, limit: int) -> int:
        """How many messages can be taken before any lane gets to a message on the disk, or fewer."""
        if self._table.round.rules.counts_bytes:
            # How many messages of a lane come before the next lane depends on their sizes.
            front = self.front()
            return 0 if front is None or not limit or not front[1] else self._sources.readable(front[0], 1)
        if self._sources.have_all_in_memory:
            return min(limit, self._table.ready)
        lanes = list(islice(self._table.round, limit))
        # In so many visits to each lane as many messages leave, or all of a lane.
        visits = -(-limit // max(1, len(lanes)))
        budget, total, least = MOST_LOOKS * limit, 0, limit
        for place, lane in enumerate(lanes):
            wanted = min(lane.numbers.count, limit, visits * self._table.round.quantum(lane))
            here = self._sources.readable(lane, max(1, min(wanted, budget)))
            if not here:
                return min(place, least)  # each lane before this one delivers a message first
            budget -= here
            total += here
            if here < wanted:
                least = min(least, here)
        return min(total, least)

    def needs_bodies(self) -> bool:
        """Whether the next message to leave is not in memory."""
        front = self.front()
        return self._still_awaited() is not None or front is not None and not self._sources.readable(front[0], 1)

    def _still_awaited(self) -> FairLane | None:
        lane = self._awaited
        if lane is not None and (not lane.numbers.count or self._sources.readable(lane, 1)):
            self._awaited = lane = None
        return lane

    def read_first(self) -> list[tuple[LaneSource, list[int]]]:
        """The messages that should be in memory, in the order in which they are needed."""
        round_ = self._table.round
        # Fewer lanes if each delivers many messages in its turn: a list of all their messages has no bound.
        batch = min(round_.rules.batch, READ_AHEAD)
        lanes = list(islice(round_, READ_AHEAD // batch))
        each = max(batch, READ_AHEAD // max(1, len(lanes)))
        of_lanes = [chain.from_iterable(lane.numbers.ahead(each)) for lane in lanes]
        keys = [key for of_round in zip_longest(*of_lanes) for key in of_round if key is not None]
        if self._awaited is not None:
            keys.insert(0, self._awaited.numbers.first)
        found: dict[LaneSource, list[int]] = {}
        for key in dict.fromkeys(keys):
            source, number = self._sources.at(key)
            found.setdefault(source, []).append(number)
        return list(found.items())
