"""`LoadCounts` and `Statistics`: what the producers and consumers of a test have done, in an interval and in all."""

from __future__ import annotations

from dataclasses import dataclass, field

from .latencies import Latencies


@dataclass(slots=True)
class LoadCounts:
    """The messages sent, confirmed, nacked, returned and received in a period of time, and their latencies."""

    sent: int = 0
    confirmed: int = 0
    nacked: int = 0
    returned: int = 0
    received: int = 0
    consumer_latency: Latencies = field(default_factory=Latencies)
    confirm_latency: Latencies = field(default_factory=Latencies)

    def merge(self, other: LoadCounts) -> None:
        self.sent += other.sent
        self.confirmed += other.confirmed
        self.nacked += other.nacked
        self.returned += other.returned
        self.received += other.received
        self.consumer_latency.merge(other.consumer_latency)
        self.confirm_latency.merge(other.confirm_latency)


class Statistics:
    """The counts of the interval that runs, and those of all intervals that have ended. Times are in seconds."""

    def __init__(self) -> None:
        self.started = self._interval_started = 0.0
        self.current = LoadCounts()
        self.total = LoadCounts()
        #: For each interval: its end since the start, and its rates of sending and receiving.
        self.rates: list[tuple[float, float, float]] = []

    def begin(self, now: float) -> None:
        self.started = self._interval_started = now

    def end_interval(self, now: float) -> tuple[LoadCounts, float]:
        """Return the counts of the interval that ends now, and its length."""
        counts, self.current = self.current, LoadCounts()
        seconds = now - self._interval_started
        self._interval_started = now
        self.total.merge(counts)
        if seconds > 0:
            self.rates.append((now - self.started, counts.sent / seconds, counts.received / seconds))
        return counts, seconds
