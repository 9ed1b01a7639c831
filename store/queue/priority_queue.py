"""A queue with priorities: a backing queue for each level (queue-and-store section 9, AB-104).

The effective priority is `min(origin.priority, max_priority)`. Delivery and drop-head take from the highest level
that has messages; a requeued message goes back to its own level. Expiry sweeps the levels from the top and stops at
the first whose head has not expired, so expired messages of a low level wait behind a live one of a high level.

Numbers and tags are `(priority << 56) | number in the level`; those of priority 0 are the plain numbers of the level.
The backing queue of a level is made when the level is first used, since a queue that could have 256 levels mostly
uses two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..messages.message import Delivery, Origins, QueuedMessage, any_of
from ..messages.parts import Part
from ..messages.spans import spans
from .backing_queue import UNLIMITED, BackingQueue, Handed
from .rates import INFINITE

if TYPE_CHECKING:
    from .read_ahead import ReadAheadJob

LEVEL_SHIFT = 56
NUMBER_MASK = (1 << LEVEL_SHIFT) - 1


class PriorityQueue(BackingQueue):
    """`make_level(priority)` returns a new backing queue for a level. `levels` are those that there are already."""

    def __init__(
        self,
        max_priority: int,
        make_level: Callable[[int], BackingQueue],
        levels: Mapping[int, BackingQueue] | None = None,
    ) -> None:
        assert 0 <= max_priority <= 255
        self._max = max_priority
        self._make_level = make_level
        self._by_priority = dict(levels or {})
        self._levels = sorted(self._by_priority.items(), reverse=True)  # QS-36: strictly descending
        self._mode = "default"
        self._target = INFINITE

    def _open(self, priority: int) -> BackingQueue:
        level = self._make_level(priority)
        level.set_queue_mode(self._mode)
        level.set_ram_duration_target(self._target)
        self._by_priority[priority] = level
        self._levels = sorted(self._by_priority.items(), reverse=True)
        return level

    def _level(self, origins: Origins) -> tuple[int, BackingQueue]:
        priority = min(any_of(origins).priority, self._max)
        level = self._by_priority.get(priority)
        return priority, level if level is not None else self._open(priority)

    def delete_and_terminate(self) -> None:
        for _, level in self._levels:
            level.delete_and_terminate()

    def dispose(self, limit: int) -> bool:
        return any(level.dispose(limit) for _, level in self._levels)

    # -- in

    def publish(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiry: int | None,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        handed: Handed | None = None,
    ) -> range:
        priority, level = self._level(origins)
        return _outer(priority, level.publish(origins, contents, body_bytes, expiry, confirm, parts, shared, handed))

    def publish_delivered(
        self,
        origins: Origins,
        contents: Sequence[bytes],
        body_bytes: int,
        expiry: int | None,
        confirm: bool,
        parts: Sequence[Part] = (),
        shared: int = 0,
        handed: Handed | None = None,
    ) -> range:
        assert self.is_empty(), "publish_delivered on a queue that is not empty"
        priority, level = self._level(origins)
        return _outer(
            priority, level.publish_delivered(origins, contents, body_bytes, expiry, confirm, parts, shared, handed)
        )

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        priority, level = self._level(origins)
        return _outer(priority, level.discard(origins, count, confirm, parts, is_recorded))

    def drain_confirmed(self) -> list[tuple[int, int]]:
        confirmed = []
        for priority, level in self._levels:
            base = priority << LEVEL_SHIFT
            confirmed += [(base + first, base + last) for first, last in level.drain_confirmed()]
        return confirmed

    # -- out

    def fetch(self, count: int, ack_required: bool) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for priority, level in self._levels:
            if count <= 0:
                break
            for delivery in level.fetch(count, ack_required):
                count -= len(delivery.contents)
                deliveries.append(
                    delivery._replace(tags=_outer_tags(priority, delivery.tags)) if priority else delivery
                )
            if not level.is_empty():
                break  # the rest of this level comes before lower ones, even if it must be read from disk first
        return deliveries

    def drop(self, count: int) -> int:
        dropped = 0
        for _, level in self._levels:
            dropped += level.drop(count - dropped)
            if dropped == count or not level.is_empty():
                break
        return dropped

    def drop_expired(self, now: int, limit: int) -> int:
        dropped = 0
        for _, level in self._levels:
            dropped += level.drop_expired(now, limit - dropped)
            if not level.is_empty():
                break
        return dropped

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        messages: list[QueuedMessage] = []
        for priority, level in self._levels:
            messages += _outer_messages(priority, level.fetch_expired(now, limit - len(messages)))
            if not level.is_empty():
                break
        return messages

    def ack(self, tags: Sequence[int]) -> int:
        return sum(level.ack(inner) for _, level, inner in self._partition(tags))

    def move(self, tags: Sequence[int]) -> int:
        return sum(level.move(inner) for _, level, inner in self._partition(tags))

    def requeue(self, tags: Sequence[int]) -> int:
        return sum(level.requeue(inner) for _, level, inner in self._partition(tags))

    def _partition(self, tags: Sequence[int]) -> list[tuple[int, BackingQueue, Sequence[int]]]:
        """The tags of each level, without the level's bits.

        Highest level first, since a multiple reject dead-letters in that order.
        """
        if not tags:
            return []
        low, high = min(tags[0], tags[-1]) >> LEVEL_SHIFT, max(tags[0], tags[-1]) >> LEVEL_SHIFT
        if isinstance(tags, range) and low == high:
            base = low << LEVEL_SHIFT
            level = self._by_priority.get(low)
            return [(low, level, range(tags.start - base, tags.stop - base, tags.step))] if level is not None else []
        parts: dict[int, list[int]] = {}
        if isinstance(tags, range):
            # A multiple ack may span levels. Intersecting ranges avoids a list of all numbers between two levels.
            return [
                (priority, level, part)
                for priority, level in self._levels
                for span in spans(tags)
                if (part := _within(span, priority))
            ]
        for tag in tags:
            parts.setdefault(tag >> LEVEL_SHIFT, []).append(tag & NUMBER_MASK)
        return [(priority, level, parts[priority]) for priority, level in self._levels if priority in parts]

    def purge(self, limit: int = UNLIMITED) -> int:
        purged = 0
        for _, level in self._levels:
            while purged < limit and (count := level.purge(limit - purged)):
                purged += count
        return purged

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

    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        """The job of the first level that needs one. Call this again after the job until it returns None."""
        for _, level, inner in self._partition(tags):
            job = level.prepare_pending(inner)
            if job is not None:
                return job
        return None

    # -- inspection

    def __len__(self) -> int:
        return sum(len(level) for _, level in self._levels)

    def depth(self) -> int:
        return sum(level.depth() for _, level in self._levels)

    def is_empty(self) -> bool:
        return all(level.is_empty() for _, level in self._levels)

    @property
    def ready_bytes(self) -> int:
        return sum(level.ready_bytes for _, level in self._levels)

    @property
    def unacked_bytes(self) -> int:
        return sum(level.unacked_bytes for _, level in self._levels)

    def head(self) -> QueuedMessage | None:
        for priority, level in self._levels:
            message = level.head()
            if message is not None:
                return _outer_messages(priority, [message])[0]
        return None

    def oldest_pending(self) -> int | None:
        for priority, level in self._levels:
            number = level.oldest_pending()
            if number is not None:
                return (priority << LEVEL_SHIFT) + number
        return None

    def head_expiry(self) -> int | None:
        for _, level in self._levels:
            if not level.is_empty():
                return level.head_expiry()
        return None

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        return [
            message
            for priority, level, inner in self._partition(tags)
            for message in _outer_messages(priority, level.pending_messages(inner))
        ]

    # -- memory and mode

    def set_queue_mode(self, mode: str) -> None:
        self._mode = mode
        for _, level in self._levels:
            level.set_queue_mode(mode)

    def set_ram_duration_target(self, seconds: float) -> None:
        self._target = seconds
        for _, level in self._levels:
            level.set_ram_duration_target(seconds)

    def ram_duration(self) -> float:
        return min((level.ram_duration() for _, level in self._levels), default=INFINITE)

    def resume(self) -> None:
        for _, level in self._levels:
            level.resume()

    def continue_paging(self) -> None:
        for _, level in self._levels:
            level.continue_paging()


def _outer(priority: int, numbers: range) -> range:
    base = priority << LEVEL_SHIFT
    return range(base + numbers.start, base + numbers.stop, numbers.step)


def _outer_tags(priority: int, tags: Sequence[int]) -> Sequence[int]:
    if isinstance(tags, range):
        return _outer(priority, tags)
    base = priority << LEVEL_SHIFT
    return [base + tag for tag in tags] if base else tags


def _outer_messages(priority: int, messages: list[QueuedMessage]) -> list[QueuedMessage]:
    base = priority << LEVEL_SHIFT
    return [message._replace(tag=base + message.tag) for message in messages] if base else messages


def _within(span: range, priority: int) -> range:
    """The part of an ascending range that lies in a level, without the level's bits."""
    base = priority << LEVEL_SHIFT
    low = max(span.start, base)
    low += (span.start - low) % span.step
    return range(low - base, min(span.stop, base + NUMBER_MASK + 1) - base, span.step)
