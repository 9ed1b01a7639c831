"""Reserves a queue's message numbers, so that no number is given twice after a crash (design section 5).

A queue numbers its messages from 0 for ever. The journal has records of persistent messages only, and writes them a
moment later, so after a crash the queue would give the numbers of transient and of the latest messages again. A range
reader that had read such a number would then continue behind it, and skip the new message with that number.

So a queue records in the journal **in advance** how far its numbering may go, and renews the reservation when half of
it is used. After an unclean end it continues behind all reserved numbers. Range readers get only messages whose numbers
are `kept`: their reservation is on the disk.
"""

from __future__ import annotations

from typing import Protocol

#: Numbers reserved ahead, and so the widest gap in a queue's numbering after an unclean end.
AHEAD = 16384


class Reserves(Protocol):
    """The part of a queue's index that records reservations."""

    def reserve(self, number: int) -> int:
        """Record that the numbers below this one are reserved; returns the journal's position."""


class NumberReserve:
    """The reservation of one queue.

    `index` records the reservations. It is None for a queue that ends with its process: its numbers need not be kept.
    The owner calls `renew` before it gives a number from `renew_from` on.
    """

    __slots__ = ("_index", "_kept", "_recorded", "renew_from")

    def __init__(self, index: Reserves | None) -> None:
        self._index = index
        #: Reservations not yet durable: journal position, and the number below which all are kept once it is durable.
        self._recorded: tuple[tuple[int, int], ...] = ()
        self._kept = 0
        self.renew_from = 0 if index is not None else 1 << 63

    def found(self, next_number: int) -> None:
        """Note that an earlier process of the queue gave all numbers below `next_number`."""
        self._kept = next_number

    def renew(self, next_number: int) -> int:
        """Reserve the numbers from `next_number` on; returns the journal's position."""
        assert self._index is not None
        self.renew_from = next_number + AHEAD // 2
        position = self._index.reserve(next_number + AHEAD)
        self._recorded += ((position, next_number + AHEAD),)
        return position

    def durable(self, position: int) -> None:
        """Note that the journal is on the disk up to a position."""
        while self._recorded and self._recorded[0][0] <= position:
            self._kept = self._recorded[0][1]
            self._recorded = self._recorded[1:]

    def kept(self, next_number: int) -> int:
        """The number below which none is ever given again, at most `next_number`."""
        return next_number if self._index is None else min(next_number, self._kept)
