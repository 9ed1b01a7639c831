"""`Pacing`: an even flow of deliveries instead of bursts, for a queue whose policy has `pace-rate` (QP-100 to QP-105).

There are two clocks. The *delivery clock* spaces deliveries, so that consumers never get a burst. The *admission clock*
decides on arrival whether a message would have to wait for longer than the policy allows. Each is a `PaceClock`.

With `pace-cost` `kib` a message takes as many slots as its body has KiB, rounded up. It is delivered in the first one,
and the others pass before the next message: the size of a message is known only when it is at the head of the queue in
memory.

Nothing sleeps: the queue has one timer, for the next slot. When the slot comes and no consumer can take a message, the
slot moves to the moment at which one can.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import accumulate, count
from typing import TYPE_CHECKING

from ....routing.arguments.consumer_arguments import consumer_group
from ....routing.arguments.queue_settings import QueueSettings
from ....store.messages.message import Delivery, body_size
from ....store.queue.backing_queue import BackingQueue
from ..consumers.consumer import Consumer, Gate
from ..consumers.consumers import Consumers
from ..effects import Effects
from .pace_clock import MILLISECOND, SECOND, TICK, PaceClock

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices
    from ...contracts.info_items import InfoItems


#: Bytes of a body that take one slot, if sizes decide.
KIB = 1024


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
        "counts_kib",
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
        #: Whether the size of its body decides how many slots a message takes.
        self.counts_kib = False
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
        self.counts_kib = settings.pace_cost == "kib"
        self.overflow = settings.pace_overflow
        if not self._has_settings:
            # Messages that are in the queue already will be delivered before those that arrive.
            self._admission.take_whole(self._waiting_slots())
            self._has_settings = True
        self.timer_fired()

    # -- arriving

    def admit(self, contents: Sequence[bytes]) -> int:
        """How many of the messages that arrive now, from the first on, are accepted. The others take no slots."""
        count = len(contents)
        if self.overflow == "hold":
            return count
        now = self.now()
        free = self._admission.free_until(now, now + self._max_wait)
        if self.counts_kib:
            # A message is accepted if its first slot is free.
            ends = list(accumulate(map(_kib, contents)))
            admitted = bisect_left(ends, free) + 1 if free else 0
            admitted = min(count, admitted)
            self._admission.take(now, ends[admitted - 1] if admitted else 0)
        else:
            admitted = min(count, free)
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
        free = self._delivery.free_until(now, now)
        return min(free, 1) if self.counts_kib else free

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Take the slots of these messages."""
        cost = _kib if self.counts_kib else None
        slots = sum([sum(map(cost, each.contents)) if cost else len(each.contents) for each in deliveries])
        self._delivery.take(self.now(), slots)

    def _waiting_slots(self) -> int:
        """How many slots the ready messages take, or about as many if sizes decide."""
        waiting = len(self.backing)
        return max(waiting, -(-self.backing.ready_bytes // KIB)) if self.counts_kib else waiting

    def await_slot(self) -> None:
        """Set the timer to the next slot, unless it runs."""
        if not self._is_timing:
            self._is_timing = True
            self._effects.set_timer("pace", _seconds_to_slot(self._delivery, self.now()))

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
            "planned_wait_ms": (next_slot - now + self._delivery.until(next_slot, self._waiting_slots()))
            // MILLISECOND,
            "refused_total": self.refused,
        }


def _kib(content: bytes) -> int:
    """The slots that a message takes by its size."""
    return -(-body_size(content) // KIB) or 1


#: Gates that one turn opens.
GATES_OPENED = 256

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

    __slots__ = (
        "_effects",
        "_gates",
        "_is_timing",
        "_now",
        "_numbers",
        "_settings",
        "_slots",
        "_timing_to",
        "_waiting",
    )

    def __init__(self, effects: Effects, now: Callable[[], float], settings: QueueSettings) -> None:
        self._effects = effects
        self._now = now
        self._settings = settings
        self._gates: dict[tuple[str, ...], PaceGate] = {}
        #: A heap of the gates that hold consumers back: the next slot, a number that orders equal ones, and the gate.
        self._slots: list[tuple[int, int, PaceGate]] = []
        self._numbers = count()
        #: The gates in it.
        self._waiting: set[PaceGate] = set()
        #: Whether the timer runs, and the slot for which it was set.
        self._is_timing = False
        self._timing_to = 0

    def now(self) -> int:
        return int(self._now() * SECOND)

    def apply(self, settings: QueueSettings) -> None:
        """Use this rate for consumers that come. `set_gates` follows."""
        self._settings = settings
        self._is_timing = False
        self._slots.clear()
        self._waiting.clear()

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
        if consumers.single_active:
            self._await_active(consumers.active)
            return
        now = self.now()
        for gate in consumers.newly_held:
            if isinstance(gate, PaceGate):
                self._push(gate, now)
        consumers.newly_held.clear()
        first = self._first(consumers, now)
        if first is not None and (not self._is_timing or first.clock.next_slot(now) < self._timing_to):
            self._set_timer(first, now)

    def _await_active(self, active: Consumer | None) -> None:
        if self._is_timing or active is None or not isinstance(active.gate, PaceGate):
            return
        if active.awaits_gate or active.capacity > 0:
            self._set_timer(active.gate, self.now())

    def _first(self, consumers: Consumers, now: int) -> PaceGate | None:
        """The gate that opens first of those that hold consumers back."""
        slots = self._slots
        while slots:
            slot, _, gate = slots[0]
            if not consumers.is_held(gate):
                self._waiting.discard(heappop(slots)[2])
                continue
            if slot <= now:
                return gate
            # Another consumer of the group may have taken the slot.
            current = gate.clock.next_slot(now)
            if current <= slot:
                return gate
            heapreplace(slots, (current, next(self._numbers), gate))
        return None

    def _push(self, gate: PaceGate, now: int) -> None:
        """Have the timer open this gate at its next slot."""
        if gate not in self._waiting:
            self._waiting.add(gate)
            heappush(self._slots, (gate.clock.next_slot(now), next(self._numbers), gate))

    def _set_timer(self, gate: PaceGate, now: int) -> None:
        self._is_timing = True
        self._timing_to = gate.clock.next_slot(now)
        self._effects.set_timer("pace", _seconds_to_slot(gate.clock, now))

    def timer_fired(self, consumers: Consumers) -> None:
        """Open the gates whose slots have come, as many as one turn should."""
        self._is_timing = False
        now, slots = self.now(), self._slots
        for _ in range(GATES_OPENED):
            if not slots or slots[0][0] > now:
                return
            gate = heappop(slots)[2]
            self._waiting.discard(gate)
            if consumers.is_held(gate) and consumers.open_gate(gate):
                self._push(gate, now)
        first = self._first(consumers, now)
        if first is not None:
            self._set_timer(first, now)


def _seconds_to_slot(clock: PaceClock, now: int) -> float:
    """Seconds to the next slot of the clock."""
    # One µs late rather than early: a timer that fires before its slot would have to be set again.
    return max(clock.next_slot(now) - now, TICK if clock.unit < TICK else 0) / SECOND + 1e-6
