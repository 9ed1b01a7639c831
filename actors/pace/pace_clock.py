"""`PaceClock`: a leaky bucket that stores the time of its latest slot (QP-104), and its `WarmUp` (QP-107).

A message gets the next slot, `unit` after the latest one, or now if that is over. Time that passes unused is not saved
up, except for the `burst` that the policy allows.

With a warm-up of w ns a clock that was idle begins at a third of its rate and reaches the whole rate in w ns, as long
as deliveries use its slots. It counts *tokens*, of which a delivery takes one, and of which an idle clock gets one
every `unit` until it is `full`. Above the level `warning` each token makes the distance to the next slot longer:

    warning = w / unit / (COLD - 1)         full = warning + 2 · w / unit / (1 + COLD)
    distance = unit + slope · tokens above `warning`
    slope = (COLD - 1) · unit / (full - warning)

So a full clock has slots of `COLD · unit`, which get shorter with every delivery. A clock that is warm has to be idle
for about w / 2 before it counts as cold at all, and for w to be cold entirely.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...routing.arguments.queue_settings import QueueSettings

#: Ns between two timers at least. A queue with a higher rate delivers at each timer what has become due since the last.
TICK = 5_000_000

SECOND = 1_000_000_000
MILLISECOND = 1_000_000

#: The most ns that a rate, a burst or a warm-up stands for, 31 years: the links between nodes have integers of 64 bits.
MOST_TIME = 10**18

#: How many times as long the slots of a cold clock are.
COLD = 3


class Pace(NamedTuple):
    """The rate of a clock; times are in ns."""

    #: Between two slots.
    unit: int
    #: How long a slot that was not used in time may still be used; earlier ones are lost.
    kept: int
    #: How long the rate grows after a pause; 0: not at all.
    warm_up: int


def pace_of(settings: QueueSettings, is_delivery: bool) -> Pace:
    """The rate that the policy asks for. A clock of deliveries may use its slots a little late, because timers are
    late.
    """
    assert settings.pace_rate is not None
    # Clipped before the rounding: with a tiny rate the quotient is infinite, which has no integer.
    unit = max(1, math.ceil(min(MOST_TIME, settings.pace_period * MILLISECOND / settings.pace_rate)))
    kept = min(MOST_TIME, (settings.pace_burst - 1) * unit)
    if is_delivery and unit < TICK:
        kept += 2 * TICK
    return Pace(unit, kept, min(MOST_TIME, settings.pace_warm_up * MILLISECOND))


class WarmUp:
    """How far one clock is from its whole rate; times are in ns.

    tokens   when the latest slot was taken; the clock gets further ones only after the slot that follows it
    """

    __slots__ = ("_full", "_slope", "_unit", "_warning", "tokens")

    def __init__(self, unit: int, nanoseconds: int) -> None:
        self._use(unit, nanoseconds)
        self.tokens = self._full

    def _use(self, unit: int, nanoseconds: int) -> None:
        self._unit = unit
        self._warning = nanoseconds / unit / (COLD - 1)
        self._full = self._warning + 2 * nanoseconds / unit / (1 + COLD)
        self._slope = (COLD - 1) * unit / (self._full - self._warning)

    def change(self, unit: int, nanoseconds: int) -> None:
        """Use another rate or another length of the warm-up. A clock that is half warm stays so."""
        share = self.tokens / self._full
        self._use(unit, nanoseconds)
        self.tokens = share * self._full

    def idle(self, nanoseconds: int) -> float:
        """The tokens that the clock has after it was idle for this time."""
        return min(self._full, self.tokens + nanoseconds / self._unit)

    def distance(self, tokens: float, count: int) -> int:
        """The time from a slot after which the clock has `tokens` to the slot `count` places behind it."""
        above = tokens - self._warning
        longer = min(count, math.ceil(above)) if above > 0 else 0
        return count * self._unit + math.ceil(self._slope * (longer * above - longer * (longer - 1) / 2))

    def spent(self, tokens: float, count: int) -> float:
        """How many of `tokens` are left after `count` slots."""
        return max(0.0, tokens - count)


class PaceClock:
    """One clock; times are in ns.

    unit   between two slots
    kept   how long a slot that was not used in time may still be used; earlier ones are lost
    """

    __slots__ = ("kept", "latest", "unit", "warm_up")

    def __init__(self, latest: int) -> None:
        #: The slot that was taken last.
        self.latest = latest
        self.unit = SECOND
        self.kept = 0
        self.warm_up: WarmUp | None = None

    def apply(self, settings: QueueSettings, is_delivery: bool) -> None:
        """Use the rate of these settings from now on."""
        self.use(pace_of(settings, is_delivery))

    def use(self, pace: Pace) -> None:
        """Use this rate from now on. The slot that was taken last stays, so a change of the rate makes no burst."""
        self.unit, self.kept, warm_up = pace
        if not warm_up:
            self.warm_up = None
        elif self.warm_up is None:
            self.warm_up = WarmUp(self.unit, warm_up)
        else:
            self.warm_up.change(self.unit, warm_up)

    def next_slot(self, now: int) -> int:
        """The next slot. It may be in the past, by `kept` at most."""
        return max(self._following(), now - self.kept)

    def _following(self) -> int:
        """The slot that follows the latest one, if it is used."""
        warm_up = self.warm_up
        return self.latest + (self.unit if warm_up is None else warm_up.distance(warm_up.tokens, 1))

    def _tokens_at(self, warm_up: WarmUp, slot: int) -> float:
        """The tokens behind the next slot, which is at `slot`."""
        return warm_up.spent(warm_up.idle(slot - self._following()), 1)

    def free_until(self, now: int, end: int) -> int:
        """How many slots there are from the next one to the time `end`."""
        next_slot = self.next_slot(now)
        if next_slot > end:
            return 0
        most = (end - next_slot) // self.unit + 1
        warm_up = self.warm_up
        if warm_up is None:
            return most
        tokens, least = self._tokens_at(warm_up, next_slot), 1
        while least < most:
            middle = (least + most + 1) // 2
            if next_slot + warm_up.distance(tokens, middle - 1) <= end:
                least = middle
            else:
                most = middle - 1
        return least

    def take(self, now: int, count: int) -> None:
        """Take the next `count` slots."""
        if not count:
            return
        first, warm_up = self.next_slot(now), self.warm_up
        if warm_up is None:
            self.latest = first + (count - 1) * self.unit
            return
        tokens = self._tokens_at(warm_up, first)
        self.latest = first + warm_up.distance(tokens, count - 1)
        warm_up.tokens = warm_up.spent(tokens, count - 1)

    def take_whole(self, count: int) -> None:
        """Take the `count` slots that follow the latest one, even if their time is over."""
        if count:
            self.take(self._following(), count)

    def until(self, slot: int, count: int) -> int:
        """The time from the next slot, which is at `slot`, to the slot `count` places behind it."""
        warm_up = self.warm_up
        return count * self.unit if warm_up is None else warm_up.distance(self._tokens_at(warm_up, slot), count)
