"""`FairQueue`: a queue whose *lanes* are served in turn, so that one tenant's flood does not make others wait (QP-66 to
QP-71).

Each message has a *value*, such as its routing key or a header. Messages of one value enter one lane, which is a level
of the queue. Delivery is deficit round robin over the lanes that have ready messages: a visit adds `weight · batch` to
the lane's credit and delivers as long as the credit suffices; then comes the next lane. A visit that ends because there
is no consumer goes on later. A lane that becomes empty loses its credit and leaves the round; one that becomes
non-empty joins at the end. Order is kept within a lane.

How a value gets its lane:

1. The lane that has messages of this value, if there is one.
2. A lane without a message, ready or unacknowledged. Its old values are forgotten.
3. If every lane has messages, the lane at `hash(value) % most`, which is *shared* from then on. A value whose hash
   leads to a shared lane enters that lane even if another lane is free again: messages of this value may be in the
   shared lane already, and their order must be kept. A lane is no longer shared when it has no message.

A restart finds the messages of each lane, but not the values. The value of the message at the head stands for the
lane, which counts as shared.

Length limits drop from the longest lane: from that of the tenant with the flood, not from that of a tenant with few
messages.

A policy may give a queue lanes, take them away, or change which value of a message decides about its lane. A queue
without lanes becomes lane 0 as it is, so numbers and ack tags stay valid. When a queue loses its lanes (`value_of` is
None), new messages enter lane 0, and the others are served in turn until they are empty (`is_over`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

from ...messages.message import Expiries, FetchedMessages, Origins, QueuedMessage, any_of, each_of
from ...messages.parts import Part
from ..backing_queue import UNLIMITED, BackingQueue, Dispose, Totals
from ..variable.disk_queue import DiskQueue
from .lanes import FairLane, FairRules, ValueOf, cost, joined_deliveries
from .levelled_queue import LEVEL_SHIFT, MOST_LEVELS, LevelledQueue, outer_messages
from .round import Round
from .tally import Tally

if TYPE_CHECKING:
    from ..variable.read_ahead import ReadAheadJob

#: Lanes at the front of the round whose messages are read from the disk before they are needed.
READ_AHEAD_LANES = 32

#: Values that share a lane before all lanes are searched again for one without a message.
SEARCH_INTERVAL = 64


class FairQueue(LevelledQueue):
    """See the module. `most` is how many lanes there can be."""

    def __init__(
        self,
        value_of: ValueOf | None,
        most: int,
        make_level: Callable[[int], BackingQueue],
        levels: Mapping[int, BackingQueue] | None = None,
    ) -> None:
        assert 0 < most <= MOST_LEVELS
        super().__init__(make_level, levels)
        self.value_of = value_of
        self._most = most
        self._lanes = {number: FairLane(number, level) for number, level in self._by_number.items()}
        self._by_value: dict[str, FairLane] = {}
        self._round = Round()
        #: How many more values get a new or a shared lane before a lane without messages is searched for again.
        self._until_search = 0
        #: By lane: how many messages wait for their confirm, without those that lane 0 had before the queue had lanes.
        self._unconfirmed: dict[int, int] = {}
        #: Whether any message has, or had, an expiry.
        self._may_expire = any(
            level.totals().depth and (not isinstance(level, DiskQueue) or level.may_expire)
            for level in self._by_number.values()
        )
        #: Whether `drop` cannot go on before the head of the longest lane has been read from the disk.
        self._is_drop_waiting = False
        self.tally = Tally()
        self.tally.touch_all(self._lanes.values())
        self._round.join(self._lanes.values())

    @property
    def rules(self) -> FairRules:
        """How the lanes are served, and how long they may be."""
        return self._round.rules

    @rules.setter
    def rules(self, rules: FairRules) -> None:
        self._round.rules = rules

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
        self._may_expire = self._may_expire or expiries is not None
        numbers = super().publish(
            origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
        )
        self._count_unconfirmed(numbers, confirm)
        return numbers

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
        self._may_expire = self._may_expire or expiries is not None
        numbers = super().publish_delivered(
            origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
        )
        self._count_unconfirmed(numbers, confirm)
        return numbers

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        numbers = super().discard(origins, count, confirm, parts, is_recorded)
        self._count_unconfirmed(numbers, confirm)
        return numbers

    def _count_unconfirmed(self, numbers: range, confirm: bool) -> None:
        if confirm:
            lane = numbers.start >> LEVEL_SHIFT
            self._unconfirmed[lane] = self._unconfirmed.get(lane, 0) + len(numbers)

    def drain_confirmed(self) -> list[tuple[int, int]]:
        confirmed: list[tuple[int, int]] = []
        # Lane 0 may owe confirms from the time before the queue had lanes, which nobody has counted.
        for number in sorted({0, *self._unconfirmed}, reverse=True):
            level = self._by_number.get(number)
            found = [] if level is None else level.drain_confirmed()
            if not found:
                continue
            base = number << LEVEL_SHIFT
            confirmed += [(base + first, base + last) for first, last in found]
            left = self._unconfirmed.pop(number, 0) - sum([last - first + 1 for first, last in found])
            if left > 0:
                self._unconfirmed[number] = left
        return confirmed

    # -- lanes

    def divide_by(self, value_of: ValueOf | None, most: int) -> None:
        """Choose the lanes of new messages by the value that `value_of` computes from now on, among at most `most`."""
        self.value_of = value_of
        self._most = most
        self._by_value.clear()
        for lane in self._lanes.values():
            lane.value = None
        self._until_search = 0
        self.name_lanes()

    @property
    def is_over(self) -> bool:
        """Whether the queue has lost its lanes, and only lane 0 has messages or owes confirms."""
        if self.value_of is not None or any(self._unconfirmed.keys() - {0}):
            return False
        return not any(lane.number for lane in self.tally.lanes_with_messages())

    def lane_0(self) -> BackingQueue:
        """The backing queue of lane 0, with which a queue that has lost its lanes goes on."""
        return (self._lanes.get(0) or self._new_lane(0)).level

    def name_lanes(self) -> None:
        """Give each lane that has messages already the value of the message at its head, if that one is in memory. The
        lane may have messages of other values too, so it counts as shared.
        """
        if self.value_of is None:
            return
        occupied = self.tally.lanes_with_messages()
        for lane in self._lanes.values():
            head = lane.level.head()
            lane.is_shared = lane in occupied
            if head is not None and head.content:
                lane.value = self.value_of(head.origin, head.content)
                self._by_value.setdefault(lane.value, lane)

    def _level(self, origins: Origins, contents: Sequence[bytes]) -> tuple[int, BackingQueue]:
        if not contents or self.value_of is None:
            lane = self._lanes.get(0) or self._new_lane(0)
        else:
            lane = self._lane(self.value_of(any_of(origins), contents[0]))
        self.tally.touch(lane)
        if contents:
            # The caller adds messages now. If they are pending at once (`publish_delivered`), the lane may have no
            # ready message; then it leaves the round when its turn comes.
            self._round.enter(lane)
        return lane.number, lane.level

    def _known_lane(self, value: str) -> FairLane | None:
        """The lane in which messages of this value are, or may be."""
        lane = self._by_value.get(value)
        if lane is None:
            shared = self._lanes.get(self._hash(value))
            if shared is None or not shared.is_shared or shared not in self.tally.lanes_with_messages():
                return None
            return shared
        if lane.is_shared and lane not in self.tally.lanes_with_messages():
            lane.is_shared = False
        return lane

    def _hash(self, value: str) -> int:
        return crc32(value.encode("utf-8", "surrogateescape")) % self._most

    def _lane(self, value: str) -> FairLane:
        lane = self._known_lane(value)
        if lane is not None:
            return lane
        lane = self._free_lane()
        if lane is None:
            number = self._hash(value)
            shared = self._lanes.get(number) or self._new_lane(number)
            shared.is_shared = True
            return shared
        lane.is_shared = False
        lane.value = value
        self._by_value[value] = lane
        return lane

    def _free_lane(self) -> FairLane | None:
        """A lane without a message, or None. A search visits all lanes, so only some of the calls search."""
        if self._until_search:
            self._until_search -= 1
        else:
            occupied = self.tally.lanes_with_messages()
            for lane in self._lanes.values():
                if lane.number < self._most and lane not in occupied:
                    if lane.value is not None and self._by_value.get(lane.value) is lane:
                        del self._by_value[lane.value]
                    return lane
            self._until_search = min(SEARCH_INTERVAL, len(self._lanes) // 4)
        if len(self._lanes) >= self._most:
            return None
        return self._new_lane(next(number for number in range(self._most) if number not in self._lanes))

    def _new_lane(self, number: int) -> FairLane:
        lane = self._lanes[number] = FairLane(number, self._open(number))
        return lane

    def lane_length(self, origins: Origins, contents: Sequence[bytes]) -> int:
        """How many ready messages the lane of this message has; 0 if it would get a free lane."""
        if self.value_of is None:
            return 0
        lane = self._known_lane(self.value_of(any_of(origins), contents[0]))
        return 0 if lane is None else len(lane.level)

    def same_lane(self, origins: Origins, contents: Sequence[bytes]) -> int:
        """How many of these messages, from the first on, have one value, so that one call may publish them."""
        if self.value_of is None:
            return len(contents)
        values = map(self.value_of, each_of(origins, len(contents)), contents)
        first = next(values)
        count = 1
        for value in values:
            if value != first:
                break
            count += 1
        return count

    def longest(self, count: int) -> list[tuple[str, int, int]]:
        """Value, length and credit of the longest lanes, up to `count`."""
        found = [(lane.value or "", len(lane.level), lane.credit) for lane in self._lanes.values() if len(lane.level)]
        return sorted(found, key=lambda row: (-row[1], row[0]))[:count]

    # -- out

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        found: list[tuple[FairLane, FetchedMessages]] = []
        while count > 0:
            front = self._round.front()
            if front is None:
                break
            lane, allowed = front
            self.tally.touch(lane)
            deliveries = lane.level.fetch(min(allowed, count), ack_required) if allowed else []
            if not deliveries:
                break  # its head is on the disk
            size = 0
            for delivery in deliveries:
                taken = len(delivery.contents)
                count -= taken
                size += sum(map(cost, delivery.contents)) if self.rules.counts_bytes else taken
                found.append((lane, delivery))
            self._round.delivered(lane, size)
        return joined_deliveries(found)

    def available(self, limit: int) -> int:
        """How many messages can be taken before any lane gets to a message on the disk, or fewer."""
        if self.rules.counts_bytes:
            # How many messages of a lane come before the next lane depends on their sizes.
            return min(limit, 1, self._front_available())
        lanes = total = 0
        least: int | None = None
        for lane in self._round:
            wanted = min(len(lane.level), limit)
            if not wanted:
                continue
            here = lane.level.available(wanted)
            if not here:
                # Each lane before this one delivers a message first.
                return min(limit, lanes, total if least is None else least)
            total += here
            if here < wanted:
                least = here if least is None else min(least, here)
            lanes += 1
            if lanes == limit:
                break  # no further lane is needed, because each visit delivers at least one message
        if least is None:
            return min(total, limit)
        return min(limit, least)

    def _front_available(self) -> int:
        front = self._round.front()
        return 0 if front is None or not front[1] else front[0].level.available(1)

    def prepare(self) -> ReadAheadJob | None:
        self._round.front()
        found = job = None
        for lane in self._read_first():
            job = lane.level.prepare()
            if job is not None:
                found = lane
                break
        else:
            self._is_drop_waiting = False
        self.tally.read_for("head", found)
        return job

    def _read_first(self) -> Iterable[FairLane]:
        """The lanes whose head should be in memory, so that it is read if it is on the disk."""
        if self._may_expire or self._is_drop_waiting:
            # Expiry and length limits remove messages from lanes that are not at the front of the round as well.
            return iter(self._round)
        return islice(self._round, READ_AHEAD_LANES)

    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        found = job = None
        for number, level, inner in self._partition(tags):
            job = level.prepare_pending(inner)
            if job is not None:
                found = self._lanes[number]
                break
        self.tally.read_for("pending", found)
        return job

    def head(self) -> QueuedMessage | None:
        front = self._round.front()
        found = None if front is None else front[0].level.head()
        return None if front is None or found is None else outer_messages(front[0].number, [found])[0]

    def move(self, tags: Sequence[int]) -> int:
        parts = self._partition(tags)
        self.tally.moving.update(self._lanes[number] for number, _, _ in parts)
        return sum(level.move(inner) for _, level, inner in parts)

    def requeue(self, tags: Sequence[int]) -> int:
        parts = self._partition(tags)
        known = sum(level.requeue(inner) for _, level, inner in parts)
        self._round.join(self._lanes[number] for number, _, _ in parts)
        return known

    def _partition(self, tags: Sequence[int]) -> list[tuple[int, BackingQueue, Sequence[int]]]:
        parts = super()._partition(tags)
        for number, _, _ in parts:
            self.tally.touch(self._lanes[number])
        return parts

    # -- expiry, at the head of each lane

    def head_expiry(self) -> int | None:
        if not self._may_expire:
            return None
        return min(
            (expiry for lane in self._round if (expiry := lane.level.head_expiry()) is not None),
            default=None,
        )

    def _expired_lanes(self, now: int) -> Iterator[FairLane]:
        for lane in list(self._round):
            expiry = lane.level.head_expiry()
            if expiry is not None and expiry <= now:
                self.tally.touch(lane)
                yield lane

    def drop_expired(self, now: int, limit: int) -> int:
        dropped = 0
        for lane in self._expired_lanes(now):
            dropped += lane.level.drop_expired(now, limit - dropped)
            self._round.leave_empty([lane])
        return dropped

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        messages: list[QueuedMessage] = []
        for lane in self._expired_lanes(now):
            messages += outer_messages(lane.number, lane.level.fetch_expired(now, limit - len(messages)))
            self._round.leave_empty([lane])
        return messages

    # -- what length limits drop

    def overflow(self) -> int:
        """How many messages the longest lane has above the limit of lanes."""
        limit = self.rules.lane_limit
        longest = None if limit is None else self.tally.longest()
        return 0 if longest is None or limit is None else max(0, len(longest[0].level) - limit)

    def droppable(self) -> bool:
        longest = self.tally.longest()
        is_droppable = longest is not None and longest[0].level.available(1) > 0
        self._is_drop_waiting = longest is not None and not is_droppable
        return is_droppable

    def drop(self, count: int) -> int:
        dropped = 0
        while dropped < count and (longest := self.tally.longest()) is not None:
            lane, second = longest
            here = lane.level.drop(_surplus(lane, second, count - dropped))
            self.tally.touch(lane)
            dropped += here
            self._round.leave_empty([lane])
            if not here:
                break
        return dropped

    def fetch_dropped(self, count: int) -> list[FetchedMessages]:
        found: list[tuple[FairLane, FetchedMessages]] = []
        while count > 0 and (longest := self.tally.longest()) is not None:
            lane, second = longest
            deliveries = lane.level.fetch(_surplus(lane, second, count), True)
            self.tally.touch(lane)
            if not deliveries:
                break
            found += [(lane, delivery) for delivery in deliveries]
            count -= sum(len(delivery.contents) for delivery in deliveries)
            self._round.leave_empty([lane])
        return joined_deliveries(found)

    def purge(self, limit: int = UNLIMITED) -> int:
        self.tally.touch_all(self._lanes.values())
        purged = super().purge(limit)
        self._round.leave_empty(list(self._round))
        return purged

    # -- what all lanes have

    def __len__(self) -> int:
        return self.tally.totals().ready

    def totals(self) -> Totals:
        return self.tally.totals()

    # -- what concerns all lanes

    def delete_and_terminate(self) -> Dispose:
        self.tally.touch_all(self._lanes.values())
        return super().delete_and_terminate()

    def set_queue_mode(self, mode: str) -> None:
        super().set_queue_mode(mode)
        self.tally.touch_all(self._lanes.values())


def _surplus(longest: FairLane, second: int, count: int) -> int:
    """How many of `count` messages to take from the longest lane before the second longest may be longer."""
    return min(count, max(1, len(longest.level) - second))
