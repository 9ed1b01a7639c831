"""A queue with priorities: a backing queue for each level (queue-and-store section 9, AB-104).

The effective priority is `min(origin.priority, max_priority)`. Delivery and drop-head take from the highest level
that has messages; a requeued message goes back to its own level. Expiry sweeps the levels from the top and stops at
the first whose head has not expired, so expired messages of a low level wait behind a live one of a high level.

The backing queue of a level is made when the level is first used, since a queue that could have 256 levels mostly uses
two. `level_tags` has what the numbers and tags of levels are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from ...messages.message import Expiries, FetchedMessages, Origins, QueuedMessage, any_of
from ...messages.parts import Part
from ...messages.spans import spans
from ..backing_queue import UNLIMITED, BackingQueue, Dispose, Totals
from .level_tags import LEVEL_SHIFT, MOST_LEVELS, NUMBER_MASK, outer, outer_messages, outer_tags, within

if TYPE_CHECKING:
    from ..variable.read_ahead import ReadAheadJob


class PriorityQueue(BackingQueue):
    """The number of a level is its priority, from 0 to `max_priority`. `make_level(number)` returns a new backing queue
    for a level. `levels` are those that there are already.
    """

    def __init__(
        self,
        max_priority: int,
        make_level: Callable[[int], BackingQueue],
        levels: Mapping[int, BackingQueue] | None = None,
    ) -> None:
        assert 0 <= max_priority < MOST_LEVELS
        self._max = max_priority
        self._make_level = make_level
        self._by_number = dict(levels or {})
        self._levels = sorted(self._by_number.items(), reverse=True)  # QS-36: strictly descending
        self._mode = "default"
        #: Whether length limits drop the oldest message of the lowest level, not of the highest one (QP-63).
        self.drops_lowest = False

    def _open(self, number: int) -> BackingQueue:
        level = self._make_level(number)
        level.set_queue_mode(self._mode)
        self._by_number[number] = level
        self._levels = sorted(self._by_number.items(), reverse=True)
        return level

    def _level(self, origins: Origins, contents: Sequence[bytes]) -> tuple[int, BackingQueue]:
        priority = min(any_of(origins).priority, self._max)
        level = self._by_number.get(priority)
        return priority, level if level is not None else self._open(priority)

    @property
    def levels(self) -> Iterable[BackingQueue]:
        """All levels that there are."""
        return self._by_number.values()

    def level_numbers(self) -> Iterable[int]:
        """The numbers of all levels that there are."""
        return self._by_number.keys()

    def level_from(self, number: int) -> tuple[int, BackingQueue] | None:
        """Of the levels that exist, the lowest one whose number is not below `number`; None if there is none."""
        return min((level for level in self._levels if level[0] >= number), key=itemgetter(0), default=None)

    def delete_and_terminate(self) -> Dispose:
        disposals = [level.delete_and_terminate() for _, level in self._levels]
        return lambda limit: any(dispose(limit) for dispose in disposals)

    # -- in

    def publish(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        number, level = self._level(origins, contents)
        return outer(
            number,
            level.publish(origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered),
        )

    def publish_delivered(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiries: Expiries,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        is_handed: bool = False,
        is_redelivered: bool = False,
    ) -> range:
        assert not len(self), "publish_delivered on a queue that is not empty"
        number, level = self._level(origins, contents)
        return outer(
            number,
            level.publish_delivered(
                origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
            ),
        )

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        number, level = self._level(origins, ())
        return outer(number, level.discard(origins, count, confirm, parts, is_recorded))

    def drain_confirmed(self) -> list[tuple[int, int]]:
        confirmed = []
        for number, level in self._levels:
            base = number << LEVEL_SHIFT
            confirmed += [(base + first, base + last) for first, last in level.drain_confirmed()]
        return confirmed

    # -- out

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

    # -- settled

    def ack(self, tags: Sequence[int]) -> int:
        return sum(level.ack(inner) for _, level, inner in self._partition(tags))

    def move(self, tags: Sequence[int]) -> int:
        return sum(level.move(inner) for _, level, inner in self._partition(tags))

    def requeue(self, tags: Sequence[int]) -> int:
        return sum(level.requeue(inner) for _, level, inner in self._partition(tags))

    def mark_redelivered(self) -> None:
        for _, level in self._levels:
            level.mark_redelivered()

    def _partition(self, tags: Sequence[int]) -> list[tuple[int, BackingQueue, Sequence[int]]]:
        """The tags of each level, without the level's bits.

        Highest level first, since a multiple reject dead-letters in that order.
        """
        if not tags:
            return []
        low, high = min(tags[0], tags[-1]) >> LEVEL_SHIFT, max(tags[0], tags[-1]) >> LEVEL_SHIFT
        if isinstance(tags, range) and low == high:
            base = low << LEVEL_SHIFT
            level = self._by_number.get(low)
            return [(low, level, range(tags.start - base, tags.stop - base, tags.step))] if level is not None else []
        parts: dict[int, list[int]] = {}
        if isinstance(tags, range):
            # A multiple ack may span levels. Intersecting ranges avoids a list of all numbers between two levels.
            return [
                (number, level, part)
                for number, level in self._levels
                for span in spans(tags)
                if (part := within(span, number))
            ]
        for tag in tags:
            parts.setdefault(tag >> LEVEL_SHIFT, []).append(tag & NUMBER_MASK)
        return [(number, level, parts[number]) for number, level in self._levels if number in parts]

    def purge(self, limit: int = UNLIMITED) -> int:
        purged = 0
        for _, level in self._levels:
            while purged < limit and (count := level.purge(limit - purged)):
                purged += count
        return purged

    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        """The job that reads pending bodies of one level from the disk; None if no level needs one.

        The owner runs the job and calls this again, until every level has its bodies in memory.
        """
        for _, level, inner in self._partition(tags):
            job = level.prepare_pending(inner)
            if job is not None:
                return job
        return None

    # -- inspection

    def __len__(self) -> int:
        return sum(map(len, self._by_number.values()))

    def totals(self) -> Totals:
        return Totals(*map(sum, zip(*[level.totals() for _, level in self._levels])))

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        return [
            message
            for number, level, inner in self._partition(tags)
            for message in outer_messages(number, level.pending_messages(inner))
        ]

    def pending_numbers(self) -> Iterator[int]:
        return ((number << LEVEL_SHIFT) + tag for number, level in self._levels for tag in level.pending_numbers())

    # -- mode

    def set_queue_mode(self, mode: str) -> None:
        self._mode = mode
        for _, level in self._levels:
            level.set_queue_mode(mode)
