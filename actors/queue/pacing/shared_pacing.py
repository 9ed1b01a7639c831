"""`SharedPacing`: the pace of a queue whose policy has `pace-group`. The queues of one group share the rate (QP-106).

The queue leases its slots (`Leases`). A message that arrives would have to wait too long if so many are ready that the
queue, with its share of the rate, cannot deliver them in time. The share is the rate divided by the number of queues
that have asked for slots lately, since none of them can see how many messages the others have.
"""

from __future__ import annotations

from collections.abc import Callable

from ....routing.arguments.queue_settings import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ...contracts.pace import ClockName
from ...pace.pace_clock import SECOND, pace_of
from ...pace.shared_clock import HORIZON
from ..effects import Effects
from .leases import Leases
from .queue_pacing import Pacing


class SharedPacing(Pacing):
    """See the module. `name` is that of the clock."""

    __slots__ = ("leases",)

    def __init__(
        self,
        backing: BackingQueue,
        effects: Effects,
        now: Callable[[], float],
        settings: QueueSettings,
        name: ClockName,
    ) -> None:
        super().__init__(backing, effects, now, settings)
        self.leases = Leases(name, pace_of(settings, is_delivery=True), effects)

    def apply(self, settings: QueueSettings) -> None:
        super().apply(settings)
        self.leases.use(pace_of(settings, is_delivery=True))

    def _places_for_arrivals(self, max_wait: int) -> int:
        return max(0, max_wait // self._distance + 1 - self.waiting_slots())

    @property
    def _distance(self) -> int:
        """The time between two slots that this queue gets."""
        return self.leases.pace.unit * self.leases.sharers

    def _due_slots(self) -> int:
        return self.leases.due(self.now())

    def _take(self, slots: int) -> None:
        self.leases.take(slots)

    def await_slot(self) -> None:
        slot = self.leases.next_slot()
        if slot is not None:
            self._set_timer(slot, self.leases.pace.unit)
        self.leases.ask(self.waiting_slots(), self.now())

    def rest(self) -> None:
        self.leases.give_back(self.now())

    def leased(self, first: int, last: int, count: int, sharers: int) -> None:
        """Note a lease, whose times are relative to now."""
        self.leases.came(first, last, count, sharers, self.now())
        # The first new slot may come before the one for which the timer runs.
        self.timer_fired()

    def lost(self) -> None:
        """Ask again later, because the request is lost."""
        self.leases.lost()
        if not self._is_timing:
            self._is_timing = True
            self._effects.set_timer("pace", HORIZON / SECOND)

    def _waits(self) -> tuple[int, int]:
        now, slot, waiting = self.now(), self.leases.next_slot(), self.waiting_slots()
        next_in = self._distance if waiting else 0
        if slot is not None:
            next_in = max(0, slot - now)
        return next_in, next_in + self._distance * waiting
