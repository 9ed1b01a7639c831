"""`Leases`: the slots that a queue has leased from the clock of its pace group, and its request for more (QP-106).

The `Pacer` of one node holds the clock and grants slots some time ahead. The queue asks for more when it has slots for
less than half of that time, so that the answer comes before they are used up.

While the pacer cannot be reached the queue has no slots, so it delivers nothing (QP-106).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...contracts.pace import to_pacer
from ...pace.pace_clock import Pace
from ...pace.shared_clock import HORIZON, LeasedSlots
from ..effects import Effects

if TYPE_CHECKING:
    from ...contracts.pace import ClockName

#: Nanoseconds for which a slot may be used late, because the timers of a busy node fire late. After that it is lost.
LATE = HORIZON


class Leases:
    """See the module. All times are in ns of the monotonic clock of this node."""

    __slots__ = ("_effects", "_held", "_owed", "_wanted", "is_asking", "name", "pace", "sharers")

    def __init__(self, name: ClockName, pace: Pace, effects: Effects) -> None:
        #: The name of the clock.
        self.name = name
        self.pace = pace
        self._effects = effects
        #: The leased slots, each with the time at which this queue received them, the oldest first.
        self._held: deque[tuple[LeasedSlots, int]] = deque()
        #: Whether a request has no answer yet.
        self.is_asking = False
        #: How many slots the latest request asked for.
        self._wanted = 0
        #: Slots that were used without a lease, because a message took several.
        self._owed = 0
        #: How many queues share the rate.
        self.sharers = 1

    def came(self, first: int, last: int, count: int, sharers: int, now: int) -> None:
        """Note a lease; its times are relative to `now`."""
        self.is_asking = False
        self.sharers = sharers
        self._held.append((LeasedSlots(first, last, count).moved(now), now))

    def due(self, now: int) -> int:
        """The number of leased slots whose time has come and that have not expired."""
        self._drop_lost(now)
        return sum([_until(lease, now) for lease, _ in self._held])

    def _drop_lost(self, now: int) -> None:
        held = self._held
        while held:
            lease, came = held[0]
            lost = 0 if came >= now - LATE else _until(lease, now - LATE)
            if lost < lease.slots:
                if lost:
                    held[0] = lease.split(lost)[1], came
                return
            held.popleft()

    def take(self, count: int) -> None:
        """Use the next `count` slots."""
        held = self._held
        while count and held:
            lease, came = held[0]
            if lease.slots > count:
                held[0] = lease.split(count)[1], came
                return
            count -= lease.slots
            held.popleft()
        self._owed += count

    def next_slot(self) -> int | None:
        """The next slot; None if the queue has none."""
        return self._held[0][0].first if self._held else None

    def ask(self, wanted: int, now: int) -> None:
        """Ask for slots for `wanted` messages, unless those that the queue has will last for a while."""
        if self.is_asking or self._held and self._held[-1][0].last > now + HORIZON // 2:
            return
        wanted -= sum([lease.slots for lease, _ in self._held])
        if wanted > 0:
            self.is_asking = True
            self._wanted = wanted
            self._request()

    def _request(self) -> None:
        self._effects.send_to_pacer(self.name, to_pacer.lease(*self.name, (*self.pace,), self._wanted, self._owed))
        self._owed = 0

    def use(self, pace: Pace) -> None:
        """Use this rate from now on. A request that has no answer yet is repeated: the clock goes by the rate of the
        latest request, and by the old one the answer might take hours.
        """
        if pace != self.pace:
            self.pace = pace
            if self.is_asking:
                self._request()

    def give_back(self, now: int) -> None:
        """Give the slots back, newest first, because they cannot be used now."""
        while self._held:
            lease = self._held.pop()[0].moved(-now)
            self._effects.send_to_pacer(self.name, to_pacer.give_back(*self.name, *lease, self._owed))
            self._owed = 0

    def lost(self) -> None:
        """Note that the request is lost: its pacer has ended, or holds the clock no more."""
        self.is_asking = False


def _until(lease: LeasedSlots, now: int) -> int:
    """How many slots of the lease come until `now`."""
    first, last, count = lease
    if now >= last:
        return count
    return 0 if now < first else (now - first) * (count - 1) // (last - first) + 1
