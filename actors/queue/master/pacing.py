"""`Pacing`: an even flow of deliveries instead of bursts, for a queue whose policy has `pace-rate` (QP-100 to QP-105).

There are two clocks. The *delivery clock* spaces deliveries, so that consumers never get a burst. The *admission clock*
decides on arrival whether a message would have to wait for longer than the policy allows. Each is a leaky bucket that
stores one number, the time of its latest slot: a message gets the next slot, `unit` later, or now if that is over. Time
that passes unused is not saved up, except for the `burst` that the policy allows.

Nothing sleeps: the queue has one timer, for the next slot. When the slot comes and no consumer can take a message, the
slot moves to the moment at which one can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....routing.arguments import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ..effects import Effects

if TYPE_CHECKING:
    from ...metadata.info_items import InfoItems

#: Ns between two timers at least. A queue with a higher rate delivers at each timer what has become due since the last.
TICK = 5_000_000

_SECOND = 1_000_000_000
_MILLISECOND = 1_000_000


class PaceClock:
    """One clock; times are in ns.

    unit   between two slots
    kept   how long ago a slot may have come and still be used, beyond which the clock does not save time up
    """

    __slots__ = ("kept", "latest", "unit")

    def __init__(self, latest: int) -> None:
        #: The slot that was taken last.
        self.latest = latest
        self.unit = _SECOND
        self.kept = 0

    def next_slot(self, now: int) -> int:
        """The next slot. It may be in the past, by `kept` at most."""
        return max(self.latest + self.unit, now - self.kept)

    def free_until(self, now: int, end: int) -> int:
        """How many slots there are from the next one to the time `end`."""
        next_slot = self.next_slot(now)
        return 0 if next_slot > end else (end - next_slot) // self.unit + 1

    def take(self, now: int, count: int) -> None:
        """Take the next `count` slots."""
        if count:
            self.latest = self.next_slot(now) + (count - 1) * self.unit


class Pacing:
    """The clocks of one queue. `now` gives seconds of a monotonic clock."""

    __slots__ = (
        "_admission",
        "_backing",
        "_delivery",
        "_effects",
        "_has_settings",
        "_is_timing",
        "_max_wait",
        "_now",
        "_period",
        "_rate",
        "overflow",
        "refused",
    )

    def __init__(self, backing: BackingQueue, effects: Effects, now: Callable[[], float]) -> None:
        self._backing = backing
        self._effects = effects
        self._now = now
        self._delivery = PaceClock(self.now())
        self._admission = PaceClock(self.now())
        self._has_settings = self._is_timing = False
        self._rate = 1.0
        self._period = self._max_wait = 0
        #: What happens to a message that would have to wait too long: `hold`, `dead-letter`, `nack` or `drop`.
        self.overflow = "hold"
        #: How many messages were not admitted.
        self.refused = 0

    def now(self) -> int:
        return int(self._now() * _SECOND)

    def apply(self, settings: QueueSettings) -> None:
        """Use this rate from now on. The slot that was taken last stays, so a change of the rate makes no burst."""
        assert settings.pace_rate is not None
        self._rate, self._period = settings.pace_rate, settings.pace_period
        unit = max(1, math.ceil(settings.pace_period * _MILLISECOND / settings.pace_rate))
        burst = (settings.pace_burst - 1) * unit
        self._delivery.unit = self._admission.unit = unit
        self._admission.kept = burst
        self._delivery.kept = burst + (2 * TICK if unit < TICK else 0)
        self._max_wait = settings.pace_max_wait * _MILLISECOND
        self.overflow = settings.pace_overflow
        if not self._has_settings:
            # Those that wait already come first.
            self._admission.latest += len(self._backing) * unit
            self._has_settings = True
        self.timer_fired()

    # -- arriving

    def admit(self, count: int) -> int:
        """How many of `count` messages that arrive now, from the first on, are accepted. The others leave no trace."""
        if self.overflow == "hold":
            return count
        now = self.now()
        admitted = min(count, self._admission.free_until(now, now + self._max_wait))
        self._admission.take(now, admitted)
        self.refused += count - admitted
        return admitted

    def purged(self) -> None:
        """No ready message is left, so what arrives next waits for the delivery clock alone."""
        self._admission.latest = self._delivery.latest

    # -- delivering

    def due(self) -> int:
        """How many messages may be delivered now."""
        now = self.now()
        return self._delivery.free_until(now, now)

    def delivered(self, count: int) -> None:
        self._delivery.take(self.now(), count)

    def await_slot(self) -> None:
        """Set the timer to the next slot, unless it runs."""
        if not self._is_timing:
            self._is_timing = True
            now = self.now()
            wait = max(self._delivery.next_slot(now) - now, TICK if self._delivery.unit < TICK else 0)
            # A µs late rather than early: a slot that is not due yet would need another timer.
            self._effects.set_timer("pace", wait / _SECOND + 1e-6)

    def timer_fired(self) -> None:
        self._is_timing = False

    def info(self) -> InfoItems:
        """What listings show of it (QP-108)."""
        now = self.now()
        next_slot = max(now, self._delivery.next_slot(now))
        waiting = len(self._backing)
        return {
            "rate": self._rate,
            "period_ms": self._period,
            "waiting": waiting,
            "next_in_ms": (next_slot - now) // _MILLISECOND,
            "planned_wait_ms": (next_slot - now + waiting * self._delivery.unit) // _MILLISECOND,
            "refused_total": self.refused,
        }
