"""Publishes whose confirm waits until their message is safe: the backing queue's numbers on one side, the channels' publish numbers on the other."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

Range = tuple[int, int]
_Entry = tuple[int, int, str, int]  # first and last number in the queue, channel, its publish number for the first


class AwaitingConfirms:
    """Sorted, disjoint runs; numbers arrive almost always in order, so adding is an append."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, tags: range, channel_id: str, publish_number: int) -> None:
        entry = (tags[0], tags[-1], channel_id, publish_number)
        if self._entries and self._entries[-1][0] > tags[0]:
            insort(self._entries, entry)  # only a priority queue numbers out of order
        else:
            self._entries.append(entry)

    def safe(self, ranges: Iterable[Range]) -> dict[str, list[Range]]:
        """Takes out the numbers in `ranges`; returns each channel's publish numbers among them. Numbers nobody waits for are skipped."""
        confirmed: dict[str, list[Range]] = {}
        entries = self._entries
        for first, last in ranges:
            at = bisect_right(entries, (first, 1 << 127))
            if at and entries[at - 1][1] >= first:
                at -= 1
            end, rest = at, []
            while end < len(entries) and entries[end][0] <= last:
                low, high, channel_id, number = entries[end]
                a, b = max(low, first), min(high, last)
                confirmed.setdefault(channel_id, []).append((number + a - low, number + b - low))
                if low < a:
                    rest.append((low, a - 1, channel_id, number))
                if high > b:
                    rest.append((b + 1, high, channel_id, number + b + 1 - low))
                end += 1
            if end > at:
                entries[at:end] = rest
        return confirmed

    def drop_channel(self, channel_id: str) -> None:
        """The channel is gone: nobody wants to hear of its publishes."""
        if any(entry[2] == channel_id for entry in self._entries):
            self._entries = [entry for entry in self._entries if entry[2] != channel_id]
