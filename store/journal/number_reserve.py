"""Which numbers of a queue are never given again, whatever happens: it numbers its messages from 0 for ever (design, section 5).

The journal is told of persistent messages only, and has them on the disk only later. A reader that has seen the number of any other message, and goes on behind it
after a crash, would miss what had got the same number meanwhile. So a queue tells the journal **ahead** how far its numbering may go, half of that before it gets there;
after an unclean end it goes on behind all that it may have given. What a reader is shown is `kept`: the record is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable

AHEAD = 16384
"""Numbers that are told ahead, so the widest gap that an unclean end leaves."""


class NumberReserve:
    """See the module. `tell` has a number recorded, returning the journal's position; None for a queue that ends with its process, whose numbers need no keeping."""

    __slots__ = ("_tell", "_told", "_kept", "renew_from")

    def __init__(self, tell: Callable[[int], int] | None) -> None:
        self._tell = tell
        self._told: list[
            tuple[int, int]
        ] = []  # position in the journal, and the number below which all are kept when it is durable
        self.renew_from = 0 if tell is not None else 1 << 63
        """Whoever gives a number from here on calls `renew`."""
        self._kept = 0

    def found(self, next_number: int) -> None:
        """The numbers below are those of an earlier life, which is known to have given them."""
        self._kept = next_number

    def renew(self, next_number: int) -> int:
        """Have it recorded; returns the journal's position."""
        assert self._tell is not None
        self.renew_from = next_number + AHEAD // 2
        position = self._tell(next_number + AHEAD)
        self._told.append((position, next_number + AHEAD))
        return position

    def durable(self, position: int) -> None:
        """The journal is on the disk up to there."""
        while self._told and self._told[0][0] <= position:
            _, self._kept = self._told.pop(0)

    def kept(self, next_number: int) -> int:
        """Of the numbers below `next_number`, those below this one are never given again."""
        return next_number if self._tell is None else min(next_number, self._kept)
