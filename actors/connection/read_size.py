"""How much to read from a socket at a time: a large buffer is worth its allocation only to a client that fills it."""

from __future__ import annotations

READ_MIN, READ_MAX = 16 * 1024, 256 * 1024  # octets
SMALL_READS = 8  # in a row, until less is asked for


class ReadSize:
    """`octets` to ask for next, as `got` learns from what came. A client that sends a little more than it did at a time is read at once, from then on."""

    __slots__ = ("_small_reads", "octets")

    def __init__(self) -> None:
        self.octets = READ_MIN
        self._small_reads = 0

    def got(self, size: int) -> None:
        if size == self.octets:
            self.octets = min(READ_MAX, size * 2)
        elif size < self.octets // 4:
            self._small_reads += 1
            if self._small_reads < SMALL_READS:
                return
            self.octets = max(READ_MIN, self.octets // 2)
        self._small_reads = 0
