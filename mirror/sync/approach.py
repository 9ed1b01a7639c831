"""`Approach`: whether a learner that copies a queue comes nearer to its end while clients publish (CL-89)."""

from __future__ import annotations

from ...store.queue.levels.level_tags import LEVEL_SHIFT, NUMBER_MASK

#: Seconds for which a learner may copy without coming nearer.
LAG_SECONDS = 30.0


class Approach:
    """How many numbers lie between a learner's cursor and the newest messages of the queue.

    The learner has the newest messages from the stream. A learner whose cursor stands still does not come nearer
    either, but that is not because of those who publish, and it does not lag.
    """

    __slots__ = ("_cursor", "_least", "_newest", "_since")

    def __init__(self) -> None:
        #: By level: the highest number that has come in the stream.
        self._newest: dict[int, int] = {}
        #: The least distance so far, when that was, and where the cursor was then. None before the first look.
        self._least: int | None = None
        self._since = 0.0
        self._cursor = 0

    def published(self, number: int) -> None:
        """Note that the message with this number has come in the stream."""
        self._newest[number >> LEVEL_SHIFT] = number & NUMBER_MASK

    def begin(self) -> None:
        """Note that the copy begins, or goes on after a pause."""
        self._least = None

    def lags(self, cursor: int, now: float) -> bool:
        """Whether the cursor has advanced for `LAG_SECONDS` without coming nearer. If so, these seconds begin anew."""
        distance = self._distance(cursor)
        if self._least is None or distance < self._least:
            self._least, self._since, self._cursor = distance, now, cursor
            return False
        if now - self._since < LAG_SECONDS:
            return False
        has_advanced = cursor > self._cursor
        self._since, self._cursor = now, cursor
        return has_advanced

    def _distance(self, cursor: int) -> int:
        level, number = cursor >> LEVEL_SHIFT, cursor & NUMBER_MASK
        ahead = [newest for each, newest in self._newest.items() if each > level]
        return sum(ahead) + max(0, self._newest.get(level, 0) - number)
