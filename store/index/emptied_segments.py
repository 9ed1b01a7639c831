"""`EmptiedSegments`: the segments whose file has no un-acked entry left, until the file may be removed.

The journal first records that the file will be removed, as a size of 0. The file stays until that record is durable:
a start that found neither the file nor the record would count the entries of the file as lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from .log import IndexLog
from .segment import Segment


class EmptiedSegments:
    """The emptied segments of one queue. `queue` is its number in the journal, `segments` are all segments of its
    index.
    """

    __slots__ = ("_log", "_positions", "_queue", "_segments")

    def __init__(self, queue: int, log: IndexLog, segments: Mapping[int, Segment]) -> None:
        self._queue = queue
        self._log = log
        self._segments = segments
        #: By segment: the position of the record that the file will be removed.
        self._positions: dict[int, int] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._positions

    def note(self, number: int) -> None:
        """Note that the file of a segment has no un-acked entry left."""
        if number not in self._positions:
            self._positions[number] = self._log.sizes(self._queue, {number: 0})

    def drop(self, number: int) -> None:
        """Note that the file of a segment gets entries again, so that it stays."""
        self._positions.pop(number, None)

    @property
    def are_removable(self) -> bool:
        """Whether any file may be removed now."""
        return bool(self._positions) and min(self._positions.values()) <= self._log.durable

    @property
    def are_damaged(self) -> bool:
        """Whether any of the files is damaged. A damaged file without un-acked entries is not rewritten, but removed
        once the journal has synced. If it stayed, `store verify` and the next start would report its damage again.
        """
        return any(self._segments[number].is_damaged for number in self._positions if number in self._segments)

    def take(self) -> list[int]:
        """Remove and return the segments whose files may be removed now."""
        durable = self._log.durable
        ripe = [number for number, position in self._positions.items() if position <= durable]
        for number in ripe:
            del self._positions[number]
        return sorted(number for number in ripe if number in self._segments and not self._segments[number].unacked)

    def clear(self) -> None:
        self._positions.clear()
