"""`Latencies`: a histogram of latencies with buckets of less than 2 % of their value."""

from __future__ import annotations

from collections.abc import Iterable

#: Significant bits that a bucket keeps of a latency.
BITS = 7

PERCENTILES = (0.0, 0.5, 0.75, 0.95, 0.99, 0.999)


class Latencies:
    """How many latencies fell into each bucket. Values are nanoseconds."""

    __slots__ = ("_counts", "count", "largest")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.largest = 0

    def add(self, nanoseconds: int, weight: int = 1) -> None:
        """Count `weight` equal latencies."""
        value = max(nanoseconds, 0)
        shift = max(value.bit_length() - BITS, 0)
        low = value >> shift << shift
        self._counts[low] = self._counts.get(low, 0) + weight
        self.count += weight
        self.largest = max(self.largest, value)

    def merge(self, other: Latencies) -> None:
        for low, count in other._counts.items():
            self._counts[low] = self._counts.get(low, 0) + count
        self.count += other.count
        self.largest = max(self.largest, other.largest)

    def clear(self) -> None:
        self._counts.clear()
        self.count = self.largest = 0

    def percentiles(self, shares: Iterable[float] = PERCENTILES) -> list[int]:
        """For each share the latency that this share of all does not exceed, exact to 2 %; 0 if there are none."""
        ordered = sorted(self._counts.items())
        found = []
        for share in shares:
            wanted, seen = share * self.count, 0
            found.append(0)
            for value, count in ordered:
                seen += count
                found[-1] = value
                if seen >= wanted:
                    break
        return found

    def buckets(self, rows: int) -> list[tuple[int, int, int]]:
        """At most `rows` ranges of doubling size, each as its ends and how many latencies are in it."""
        doubling: dict[int, int] = {}
        for low, count in self._counts.items():
            doubling[low.bit_length()] = doubling.get(low.bit_length(), 0) + count
        if not doubling:
            return []
        first, last = min(doubling), max(doubling)
        first = max(first, last - rows + 1)
        kept = {bits: 0 for bits in range(first, last + 1)}
        for bits, count in doubling.items():
            kept[max(bits, first)] += count
        return [((1 << bits) >> 1, 1 << bits, count) for bits, count in kept.items()]
