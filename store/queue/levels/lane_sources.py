"""`LaneSources`: where the messages of a queue with lanes are, by their keys (`lane_source`).

Messages that have left their lanes, because they are delivered, dropped or expired, are **picks**: a lane, and
consecutive keys of one source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ...messages.message import FetchedMessages, QueuedMessage
from ..lane_level import LaneLevel
from .lane_source import LaneSource, compact, level_of
from .lanes import FairLane
from .level_tags import LEVEL_SHIFT

Picks = list[tuple[FairLane, range]]


class LaneSources:
    """The sources of one queue, of which `own` gets its messages. `old` are those that an earlier version left and that
    may have messages that are not in lanes.
    """

    __slots__ = ("_by_number", "old", "own")

    def __init__(self, levels: Mapping[int, LaneLevel]) -> None:
        self._by_number = {number: LaneSource(number, level) for number, level in sorted(levels.items())}
        self.own = self._by_number[0]
        self.old = [source for source in self if source is not self.own]

    def __iter__(self) -> Iterator[LaneSource]:
        return iter(self._by_number.values())

    def __reversed__(self) -> Iterator[LaneSource]:
        """Those of the highest levels first."""
        return reversed(self._by_number.values())

    # -- by key

    def at(self, key: int) -> tuple[LaneSource, int]:
        """The source and the number of the message with this key."""
        source = self.own if key >= 0 else self._by_number[level_of(key)]
        return source, key - source.key_base

    def by_source(self, picks: Picks) -> list[tuple[LaneSource, Sequence[int]]]:
        """The numbers of these messages, by source."""
        if len(picks) == 1:
            keys = picks[0][1]
            source, first = self.at(keys.start)
            return [(source, range(first, first + len(keys)))]  # the usual case of a lane that is alone
        numbers: dict[LaneSource, list[int]] = {}
        for _, keys in picks:
            source, first = self.at(keys.start)
            numbers.setdefault(source, []).extend(range(first, first + len(keys)))
        return [(source, compact(sorted(each))) for source, each in numbers.items()]

    def found(self, picks: Picks) -> dict[tuple[LaneSource, int], QueuedMessage]:
        """These messages by source and number, without those whose bodies are lost."""
        return {
            (source, message.tag): message
            for source, numbers in self.by_source(picks)
            for message in source.level.pending_messages(numbers)
        }

    def remove(self, picks: Picks) -> None:
        for source, numbers in self.by_source(picks):
            source.level.ack(numbers)
            if source.returned:
                source.returned.difference_update(numbers)

    def sizes(self, picks: Picks) -> int:
        """The bytes of the bodies of these messages, which are in memory."""
        return sum(source.level.size_of(number) or 0 for source, numbers in self.by_source(picks) for number in numbers)

    # -- by tag

    def unacked(self, tags: Sequence[int]) -> list[tuple[LaneSource, list[int]]]:
        """The unacknowledged messages among these tags, by source; the highest level first."""
        if not tags:
            return []
        sources = list(reversed(self))
        if len(sources) > 1 and isinstance(tags, range) and tags[0] >> LEVEL_SHIFT == tags[-1] >> LEVEL_SHIFT:
            sources = [source for source in sources if source.base >> LEVEL_SHIFT == tags[0] >> LEVEL_SHIFT]
        found = [(source, source.unacked_in(tags)) for source in sources]
        return [each for each in found if each[1]]

    # -- what is in memory

    @property
    def have_all_in_memory(self) -> bool:
        return all([source.level.has_all_in_memory for source in self if source.ready])

    def readable(self, lane: FairLane, count: int, are_all: bool | None = None) -> int:
        """How many messages at the head of the lane, up to `count`, are in memory. `are_all` is `have_all_in_memory`
        for a caller that asks for many lanes.
        """
        count = min(count, lane.numbers.count)
        if self.have_all_in_memory if are_all is None else are_all:
            return count
        found = 0
        for keys in lane.numbers.ahead(count):
            source, number = self.at(keys.start)
            for each in range(number, number + len(keys)):
                if not source.level.is_readable(each):
                    return found
                found += 1
        return found

    def next_size(self, lane: FairLane) -> int | None:
        """What the next message of the lane costs if bytes are counted; None if it must be read from the disk."""
        source, number = self.at(lane.numbers.first)
        size = source.level.size_of(number)
        return None if size is None else max(1, size)

    def take_lost(self) -> Iterator[tuple[LaneSource, int]]:
        """The messages, by key, that were found to be lost since the last call."""
        for source in self:
            for number in source.level.take_lost_in_lanes():
                yield source, number + source.key_base

    # -- purges

    def purge(self, picks: Picks) -> int:
        """Remove these messages, except that those on the disk only are removed together by `finish_purge`. Returns the
        bytes of the bodies of the others.
        """
        freed = 0
        for source, numbers in self.by_source(picks):
            sizes = [source.level.size_of(number) for number in numbers]
            source.purged += sizes.count(None)
            freed += sum([size for size in sizes if size is not None])
            source.level.ack([number for number, size in zip(numbers, sizes) if size is not None])
            source.returned.difference_update(numbers)
        return freed

    def finish_purge(self) -> None:
        """Remove what is on the disk only, which has all been purged."""
        for source in self:
            if source.purged:
                source.purged = 0
                source.level.purge_on_disk()


def deliveries(messages: list[QueuedMessage]) -> list[FetchedMessages]:
    """The messages as deliveries. Neighbours that have the same fate are one delivery: a round over many lanes takes
    one message of each, and a delivery of one message costs the dispatch as much as one of many.
    """
    found = []
    for (_, redelivered), group in groupby(messages, key=lambda each: (each.origin[2:], each.redelivered)):
        tags, contents, origins, _, _ = map(list, zip(*group))
        found.append(FetchedMessages(origins, redelivered, compact(tags), contents))
    return found
