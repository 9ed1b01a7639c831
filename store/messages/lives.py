"""The lives of a queue's numbering, and the numbers that were given to no message (SP-25).

A queue reserves numbers in the journal ahead. After an unclean end it continues behind all of them, because it cannot
tell which it had given: it begins a new **life**, and the numbers that it passed over are a **gap** of that life. So a
reader by number can tell a number that no message had from a message that is gone.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

#: How many gaps are kept: those of the latest lives.
GAPS_KEPT = 64

_LIFE = Struct(">I")
_GAP = Struct(">QQI")


class Gap(NamedTuple):
    """The numbers from `first` to before `next`, which were passed over when the life `life` began."""

    first: int
    next: int
    life: int


class Lives(NamedTuple):
    """The present life of a queue, counted from 0, and the gaps of the lives up to it."""

    life: int = 0
    gaps: tuple[Gap, ...] = ()

    def after(self, gap: range) -> Lives:
        """A new life, which begins behind this gap. If the process before gave no number, the life goes on."""
        life = self.life + 1
        first = max(gap.start, self.gaps[-1].next) if self.gaps else gap.start
        if first >= gap.stop:
            return self
        return Lives(life, (*self.gaps, Gap(first, gap.stop, life))[-GAPS_KEPT:])


FIRST_LIFE = Lives()


class Numbering(NamedTuple):
    """Where the numbering of a queue without messages stands: the next message gets the number `stop`, and no message
    has, or had, a number from `start` on.
    """

    start: int = 0
    stop: int = 0
    lives: Lives = FIRST_LIFE

    @property
    def gap(self) -> range:
        return range(self.start, self.stop)


def encode_lives(lives: Lives) -> bytes:
    """The body of a LIVES record."""
    return _LIFE.pack(lives.life) + b"".join([_GAP.pack(*gap) for gap in lives.gaps])


def decode_lives(data: bytes) -> Lives:
    """The lives in the body of a LIVES record."""
    (life,) = _LIFE.unpack_from(data)
    return Lives(life, tuple(Gap(*gap) for gap in _GAP.iter_unpack(data[_LIFE.size :])))


def lives_of(terms: dict[str, Any]) -> Lives:
    """The lives in the recovery terms of a queue."""
    life, gaps = terms.get("lives", FIRST_LIFE)
    return Lives(life, tuple(Gap(*gap) for gap in gaps))
