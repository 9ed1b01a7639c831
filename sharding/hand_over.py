"""The order in which deliveries of the shards are handed over to the program (FC-80, FC-81).

Each shard has a buffer of the deliveries that have arrived and were not handed over yet; the prefetch bounds it.
`Relaxed` takes from the buffers in rotation. `Strict` restores the order in which each publisher numbered its messages.
Both are plain objects without a clock, so that tests can feed them any order of arrivals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")

#: For how many publishers `Strict` remembers the next number. It forgets the publisher without buffered deliveries
#: whose turn was longest ago; if that one publishes again, the numbers before its message count as skipped.
PUBLISHERS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Skip:
    """The numbers `first` to `last` of a publisher did not come: they expired, were dropped, or are late."""

    publisher: str
    first: int
    last: int


@dataclass(slots=True)
class DueDelivery(Generic[Item]):
    """One delivery whose turn has come, and the numbers that were skipped before it."""

    item: Item
    shard: int
    #: Whether numbers above this one were handed over before, as after a redelivery.
    is_late: bool = False
    skip: Skip | None = None


class HandOver(Protocol[Item]):
    """What both orders do."""

    def arrived(self, shard: int, publisher: str | None, number: int | None, item: Item) -> None:
        """Take a delivery of this shard. Publisher and number are None if its headers do not have them."""

    def take(self) -> DueDelivery[Item] | None:
        """The delivery whose turn it is, or None as long as it has not arrived."""

    def gaps(self) -> dict[str, int]:
        """For each publisher of which deliveries wait for a missing number: that number."""

    def has_any(self, gaps: Mapping[str, int]) -> bool:
        """Whether one of these numbers is still missing."""

    def give_up(self, gaps: Mapping[str, int]) -> None:
        """Skip those of these missing numbers that are still missing: they did not arrive within the gap timeout."""

    def drop(self, shard: int) -> None:
        """Forget the deliveries of a shard whose channel has ended: the broker will deliver them again."""

    @property
    def is_held_up(self) -> bool:
        """Whether deliveries have arrived that must wait for a missing number."""


class Relaxed(Generic[Item]):
    """Takes from the shards' buffers in rotation, and skips empty ones."""

    def __init__(self, shards: int) -> None:
        self._buffers: list[deque[Item]] = [deque() for _ in range(shards)]
        self._next = 0

    def arrived(self, shard: int, publisher: str | None, number: int | None, item: Item) -> None:
        self._buffers[shard].append(item)

    def take(self) -> DueDelivery[Item] | None:
        count = len(self._buffers)
        for shard in range(self._next, self._next + count):
            buffer = self._buffers[shard % count]
            if buffer:
                self._next = (shard + 1) % count
                return DueDelivery(buffer.popleft(), shard % count)
        return None

    def gaps(self) -> dict[str, int]:
        return {}

    def has_any(self, gaps: Mapping[str, int]) -> bool:
        return False

    def give_up(self, gaps: Mapping[str, int]) -> None:
        """Does nothing: no delivery waits for a number in this order."""

    def drop(self, shard: int) -> None:
        self._buffers[shard].clear()

    @property
    def is_held_up(self) -> bool:
        return False


class _Publisher(Generic[Item]):
    """The buffers of one publisher, a buffer for each shard, and the number that comes next."""

    __slots__ = ("buffers", "expected", "skipped_from")

    def __init__(self, shards: int) -> None:
        self.expected = 0
        #: The first number that was skipped since the last one was handed over.
        self.skipped_from: int | None = None
        self.buffers: list[deque[tuple[int, Item]]] = [deque() for _ in range(shards)]

    def skip_to(self, number: int) -> None:
        if self.skipped_from is None:
            self.skipped_from = self.expected
        self.expected = number

    def skip_missing(self) -> None:
        """Skip each number that cannot come any more, because a higher one is first in the buffer of its shard.

        A shard delivers in order. N successive numbers belong to N different shards, so after N steps every buffer is
        known to begin with a higher number, and the smallest of these is next.
        """
        shards = len(self.buffers)
        for _ in range(shards):
            buffer = self.buffers[self.expected % shards]
            if not buffer or buffer[0][0] <= self.expected:
                return
            self.skip_to(self.expected + 1)
        self.skip_to(min(buffer[0][0] for buffer in self.buffers))

    def heads(self) -> list[int]:
        return [buffer[0][0] for buffer in self.buffers if buffer]


class Strict(Generic[Item]):
    """Hands over the messages of each publisher in the order of their numbers."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._publishers: dict[str, _Publisher[Item]] = {}
        #: Deliveries that have no turn to wait for: late ones, and those without a number.
        self._at_once: list[deque[tuple[Item, bool]]] = [deque() for _ in range(shards)]

    def arrived(self, shard: int, publisher: str | None, number: int | None, item: Item) -> None:
        if publisher is None or number is None or number % self._shards != shard:
            # It was published without this library, or with another number of shards, so it has no place in the order.
            self._at_once[shard].append((item, False))
            return
        state = self._publishers.get(publisher)
        if state is None:
            self._forget_idle()
            state = self._publishers[publisher] = _Publisher(self._shards)
        buffer = state.buffers[shard]
        at = len(buffer)
        while at and buffer[at - 1][0] >= number:  # a message that another consumer requeued comes behind higher ones
            at -= 1
        if number < state.expected or at < len(buffer) and buffer[at][0] == number:
            self._at_once[shard].append((item, True))
        else:
            buffer.insert(at, (number, item))

    def _forget_idle(self) -> None:
        """Forget a publisher if there are too many: one that restarts has a new name, so old names would accumulate."""
        if len(self._publishers) < PUBLISHERS_KEPT:
            return
        for name, state in list(self._publishers.items()):
            if not any(state.buffers):
                del self._publishers[name]
                return

    def take(self) -> DueDelivery[Item] | None:
        for shard, ready in enumerate(self._at_once):
            if ready:
                item, is_late = ready.popleft()
                return DueDelivery(item, shard, is_late)
        for name, state in self._publishers.items():
            state.skip_missing()
            shard = state.expected % self._shards
            buffer = state.buffers[shard]
            if buffer and buffer[0][0] == state.expected:
                number, item = buffer.popleft()
                skip = None if state.skipped_from is None else Skip(name, state.skipped_from, number - 1)
                state.skipped_from = None
                state.expected = number + 1
                # The next call begins with another publisher, so that none of them waits for ever.
                self._publishers[name] = self._publishers.pop(name)
                return DueDelivery(item, shard, skip=skip)
        return None

    def gaps(self) -> dict[str, int]:
        return {name: state.expected for name, state in self._publishers.items() if any(state.buffers)}

    def has_any(self, gaps: Mapping[str, int]) -> bool:
        return any(self._waits_for(name, number) for name, number in gaps.items())

    def give_up(self, gaps: Mapping[str, int]) -> None:
        for name, number in gaps.items():
            if self._waits_for(name, number):
                state = self._publishers[name]
                state.skip_to(min(state.heads()))

    def _waits_for(self, name: str, number: int) -> bool:
        state = self._publishers.get(name)
        return state is not None and state.expected == number and any(state.buffers)

    def drop(self, shard: int) -> None:
        self._at_once[shard].clear()
        for state in self._publishers.values():
            state.buffers[shard].clear()

    @property
    def is_held_up(self) -> bool:
        return any(buffer for state in self._publishers.values() for buffer in state.buffers)
