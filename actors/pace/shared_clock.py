"""`SharedClock`: the clock of a pace group, from which several queues *lease* slots (QP-106).

A message between processes for each delivery would cost more than the delivery. So a queue asks for as many
slots as it has messages, and gets those that come in the next `HORIZON`, or its share of them if other queues have
asked lately. A request waits until there is a slot, or half of that share if the queue has as many messages. Queues are
served in the order of their requests, so those that always have messages get equally many.

A queue gives back the slots that it cannot use. If they are the newest ones, the clock goes back to where it was;
otherwise they are *spare*, and the next request gets them.

The clock of a group may be lost with its node. No lease reaches further ahead than `HORIZON`. So every new clock begins
`HORIZON` after the moment at which it is made: it and a lost clock that it replaces never exceed the rate together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .pace_clock import MILLISECOND, SECOND, TICK, Pace, PaceClock

#: Nanoseconds ahead for which slots are leased at most.
HORIZON = 100 * MILLISECOND

#: A queue that has asked for slots within this time shares the rate.
SHARER_KEPT = SECOND

#: Nanoseconds after which a clock that no queue has asked for slots is forgotten. A clock that is made again begins
#: cold.
CLOCK_KEPT = 600 * SECOND


class LeasedSlots(NamedTuple):
    """`slots` slots with even distances; the first one is at `first` and the last one at `last`, in ns."""

    first: int
    last: int
    slots: int

    def split(self, count: int) -> tuple[LeasedSlots, LeasedSlots]:
        """The first `count` slots, and the others. There must be some of both."""
        assert 0 < count < self.slots
        return (
            LeasedSlots(self.first, self.slot(count - 1), count),
            LeasedSlots(self.slot(count), self.last, self.slots - count),
        )

    def slot(self, number: int) -> int:
        """The time of the slot with this number, from 0."""
        return self.first + (self.last - self.first) * number // max(1, self.slots - 1)

    def moved(self, nanoseconds: int) -> LeasedSlots:
        """The same slots in the time of a clock that is `nanoseconds` ahead of this one."""
        return LeasedSlots(self.first + nanoseconds, self.last + nanoseconds, self.slots)


@dataclass(slots=True)
class _Newest:
    """The newest lease, and the clock before it."""

    queue: str
    lease: LeasedSlots
    latest: int
    tokens: float


class SharedClock:
    """See the module. Queues are named by any text; times are in ns of one monotonic clock."""

    def __init__(self, now: int) -> None:
        self._clock = PaceClock(now + HORIZON)
        #: The queues that wait, in order, and how many slots each has asked for.
        self._waiting: OrderedDict[str, int] = OrderedDict()
        #: When each queue was last known to want slots, because it asked for them or waited for them; the longest ago
        #: first. Every queue that waits is there.
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._spare: list[LeasedSlots] = []
        self._newest: _Newest | None = None

    def request(self, queue: str, pace: Pace, wanted: int, owed: int, now: int) -> None:
        """Note that a queue requests slots. It has used `owed` slots that it had no lease for, because a message may
        cost more than one.
        """
        self._clock.use(pace)
        self._take_owed(owed)
        self._waiting[queue] = wanted
        self._wants(queue, now)

    def _wants(self, queue: str, now: int) -> None:
        self._asked[queue] = now
        self._asked.move_to_end(queue)

    def give_back(self, queue: str, lease: LeasedSlots, owed: int) -> None:
        """Take back slots that a queue has leased and not used. `owed` is as in `request`."""
        newest, clock = self._newest, self._clock
        if lease.slots:
            is_newest = newest is not None and newest.queue == queue and clock.latest == newest.lease.last
            if newest is None or not is_newest or lease.slots > newest.lease.slots:
                self._spare.append(lease)
            elif lease.slots == newest.lease.slots:
                clock.latest = newest.latest
                self._warm(newest.tokens)
                self._newest = None
            else:
                newest.lease, unused = newest.lease.split(newest.lease.slots - lease.slots)
                clock.latest = newest.lease.last
                if clock.warm_up is not None:
                    self._warm(clock.warm_up.tokens + unused.slots)
        self._take_owed(owed)

    def _warm(self, tokens: float) -> None:
        if self._clock.warm_up is not None:
            self._clock.warm_up.tokens = tokens

    def _take_owed(self, owed: int) -> None:
        if owed:
            self._clock.take_whole(owed)
            self._newest = None

    def leases(self, now: int) -> Iterator[tuple[str, LeasedSlots]]:
        """Yield the waiting queues that get slots now, the longest wait first, each with its lease."""
        while self._waiting:
            queue, wanted = next(iter(self._waiting.items()))
            lease = self._spare_lease(wanted, now) or self._new_lease(queue, wanted, now)
            if lease is None:
                return
            del self._waiting[queue]
            self._wants(queue, now)
            yield queue, lease

    def _spare_lease(self, wanted: int, now: int) -> LeasedSlots | None:
        while self._spare:
            lease = self._spare.pop(0)
            if lease.last < now - 2 * TICK:
                continue  # no queue could use it in time
            if lease.slots > wanted:
                lease, rest = lease.split(wanted)
                self._spare.insert(0, rest)
            return lease
        return None

    def _new_lease(self, queue: str, wanted: int, now: int) -> LeasedSlots | None:
        clock = self._clock
        free = clock.free_until(now, now + HORIZON)
        if free < self._least(wanted):
            return None
        count = min(wanted, free, max(1, HORIZON // clock.unit // len(self._asked)))
        first, latest = clock.next_slot(now), clock.latest
        tokens = 0.0 if clock.warm_up is None else clock.warm_up.tokens
        clock.take(now, count)
        lease = LeasedSlots(first, clock.latest, count)
        self._newest = _Newest(queue, lease, latest, tokens)
        return lease

    def _least(self, wanted: int) -> int:
        """How many slots must be free before a queue that requests `wanted` gets any."""
        return min(wanted, max(1, HORIZON // 2 // self._clock.unit // len(self._asked)))

    def next_lease(self, now: int) -> int | None:
        """When the next queue is to be served; None if none waits."""
        if not self._waiting:
            return None
        if self._spare:
            return now
        first = self._clock.next_slot(now)
        least = self._least(next(iter(self._waiting.values())))
        return first + (self._clock.until(first, least - 1) if least > 1 else 0) - HORIZON

    def sharers(self, now: int) -> int:
        """How many queues share the rate."""
        asked = self._asked
        # The loop passes only the queues that it removes or that wait, and the first other one: this is called for each
        # lease.
        while asked:
            queue = next(iter(asked))
            if now - asked[queue] < SHARER_KEPT:
                break
            if queue in self._waiting:
                self._wants(queue, now)
            else:
                del asked[queue]
        return max(1, len(asked))

    def dismiss(self) -> list[str]:
        """Forget the queues that wait, and return them."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def is_idle(self, now: int) -> bool:
        """Whether no queue has asked for slots for a time after which the clock may be forgotten."""
        return not self._waiting and self._clock.latest < now - CLOCK_KEPT - 2 * self._clock.unit
