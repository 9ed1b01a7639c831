"""`BroadcastTimes`: how long the ring of one queue takes to bring what its master sends to all members (CM-375)."""

from __future__ import annotations

from collections.abc import Callable

from ..actors.statistics.histograms import Histogram


class BroadcastTimes:
    """Measures one broadcast at a time, from the turn in which the master sends it until all members have it."""

    __slots__ = ("_began", "_histogram", "_now", "_position")

    def __init__(self, histogram: Histogram, now: Callable[[], float]) -> None:
        self._histogram = histogram
        self._now = now
        #: The position of the broadcast that is measured, and when it began; 0 if none is.
        self._position, self._began = 0, 0.0

    def sent(self, position: int) -> int:
        """Note a broadcast that ends with this position, which is returned."""
        if not self._position:
            self._position, self._began = position, self._now()
        return position

    def reached(self, position: int) -> None:
        """Note that all members that count have received the stream up to here."""
        if self._position and position >= self._position:
            self._histogram.observe(self._now() - self._began)
            self._position = 0
