"""Who decides what a simulation leaves open: which message comes next, how long it takes, where a read is cut.

Every decision is one number below a count, and **0 is always the plainest**: the actor that has waited longest, the whole mailbox in order, no
delay, a read that brings all there is. So a chooser that only says 0 runs actors as an event loop does, and Hypothesis, which shrinks numbers
towards 0, shrinks a schedule towards the ordinary one. Nothing is asked where there is only one answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol


class Chooser(Protocol):
    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1; `count` is 2 or more."""


class SeedChooser:
    """By the bare seed: 0.1 us a decision."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"schedule {seed}").random

    def below(self, count: int) -> int:
        return int(self._random() * count)


class DrawnChooser:
    """By a function of the caller's, for example `lambda count: data.draw(integers(0, count - 1))`; ValueError if it says what it may not."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        chosen = self._draw(count)
        if not 0 <= chosen < count:
            raise ValueError(f"the chooser said {chosen!r}; it must be from 0 to {count - 1}")
        return chosen
