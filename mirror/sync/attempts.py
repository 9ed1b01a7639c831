"""`Attempts`: whether the parts of a queue come for which a learner asks, and when it asks again (CL-90)."""

from __future__ import annotations

#: After so many attempts without progress a learner pauses for `PAUSE_SECONDS`.
ATTEMPTS = 5
PAUSE_SECONDS = 60.0


class Attempts:
    """Whether a learner gets the parts of its queue for which it asks, and how often it has begun to ask anew."""

    __slots__ = ("_since", "count")

    def __init__(self) -> None:
        #: When it began to wait for the next part; None while it waits for none.
        self._since: float | None = None
        #: How many attempts in a row have brought nothing.
        self.count = 0

    def begin(self, now: float) -> None:
        """Note that the learner asks for a part."""
        if self._since is None:
            self._since = now

    def pause(self) -> None:
        """Note that the learner asks for nothing now. If nothing comes meanwhile, the other replica is not to blame."""
        self._since = None

    def came(self) -> None:
        """Note that a part has come."""
        self._since, self.count = None, 0

    def has_failed(self, now: float, seconds: float) -> bool:
        """Whether no part has come for so many seconds. Then another attempt begins."""
        if self._since is None or now - self._since < seconds:
            return False
        self._since = None
        self.count += 1
        return True

    @property
    def pause_seconds(self) -> float:
        """The seconds until the next attempt."""
        return PAUSE_SECONDS if self.count and self.count % ATTEMPTS == 0 else 0.0
