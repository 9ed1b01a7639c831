"""`ReadSize`: how much to read from a socket at a time. A large buffer is worth its cost only if a client fills it."""

from __future__ import annotations

#: The bounds of a read, in bytes. What one read brings goes through channel and queue in about eight turns of
#: processes, however much it is. So with 512 KiB a message of 1 KB costs 5 % less processor time than with 256 KiB, and
#: with 128 KiB a third more. 1 MiB is no better than 512 KiB.
READ_MIN, READ_MAX = 16 * 1024, 512 * 1024

#: Reads in a row that use less than a quarter of the buffer before the buffer is halved.
SMALL_READS = 8


class ReadSize:
    """The `size` of the next read: it doubles when a read fills the buffer, and halves after several small reads.

    The connection calls `adapt` after a read that filled the buffer, and after each read while the buffer is larger
    than `READ_MIN`: no other read changes anything.
    """

    __slots__ = ("_small_reads", "size")

    def __init__(self) -> None:
        self.size = READ_MIN
        self._small_reads = 0

    def adapt(self, received: int) -> None:
        """Adapt the size to a read that has returned `received` bytes."""
        if received == self.size:
            self.size = min(READ_MAX, received * 2)
        elif received < self.size // 4:
            self._small_reads += 1
            if self._small_reads < SMALL_READS:
                return
            self.size = max(READ_MIN, self.size // 2)
        self._small_reads = 0
