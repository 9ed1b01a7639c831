"""The publishes of a variable queue that wait for their confirm, and the disk writes that each of them waits for.

A message is safe when its index entry is on disk, and its body too if that is in the message store (QS-17). An entry
is on disk when the journal has synced up to its **position**, or, if the entry went **directly** to a segment, when
the next synced flush is done. A body is on disk when the persistent store has written up to its position.

A message that is acked before that is safe at once if no earlier message waits: its consumer has it, so it need not
reach the disk. So publishers to a queue whose consumers keep up do not wait for the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ....seams import seam


class Unconfirmed:
    """See the module. Ranges of numbers are closed: (first, last)."""

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
        "needs_sync",
    )

    def __init__(self) -> None:
        # First, last, and the positions in journal and store; the numbers ascend. None before the first, because an
        # empty deque takes 760 bytes.
        self._waiting: deque[tuple[int, int, int, int]] | None = None
        self._unflushed: list[tuple[int, int]] = []
        self._in_flush: Sequence[tuple[int, int]] = ()
        self._direct_in_flush = 0
        self._safe: list[tuple[int, int]] = []
        #: The positions up to which all records of the journal, and all writes to the store, are on disk.
        self.journal_durable = self.store_durable = 0
        #: Whether a publish waits for a synced flush that has not begun.
        self.needs_sync = False
        #: Whether a publish waits for the flush under way.
        self.is_flush_direct = False
        #: How many messages ever went directly to segments, and how many of these are on disk. The owner bounds the
        #: difference.
        self.direct = self.direct_safe = 0

    def journaled(self, first: int, last: int, journal_position: int, store_position: int) -> None:
        """Have these numbers wait for the journal and, unless `store_position` is 0, for the store."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((first, last, journal_position, store_position))

    def went_directly(self, first: int, last: int, confirm: bool) -> None:
        """Have these numbers, whose entries went directly to a segment, wait for the next flush."""
        self.needs_sync = True
        self.direct += last - first + 1
        if confirm:
            self._unflushed.append((first, last))

    def is_safe(self, first: int, last: int) -> None:
        """Note that these numbers are safe."""
        safe = self._safe
        if safe and safe[-1][1] == first - 1:
            safe[-1] = (safe[-1][0], last)
        else:
            safe.append((first, last))

    def flush_taken(self) -> None:
        """Note that a flush begins; it covers every number that waits for one."""
        self.is_flush_direct, self.needs_sync = self.needs_sync, False
        self._in_flush, self._unflushed = self._unflushed, []
        self._direct_in_flush = self.direct

    def flush_done(self) -> None:
        """Note that the flush is on disk, or that none was needed because every waiting message was acked."""
        self.is_flush_direct = False
        for first, last in self._in_flush:
            self.is_safe(first, last)
        self._in_flush = ()
        self.direct_safe = self._direct_in_flush

    def acked(self, first: int, last: int) -> None:
        """Note that the messages with these numbers were acked, so those of them before all waiting ones are safe.

        The others continue to wait: several consumers acknowledge out of order, and single confirms would cost the
        publishers more than the wait does.
        """
        waiting = self._waiting
        while waiting and first <= waiting[0][0] <= last:
            start, end, journal_position, store_position = waiting.popleft()
            if end > last:
                waiting.appendleft((last + 1, end, journal_position, store_position))
                end = last
            self.is_safe(start, end)

    @property
    def is_waiting(self) -> bool:
        """Whether some numbers wait for the disk."""
        return bool(self._waiting or self._unflushed or self._in_flush or self.direct != self.direct_safe)

    @seam("which publishes are safe")
    def drain(self) -> list[tuple[int, int]]:
        """The ranges that have become safe since the last call."""
        waiting = self._waiting
        while waiting and waiting[0][2] <= self.journal_durable and waiting[0][3] <= self.store_durable:
            first, last, _, _ = waiting.popleft()
            self.is_safe(first, last)
        safe, self._safe = self._safe, []
        return safe
