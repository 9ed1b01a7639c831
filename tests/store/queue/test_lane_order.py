"""The order in which lanes are served, against a slow model, how many messages can be fetched, and what a lane keeps
(QP-67, QP-70).
"""

from __future__ import annotations

from bisect import insort

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from warren.store.messages.message import Origin, each_of
from warren.store.queue.levels.fair_queue import FairQueue
from warren.store.queue.levels.lane_expiries import LaneExpiries
from warren.store.queue.levels.lane_numbers import NEVER, LaneNumbers
from warren.store.queue.levels.lane_table import LaneTable
from warren.store.queue.levels.lanes import FairLane, FairRules
from warren.store.queue.memory_queue import MemoryQueue

from .test_backing_queues import content
from .test_fair_queue import by_key, fetched, publish


class Slow:
    """Deficit round robin as the specification says it, with a list of lanes and lists of messages."""

    def __init__(self, rules):
        self.rules = rules
        #: The lanes with messages, in the order of the round: value and sorted (number, size).
        self.round: list[tuple[str, list[tuple[int, int]]]] = []
        self.credit: dict[str, int] = {}
        self.is_visited = False

    def add(self, value, number, size):
        for lane, messages in self.round:
            if lane == value:
                insort(messages, (number, size))
                return
        self.round.append((value, [(number, size)]))
        self.credit[value] = 0

    def next(self):
        """Deliver a message: its value and number."""
        while True:
            value, messages = self.round[0]
            number, size = messages[0]
            cost = size if self.rules.counts_bytes else 1
            if not self.is_visited:
                weight = self.rules.weights.get(value, self.rules.weights.get("*", 1))
                self.credit[value] += weight * (16_384 if self.rules.counts_bytes else self.rules.batch)
                self.is_visited = True
            if self.credit[value] >= cost or len(self.round) == 1:
                break
            self.go_on()
        self.credit[value] = max(0, self.credit[value] - cost)
        del messages[0]
        if not messages:
            del self.round[0]
            self.is_visited = False
        elif not self.rules.counts_bytes and not self.credit[value]:
            self.go_on()
        return value, number

    def go_on(self):
        self.is_visited = False
        self.round.append(self.round.pop(0))


@settings(max_examples=200)
@given(
    batch=st.integers(1, 4),
    weights=st.dictionaries(st.sampled_from("abc*"), st.integers(1, 4)),
    counts_bytes=st.booleans(),
    steps=st.lists(
        st.tuples(st.just("publish"), st.sampled_from("abcdef"), st.sampled_from([1, 9_000, 20_000]))
        | st.tuples(st.just("fetch"), st.integers(1, 6), st.just(0))
        | st.tuples(st.just("requeue"), st.integers(0, 9), st.just(0)),
        max_size=60,
    ),
)
def test_lanes_are_served_as_the_specification_says(batch, weights, counts_bytes, steps):
    rules = FairRules(batch, weights, counts_bytes)
    queue, slow = FairQueue(by_key, 256, {0: MemoryQueue()}), Slow(rules)
    queue.rules = rules
    held: list[tuple[str, int, int]] = []
    sizes = {}
    for step, what, size in steps:
        if step == "publish":
            [number] = queue.publish(Origin("", (what,)), [content(size)], size, None, False)
            sizes[number] = size
            slow.add(what, number, size)
        elif step == "fetch":
            for _ in range(min(what, len(queue))):
                [delivery] = queue.fetch(1, True)
                [origin] = each_of(delivery.origins, 1)
                found = origin.routing_keys[0], delivery.tags[0]
                assert found == slow.next()
                held.append((*found, sizes[found[1]]))
        elif held:
            value, number, size = held.pop(what % len(held))
            assert queue.requeue([number]) == 1
            slow.add(value, number, size)


class Paged(MemoryQueue):
    """A queue of which the messages `unread` are not in memory."""

    unread: frozenset[int] | set[int] = frozenset()
    has_all_in_memory = False

    def is_readable(self, number):
        return number not in self.unread


