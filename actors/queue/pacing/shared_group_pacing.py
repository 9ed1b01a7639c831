"""`SharedGroupPacing`: the pace of a queue whose policy has `pace-group` and the `pace-scope` `group`.

Consumers that name the same group share a rate, whichever of these queues they consume from (QP-106, QP-111).

A `Pacer` holds the clock of each group; the pace group and the group of the consumers are its name. The queue leases
slots of each clock for which consumers wait (`Leases`). A gate that has no slot holds its consumers back until a lease
comes.

The queue returns slots that no consumer can use: when no message is ready, and when all consumers of a group have as
many messages as their prefetch allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from ....routing.arguments.queue_settings import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ...contracts.pace import ClockName
from ...pace.pace_clock import SECOND, pace_of
from ...pace.shared_clock import HORIZON
from ..consumers.consumer import Consumer
from ..consumers.consumers import Consumers
from ..effects import Effects
from .group_pacing import GroupPacing, PaceGate
from .leases import Leases

#: Stands between the name of the pace group and that of the group of consumers in the name of a clock.
SEPARATOR = "\0"


class LeaseGate(PaceGate):
    """A gate whose slots are leased from a clock that consumers of other queues share."""

    __slots__ = ("_now", "leases")

    def __init__(self, now: Callable[[], int], leases: Leases) -> None:
        self._now = now
        self.leases = leases

    def apply(self, settings: QueueSettings) -> None:
        self.leases.use(pace_of(settings, is_delivery=True))

    def room(self) -> int:
        return self.leases.due(self._now())

    def delivered(self, count: int) -> None:
        self.leases.take(count)

    def next_slot(self, now: int) -> int | None:
        return self.leases.next_slot()

    @property
    def unit(self) -> int:
        return self.leases.pace.unit


class SharedGroupPacing(GroupPacing):
    """See the module. `name` is that of the pace group's clock; those of its groups of consumers begin with it."""

    __slots__ = ("_leasing", "name")

    def __init__(
        self,
        backing: BackingQueue,
        effects: Effects,
        now: Callable[[], float],
        settings: QueueSettings,
        name: ClockName,
    ) -> None:
        super().__init__(backing, effects, now, settings)
        self.name = name
        #: The gates that have slots or have asked for some, by the names of their clocks.
        self._leasing: dict[ClockName, LeaseGate] = {}

    def _new_gate(self, key: tuple[str, ...]) -> PaceGate:
        vhost, pace_group = self.name
        name = vhost, pace_group + SEPARATOR + key[0]
        # A group that has just lost its last consumer and gets another one goes on with its request.
        gate = self._leasing.get(name)
        if gate is None:
            gate = LeaseGate(self.now, Leases(name, pace_of(self._settings, is_delivery=True), self._effects))
        return gate

    @property
    def _distance(self) -> int:
        """The time between two slots that this queue gets, if those of all clocks are taken together."""
        unit = pace_of(self._settings, is_delivery=False).unit
        # A publish asks for this. Most clocks have equally many sharers, and to add a fraction for each of 3,000 groups
        # took 5 ms.
        sharers = Counter([gate.leases.sharers for gate in self._gates.values() if isinstance(gate, LeaseGate)])
        shares = [Fraction(groups, number) for number, groups in sharers.items()]
        return -(-unit // sum(shares)) if shares else unit

    def await_slot(self, consumers: Consumers) -> None:
        """Ask for slots for the groups whose consumers wait for them, and set the timer to the next slot."""
        if consumers.single_active:
            held = self._held_by(consumers.active)
            for gate in {**dict.fromkeys(self._leasing.values()), **held}:
                self._ask_or_give_back(gate, gate in held)
        else:
            # Only the gates that have changed are looked at: a queue may have thousands that hold consumers back.
            for changed in consumers.changed_gates:
                if isinstance(changed, LeaseGate):
                    self._ask_or_give_back(changed, consumers.is_held(changed))
        super().await_slot(consumers)

    @staticmethod
    def _held_by(active: Consumer | None) -> dict[LeaseGate, None]:
        """The gate for which a single active consumer waits."""
        is_held = active is not None and (active.awaits_gate or active.capacity > 0)
        return {active.gate: None} if is_held and active and isinstance(active.gate, LeaseGate) else {}

    def _ask_or_give_back(self, gate: LeaseGate, is_held: bool) -> None:
        if is_held:
            self._leasing[gate.leases.name] = gate
            gate.leases.ask(len(self.backing), self.now())
        else:
            self._give_back(gate, self.now())

    def _give_back(self, gate: LeaseGate, now: int) -> None:
        gate.leases.give_back(now)
        if not gate.leases.is_asking:
            self._leasing.pop(gate.leases.name, None)

    def rest(self, consumers: Consumers) -> None:
        gates = consumers.changed_gates
        for gate in self._leasing.values():
            # a gate that still holds consumers back when the next message comes asks for slots again
            gates[gate] = None
        self.end()
        for each in [each for each in gates if not consumers.is_held(each)]:
            del gates[each]

    def end(self) -> None:
        now = self.now()
        for gate in list(self._leasing.values()):
            self._give_back(gate, now)

    def leased(self, clock: ClockName, first: int, last: int, count: int, sharers: int, consumers: Consumers) -> bool:
        """Note a lease, whose times are relative to now. False if nobody has asked for it."""
        gate = self._leasing.get(clock)
        if gate is None:
            return False
        now = self.now()
        gate.leases.came(first, last, count, sharers, now)
        if not consumers.single_active:
            consumers.changed_gates[gate] = None
        if consumers.is_held(gate):
            self._push(gate, now)
        return True

    def lost(self, consumers: Consumers) -> None:
        """Ask again later, because requests are lost."""
        for gate in self._leasing.values():
            gate.leases.lost()
            consumers.changed_gates[gate] = None
        if self._leasing and not self._is_timing:
            self._is_timing = True
            self._timing_to = self.now() + HORIZON
            self._effects.set_timer("pace", HORIZON / SECOND)
