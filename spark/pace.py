"""`RowPace`: when rows may be published so that there are so many in a second."""

from __future__ import annotations

import threading

#: Seconds of the rate that a publisher sends together, so that a high rate does not cost a call for each row.
TOGETHER = 0.002
#: The most seconds of a delay that are made up for, and how many times as fast as the rate that is done. So a delay
#: does not become a burst, and any 5 s have the rate within 5%, if no delay is longer (SP-97).
CATCH_UP, FASTER = 0.25, 1.25


class RowPace:
    """Divides the time among rows that are published at one rate. Several threads may share it.

    together    how many rows a publisher asks for at a time, at most
    """

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self.together = max(1, int(rate * TOGETHER))
        self._lock = threading.Lock()
        #: When the next rows are due at the rate, and when they are due at the rate of catching up.
        self._due: float | None = None
        self._earliest = 0.0

    def due(self, rows: int, now: float) -> float:
        """The time from which the next rows may be sent. The caller waits until then, and sends them."""
        with self._lock:
            self._due = now if self._due is None else max(self._due, now - CATCH_UP)
            begin = max(self._due, self._earliest, now)
            self._due += rows * self._interval
            self._earliest = begin + rows * self._interval / FASTER
            return begin
