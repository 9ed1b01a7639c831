"""`RestartIntensity`: how often a process may be restarted before its supervisor gives up."""

from __future__ import annotations

#: A queue is restarted at most `MAX_RESTARTS` times in `MAX_SECONDS` seconds. After that it stays down.
MAX_RESTARTS = 5
MAX_SECONDS = 10.0


class RestartIntensity:
    """The restarts of one process: at most `MAX_RESTARTS` in any `MAX_SECONDS`."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        # A tuple, because an empty one takes no memory, and nearly every queue has an empty one.
        self._times: tuple[float, ...] = ()

    def allows(self, now: float) -> bool:
        """Count a restart at `now` (monotonic seconds); return False if it is one too many."""
        self._times = tuple(time for time in self._times if time > now - MAX_SECONDS)
        if len(self._times) >= MAX_RESTARTS:
            return False
        self._times += (now,)
        return True
