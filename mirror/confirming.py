"""`Confirming`: which messages the whole ring has, and so may be confirmed (CL-74)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ..seams import seam
from ..store.queue.levels.level_tags import LEVEL_SHIFT

#: Closed ranges of numbers, ascending and disjoint.
Ranges = list[tuple[int, int]]


class Confirming:
    """A message is confirmed when two things are true, which become true in any order: it is safe at the master, and
    every mirror has it, on its disk if the message has to survive.
    """

    __slots__ = (
        "_durable",
        "_earlier",
        "_ringed",
        "_safe",
        "_transient",
        "highest_received",
        "highest_stored",
        "received",
        "stored",
    )

    def __init__(self) -> None:
        #: Publishes that wait for the ring: the position of their instruction, first number, last number. None before
        #: the first: an empty deque has 760 bytes, which ten thousand idle queues need not have.
        self._durable: deque[tuple[int, int, int]] | None = None
        self._transient: deque[tuple[int, int, int]] | None = None
        #: Numbers that are safe at the master and wait for the ring.
        self._safe: Ranges = []
        #: By level: messages below this number were published before the queue was mirrored.
        self._earlier: Mapping[int, int] = {}
        #: Numbers that the whole ring has and that are not safe at the master yet.
        self._ringed: Ranges = []
        #: The positions up to which all members that count have received the stream, and have stored it.
        self.received = self.stored = 0
        #: The highest positions on which confirms have relied: of transient messages, which all members must have
        #: received, and of persistent ones, which all must have stored.
        self.highest_received = self.highest_stored = 0

    def begin(self, ends: Mapping[int, int]) -> None:
        """Note that the queue is mirrored from now on. `ends` has, by level, the number that its next message gets: all
        messages before that are in no instruction, and some may not be safe at the master yet.
        """
        self._earlier = {level: end for level, end in ends.items() if end > level << LEVEL_SHIFT}

    def published(self, position: int, first: int, last: int, is_durable: bool) -> None:
        """Note messages, in the instruction at this position, for which a publisher awaits a confirm."""
        waiting = self._durable if is_durable else self._transient
        if waiting is None:
            waiting = deque()
            if is_durable:
                self._durable = waiting
            else:
                self._transient = waiting
        waiting.append((position, first, last))

    def needs_no_mirror(self, first: int, last: int) -> None:
        """Note that these messages are in no instruction, because no replica keeps them."""
        _add(self._ringed, first, last)

    @seam("replica: which publishes all members have")
    def reached(self, received: int, stored: int) -> None:
        """Note that all members that count have the stream up to here. A new member may have less than the others."""
        self.received, self.stored = received, stored

    @seam("replica: whether a learner has what was confirmed")
    def is_level(self, told: int) -> bool:
        """Whether all members that count have whatever was confirmed, and have received and stored the stream up to
        `told`.

        A learner has copied the messages that were confirmed before this master had a ring, or by an earlier master.
        They count as stored there up to a position before `told`, at which the copy had ended.
        """
        return self.received >= max(self.highest_received, told) and self.stored >= max(self.highest_stored, told)

    @property
    def is_waiting(self) -> bool:
        """Whether any publish waits for the ring."""
        return bool(self._durable or self._transient)

    @property
    def unsafe(self) -> int | None:
        """The first number that the whole ring has and that is not safe at the master; None if there is none."""
        return self._ringed[0][0] if self._ringed else None

    def drain(self, safe: Ranges, may_confirm: bool) -> Ranges:
        """The numbers that are confirmed now; `safe` are those that have become safe at the master."""
        for first, last in safe:
            _add(self._safe, first, last)
            end = self._earlier.get(first >> LEVEL_SHIFT, 0) if self._earlier else 0
            if first < end:
                self.needs_no_mirror(first, min(last, end - 1))
        if not may_confirm:
            return []
        self.highest_stored = max(self.highest_stored, self._reach(self._durable, self.stored))
        self.highest_received = max(self.highest_received, self._reach(self._transient, self.received))
        if not self._safe or not self._ringed:
            return []
        if self._safe == self._ringed:
            found, self._safe, self._ringed = self._safe, [], []
            return found
        found = _common(self._safe, self._ringed)
        self._safe, self._ringed = _without(self._safe, found), _without(self._ringed, found)
        return found

    def end(self) -> Ranges:
        """The numbers that are safe at the master and whose confirms need not wait for the ring any more, because the
        queue is not mirrored any more.
        """
        found, self._safe = self._safe, []
        return found

    def _reach(self, waiting: deque[tuple[int, int, int]] | None, reached: int) -> int:
        """Take out the publishes that the ring has; returns the highest position."""
        position = 0
        while waiting and waiting[0][0] <= reached:
            position, first, last = waiting.popleft()
            _add(self._ringed, first, last)
        return position


def _add(ranges: Ranges, first: int, last: int) -> None:
    """Add numbers, nearly always behind all others."""
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1] = (ranges[-1][0], last)
    elif not ranges or ranges[-1][1] < first:
        ranges.append((first, last))
    else:
        ranges.append((first, last))
        ranges.sort()


def _common(one: Ranges, other: Ranges) -> Ranges:
    found: Ranges = []
    at = 0
    for first, last in one:
        while at < len(other) and other[at][1] < first:
            at += 1
        place = at
        while place < len(other) and other[place][0] <= last:
            found.append((max(first, other[place][0]), min(last, other[place][1])))
            place += 1
    return found


def _without(ranges: Ranges, gone: Ranges) -> Ranges:
    """The ranges without those of `gone`, all of which are in them."""
    found: Ranges = []
    at = 0
    for first, last in ranges:
        while at < len(gone) and gone[at][0] <= last:
            if gone[at][0] > first:
                found.append((first, gone[at][0] - 1))
            first = gone[at][1] + 1
            at += 1
        if first <= last:
            found.append((first, last))
    return found
