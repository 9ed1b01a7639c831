"""`Refusals`: the hosts that were refused lately, so that none can fill the log or try out secrets quickly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

#: After this many refusals within `WINDOW` seconds a host waits `WAIT` seconds (CL-8).
MOST, WINDOW, WAIT = 5, 60.0, 5.0

#: Most hosts that are remembered; the one that was refused longest ago is forgotten first.
MOST_HOSTS = 1_024


class Refusals:
    """Records for each host when it was refused, and what was logged about it last."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._times: dict[str, deque[float]] = {}
        self._logged: dict[str, tuple[str, float]] = {}

    def add(self, host: str) -> None:
        """Note that a connection of this host has not proved that it knows the secret."""
        times = self._times.pop(host, None) or deque(maxlen=MOST)
        times.append(self._now())
        self._times[host] = times
        if len(self._times) > MOST_HOSTS:
            del self._times[next(iter(self._times))]

    def is_waiting(self, host: str) -> bool:
        """Whether connections of this host are closed at once now."""
        times = self._times.get(host)
        now = self._now()
        return times is not None and len(times) == MOST and now - times[0] < WINDOW and now - times[-1] < WAIT

    def is_news(self, host: str, sentence: str) -> bool:
        """Whether this refusal should be logged: not if the same one was, less than `WINDOW` seconds ago."""
        now = self._now()
        last, at = self._logged.pop(host, ("", 0.0))
        is_news = sentence != last or now - at >= WINDOW
        self._logged[host] = (sentence, now if is_news else at)
        if len(self._logged) > MOST_HOSTS:
            del self._logged[next(iter(self._logged))]
        return is_news
