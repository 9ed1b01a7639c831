"""`Pacing`: an even flow of deliveries instead of bursts, for a queue whose policy has `pace-rate` (QP-100 to QP-105).

A *delivery clock* spaces deliveries, so that consumers never get a burst. There are two kinds:

    OwnPacing      the queue has the rate for itself. A second clock, the *admission clock*, decides about arrivals.
    SharedPacing   the queues of a pace group share the rate (`shared_pacing.py`).

With `pace-cost` `kib` a message takes as many slots as its body has KiB, rounded up. It is delivered in the first one,
and the others pass before the next message: the size of a message is known only when it is at the head of the queue in
memory.

Nothing sleeps: the queue has one timer, for the next slot. When the slot comes and no consumer can take a message, the
slot moves to the moment at which one can.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from ....routing.arguments.queue_settings import QueueSettings
from ....store.messages.message import FetchedMessages
from ....store.queue.backing_queue import BackingQueue
from ...pace.pace_clock import SECOND, TICK, PaceClock
from ..effects import Effects
from .admission import Admission, slots_of


class Pacing(Admission):
    """What both kinds have in common."""

    __slots__ = ("_is_timing",)

    def __init__(
        self, backing: BackingQueue, effects: Effects, now: Callable[[], float], settings: QueueSettings
    ) -> None:
        super().__init__(backing, effects, now, settings)
        self._is_timing = False

    def apply(self, settings: QueueSettings) -> None:
        super().apply(settings)
        self.timer_fired()

    def due(self) -> int:
        """How many messages may be delivered now."""
        free = self._due_slots()
        return min(free, 1) if self.counts_kib else free

    @abstractmethod
    def _due_slots(self) -> int:
        """How many slots have come."""

    def delivered(self, deliveries: Sequence[FetchedMessages]) -> None:
        """Take the slots of these messages."""
        cost = slots_of if self.counts_kib else None
        self._take(sum([sum(map(cost, each.contents)) if cost else len(each.contents) for each in deliveries]))

    @abstractmethod
    def _take(self, slots: int) -> None:
        """Take the next slots."""

    @abstractmethod
    def await_slot(self) -> None:
        """Give the queue a turn when the next slot comes: a message and a consumer are ready for it."""

    def rest(self) -> None:
        """Note that no slot can be used now, because no message is ready or no consumer can take one."""
        return

    def _set_timer(self, slot: int, unit: int) -> None:
        """Set the timer to this slot. A timer that runs already is left alone."""
        if not self._is_timing:
            self._is_timing = True
            self._effects.set_timer("pace", seconds_to(slot, unit, self.now()))

    def timer_fired(self) -> None:
        self._is_timing = False


class OwnPacing(Pacing):
    """The clocks of a queue that has the rate for itself."""

    __slots__ = ("_admission", "_delivery")

    def __init__(
        self, backing: BackingQueue, effects: Effects, now: Callable[[], float], settings: QueueSettings
    ) -> None:
        super().__init__(backing, effects, now, settings)
        self._delivery = PaceClock(self.now())
        self._admission = PaceClock(self.now())
        self.apply(settings)
        # Messages that are in the queue already will be delivered before those that arrive.
        self._admission.take_whole(self.waiting_slots())

    def apply(self, settings: QueueSettings) -> None:
        super().apply(settings)
        self._delivery.apply(settings, is_delivery=True)
        self._admission.apply(settings, is_delivery=False)

    def _places_for_arrivals(self, max_wait: int) -> int:
        now = self.now()
        return self._admission.free_until(now, now + max_wait)

    def _admitted(self, slots: int) -> None:
        self._admission.take(self.now(), slots)

    def purged(self) -> None:
        self._admission.latest = self._delivery.latest
        if self._admission.warm_up is not None and self._delivery.warm_up is not None:
            self._admission.warm_up.tokens = self._delivery.warm_up.tokens

    def _due_slots(self) -> int:
        now = self.now()
        return self._delivery.free_until(now, now)

    def _take(self, slots: int) -> None:
        self._delivery.take(self.now(), slots)

    def await_slot(self) -> None:
        self._set_timer(self._delivery.next_slot(self.now()), self._delivery.unit)

    def _waits(self) -> tuple[int, int]:
        now = self.now()
        next_slot = max(now, self._delivery.next_slot(now))
        return next_slot - now, next_slot - now + self._delivery.until(next_slot, self.waiting_slots())


def seconds_to(slot: int, unit: int, now: int) -> float:
    """Seconds to a slot of a clock that has one every `unit`; at least a `TICK` if slots come more often than that."""
    # One µs late rather than early: a timer that fires before its slot would have to be set again.
    return max(slot - now, TICK if unit < TICK else 0) / SECOND + 1e-6
