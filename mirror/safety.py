"""`Safety`: up to which position of the stream everything is safe on the disk of a mirror."""

from __future__ import annotations

from collections import deque


class Safety:
    """See the module. Positions are those of instructions in the stream."""

    __slots__ = ("_waiting", "position")

    def __init__(self) -> None:
        self.position = 0
        #: Runs that wait for the disk: the position of their instruction, first and last number. None before the first,
        #: because an empty deque has 760 bytes.
        self._waiting: deque[tuple[int, int, int]] | None = None

    def took(self, position: int, first: int, last: int) -> None:
        """Note a run that has to be on the disk before this position counts as safe."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((position, first, last))

    def reached(self, last: int, safe: list[tuple[int, int]]) -> int:
        """Note that these numbers are safe. Returns the position up to which all instructions are, at most `last`."""
        for low, high in safe:
            waiting = self._waiting
            while waiting and low <= waiting[0][1] and waiting[0][2] <= high:
                waiting.popleft()
            if waiting:
                self._shrink(low, high)
        self.position = self._waiting[0][0] - 1 if self._waiting else last
        return self.position

    def _shrink(self, low: int, high: int) -> None:
        """Take out numbers that are not a whole run at the front: those of another level, or a part of a run."""
        rest: deque[tuple[int, int, int]] = deque()
        for position, first, last in self._waiting or ():
            if high < first or last < low:
                rest.append((position, first, last))
                continue
            if first < low:
                rest.append((position, first, low - 1))
            if high < last:
                rest.append((position, high + 1, last))
        self._waiting = rest
