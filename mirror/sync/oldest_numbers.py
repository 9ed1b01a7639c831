"""`OldestNumbers`: whether a queue has messages that are older than a learner that waits (CL-83)."""

from __future__ import annotations

from collections.abc import Iterable

#: Seconds between the first two requests for the oldest numbers, and between any two. Each takes twice as long as the
#: one before.
SECONDS = 1.0
SECONDS_MOST = 30.0


class OldestNumbers:
    """What a learner that waits knows of the numbers of its queue."""

    __slots__ = ("_began_at", "_look_at", "_seconds")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Note that the learner begins to wait."""
        #: By level, the number that the next message would have got then; None before the first answer.
        self._began_at: dict[int, int] | None = None
        #: When it asks for the oldest numbers again, and the seconds from then to the next time.
        self._look_at, self._seconds = 0.0, SECONDS

    def is_due(self, now: float) -> bool:
        """Whether to ask for the oldest numbers now."""
        if now < self._look_at:
            return False
        self._look_at = now + self._seconds
        self._seconds = min(self._seconds * 2, SECONDS_MOST)
        return True

    def are_young(self, levels: Iterable[tuple[int, int, int]]) -> bool:
        """Whether every message in the queue was published after the learner began to wait. `levels` has each level of
        the queue, its oldest number, and the one that its next message gets.
        """
        levels = list(levels)
        if self._began_at is None:
            self._began_at = {level: following for level, _, following in levels}
        # A level that did not exist then has no older message.
        return all(oldest >= self._began_at.get(level, 0) for level, oldest, _ in levels)
