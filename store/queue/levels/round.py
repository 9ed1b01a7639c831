"""`Round`: the deficit round robin over the lanes of a queue that have ready messages (QP-67).

A visit adds `weight · batch` messages, or `weight · VISIT_BYTES` if bytes are counted, to the credit of a lane, which
then delivers as long as its credit suffices. A lane that becomes empty leaves the round and loses its credit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from .lanes import FairLane, FairRules

#: Bytes that a visit adds to the credit of a lane of weight 1, if bytes are counted.
VISIT_BYTES = 16_384


class Round:
    """See the module. The first lane is the one that is visited."""

    __slots__ = ("_lanes", "rules")

    def __init__(self) -> None:
        #: `use` changes them.
        self.rules = FairRules()
        #: Not a deque: a lane may become empty, and leave, wherever it is.
        self._lanes: OrderedDict[FairLane, None] = OrderedDict()

    def use(self, rules: FairRules) -> None:
        """Serve the lanes by these rules from now on."""
        if rules.counts_bytes != self.rules.counts_bytes:
            for lane in self._lanes:
                lane.credit = 0  # it counted messages, and now would be bytes, or the other way round
                lane.is_visited = False
        self.rules = rules

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[FairLane]:
        """The lanes from the front."""
        return iter(self._lanes)

    def enter(self, lane: FairLane) -> None:
        """Have this lane join at the end, if it is not in the round."""
        if lane not in self._lanes:
            lane.credit = 0
            lane.is_visited = False
            self._lanes[lane] = None

    def leave(self, lane: FairLane) -> None:
        """Have this lane, which has become empty, leave the round."""
        self._lanes.pop(lane, None)

    def quantum(self, lane: FairLane) -> int:
        """What a visit adds to the credit of the lane."""
        weights = self.rules.weights
        weight = 1
        if weights:
            weight = weights.get(lane.value, weights.get("*", 1))
        return weight * (VISIT_BYTES if self.rules.counts_bytes else self.rules.batch)

    def front(self) -> FairLane | None:
        """The lane that delivers next; None without lanes."""
        return next(iter(self._lanes), None)

    def visit(self, lane: FairLane, size: int) -> int:
        """Begin or continue the visit of the lane at the front, whose next message costs `size`. Returns how many
        messages it may deliver; 0 if its credit does not suffice, and the next lane is at the front now.
        """
        if len(self._lanes) == 1:
            # A lane that is alone needs no credit.
            return 1 if self.rules.counts_bytes else lane.numbers.count
        if not lane.is_visited:
            lane.is_visited = True
            lane.credit += self.quantum(lane)
        if lane.credit >= size:
            return 1 if self.rules.counts_bytes else lane.credit
        lane.is_visited = False
        self._lanes.move_to_end(lane)
        return 0

    def delivered(self, lane: FairLane, sizes: int) -> None:
        """Note that the lane at the front has delivered messages, and has more. `sizes` are their bytes, or their
        number if credit counts messages.
        """
        lane.credit = max(0, lane.credit - sizes)
        if not lane.credit and not self.rules.counts_bytes:
            lane.is_visited = False
            self._lanes.move_to_end(lane)
