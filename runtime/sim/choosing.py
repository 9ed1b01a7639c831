"""Choosers: they make every decision that a simulation leaves open.

Which message comes next, how long it takes, where a read is cut: every decision is one number below a count, and **0 is
always the ordinary choice**: the actor that has waited longest, the whole mailbox in order, no delay, a read that
returns all there is. So a chooser that always returns 0 runs actors as an event loop does, and Hypothesis, which
shrinks numbers towards 0, shrinks a failing schedule towards the ordinary one. A chooser is asked only if there is more
than one choice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol


class Chooser(Protocol):
    """The one source of choice of a `SimWorld`."""

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1; `count` is 2 or more."""


class SeedChooser:
    """Chooses at random by a seed, in 0.1 µs a decision."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"schedule {seed}").random

    def below(self, count: int) -> int:
        return int(self._random() * count)


class DrawnChooser:
    """Chooses by the caller's function, for example `lambda count: data.draw(integers(0, count - 1))`.

    Raises ValueError if the function returns a number that is not below the count.
    """

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        chosen = self._draw(count)
        if not 0 <= chosen < count:
            raise ValueError(f"the chooser returned {chosen!r}; it must return a number from 0 to {count - 1}")
        return chosen
