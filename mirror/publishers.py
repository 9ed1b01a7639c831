"""`Publishers`: which publishes a replica has taken, of those that channels may ask for; `Reclaims`: who asks.

When the master of a queue dies, channels do not know what has become of the publishes that it has not answered. The
new master does: what it has taken is in the queue, and nobody has the rest (CL-95). So every replica remembers who
published what, until the master has confirmed it and said so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ..seams import seam
from ..store.messages.parts import Part
from .confirming import Confirming

#: Closed ranges of publish numbers.
Ranges = list[tuple[int, int]]


class Publishers:
    """The publishes in the instructions behind a position."""

    __slots__ = ("_last", "_taken")

    def __init__(self) -> None:
        #: The position of the last instruction that was noted.
        self._last = 0
        #: The position of an instruction, and the parts of its run for which a channel awaits confirms.
        self._taken: deque[tuple[int, list[Part]]] = deque()

    def took(self, position: int, parts: Iterable[Part]) -> None:
        """A run with these parts is in the instruction at this position. It may have been noted before."""
        if position <= self._last:
            return
        self._last = position
        awaiting = [part for part in parts if part[3]]
        if awaiting:
            self._taken.append((position, awaiting))

    def confirmed(self, position: int) -> None:
        """The publishers have got their confirms for everything up to this position."""
        while self._taken and self._taken[0][0] <= position:
            self._taken.popleft()

    @seam("cluster: which publishes a new master has")
    def of(self, channel_id: str, asked: Sequence[tuple[int, int]]) -> Ranges:
        """The publishes of this channel in the ranges `asked` that were taken."""
        found: Ranges = []
        for _, parts in self._taken:
            for publisher, first, count, _ in parts:
                if publisher == channel_id:
                    found += [
                        (max(first, low), min(first + count - 1, high))
                        for low, high in asked
                        if low < first + count and first <= high
                    ]
        return found


class Reclaims:
    """The questions of channels to a new master, which are answered when what it had taken is safe on all members."""

    __slots__ = ("_asked", "_begin", "_is_safe", "publishers")

    def __init__(self) -> None:
        self.publishers = Publishers()
        #: The position of the last instruction that this replica took as a mirror; -1 before it is the master.
        self._begin = -1
        self._is_safe = False
        #: Whose questions wait: the channel, its ranges, and how to answer.
        self._asked: list[tuple[str, list[tuple[int, int]], Callable[[Ranges], None]]] = []

    def begin(self, position: int) -> None:
        """This replica is the master, and has taken everything up to this position as a mirror."""
        self._begin = position

    def is_safe(self, position: int) -> None:
        """Everything up to this position is safe here."""
        self._is_safe = position >= self._begin

    def ask(self, channel_id: str, ranges: list[tuple[int, int]], reply: Callable[[Ranges], None]) -> None:
        self._asked.append((channel_id, ranges, reply))

    def answer(self, confirming: Confirming) -> bool:
        """Answer what can be answered by now. Return whether what this replica took as a mirror is safe everywhere."""
        is_complete = self._is_safe and min(confirming.received, confirming.stored) >= self._begin
        if self._asked and is_complete:
            asked, self._asked = self._asked, []
            for channel_id, ranges, reply in asked:
                reply(self.publishers.of(channel_id, ranges))
        return is_complete
