"""`LaneTable`: the lanes that a queue has at present, which value has which lane, and in which order they are served.

How a value gets its lane:

1. The lane that has messages of this value, if there is one.
2. A new lane, if there are fewer than `most`.
3. Otherwise the lane whose place is `hash(value) % most`, which is *shared* from then on. A value whose hash leads to a
   shared lane enters that lane even if there is room for another lane again: messages of this value may be in the
   shared lane already, and their order must be kept.

A lane without messages, ready or unacknowledged, is forgotten, and with it that it was shared. Ready messages are in
the table by their keys (`lane_source`).

When a policy changes `most`, a value that shares a lane still finds it: a shared lane has the numbers of the limits
under which values came into it, and a look-up tries the place under each of these limits, the earliest first.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from zlib import crc32

from ..backing_queue import Dispose
from .lane_expiries import LaneExpiries
from .lane_lengths import LaneLengths
from .lanes import FairLane
from .round import Round


class LaneTable:
    """See the module. `ready` is how many ready messages all lanes have."""

    __slots__ = (
        "_by_place",
        "_by_value",
        "_free_places",
        "_lengths",
        "_limits",
        "_most",
        "_places",
        "_shared",
        "expiries",
        "ready",
        "round",
    )

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        #: By its number: `most` now, which comes last, and earlier limits under which lanes came to be shared.
        self._limits = {0: most}
        self._by_value: dict[str, FairLane] = {}
        self._by_place: dict[int, FairLane] = {}
        #: The places below `_places` that no lane has.
        self._free_places: list[int] = []
        self._places = 0
        #: How many lanes are shared.
        self._shared = 0
        self.round = Round()
        self._lengths = LaneLengths()
        self.expiries = LaneExpiries()
        self.ready = 0

    # -- which lane

    def divide(self, most: int, has_other_values: bool) -> None:
        """Have at most `most` lanes from now on. Messages stay in their lanes; with `has_other_values` new messages get
        other ones.
        """
        if has_other_values:
            self._by_value.clear()
        if most != self._most or has_other_values:
            numbers = {each for lane in self._by_place.values() for each in lane.shared_since}
            latest = max(self._limits)
            kept = {} if has_other_values else {each: old for each, old in self._limits.items() if each in numbers}
            self._limits = {**kept, latest + 1: most}
        self._most = most
        self._places = min(most, max(self._places, max(self._by_place, default=-1) + 1))
        self._free_places = [place for place in range(self._places) if place not in self._by_place]

    def known(self, value: str) -> FairLane | None:
        """The lane in which messages of this value are, or may be."""
        lane = self._by_value.get(value)
        if lane is None and self._shared:
            hashed = _hash(value)
            for number, most in self._limits.items():
                found = self._by_place.get(hashed % most)
                if found is not None and number in found.shared_since:
                    return found
        return lane

    def lane(self, value: str) -> FairLane:
        """The lane for a message of this value."""
        lane = self.known(value)
        if lane is not None:
            return lane
        if self._free_places:
            place = self._free_places.pop()
        elif self._places < self._most:
            place = self._places
            self._places += 1
        else:
            lane = self._by_place[_hash(value) % self._most]
            self._shared += not lane.shared_since
            lane.shared_since += (max(self._limits),)
            return lane
        lane = self._by_place[place] = self._by_value[value] = FairLane(place, value)
        return lane

    def forget_idle(self, lane: FairLane) -> None:
        """Forget the lane if it has no message left."""
        if lane.unacked or lane.numbers.count:
            return
        del self._by_place[lane.place]
        self._shared -= bool(lane.shared_since)
        if self._by_value.get(lane.value) is lane:
            del self._by_value[lane.value]
        if lane.place < self._most:
            self._free_places.append(lane.place)

    # -- ready messages

    def append(self, value: str, start: int, stop: int, expiry: int) -> None:
        """Add the messages with these keys at the end of the lane of their value."""
        lane = self.lane(value)
        before = lane.numbers.count
        lane.numbers.append(start, stop, expiry)
        self._changed(lane, before)

    def put_back(self, lane: FairLane, key: int, expiry: int) -> None:
        """Add a message at its place in the lane."""
        before = lane.numbers.count
        lane.numbers.put_back(key, expiry)
        self._changed(lane, before)

    def take(self, lane: FairLane, count: int) -> list[range]:
        """Remove the first `count` messages of the lane, and return their keys."""
        before = lane.numbers.count
        taken = lane.numbers.take(count)
        self._changed(lane, before)
        return taken

    def remove(self, key: int) -> bool:
        """Remove a message wherever it is. Returns whether it was there. Looks at all lanes."""
        lane = next((lane for lane in self.round if key in lane.numbers), None)
        if lane is None:
            return False
        before = lane.numbers.count
        lane.numbers.remove(key)
        self._changed(lane, before)
        self.forget_idle(lane)
        return True

    def _changed(self, lane: FairLane, before: int) -> None:
        """Note that the lane had `before` ready messages, and has others now."""
        after = lane.numbers.count
        self.ready += after - before
        self._lengths.changed(lane, before)
        if not after:
            self.round.leave(lane)
            return
        if not before:
            self.round.enter(lane)
        self.expiries.head_changed(lane, len(self.round))

    def longest(self) -> tuple[FairLane, int] | None:
        """The longest lane, and how many ready messages the second longest has; None if no lane has any."""
        return self._lengths.longest()

    def list_longest(self, count: int) -> list[tuple[str, int, int]]:
        """Value, length and credit of the longest lanes, up to `count`."""
        found = [(lane.value, lane.numbers.count, lane.credit) for lane in islice(self._lengths, count)]
        return sorted(found, key=lambda row: (-row[1], row[0]))

    def detach(self) -> Dispose:
        """Remove everything. Returns what frees the lanes in steps."""
        lanes = list(self._by_place.values())
        self._by_value, self._by_place = {}, {}
        self.round, self._lengths, self.expiries = Round(), LaneLengths(), LaneExpiries()
        self.ready = self._shared = 0
        return partial(_free_last, lanes)


def _hash(value: str) -> int:
    return crc32(value.encode("utf-8", "surrogateescape"))


def _free_last(lanes: list[FairLane], limit: int) -> bool:
    """Free up to `limit` lanes; returns whether there were any."""
    has_any = bool(lanes)
    del lanes[-limit:]
    return has_any
