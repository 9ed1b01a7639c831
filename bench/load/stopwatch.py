"""What a client did in one measurement: its messages, and how its process spent the time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple


class ClientFigures(NamedTuple):
    """What one client did in one turn."""

    messages: int
    wall: float
    processor: float
    #: Seconds in which the process could run and had no core.
    coreless: float

    @property
    def rate(self) -> float:
        return self.messages / self.wall if self.wall else 0.0

    @property
    def share(self) -> float:
        return self.processor / self.wall if self.wall else 0.0

    @property
    def coreless_share(self) -> float:
        return self.coreless / self.wall if self.wall else 0.0


class Stopwatch:
    """Wall and CPU time of this process, which must have one thread, since the stopwatch was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._processor = time.process_time()
        self._coreless = coreless_seconds()

    def figures(self, messages: int) -> ClientFigures:
        return ClientFigures(
            messages,
            time.perf_counter() - self._wall,
            time.process_time() - self._processor,
            coreless_seconds() - self._coreless,
        )

    def passed(self, seconds: float) -> bool:
        return time.perf_counter() - self._wall >= seconds


def coreless_seconds() -> float:
    """The time that the main thread has waited for a core; 0 where the kernel does not count it."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
