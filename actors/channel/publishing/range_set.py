"""`RangeSet`: publish numbers as closed ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

#: A closed range of publish numbers.
Range = tuple[int, int]


class RangeSet:
    """A set of integers as closed ranges: sorted, disjoint and merged.

    Every operation costs O(log n + ranges touched) plus a list move.
    """

    __slots__ = ("_ranges",)

    def __init__(self, *ranges: Range) -> None:
        self._ranges: list[Range] = list(ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def __len__(self) -> int:
        """How many integers are in the set."""
        return sum(last - first + 1 for first, last in self._ranges)

    @property
    def smallest(self) -> int | None:
        return self._ranges[0][0] if self._ranges else None

    def add(self, first: int, last: int) -> None:
        ranges = self._ranges
        if not ranges or first > ranges[-1][1] + 1:
            ranges.append((first, last))
            return
        at = bisect_right(ranges, (first,))
        if at and ranges[at - 1][1] >= first - 1:
            at -= 1
        end = at
        while end < len(ranges) and ranges[end][0] <= last + 1:
            first, last = min(first, ranges[end][0]), max(last, ranges[end][1])
            end += 1
        ranges[at:end] = [(first, last)]

    def discard(self, first: int, last: int) -> list[Range]:
        """Remove the integers of [first, last] that are in the set; return them as ranges."""
        ranges = self._ranges
        if ranges and ranges[0] == (first, last):
            return [ranges.pop(0)]  # the oldest range as a whole: the only case if one message is confirmed at a time
        at = bisect_right(ranges, (first,))
        if at and ranges[at - 1][1] >= first:
            at -= 1
        end, removed, left = at, [], []
        while end < len(ranges) and ranges[end][0] <= last:
            low, high = ranges[end]
            removed.append((max(low, first), min(high, last)))
            if low < first:
                left.append((low, first - 1))
            if high > last:
                left.append((last + 1, high))
            end += 1
        if removed:
            ranges[at:end] = left
        return removed

    def within(self, first: int, last: int) -> list[Range]:
        """The integers of [first, last] that are in the set, as ranges."""
        ranges = self._ranges
        at = bisect_right(ranges, (first,))
        if at and ranges[at - 1][1] >= first:
            at -= 1
        found = []
        while at < len(ranges) and ranges[at][0] <= last:
            found.append((max(ranges[at][0], first), min(ranges[at][1], last)))
            at += 1
        return found

    def clear(self) -> None:
        self._ranges.clear()
