"""A queue with priorities: a backing queue for each level (queue-and-store section 9, AB-104).

The effective priority is `min(origin.priority, max_priority)`. Delivery and drop-head take from the highest level
that has messages; a requeued message goes back to its own level. Expiry sweeps the levels from the top and stops at
the first whose head has not expired, so expired messages of a low level wait behind a live one of a high level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...messages.message import FetchedMessages, Origins, QueuedMessage, any_of
from ..backing_queue import BackingQueue
from .levelled_queue import LevelledQueue, outer_messages, outer_tags

if TYPE_CHECKING:
    from ..variable.read_ahead import ReadAheadJob


class PriorityQueue(LevelledQueue):
    """The number of a level is its priority, from 0 to `max_priority`."""

    def __init__(
        self,
        max_priority: int,
        make_level: Callable[[int], BackingQueue],
        levels: Mapping[int, BackingQueue] | None = None,
    ) -> None:
        assert 0 <= max_priority <= 255
        super().__init__(make_level, levels)
        self._max = max_priority
        #: Whether length limits drop the oldest message of the lowest level, not of the highest one (QP-63).
        self.drops_lowest = False

    def _level(self, origins: Origins, contents: Sequence[bytes]) -> tuple[int, BackingQueue]:
        priority = min(any_of(origins).priority, self._max)
        level = self._by_number.get(priority)
        return priority, level if level is not None else self._open(priority)

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        return self._fetch(self._levels, count, ack_required)

    def _fetch(
        self, levels: Iterable[tuple[int, BackingQueue]], count: int, ack_required: bool
    ) -> list[FetchedMessages]:
        deliveries: list[FetchedMessages] = []
        for priority, level in levels:
            if count <= 0:
                break
            for delivery in level.fetch(count, ack_required):
                count -= len(delivery.contents)
                deliveries.append(delivery._replace(tags=outer_tags(priority, delivery.tags)) if priority else delivery)
            if len(level):
                break  # the rest of this level comes before the next ones, even if it must be read from disk first
        return deliveries

    def drop(self, count: int) -> int:
        dropped = 0
        for _, level in self._dropped_first():
            dropped += level.drop(count - dropped)
            if dropped == count or len(level):
                break
        return dropped

    def _dropped_first(self) -> Iterable[tuple[int, BackingQueue]]:
        """The levels in the order in which length limits drop from them."""
        return reversed(self._levels) if self.drops_lowest else self._levels

    def fetch_dropped(self, count: int) -> list[FetchedMessages]:
        return self._fetch(self._dropped_first(), count, True)

    def droppable(self) -> bool:
        level = next((level for _, level in self._dropped_first() if len(level)), None)
        return level is not None and level.available(1) > 0

    def drop_expired(self, now: int, limit: int) -> int:
        dropped = 0
        for _, level in self._levels:
            dropped += level.drop_expired(now, limit - dropped)
            if len(level):
                break
        return dropped

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        messages: list[QueuedMessage] = []
        for priority, level in self._levels:
            messages += outer_messages(priority, level.fetch_expired(now, limit - len(messages)))
            if len(level):
                break
        return messages

    def available(self, limit: int) -> int:
        count = 0
        for _, level in self._levels:
            wanted = min(len(level), limit - count)
            here = level.available(wanted)
            count += here
            if here < wanted or count == limit:
                break
        return count

    def prepare(self) -> ReadAheadJob | None:
        for _, level in self._levels:
            job = level.prepare()
            if job is not None:
                return job
        return None

    def head(self) -> QueuedMessage | None:
        for priority, level in self._levels:
            message = level.head()
            if message is not None:
                return outer_messages(priority, [message])[0]
        return None

    def head_expiry(self) -> int | None:
        for _, level in self._levels:
            if len(level):
                return level.head_expiry()
        return None
