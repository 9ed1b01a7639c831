"""`Round`: the deficit round robin over the lanes of a queue that have ready messages (QP-67).

A visit adds `weight · batch` to the credit of a lane, which then delivers as long as its credit suffices. A lane that
becomes empty leaves the round and loses its credit, perhaps only when its turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ...messages.message import body_size
from .lanes import FairLane, FairRules

#: Bytes that a visit adds to the credit of a lane of weight 1, if bytes are counted.
VISIT_BYTES = 16_384


class Round:
    """See the module. The first lane is the one that is visited."""

    __slots__ = ("_lanes", "rules")

    def __init__(self) -> None:
        self.rules = FairRules()
        self._lanes: deque[FairLane] = deque()

    def __iter__(self) -> Iterator[FairLane]:
        """The lanes from the front, of which some may be empty."""
        return iter(self._lanes)

    def enter(self, lane: FairLane) -> None:
        """Have this lane join at the end, if it is not in the round."""
        if not lane.is_in_round:
            lane.is_in_round = True
            lane.credit = 0
            lane.is_visited = False
            self._lanes.append(lane)

    def join(self, lanes: Iterable[FairLane]) -> None:
        """Have those of these lanes join that have ready messages."""
        for lane in lanes:
            if len(lane.level):
                self.enter(lane)

    def leave_empty(self, lanes: Iterable[FairLane]) -> None:
        """Have those of these lanes leave the round that are empty now."""
        for lane in lanes:
            if lane.is_in_round and not len(lane.level):
                self._lanes.remove(lane)
                lane.is_in_round = False

    def _quantum(self, lane: FairLane) -> int:
        weights = self.rules.weights
        weight = 1
        if weights:
            weight = weights.get(lane.value or "", weights.get("*", 1))
        return weight * (VISIT_BYTES if self.rules.counts_bytes else self.rules.batch)

    def front(self) -> tuple[FairLane, int] | None:
        """The lane that delivers next, and how many messages in this visit. None if there is none, or if the size of
        the next message must be read from the disk first.
        """
        lanes, counts_bytes = self._lanes, self.rules.counts_bytes
        passed = 0
        while lanes:
            lane = lanes[0]
            if not len(lane.level):
                lanes.popleft().is_in_round = False
                passed = 0
                continue
            if len(lanes) == 1 and not counts_bytes:
                return lane, len(lane.level)
            size = 1
            if counts_bytes:
                head = lane.level.head()
                if head is None or not head.content:
                    return (lane, 0)
                size = max(1, body_size(head.content))
            if not lane.is_visited:
                lane.is_visited = True
                lane.credit += self._quantum(lane)
            if lane.credit >= size:
                return lane, 1 if counts_bytes else lane.credit
            lane.is_visited = False
            lanes.rotate(-1)
            passed += 1
            if counts_bytes and passed == len(lanes):
                self._skip_rounds()
                passed = 0
        return None

    def _skip_rounds(self) -> None:
        """Add the credit of all rounds in which no lane could deliver, if none has credit for its next message now."""
        missing = []
        for lane in self._lanes:
            head = lane.level.head()
            size = 1 if head is None or not head.content else body_size(head.content)
            missing.append(-(-(size - lane.credit) // self._quantum(lane)))
        rounds = min(missing) - 1
        if rounds > 0:
            for lane in self._lanes:
                lane.credit += rounds * self._quantum(lane)

    def delivered(self, lane: FairLane, sizes: int) -> None:
        """Note that the lane at the front has delivered messages. `sizes` are their bytes, or their number if credit
        counts messages.
        """
        lane.credit -= sizes
        if not len(lane.level):
            lane.is_in_round = False
            self._lanes.remove(lane)
        elif not self.rules.counts_bytes and lane.credit <= 0:
            lane.credit = 0
            lane.is_visited = False
            if self._lanes[0] is lane:
                self._lanes.rotate(-1)
