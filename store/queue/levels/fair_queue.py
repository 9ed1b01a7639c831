"""`FairQueue`: a queue whose *lanes* are served in turn, so that one tenant's flood does not make others wait (QP-66 to
QP-71).

Each message has a *value*, such as its routing key or a header. Messages of one value enter one lane. Delivery is
deficit round robin over the lanes that have ready messages: a visit adds `weight · batch` to the lane's credit and
delivers as long as the credit suffices; then comes the next lane. A visit that ends because there is no consumer goes
on later. A lane that becomes empty loses its credit and leaves the round; one that becomes non-empty joins at the end.
Order is kept within a lane.

Lanes exist in memory only: each has the numbers of its ready messages. The messages themselves are in one backing
queue, as those of a queue without lanes are, and nothing on the disk depends on lanes (`lane_source`). So a lane takes
only memory, and only as long as it has a message. `LaneTable` decides which lane a value has, and keeps the lanes in
their order.

At a start, and when a policy gives lanes to a queue that has messages, the values of these messages are not read yet.
They wait in the backing queue in their order, and later messages wait behind them. They are sorted into lanes in steps
(`sort`), while the lanes deliver what they have already.

Length limits drop from the longest lane: from that of the tenant with the flood, not from that of a tenant with few
messages.

A policy may change which value of a message decides about its lane. Messages that are in lanes stay there. When a queue
loses its lanes (`value_of` is None), new messages stay in the backing queue, and the lanes are served in turn until
they are empty. Then the backing queue takes over (`is_over`); numbers and ack tags are its own anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ...messages.message import Expiries, FetchedMessages, Origins, QueuedMessage, any_of, body_size, each_of
from ...messages.parts import Part
from ..backing_queue import UNLIMITED, BackingQueue, Dispose, Totals
from ..lane_level import LaneLevel
from .lane_numbers import NEVER
from .lane_picks import LanePicks
from .lane_source import LaneSource, compact
from .lane_sources import LaneSources, Picks, deliveries
from .lane_table import LaneTable
from .lanes import FairLane, FairRules, ValueOf, no_value, same_value

if TYPE_CHECKING:
    from ..variable.read_ahead import ReadAheadJob

#: Messages that one step sorts into lanes.
SORT_STEP = 100

#: Messages that are sorted at once when there is none in any lane.
FIRST_SORTED = 50

#: Lanes that one call of a purge empties, and messages that it removes from them.
PURGED_LANES = 250
PURGED = 1000


class FairQueue(BackingQueue):
    """See the module. `most` is how many lanes there can be. `levels` has level 0, and what an earlier version left."""

    def __init__(self, value_of: ValueOf | None, most: int, levels: Mapping[int, LaneLevel]) -> None:
        self.value_of = value_of
        self._sources = LaneSources(levels)
        self._mode = "default"
        self._table = LaneTable(most)
        #: The bytes of the bodies of all ready messages in lanes.
        self._ready_bytes = 0
        self._picks = LanePicks(self._table, self._sources)

    @property
    def rules(self) -> FairRules:
        """How the lanes are served, and how long they may be."""
        return self._table.round.rules

    @rules.setter
    def rules(self, rules: FairRules) -> None:
        self._table.round.use(rules)

    @property
    def levels(self) -> Iterable[BackingQueue]:
        """The backing queues with the messages."""
        return [source.level for source in self._sources]

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
        level = self._sources.own.level
        columns = origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
        if self.value_of is None or self._next_unsorted() is not None:
            numbers = level.publish(*columns)
            self.sort(2 * len(contents))  # more than came, so that the unsorted messages become fewer
            return numbers
        numbers = level.publish_delivered(*columns)
        self._ready_bytes += body_bytes
        self._enter(self._sources.own, numbers, origins, contents, expiries, self.value_of)
        if self._mode == "lazy":
            self._sources.own.keep_few()
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
        assert not len(self), "publish_delivered on a queue that is not empty"
        numbers = self._sources.own.level.publish_delivered(
            origins, contents, body_bytes, expiries, confirm, parts, shared, is_handed, is_redelivered
        )
        count, unacked = len(contents), self._sources.own.unacked
        value_of = self.value_of or no_value
        for number, origin, content, expiry in zip(
            numbers, each_of(origins, count), contents, each_of(expiries, count), strict=True
        ):
            lane = self._table.lane(value_of(origin, content))
            lane.unacked += 1
            unacked[number] = lane, body_size(content), expiry or NEVER
        return numbers

    def discard(
        self, origins: Origins, count: int, confirm: bool, parts: Sequence[Part] = (), is_recorded: bool = False
    ) -> range:
        return self._sources.own.level.discard(origins, count, confirm, parts, is_recorded)

    def drain_confirmed(self) -> list[tuple[int, int]]:
        return self._sources.own.level.drain_confirmed()

    def _enter(
        self,
        source: LaneSource,
        numbers: range,
        origins: Origins,
        contents: Sequence[bytes],
        expiries: Expiries,
        value_of: ValueOf,
    ) -> None:
        """Append messages to their lanes. Neighbours in one lane that expire at one time are appended together."""
        count, append = len(contents), self._table.append
        source.ready += count
        found = zip(map(value_of, each_of(origins, count), contents), each_of(expiries, count))
        first = key = numbers.start + source.key_base
        last = next(found)
        for each in found:
            key += 1
            if each != last:
                append(last[0], first, key, last[1] or NEVER)
                first, last = key, each
        append(last[0], first, key + 1, last[1] or NEVER)

    # -- messages that are not in lanes yet

    def _next_unsorted(self) -> LaneSource | None:
        """The source whose messages are to be sorted into lanes next; None if there is none. When the queue has lost
        its lanes, the messages of level 0 stay where they are.
        """
        sources = self._sources
        while sources.old and not len(sources.old[0].level):
            del sources.old[0]
        if sources.old:
            return sources.old[0]
        return sources.own if self.value_of is not None and len(sources.own.level) else None

    @property
    def _has_no_lane(self) -> bool:
        """Whether the queue has lost its lanes and they are empty: then level 0 delivers in its own order."""
        return self.value_of is None and not self._table.ready and not self._sources.old

    @property
    def is_in_turns(self) -> bool:
        """Whether each message is looked up by itself, because several lanes have messages, or may have soon."""
        return len(self._table.round) > 1 or self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether another turn has to go on with what one turn must not do at once: `sort`, or the search for the next
        lane.
        """
        return self._picks.is_turning or self._next_unsorted() is not None

    def sort(self, most: int = SORT_STEP) -> None:
        """Sort up to `most` messages into lanes. What is on the disk must be prepared first."""
        source = self._next_unsorted()
        if source is None:
            return
        level, value_of = source.level, self.value_of or no_value
        for origins, _, numbers, contents in level.fetch(level.available(most), True):
            assert isinstance(numbers, range)
            self._ready_bytes += sum(map(body_size, contents))
            self._enter(source, numbers, origins, contents, level.expiries_of(numbers), value_of)
        if self._mode == "lazy" or level.has_backlog_on_disk:
            source.keep_few()

    # -- lanes

    def divide_by(self, value_of: ValueOf | None, most: int) -> None:
        """Choose the lanes of new messages by the value that `value_of` computes from now on, among at most `most`."""
        self._table.divide(most, value_of is not self.value_of)
        self.value_of = value_of

    @property
    def is_over(self) -> bool:
        """Whether the queue has lost its lanes, and level 0 has all messages, of which none is in a lane."""
        self._next_unsorted()  # forgets older levels that have become empty
        return self._has_no_lane and not any([source.unacked for source in self._sources if source.base])

    def without_lanes(self) -> BackingQueue:
        """The backing queue with which a queue that has lost its lanes goes on."""
        for source in self._sources:
            source.level.end_lanes()
        return self._sources.own.level

    def lane_length(self, origins: Origins, contents: Sequence[bytes]) -> int:
        """How many ready messages the lane of this message has; 0 if it would get a new lane."""
        if self.value_of is None:
            return 0
        lane = self._table.known(self.value_of(any_of(origins), contents[0]))
        return 0 if lane is None else lane.numbers.count

    def same_lane(self, origins: Origins, contents: Sequence[bytes]) -> int:
        """How many of these messages, from the first on, have one value, so that a limit treats them alike."""
        return len(contents) if self.value_of is None else same_value(self.value_of, origins, contents)

    def longest(self, count: int) -> list[tuple[str, int, int]]:
        """Value, length and credit of the longest lanes, up to `count`."""
        return self._table.list_longest(count)

    # -- out

    def fetch(self, count: int, ack_required: bool) -> list[FetchedMessages]:
        self._refresh()
        if self._has_no_lane:
            own = self._sources.own
            found = own.level.fetch(count, ack_required)
            if ack_required:
                own.unacked.update(dict.fromkeys([tag for delivery in found for tag in delivery.tags]))
            return found
        picks = self._picks.in_turn(count)
        if len(picks) == 1 and ack_required:
            lane, keys = picks[0]
            source, first = self._sources.at(keys.start)
            whole = source.hand_out(lane, range(first, first + len(keys)))
            if whole is not None:
                self._ready_bytes -= whole[1]
                return whole[0]
        return deliveries(self._hand_out(picks, ack_required))

    def _hand_out(self, picks: Picks, ack_required: bool) -> list[QueuedMessage]:
        """The messages of these keys, which have left their lanes, with their outer tags. They are unacknowledged from
        now on, or gone.
        """
        found = self._sources.found(picks)
        messages = []
        lost: Picks = []
        for lane, keys in picks:
            source, first = self._sources.at(keys.start)
            base, unacked, returned = source.base, source.unacked, source.returned
            for number in range(first, first + len(keys)):
                message = found.get((source, number))
                if message is None:
                    lost.append((lane, range(number + source.key_base, number + source.key_base + 1)))
                    continue
                size = body_size(message.content)
                self._ready_bytes -= size
                if ack_required:
                    unacked[number] = lane, size, message.expiry or NEVER
                    lane.unacked += 1
                if base or number in returned:
                    message = message._replace(tag=base + number, redelivered=message.redelivered or number in returned)
                messages.append(message)
        if lost or not ack_required:
            self._remove(lost if ack_required else picks)
        return messages

    def _remove(self, picks: Picks) -> None:
        """Remove messages that have left their lanes."""
        self._sources.remove(picks)
        for lane in dict.fromkeys([lane for lane, _ in picks]):
            self._table.forget_idle(lane)

    def available(self, limit: int) -> int:
        self._refresh()
        return self._sources.own.level.available(limit) if self._has_no_lane else self._picks.available(limit)

    def _refresh(self) -> None:
        """Sort some messages into lanes if no lane has any, and forget messages that the disk has lost."""
        for source, key in self._sources.take_lost():
            source.ready -= self._table.remove(key)
        if not self._table.ready:
            self._ready_bytes = 0  # it counts lost messages until here, because nobody knows their sizes
            self._sources.finish_purge()
            self.sort(FIRST_SORTED)

    def prepare(self) -> ReadAheadJob | None:
        self._refresh()
        if self._has_no_lane:
            return self._sources.own.level.prepare()
        needs_bodies = self._picks.needs_bodies()
        if not self._sources.have_all_in_memory:
            for source, numbers in self._picks.read_first():
                job = source.level.prepare_lanes(numbers, needs_bodies)
                if job is not None:
                    return job
        unsorted = self._next_unsorted()
        return None if needs_bodies or unsorted is None else unsorted.level.prepare()

    def prepare_pending(self, tags: Sequence[int]) -> ReadAheadJob | None:
        for source, numbers in self._sources.unacked(tags):
            job = source.level.prepare_pending(numbers)
            if job is not None:
                return job
        return None

    def head(self) -> QueuedMessage | None:
        front = self._picks.front()
        if front is None:
            return None
        key = front[0].numbers.first
        source, number = self._sources.at(key)
        if not source.level.is_readable(number):
            return None
        found = source.level.pending_messages([number])
        return source.outer(found)[0] if found else None

    # -- settled

    def ack(self, tags: Sequence[int]) -> int:
        return sum(source.level.ack(compact(numbers)) for source, numbers in self._settle(tags))

    def move(self, tags: Sequence[int]) -> int:
        return sum(source.level.move(compact(numbers)) for source, numbers in self._settle(tags))

    def _settle(self, tags: Sequence[int]) -> list[tuple[LaneSource, list[int]]]:
        """Note that messages are not unacknowledged any more, and return those that were."""
        found = self._sources.unacked(tags)
        for source, numbers in found:
            for number in numbers:
                known = source.unacked.pop(number)
                if known is not None:
                    lane = known[0]
                    lane.unacked -= 1
                    if not lane.unacked:
                        self._table.forget_idle(lane)
            if source.returned:
                source.returned.difference_update(numbers)
        return found

    def requeue(self, tags: Sequence[int]) -> int:
        known = 0
        for source, numbers in self._sources.unacked(tags):
            for number in numbers:
                known_as = source.unacked.pop(number)
                if known_as is None:
                    known_as = self._lane_of_earlier(source.level, number)
                else:
                    known_as[0].unacked -= 1
                lane, size, expiry = known_as
                self._table.put_back(lane, number + source.key_base, expiry)
                self._ready_bytes += size
            source.returned.update(numbers)
            source.ready += len(numbers)
            known += len(numbers)
        return known

    def _lane_of_earlier(self, level: LaneLevel, number: int) -> tuple[FairLane, int, int]:
        """What `LaneSource.unacked` would have for a message that was delivered before the queue had lanes."""
        value = ""
        if self.value_of is not None and level.is_readable(number):
            for message in level.pending_messages([number]):
                value = self.value_of(message.origin, message.content)
        (expiry,) = each_of(level.expiries_of(range(number, number + 1)), 1)
        return self._table.lane(value), level.size_of(number) or 0, expiry or NEVER

    def pending_messages(self, tags: Sequence[int]) -> list[QueuedMessage]:
        return [
            message
            for source, numbers in self._sources.unacked(tags)
            for message in source.outer(source.level.pending_messages(compact(numbers)))
        ]

    def pending_numbers(self) -> Iterator[int]:
        return (source.base + number for source in reversed(self._sources) for number in sorted(source.unacked))

    def delivered(self) -> Sequence[int]:
        """The numbers in level 0 of the messages that consumers have or have had."""
        return sorted({*self._sources.own.unacked, *self._sources.own.returned})

    def were_delivered(self, numbers: Iterable[int]) -> None:
        """Note that an earlier process of the queue has delivered these messages of level 0 to consumers."""
        self._sources.own.returned.update(numbers)

    # -- expiry, at the head of each lane

    def head_expiry(self) -> int | None:
        found = self._table.expiries.first()
        return None if found is None else found[0]

    def drop_expired(self, now: int, limit: int) -> int:
        return self._drop(self._picks.expired(now, limit))

    def fetch_expired(self, now: int, limit: int) -> list[QueuedMessage]:
        return self._hand_out(self._picks.expired(now, limit), True)

    # -- what length limits drop

    def overflow(self) -> int:
        """How many messages the longest lane has above the limit of lanes."""
        limit = self.rules.lane_limit
        longest = None if limit is None else self._table.longest()
        return 0 if longest is None or limit is None else max(0, longest[0].numbers.count - limit)

    def droppable(self) -> bool:
        self._refresh()
        return self._picks.is_droppable()

    def drop(self, count: int) -> int:
        return self._drop(self._picks.longest_first(count))

    def _drop(self, picks: Picks) -> int:
        if not picks:
            return 0
        self._ready_bytes -= self._sources.sizes(picks)
        self._remove(picks)
        return sum([len(keys) for _, keys in picks])

    def fetch_dropped(self, count: int) -> list[FetchedMessages]:
        return deliveries(self._hand_out(self._picks.longest_first(count), True))

    def mark_redelivered(self) -> None:
        for level in self.levels:
            level.mark_redelivered()

    def purge(self, limit: int = UNLIMITED) -> int:
        purged = 0
        for level in self.levels:
            while purged < limit and (count := level.purge(limit - purged)):
                purged += count
        most = min(limit, PURGED)
        picks: Picks = []
        for lane in list(islice(self._table.round, PURGED_LANES)):
            if purged < most:
                taken = self._picks.take(lane, most - purged)
                purged += sum([len(keys) for _, keys in taken])
                picks += taken
        if picks:
            self._ready_bytes -= self._sources.purge(picks)
            for lane in dict.fromkeys([lane for lane, _ in picks]):
                self._table.forget_idle(lane)
        self._refresh()
        return purged

    # -- what all lanes have

    def __len__(self) -> int:
        return (
            self._table.ready + len(self._sources.own.level) + sum([len(source.level) for source in self._sources.old])
        )

    def totals(self) -> Totals:
        pending = pending_bytes = waiting_bytes = 0
        for source in self._sources:
            count, body_bytes = source.pending()
            pending += count
            pending_bytes += body_bytes
            waiting_bytes += source.level.totals().ready_bytes
        return Totals(len(self), pending, self._ready_bytes + waiting_bytes, pending_bytes - self._ready_bytes)

    # -- what concerns all lanes

    def delete_and_terminate(self) -> Dispose:
        disposals = [level.delete_and_terminate() for level in self.levels]
        self._ready_bytes = 0
        for source in self._sources:
            source.ready = source.purged = 0
            source.unacked.clear()
        disposals.append(self._table.detach())
        return lambda limit: any(dispose(limit) for dispose in disposals)

    def set_queue_mode(self, mode: str) -> None:
        self._mode = mode
        for level in self.levels:
            level.set_queue_mode(mode)
        if mode == "lazy":
            self._sources.own.keep_few()
