"""Smoothed rates of a queue (queue-and-store section 4.7): messages in and out, pending acks in and out.

At an update `dt` seconds after the last one, with `w = 0.5 ** (dt / 5)`: `rate = (count / dt) * (1 - w) + rate * w`.
"""

from __future__ import annotations

from collections.abc import Callable

#: Seconds of traffic: no limit, or the duration of an idle queue.
INFINITE = float("inf")

#: Seconds after which an old rate has half its weight.
HALF_LIFE = 5.0
#: Messages per second; a queue with only smaller rates is idle.
IDLE_BELOW = 0.01


class Rates:
    """Four counters, and the rates computed from them at each update. `clock` gives monotonic seconds."""

    __slots__ = ("_clock", "_last", "into", "out", "acks_into", "acks_out", "rates")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self.into = self.out = self.acks_into = self.acks_out = 0
        self.rates = (0.0, 0.0, 0.0, 0.0)

    def update(self) -> None:
        now = self._clock()
        elapsed = now - self._last
        if elapsed <= 0:
            return
        weight = 0.5 ** (elapsed / HALF_LIFE)
        counts = (self.into, self.out, self.acks_into, self.acks_out)
        self.rates = tuple(
            count / elapsed * (1 - weight) + rate * weight for count, rate in zip(counts, self.rates, strict=True)
        )
        self.into = self.out = self.acks_into = self.acks_out = 0
        self._last = now

    @property
    def is_idle(self) -> bool:
        return all(rate < IDLE_BELOW for rate in self.rates)
