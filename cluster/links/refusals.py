"""`Refusals`: who was refused lately, so that nobody can fill the log or try out secrets quickly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

#: After so many refusals within `WINDOW` seconds a host waits `WAIT` seconds (CL-8).
MOST, WINDOW, WAIT = 5, 60.0, 5.0

#: Most hosts that are remembered; the one that was refused longest ago is forgotten first.
MOST_HOSTS = 1_024


class Refusals:
    """By host: when it was refused, and the last reason."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._times: dict[str, deque[float]] = {}
        self._logged: dict[str, tuple[str, float]] = {}

    def add(self, host: str, sentence: str) -> bool:
        """Note a refusal. Returns whether it should be logged: not if it was, with the same sentence, lately."""
        now = self._now()
        times = self._times.pop(host, None) or deque(maxlen=MOST)
        times.append(now)
        self._times[host] = times
        last, at = self._logged.pop(host, ("", 0.0))
        is_new = sentence != last or now - at >= WINDOW
        self._logged[host] = (sentence, now if is_new else at)
        if len(self._times) > MOST_HOSTS:
            oldest = next(iter(self._times))
            del self._times[oldest], self._logged[oldest]
        return is_new

    def is_waiting(self, host: str) -> bool:
        """Whether connections of this host are closed at once now."""
        times = self._times.get(host)
        now = self._now()
        return times is not None and len(times) == MOST and now - times[0] < WINDOW and now - times[-1] < WAIT
