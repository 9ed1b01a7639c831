"""`GroupPacing`: a clock for each group of consumers, or for each consumer, of a queue whose policy has `pace-scope`
`group` or `consumer` (QP-111).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from ....routing.arguments.consumer_arguments import consumer_group
from ....routing.arguments.queue_settings import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ...pace.pace_clock import PaceClock, pace_of
from ..consumers.consumer import Consumer, Gate
from ..consumers.consumers import Consumers
from ..effects import Effects
from .admission import Admission
from .queue_pacing import seconds_to

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices

#: Gates that one turn opens.
GATES_OPENED = 256

#: A queue drops the gates of groups that have no consumer when it has more gates than twice its consumers and this.
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


class GroupPacing(Admission):
    """A delivery clock for each group of consumers, or for each consumer, of one queue (QP-111).

    A message that arrives would have to wait too long if so many are ready that all groups together cannot take them in
    time. As long as there is no group, the queue plans with one.
    """

    __slots__ = (
        "_gates",
        "_is_timing",
        "_numbers",
        "_slots",
        "_timing_to",
        "_waiting",
    )

    def __init__(
        self, backing: BackingQueue, effects: Effects, now: Callable[[], float], settings: QueueSettings
    ) -> None:
        super().__init__(backing, effects, now, settings)
        self._gates: dict[tuple[str, ...], PaceGate] = {}
        #: A heap of the gates that hold consumers back: the next slot, a number that orders equal ones, and the gate.
        self._slots: list[tuple[int, int, PaceGate]] = []
        self._numbers = count()
        #: The gates in it.
        self._waiting: set[PaceGate] = set()
        #: Whether the timer runs, and the slot for which it was set.
        self._is_timing = False
        self._timing_to = 0

    @property
    def counts_kib(self) -> bool:
        return False  # a gate opens before anybody knows for which message

    def _places_for_arrivals(self, max_wait: int) -> int:
        return max(0, max_wait // self._distance + 1 - len(self.backing))

    @property
    def _distance(self) -> int:
        """The distance of the slots of all groups together."""
        return -(-pace_of(self._settings, is_delivery=False).unit // max(1, len(self._gates)))

    def _waits(self) -> tuple[int, int]:
        now = self.now()
        next_in = min([max(0, gate.clock.next_slot(now) - now) for gate in self._gates.values()], default=0)
        return next_in, next_in + self._distance * len(self.backing)

    def apply(self, settings: QueueSettings) -> None:
        """Use this rate for consumers that come. `set_gates` follows."""
        super().apply(settings)
        self._is_timing = False
        self._slots.clear()
        self._waiting.clear()

    def set_gates(self, consumers: Consumers) -> Slices[None]:
        """Give the consumers that there are now gates with the rate of the settings. Groups without a consumer are
        forgotten.
        """
        known, self._gates = self._gates, {}
        return consumers.set_bounds(lambda consumer: setattr(consumer, "gate", self._gate_of(consumer, known)))

    def enter(self, consumer: Consumer, consumers: Consumers) -> None:
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
        self._effects.set_timer("pace", seconds_to(gate.clock.next_slot(now), gate.clock.unit, now))

    def timer_fired(self, consumers: Consumers) -> None:
        """Open the gates whose slots have come, at most `GATES_OPENED` in one turn."""
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