@pytest.mark.parametrize(
    ("in_memory", "expected"),
    [((9, 9, 9), 9), ((0, 9, 9), 0), ((9, 9, 0), 2), ((9, 0, 9), 1), ((1, 9, 9), 1), ((2, 9, 9), 2), ((9, 1, 0), 1)],
)
def test_as_many_messages_are_available_as_come_before_one_on_the_disk(in_memory, expected):
    """What `available` counts can be fetched at once: it ends before the first message in the order of delivery that is
    only on the disk. There are three lanes of three messages, with `in_memory` of each in memory.
    """
    level = Paged()
    level.unread = {3 * number + lane for lane, count in enumerate(in_memory) for number in range(count, 3)}
    queue = FairQueue(by_key, 8, {0: level})
    queue.rules = FairRules(batch=2)
    publish(queue, *"abcabcabc")
    assert queue.available(100) == expected
    assert queue.available(1) == min(1, expected)
    assert len(fetched(queue, queue.available(100))) == expected


@settings(max_examples=150)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    batch=st.integers(1, 4),
    weight=st.integers(1, 3),
    before=st.integers(0, 10),
    limit=st.integers(1, 30),
    data=st.data(),
)
def test_what_is_available_can_be_fetched(lengths, batch, weight, before, limit, data):
    """Whatever is in memory, and wherever a visit was interrupted, a fetch gets as many messages as are available, and
    there are any as long as the next one is in memory.
    """
    level = Paged()
    level.unread = set()
    queue = FairQueue(by_key, 8, {0: level})
    queue.rules = FairRules(batch=batch, weights={"0": weight})
    for lane, length in enumerate(lengths):
        publish(queue, *[str(lane)] * length)
    fetched(queue, min(before, sum(lengths)))
    order = FairQueue.head(queue)
    level.unread = data.draw(st.sets(st.integers(0, sum(lengths))))
    available = queue.available(limit)
    assert available <= min(limit, len(queue))
    if order is not None and order.tag not in level.unread:
        assert available
    assert len(fetched(queue, available)) == available


class Lane:
    """`LaneNumbers` beside a plain dict of numbers and their expiries."""

    def __init__(self):
        self.numbers = LaneNumbers()
        self.plain: dict[int, int] = {}
        self.next = -4
        self.gone: dict[int, int] = {}

    def append(self, count, expiry):
        self.numbers.append(self.next, self.next + count, expiry)
        self.plain |= dict.fromkeys(range(self.next, self.next + count), expiry)
        self.next += count

    def take(self, count):
        taken = [number for span in self.numbers.take(count) for number in span]
        assert taken == sorted(self.plain)[:count]
        self.gone |= {number: self.plain.pop(number) for number in taken}

    def put_back(self, at):
        if self.gone:
            number = sorted(self.gone)[at % len(self.gone)]
            self.plain[number] = self.gone.pop(number)
            self.numbers.put_back(number, self.plain[number])

    def remove(self, at):
        if self.plain:
            number = sorted(self.plain)[at % len(self.plain)]
            self.gone[number] = self.plain.pop(number)
            self.numbers.remove(number)

    def look(self, now):
        ordered = sorted(self.plain)
        assert self.numbers.count == len(ordered)
        assert [number for span in self.numbers.ahead(1000) for number in span] == ordered
        assert [number for span in self.numbers.ahead(3) for number in span] == ordered[:3]
        assert all(number in self.numbers for number in ordered)
        assert not any(number in self.numbers for number in self.gone)
        if ordered:
            assert self.numbers.first == ordered[0]
        assert self.numbers.first_expiry == (self.plain[ordered[0]] if ordered else NEVER)
        expired = 0
        while expired < len(ordered) and NEVER < self.plain[ordered[expired]] <= now:
            expired += 1
        assert self.numbers.expired(now, 1000) == expired
        assert self.numbers.expired(now, 2) == min(2, expired)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.just("append"), st.integers(1, 6), st.sampled_from([0, 0, 5, 9]))
        | st.tuples(st.sampled_from(["take", "put_back", "put_back", "remove"]), st.integers(0, 20), st.just(0)),
        max_size=80,
    )
)
def test_a_lane_keeps_its_numbers_in_order(steps):
    """Numbers enter at the tail, leave at the head, come back to their places, and are lost in between (QP-70)."""
    lane = Lane()
    for step, number, expiry in steps:
        if step == "append":
            lane.append(number, expiry)
        else:
            getattr(lane, step)(number)
        lane.look(7)


