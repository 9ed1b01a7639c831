"""`GroupPacing`: a clock for each group of consumers, or for each consumer, of a queue whose policy has `pace-scope`
`group` or `consumer` (QP-111).

If the policy has `pace-group` as well, the clocks of the groups are not the queue's own (`shared_group_pacing.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from ....routing.arguments.consumer_arguments import consumer_group
from ....routing.arguments.queue_settings import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ...pace.pace_clock import PaceClock, pace_of
from ..consumers.consumer import Consumer, ConsumerGate
from ..consumers.consumers import Consumers
from ..effects import Effects
from .admission import Admission
from .queue_pacing import seconds_to

if TYPE_CHECKING:
    from ....runtime.coroutines import Slices

#: How many gates one turn opens at most.
GATES_OPENED = 256

#: A queue with more gates than `GATES_KEPT` plus twice the number of its consumers drops those of groups without one.
GATES_KEPT = 16


class PaceGate(ConsumerGate):
    """Bounds what the consumers of one group can take by a clock that they share."""

    __slots__ = ()

    @abstractmethod
    def apply(self, settings: QueueSettings) -> None:
        """Use the rate of these settings from now on."""

    @abstractmethod
    def next_slot(self, now: int) -> int | None:
        """The next slot of the clock; None if that is unknown yet."""

    @property
    @abstractmethod
    def unit(self) -> int:
        """The time between two slots."""


class ClockGate(PaceGate):
    """A gate with a clock of its own."""

    __slots__ = ("_clock", "_now")

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        #: The clock of a new group begins now, so consumers cannot get a burst by leaving and coming back.
        self._clock = PaceClock(now())

    def apply(self, settings: QueueSettings) -> None:
        self._clock.apply(settings, is_delivery=True)

    def room(self) -> int:
        now = self._now()
        return self._clock.free_until(now, now)

    def delivered(self, count: int) -> None:
        self._clock.take(self._now(), count)

    def next_slot(self, now: int) -> int | None:
        return self._clock.next_slot(now)

    @property
    def unit(self) -> int:
        return self._clock.unit


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
        #: The gates in `_slots`.
        self._waiting: set[PaceGate] = set()
        #: Whether the timer runs, and the slot for which it was set.
        self._is_timing = False
        self._timing_to = 0

    @property
    def counts_kib(self) -> bool:
        return False  # a gate opens before it is known which message is delivered

    def _places_for_arrivals(self, max_wait: int) -> int:
        return max(0, max_wait // self._distance + 1 - len(self.backing))

    @property
    def _distance(self) -> int:
        """The time between two slots, if those of all groups are taken together."""
        return -(-pace_of(self._settings, is_delivery=False).unit // max(1, len(self._gates)))

    def _waits(self) -> tuple[int, int]:
        now = self.now()
        slots = [slot for gate in self._gates.values() if (slot := gate.next_slot(now)) is not None]
        next_in = min([max(0, slot - now) for slot in slots], default=0)
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
            gate = self._gates[key] = known.get(key) or self._new_gate(key)
            gate.apply(self._settings)
        return gate

    def _new_gate(self, key: tuple[str, ...]) -> PaceGate:
        return ClockGate(self.now)

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
        self._note_changes(consumers)
        now = self.now()
        first = self._first(consumers, now)
        if first is not None and (not self._is_timing or first[0] < self._timing_to):
            self._set_timer(*first, now)

    def _note_changes(self, consumers: Consumers) -> None:
        """Have the timer open the gates that have begun to hold consumers back."""
        now = self.now()
        for gate in consumers.changed_gates:
            if isinstance(gate, PaceGate) and consumers.is_held(gate):
                self._push(gate, now)
        consumers.changed_gates.clear()

    def _await_active(self, active: Consumer | None) -> None:
        if self._is_timing or active is None or not isinstance(active.gate, PaceGate):
            return
        now = self.now()
        slot = active.gate.next_slot(now)
        if slot is not None and (active.awaits_gate or active.capacity > 0):
            self._set_timer(slot, active.gate, now)

    def _first(self, consumers: Consumers, now: int) -> tuple[int, PaceGate] | None:
        """The first slot of the gates that hold consumers back, and its gate."""
        slots = self._slots
        while slots:
            slot, _, gate = slots[0]
            if not consumers.is_held(gate):
                self._waiting.discard(heappop(slots)[2])
                continue
            if slot <= now:
                # Another consumer of the group may have taken the slot; the timer finds that out. To look for the next
                # slot of this gate here would delay gates whose slots come earlier.
                return slot, gate
            current = gate.next_slot(now)
            if current is None:
                self._waiting.discard(heappop(slots)[2])
                continue
            if current <= slot:
                return current, gate
            heapreplace(slots, (current, next(self._numbers), gate))
        return None

    def _push(self, gate: PaceGate, now: int) -> None:
        """Have the timer open this gate at its next slot."""
        slot = gate.next_slot(now)
        if slot is not None and gate not in self._waiting:
            self._waiting.add(gate)
            heappush(self._slots, (slot, next(self._numbers), gate))

    def _set_timer(self, slot: int, gate: PaceGate, now: int) -> None:
        self._is_timing = True
        self._timing_to = slot
        self._effects.set_timer("pace", seconds_to(slot, gate.unit, now))

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
            self._set_timer(*first, now)

    def rest(self, consumers: Consumers) -> None:
        """Note that no slot can be used now, because no message is ready."""
        self._note_changes(consumers)

    def end(self) -> None:
        """Note that the pacing ends, because the policy has changed."""
        return
