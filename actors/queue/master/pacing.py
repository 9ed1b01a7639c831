"""`Pacing`: an even flow of deliveries instead of bursts, for a queue whose policy has `pace-rate` (QP-100 to QP-105).

There are two clocks. The *delivery clock* spaces deliveries, so that consumers never get a burst. The *admission clock*
decides on arrival whether a message would have to wait for longer than the policy allows. Each is a `PaceClock`.

Nothing sleeps: the queue has one timer, for the next slot. When the slot comes and no consumer can take a message, the
slot moves to the moment at which one can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....routing.arguments.consumer_arguments import consumer_group
from ....routing.arguments.queue_settings import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ..consumers.consumer import Consumer, Gate
from ..consumers.consumers import Consumers
from ..effects import Effects
from .pace_clock import MILLISECOND, SECOND, TICK, PaceClock

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices
    from ...contracts.info_items import InfoItems


class Pacing:
    """The clocks of one queue. `now` gives seconds of a monotonic clock."""

    __slots__ = (
        "_admission",
        "backing",
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
        self.backing = backing
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
        return int(self._now() * SECOND)

    def apply(self, settings: QueueSettings) -> None:
        assert settings.pace_rate is not None
        self._rate, self._period = settings.pace_rate, settings.pace_period
        self._delivery.apply(settings, is_delivery=True)
        self._admission.apply(settings, is_delivery=False)
        self._max_wait = settings.pace_max_wait * MILLISECOND
        self.overflow = settings.pace_overflow
        if not self._has_settings:
            # Messages that are in the queue already will be delivered before those that arrive.
            self._admission.take_whole(len(self.backing))
            self._has_settings = True
        self.timer_fired()

    # -- arriving

    def admit(self, count: int) -> int:
        """How many of `count` messages that arrive now, from the first on, are accepted. The others take no slots."""
        if self.overflow == "hold":
            return count
        now = self.now()
        admitted = min(count, self._admission.free_until(now, now + self._max_wait))
        self._admission.take(now, admitted)
        self.refused += count - admitted
        return admitted

    def purged(self) -> None:
        """Set the admission clock to the delivery clock, because no ready message is left before those that arrive."""
        self._admission.latest = self._delivery.latest
        if self._admission.warm_up is not None and self._delivery.warm_up is not None:
            self._admission.warm_up.tokens = self._delivery.warm_up.tokens

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
            self._effects.set_timer("pace", _seconds_to_slot([self._delivery], self.now()))

    def timer_fired(self) -> None:
        self._is_timing = False

    def info(self) -> InfoItems:
        """What listings show of the pace (QP-108)."""
        now = self.now()
        next_slot = max(now, self._delivery.next_slot(now))
        waiting = len(self.backing)
        return {
            "rate": self._rate,
            "period_ms": self._period,
            "waiting": waiting,
            "next_in_ms": (next_slot - now) // MILLISECOND,
            "planned_wait_ms": (next_slot - now + self._delivery.until(next_slot, waiting)) // MILLISECOND,
            "refused_total": self.refused,
        }


#: A queue may have this many gates more than twice its consumers before those of groups without a consumer are dropped.
GATES_KEPT = 16


class PaceGate(Gate):
    """Bounds what the consumers of one group can take by a clock that they share."""

    __slots__ = ("_now", "clock")

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        #: The clock of a new group begins now, so consumers cannot get a burst by leaving and coming back.
        self.clock = PaceClock(now())

    def room(self) -> int:
        now = self._now()
        return self.clock.free_until(now, now)

    def delivered(self, count: int) -> None:
        self.clock.take(self._now(), count)


class GroupPacing:
    """A delivery clock for each group of consumers, or for each consumer, of one queue (QP-111).

    Everything is admitted, since it is unknown at which rate the queue will be drained.
    """

    __slots__ = ("_effects", "_gates", "_is_timing", "_now", "_settings")

    def __init__(self, effects: Effects, now: Callable[[], float], settings: QueueSettings) -> None:
        self._effects = effects
        self._now = now
        self._settings = settings
        self._gates: dict[tuple[str, ...], PaceGate] = {}
        self._is_timing = False

    def now(self) -> int:
        return int(self._now() * SECOND)

    def apply(self, settings: QueueSettings) -> None:
        """Use this rate for consumers that come. `set_gates` follows."""
        self._settings = settings
        self._is_timing = False

    def set_gates(self, consumers: Consumers) -> Slices[None]:
        """Give the consumers that there are now gates with the rate of the settings. Groups without a consumer are
        forgotten.
        """
        known, self._gates = self._gates, {}
        return consumers.set_bounds(lambda consumer: setattr(consumer, "gate", self._gate_of(consumer, known)))

    def admit(self, consumer: Consumer, consumers: Consumers) -> None:
        """Give a consumer its gate before it joins the others, without a pass over all consumers.

        Gates of groups without a consumer are dropped only when there are many (`GATES_KEPT`). So a group that comes
        back soon finds its old clock.
        """
        if len(self._gates) > 2 * len(consumers) + GATES_KEPT:
            self._gates = {self._key_of(other): other.gate for other in consumers if isinstance(other.gate, PaceGate)}
        consumer.gate = self._gate_of(consumer, self._gates)

    def _gate_of(self, consumer: Consumer, known: dict[tuple[str, ...], PaceGate]) -> PaceGate:
        key = self._key_of(consumer)
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = known.get(key) or PaceGate(self.now)
            gate.clock.apply(self._settings, is_delivery=True)
        return gate

    def _key_of(self, consumer: Consumer) -> tuple[str, ...]:
        if self._settings.pace_scope == "group":
            return (consumer_group(consumer.arguments),)
        return consumer.channel.channel_id, consumer.tag

    def await_slot(self, consumers: Consumers) -> None:
        """Set the timer to the next slot of a consumer that only its gate holds back, unless it runs.

        A gate may have opened since the capacity of its consumer was last read. The timer then fires at once, and
        resumes that consumer as well.
        """
        if self._is_timing:
            return
        clocks = [
            consumer.gate.clock
            for consumer in consumers
            if isinstance(consumer.gate, PaceGate) and (consumer.awaits_gate or consumer.capacity > 0)
        ]
        if clocks:
            self._is_timing = True
            self._effects.set_timer("pace", _seconds_to_slot(clocks, self.now()))

    def timer_fired(self, consumers: Consumers) -> None:
        self._is_timing = False
        consumers.resume_all()


def _seconds_to_slot(clocks: Sequence[PaceClock], now: int) -> float:
    """Seconds to the next slot of any of these clocks."""
    wait = min(clock.next_slot(now) for clock in clocks) - now
    # One µs late rather than early: a timer that fires before its slot would have to be set again.
    return max(wait, TICK if clocks[0].unit < TICK else 0) / SECOND + 1e-6
