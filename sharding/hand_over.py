"""The order in which deliveries of the shards are handed over to the program (FC-80, FC-81).

Each shard has a slot: the deliveries that have arrived and were not handed over yet. Prefetch bounds it. `Relaxed`
takes from the slots in rotation. `Strict` restores the order in which each publisher numbered its messages. Both are
plain objects without a clock, so that tests can feed them any order of arrivals.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")

#: Publishers whose next number `Strict` remembers. The one that has been quiet for longest is forgotten first; should
#: it publish again, the numbers before that message count as skipped.
PUBLISHERS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Skip:
    """The numbers `first` to `last` of a publisher did not come: they expired, were dropped, or are late."""

    publisher: str
    first: int
    last: int


@dataclass(slots=True)
class HandedOver(Generic[Item]):
    """One delivery in its turn, and what was skipped before it."""

    item: Item
    shard: int
    #: Whether numbers above this one were handed over before, as after a redelivery.
    is_late: bool = False
    skip: Skip | None = None


class HandOver(Protocol[Item]):
    """What both orders do."""

    def arrived(self, shard: int, publisher: str | None, number: int | None, item: Item) -> None:
        """A delivery of this shard has arrived. Publisher and number are None if its headers do not have them."""

    def take(self) -> HandedOver[Item] | None:
        """The delivery whose turn it is, or None as long as it has not arrived."""

    def give_up(self) -> None:
        """The missing numbers did not arrive within the gap timeout: skip them."""

    def drop(self, shard: int) -> None:
        """Forget the deliveries of a shard whose channel has ended: the broker will deliver them again."""

    @property
    def is_held_up(self) -> bool:
        """Whether deliveries have arrived that must wait for a missing number."""


class Relaxed(Generic[Item]):
    """Takes from the slots in rotation, and skips empty slots."""

    def __init__(self, shards: int) -> None:
        self._slots: list[deque[Item]] = [deque() for _ in range(shards)]
        self._next = 0

    def arrived(self, shard: int, publisher: str | None, number: int | None, item: Item) -> None:
        self._slots[shard].append(item)

    def take(self) -> HandedOver[Item] | None:
        count = len(self._slots)
        for shard in range(self._next, self._next + count):
            slot = self._slots[shard % count]
            if slot:
                self._next = (shard + 1) % count
                return HandedOver(slot.popleft(), shard % count)
        return None

    def give_up(self) -> None:
        """Nothing waits for a number in this order."""

    def drop(self, shard: int) -> None:
        self._slots[shard].clear()

    @property
    def is_held_up(self) -> bool:
        return False


class _Publisher(Generic[Item]):
    """The slots of one publisher, and the number that comes next."""

    __slots__ = ("expected", "skipped_from", "slots")

    def __init__(self, shards: int) -> None:
        self.expected = 0
        #: The first number that was skipped since the last one was handed over.
        self.skipped_from: int | None = None
        self.slots: list[deque[tuple[int, Item]]] = [deque() for _ in range(shards)]

    def skip_to(self, number: int) -> None:
        if self.skipped_from is None:
            self.skipped_from = self.expected
        self.expected = number

    def skip_missing(self) -> None:
        """Skip each number that cannot come any more, because a higher one stands at the head of its own shard.

        A shard delivers in order. The numbers of N successive messages are in N different slots, so after N steps all
        slots are known to have a higher number, and the smallest one of these is next.
        """
        shards = len(self.slots)
        for _ in range(shards):
            slot = self.slots[self.expected % shards]
            if not slot or slot[0][0] <= self.expected:
                return
            self.skip_to(self.expected + 1)
        self.skip_to(min(slot[0][0] for slot in self.slots))

    def heads(self) -> list[int]:
        return [slot[0][0] for slot in self.slots if slot]


class Strict(Generic[Item]):
    """Hands over the messages of each publisher in the order of their numbers."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._publishers: dict[str, _Publisher[Item]] = {}
        #: Deliveries that wait for nothing: late ones, and those without a number.
        self._at_once: list[deque[tuple[Item, bool]]] = [deque() for _ in range(shards)]

    def arrived(self, shard: int, publisher: str | None, number: int | None, item: Item) -> None:
        if publisher is None or number is None or number % self._shards != shard:
            # Another program published it, or with another number of shards. It has no place in the order.
            self._at_once[shard].append((item, False))
            return
        state = self._publishers.get(publisher)
        if state is None:
            self._forget_idle()
            state = self._publishers[publisher] = _Publisher(self._shards)
        slot = state.slots[shard]
        at = len(slot)
        while at and slot[at - 1][0] >= number:  # a message that another consumer gave back comes behind higher ones
            at -= 1
        if number < state.expected or at < len(slot) and slot[at][0] == number:
            self._at_once[shard].append((item, True))
        else:
            slot.insert(at, (number, item))

    def _forget_idle(self) -> None:
        """A publisher that restarts has a new name, so those that are gone would pile up."""
        if len(self._publishers) < PUBLISHERS_KEPT:
            return
        for name, state in list(self._publishers.items()):
            if not any(state.slots):
                del self._publishers[name]
                return

    def take(self) -> HandedOver[Item] | None:
        for shard, ready in enumerate(self._at_once):
            if ready:
                item, is_late = ready.popleft()
                return HandedOver(item, shard, is_late)
        for name, state in self._publishers.items():
            state.skip_missing()
            shard = state.expected % self._shards
            slot = state.slots[shard]
            if slot and slot[0][0] == state.expected:
                number, item = slot.popleft()
                skip = None if state.skipped_from is None else Skip(name, state.skipped_from, number - 1)
                state.skipped_from = None
                state.expected = number + 1
                # The next call begins with another publisher, so that none of them waits for ever.
                self._publishers[name] = self._publishers.pop(name)
                return HandedOver(item, shard, skip=skip)
        return None

    def give_up(self) -> None:
        for state in self._publishers.values():
            heads = state.heads()
            if heads:
                state.skip_to(min(heads))

    def drop(self, shard: int) -> None:
        self._at_once[shard].clear()
        for state in self._publishers.values():
            state.slots[shard].clear()

    @property
    def is_held_up(self) -> bool:
        return any(slot for state in self._publishers.values() for slot in state.slots)
