"""What a variable queue was given and has not said to be safe, and by what it becomes so.

A message is safe when its entry is, and its body if that is in the message store (QS-17). Entries become safe by **positions** of the journal, or, for what went
**directly** to segments, by the next synced flush; bodies by positions of the persistent store. What is consumed and acked meanwhile is confirmed by the same
positions, so each number once (QS-18).
"""

from __future__ import annotations

from collections import deque


class Unconfirmed:
    """See the module. Numbers are told in closed ranges."""

    __slots__ = (
        "_direct_in_flush",
        "_in_flush",
        "_safe",
        "_unflushed",
        "_waiting",
        "direct",
        "direct_safe",
        "is_flush_direct",
        "journal_durable",
        "store_durable",
        "wants_sync",
    )

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, int, int]] = deque()  # first, last, positions in journal and store
        self._unflushed: list[tuple[int, int]] = []
        self._in_flush: list[tuple[int, int]] = []
        self._direct_in_flush = 0
        self._safe: list[tuple[int, int]] = []
        self.journal_durable = self.store_durable = 0
        """Everything up to these positions is on disk."""
        self.wants_sync = self.is_flush_direct = False
        """Something waits for a synced flush; the flush under way is one for which something waits."""
        self.direct = self.direct_safe = 0
        """Messages that ever went directly to segments, and how many of them have got there: the owner bounds the difference."""

    def journaled(self, first: int, last: int, journal_position: int, store_position: int) -> None:
        """These wait for the journal and, unless that is 0, for the store."""
        self._waiting.append((first, last, journal_position, store_position))

    def went_directly(self, first: int, last: int, confirm: bool) -> None:
        """These wait for a flush."""
        self.wants_sync = True
        self.direct += last - first + 1
        if confirm:
            self._unflushed.append((first, last))

    def is_safe(self, first: int, last: int) -> None:
        """These need not wait for anything."""
        safe = self._safe
        if safe and safe[-1][1] == first - 1:
            safe[-1] = (safe[-1][0], last)
        else:
            safe.append((first, last))

    def flush_taken(self) -> None:
        """The next flush covers all that waits for one."""
        self.is_flush_direct, self.wants_sync = self.wants_sync, False
        self._in_flush, self._unflushed = self._unflushed, []
        self._direct_in_flush = self.direct

    def flush_done(self) -> None:
        """It is on disk; or there was none, as what waited has been acked."""
        self.is_flush_direct = False
        self._waiting.extend((first, last, 0, 0) for first, last in self._in_flush)
        self._in_flush = []
        self.direct_safe = self._direct_in_flush

    def drain(self) -> list[tuple[int, int]]:
        """What has become safe since the last call."""
        waiting = self._waiting
        while waiting and waiting[0][2] <= self.journal_durable and waiting[0][3] <= self.store_durable:
            first, last, _, _ = waiting.popleft()
            self.is_safe(first, last)
        safe, self._safe = self._safe, []
        return safe
