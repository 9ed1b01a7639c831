"""`Utilisation`: the share of the time in which a queue could have delivered at once (`consumer_utilisation`).

The queue is *held back* from when messages are ready and no consumer can take one until a consumer can. The share is a
moving average, computed as RabbitMQ does: what happened in the last second replaces the earlier average. A queue pays
for it only when it begins or ceases to be held back.
"""

from __future__ import annotations

from collections.abc import Callable

#: Seconds after which new measurements replace the earlier average wholly; a shorter time gets a weight in proportion.
FULL_WEIGHT = 1.0


class Utilisation:
    """See the module. `now` gives monotonic seconds."""

    __slots__ = ("_active", "_average", "_now", "_since", "is_held_back")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()
        #: While the queue is held back: for how many seconds before `_since` it was not. 0 while it is not held back.
        self._active = 0.0
        self._average = 1.0
        self.is_held_back = False

    def hold_back(self) -> None:
        """Note that no consumer can take the messages that are ready."""
        if not self.is_held_back:
            now = self._now()
            self.is_held_back = True
            self._active, self._since = now - self._since, now

    def let_go(self) -> None:
        """Note that a consumer can take a message again."""
        if self.is_held_back:
            now = self._now()
            self._average = _average(self._active, now - self._since, self._average)
            self.is_held_back = False
            self._active, self._since = 0.0, now

    def value(self) -> float:
        """The share, from 0.0 to 1.0."""
        elapsed = self._now() - self._since
        if self.is_held_back:
            return _average(self._active, elapsed, self._average)
        return _average(elapsed, 0.0, self._average)


def _average(active: float, held_back: float, before: float) -> float:
    seconds = active + held_back
    if seconds <= 0:
        return before
    weight = min(1.0, seconds / FULL_WEIGHT)
    return active / seconds * weight + before * (1 - weight)