def test_a_flood_takes_one_entry_and_returns_cost_no_moves():
    """A million messages of one lane take a few bytes, and what comes back to them is merged again."""
    numbers = LaneNumbers()
    for start in range(0, 1_000_000, 1000):
        numbers.append(start, start + 1000, NEVER)
    taken = [number for span in numbers.take(1000) for number in span]
    for number in reversed(taken):
        numbers.put_back(number, NEVER)
    assert len(numbers._entries) <= 3 * (1 + len(taken) // 4)
    assert numbers.ahead(2_000_000) == [range(1_000_000)]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["append", "take"]), st.integers(0, 9)), max_size=80))
def test_the_lane_that_expires_first_is_found(steps):
    lanes, expiries, next_number = [FairLane(place, "") for place in range(6)], LaneExpiries(), 0
    for place, step, expiry in steps:
        lane = lanes[place]
        if step == "append":
            lane.numbers.append(next_number, next_number + 1, expiry)
            next_number += 1
        else:
            lane.numbers.take(1)
        expiries.head_changed(lane, 6)
        heads = [lane.numbers.first_expiry for lane in lanes if lane.numbers.first_expiry]
        found = expiries.first()
        assert (None if found is None else found[0]) == min(heads, default=None)
        assert found is None or found[1].numbers.first_expiry == found[0]


def test_lanes_that_are_gone_leave_no_expiries():
    """Lanes that come and go with messages that expire in a day leave nothing that grows."""
    expiries = LaneExpiries()
    kept = FairLane(0, "")
    kept.numbers.append(0, 1, 5)
    expiries.head_changed(kept, 1)
    for number in range(1, 50_000):
        lane = FairLane(number, "")
        lane.numbers.append(number, number + 1, 1_000_000 - number)
        expiries.head_changed(lane, 2)
        lane.numbers.take(1)
    assert len(expiries) < 5_000
    assert expiries.first() == (5, kept)


# -- which lane a value has ---

TABLE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("abcdefghij")),
        st.tuples(st.just("divide"), st.integers(1, 6)),
        st.tuples(st.just("take"), st.integers(0, 9)),
    ),
    max_size=60,
)


def test_a_value_stays_in_the_lane_that_it_shares_when_there_may_be_more_lanes():
    """A policy that allows more lanes gives none to a value with messages in a lane that it shares: its later messages
    would overtake these.
    """
    table = LaneTable(2)
    for value in "abc":
        table.append(value, ord(value), ord(value) + 1, 0)
    lane = table.lane("c")
    table.divide(1000, False)
    assert table.lane("c") is lane
    assert table.lane("d") is not lane


@settings(max_examples=300)
@given(st.integers(1, 6), TABLE_STEPS)
def test_the_messages_of_a_value_are_in_one_lane(most, steps):
    """As long as a value has messages in a lane, further ones enter the same lane."""
    table, lanes, values = LaneTable(most), {}, {}
    for number, (step, what) in enumerate(steps):
        if step == "append":
            lane = table.lane(what)
            assert lanes.setdefault(what, lane) is lane
            table.append(what, number, number + 1, 0)
            values[number] = what
        elif step == "divide":
            table.divide(what, False)
        elif len(table.round):
            lane = list(table.round)[what % len(table.round)]
            for taken in table.take(lane, 1):
                for each in taken:
                    value = values.pop(each)
                    if value not in values.values():
                        del lanes[value]
            table.forget_idle(lane)
    assert table.ready == len(values)
