"""`LevelledQueue`: a backing queue made of other backing queues, its *levels* (queue-and-store section 9).

A level has a number from 0 to 255 and numbers its messages by itself. Outside, numbers and tags are
`(level << 56) | number in the level`; those of level 0 are the plain numbers of the level. The backing queue of a level
is made when the level is first used, since a queue that could have 256 levels mostly uses two.

`PriorityQueue` and `FairQueue` decide which level a message enters and from which one the next message is taken. This
class has everything else: what is addressed by tag, and what concerns all levels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from ...messages.message import Expiries, Origins, QueuedMessage
from ...messages.parts import Part
from ...messages.spans import spans
from ..backing_queue import UNLIMITED, BackingQueue, Dispose, Totals

if TYPE_CHECKING:
    from ..variable.read_ahead import ReadAheadJob

LEVEL_SHIFT = 56
NUMBER_MASK = (1 << LEVEL_SHIFT) - 1

#: Levels that a queue can have at most.
MOST_LEVELS = 256


class LevelledQueue(BackingQueue):
    """`make_level(number)` returns a new backing queue for a level. `levels` are those that there are already."""

    def __init__(
        self, make_level: Callable[[int], BackingQueue], levels: Mapping[int, BackingQueue] | None = None
    ) -> None:
        self._make_level = make_level
        self._by_number = dict(levels or {})
        self._levels = sorted(self._by_number.items(), reverse=True)  # QS-36: strictly descending
        self._mode = "default"

    def _open(self, number: int) -> BackingQueue:
        level = self._make_level(number)
        level.set_queue_mode(self._mode)
        self._by_number[number] = level
        self._levels = sorted(self._by_number.items(), reverse=True)
        return level

    @abstractmethod
    def _level(self, origins: Origins, contents: Sequence[bytes]) -> tuple[int, BackingQueue]:
        """The level that these messages enter. `contents` is empty if they are only numbered."""

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
        return _outer(
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
        return _outer(
            number,
            level.publish_delivered(
                origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
            ),
        )

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        number, level = self._level(origins, ())
        return _outer(number, level.discard(origins, count, confirm, parts, is_recorded))

    def drain_confirmed(self) -> list[tuple[int, int]]:
        confirmed = []
        for number, level in self._levels:
            base = number << LEVEL_SHIFT
            confirmed += [(base + first, base + last) for first, last in level.drain_confirmed()]
        return confirmed

    # -- out

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
            level = self._by_number.get(low)
            return [(low, level, range(tags.start - base, tags.stop - base, tags.step))] if level is not None else []
        parts: dict[int, list[int]] = {}
        if isinstance(tags, range):
            # A multiple ack may span levels. Intersecting ranges avoids a list of all numbers between two levels.
            return [
                (number, level, part)
                for number, level in self._levels
                for span in spans(tags)
                if (part := _within(span, number))
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


def _outer(number: int, numbers: range) -> range:
    base = number << LEVEL_SHIFT
    return range(base + numbers.start, base + numbers.stop, numbers.step)


def outer_tags(number: int, tags: Sequence[int]) -> Sequence[int]:
    if isinstance(tags, range):
        return _outer(number, tags)
    base = number << LEVEL_SHIFT
    return [base + tag for tag in tags] if base else tags


def outer_messages(number: int, messages: list[QueuedMessage]) -> list[QueuedMessage]:
    base = number << LEVEL_SHIFT
    return [message._replace(tag=base + message.tag) for message in messages] if base else messages


def _within(span: range, number: int) -> range:
    """The part of an ascending range that lies in a level, without the level's bits."""
    base = number << LEVEL_SHIFT
    low = max(span.start, base)
    low += (span.start - low) % span.step
    return range(low - base, min(span.stop, base + NUMBER_MASK + 1) - base, span.step)
