"""Reserves a queue's message numbers, so that no number is given twice after a crash (design section 5).

A queue numbers its messages from 0 for ever. The journal has records of persistent messages only, and writes them a
moment later, so after a crash other numbers would be given again. A range reader that had read such a number would then
continue behind it, and skip the new message with that number.

So a queue records in the journal **in advance** how far its numbering may go, and renews the reservation when half of
it is used. After an unclean end it continues behind all reserved numbers. Range readers get only messages whose numbers
are `kept`: their reservation is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable

#: Numbers reserved ahead, and so the widest gap in a queue's numbering after an unclean end.
AHEAD = 16384


class NumberReserve:
    """The reservation of one queue.

    `reserve(number)` records a reservation and returns the journal's position (`QueueIndex.reserve`). It is None for a
    queue that ends with its process: its numbers need not be kept. The owner calls `renew` before it gives a number
    from `renew_from` on.
    """

    __slots__ = ("_kept", "_recorded", "_reserve", "renew_from")

    def __init__(self, reserve: Callable[[int], int] | None) -> None:
        self._reserve = reserve
        #: Reservations not yet durable: journal position, and the number below which all are kept once it is durable.
        self._recorded: list[tuple[int, int]] = []
        self._kept = 0
        self.renew_from = 0 if reserve is not None else 1 << 63

    def found(self, next_number: int) -> None:
        """Note that an earlier process of the queue gave all numbers below `next_number`."""
        self._kept = next_number

    def renew(self, next_number: int) -> int:
        """Reserve the numbers from `next_number` on; returns the journal's position."""
        assert self._reserve is not None
        self.renew_from = next_number + AHEAD // 2
        position = self._reserve(next_number + AHEAD)
        self._recorded.append((position, next_number + AHEAD))
        return position

    def durable(self, position: int) -> None:
        """Note that the journal is on the disk up to a position."""
        while self._recorded and self._recorded[0][0] <= position:
            _, self._kept = self._recorded.pop(0)

    def kept(self, next_number: int) -> int:
        """The number below which none is ever given again, at most `next_number`."""
        return next_number if self._reserve is None else min(next_number, self._kept)
