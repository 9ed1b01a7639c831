"""`LaneLengths`: the lanes of a queue by how many ready messages they have.

Length limits ask for the longest lane with each message, and a queue may have 65,536 lanes. So lanes of one length are
in one bucket, and the lengths that there are in one sorted list. N messages in lanes have at most √2N different
lengths, so a change costs a bisection and the move of a short list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

from .lanes import FairLane


class LaneLengths:
    """See the module."""

    __slots__ = ("_by_length", "_lengths")

    def __init__(self) -> None:
        #: Not plain dicts: a dict from whose end many were removed is slow to find its last.
        self._by_length: dict[int, OrderedDict[FairLane, None]] = {}
        self._lengths: list[int] = []

    def changed(self, lane: FairLane, before: int) -> None:
        """Note that the lane had `before` ready messages, and has another number now."""
        after = lane.numbers.count
        if before:
            bucket = self._by_length[before]
            del bucket[lane]
            if not bucket:
                del self._by_length[before]
                del self._lengths[bisect_left(self._lengths, before)]
        if after:
            bucket = self._by_length.get(after) or self._add(after)
            bucket[lane] = None

    def _add(self, length: int) -> OrderedDict[FairLane, None]:
        insort(self._lengths, length)
        bucket = self._by_length[length] = OrderedDict()
        return bucket

    def longest(self) -> tuple[FairLane, int] | None:
        """The longest lane, and how many ready messages the second longest has; None if no lane has any. Of lanes of
        one length it is the one that got this length last, such as by the message for which another one is dropped.
        """
        if not self._lengths:
            return None
        length = self._lengths[-1]
        bucket = self._by_length[length]
        if len(bucket) == 1:
            length = self._lengths[-2] if len(self._lengths) > 1 else 0
        return next(reversed(bucket)), length

    def __iter__(self) -> Iterator[FairLane]:
        """The lanes with ready messages, the longest first."""
        return (lane for length in reversed(self._lengths) for lane in self._by_length[length])
