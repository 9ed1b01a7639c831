"""Fair lanes (QP-66 to QP-71): the order of delivery, which lane a value gets, and what length limits drop."""

from __future__ import annotations

import gc
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from warren.store.messages.message import Origin, each_of
from warren.store.queue.inspection import check
from warren.store.queue.levels.fair_queue import FairQueue
from warren.store.queue.levels.lanes import FairRules
from warren.store.queue.levels.level_tags import LEVEL_SHIFT
from warren.store.queue.memory_queue import MemoryQueue

from .test_backing_queues import content


def by_key(origin, body):
    return origin.routing_keys[0]


def fair_queue(most=256, **rules):
    queue = FairQueue(by_key, most, {0: MemoryQueue()})
    queue.rules = FairRules(**rules)
    return queue


def publish(queue, *values, size=8, expiry=None):
    """A message for each value; its body has its place among all of this call."""
    for number, value in enumerate(values):
        queue.publish(Origin("", (value,)), [content(size, number)], size, expiry, False)


def fetched(queue, count=1000, ack_required=False):
    """Value and tag of each message that was fetched."""
    return [
        (origin.routing_keys[0], tag)
        for delivery in queue.fetch(count, ack_required)
        for origin, tag in zip(each_of(delivery.origins, len(delivery.contents)), delivery.tags, strict=True)
    ]


def values(queue, count=1000):
    return "".join(value for value, _ in fetched(queue, count))


@pytest.mark.parametrize(
    "rules, expected",
    [
        ({}, "abcabaaa"),
        ({"batch": 2}, "aabbcaaa"),
        ({"weights": {"a": 3}}, "aaabcaab"),
        ({"weights": {"b": 2, "*": 1}}, "abbcaaaa"),
    ],
)
def test_lanes_take_turns(rules, expected):
    """A visit delivers `weight · batch` messages; a lane that is empty leaves the round."""
    queue = fair_queue(**rules)
    publish(queue, *"aaaaabbc")
    assert values(queue) == expected
    assert not len(queue)


def test_the_flood_of_one_shop_holds_no_other_back():
    """If one of 100 shops has sent 20,000 messages, the message of each other shop is still among the first 100
    (QP-68), or up to 32 times later with a batch of 32.
    """
    for batch, latest in ((1, 100), (32, 131)):
        queue = fair_queue(batch=batch)
        queue.publish(Origin("", ("flood",)), [content(8)] * 20_000, 160_000, None, False)
        publish(queue, *(f"shop {number}" for number in range(99)))
        order = [value for value, _ in fetched(queue, 20_099)]
        assert max(order.index(f"shop {number}") for number in range(99)) + 1 == latest


@settings(max_examples=100)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    batch=st.integers(1, 5),
    pieces=st.lists(st.integers(1, 7), max_size=20),
)
def test_nobody_waits_longer_than_the_bound(lengths, batch, pieces):
    """With k messages before it in its lane, L lanes and batch b, at most k + (k // b + 1)(L - 1)b others come first
    (QP-68). How many are fetched at a time changes nothing.
    """
    queue = fair_queue(batch=batch)
    for lane, length in enumerate(lengths):
        publish(queue, *[str(lane)] * length)
    order = []
    for piece in pieces:
        order += fetched(queue, piece)
    order += fetched(queue)
    assert len(order) == sum(lengths)
    seen = dict.fromkeys(map(str, range(len(lengths))), 0)
    last_tags = dict.fromkeys(seen, -1)
    for before, (value, tag) in enumerate(order):
        k = seen[value]
        assert before <= k + (k // batch + 1) * (len(lengths) - 1) * batch
        assert tag > last_tags[value]
        seen[value] += 1
        last_tags[value] = tag


def test_bytes_may_be_counted():
    """With the cost `bytes` a lane of large messages gets as many bytes as one of small messages, not as many
    messages.
    """
    queue = fair_queue(counts_bytes=True)
    for _ in range(3):
        publish(queue, "x", size=160_000)
    for _ in range(40):
        publish(queue, "s", size=16_000)
    assert values(queue, 24).count("x") == 2


def test_requeued_messages_return_to_their_places():
    queue = fair_queue()
    publish(queue, *"aaab")
    first = fetched(queue, 3, ack_required=True)
    assert [value for value, _ in first] == ["a", "b", "a"]
    assert queue.requeue([tag for _, tag in first]) == 3
    again = fetched(queue)
    assert [tag for value, tag in again if value == "a"] == sorted(tag for value, tag in again if value == "a")
    assert len(again) == 4


def test_a_value_keeps_its_order_when_lanes_are_too_few():
    """More values than lanes share lanes, and each value keeps its order, also when lanes become free in between."""
    queue = fair_queue(most=3)
    numbers = {}
    got = {}
    for round_ in range(40):
        for value in "abcdefghij"[round_ % 4 :]:
            for _ in range(2):
                numbers[value] = numbers.get(value, 0) + 1
                queue.publish(Origin("", (value,)), [content(8, numbers[value])], 8, None, False)
        for delivery in queue.fetch(15, False):
            for origin, body in zip(each_of(delivery.origins, len(delivery.contents)), delivery.contents, strict=True):
                got.setdefault(origin.routing_keys[0], []).append(body[-9:])
    for delivery in queue.fetch(10_000, False):
        for origin, body in zip(each_of(delivery.origins, len(delivery.contents)), delivery.contents, strict=True):
            got.setdefault(origin.routing_keys[0], []).append(body[-9:])
    assert {value: len(bodies) for value, bodies in got.items()} == numbers
    assert all(bodies == sorted(bodies) for bodies in got.values())


def test_lanes_without_a_message_cost_nothing():
    """Ten thousand values that come one after the other leave nothing in memory (QP-69)."""

    def churn(first, count):
        for number in range(first, first + count):
            publish(queue, str(number))
            assert fetched(queue) == [(str(number), number)]

    queue = fair_queue()
    churn(0, 1000)
    gc.collect()
    before = sys.getallocatedblocks()
    churn(1000, 10_000)
    gc.collect()
    assert sys.getallocatedblocks() < before + 500


def test_a_lane_with_unacknowledged_messages_is_not_given_to_another_value():
    """A lane that has unacknowledged messages is not given to another value: otherwise they would return among messages
    of that value.
    """
    queue = fair_queue()
    publish(queue, "a")
    [(_, tag)] = fetched(queue, ack_required=True)
    publish(queue, "b", "b")
    queue.requeue([tag])
    assert values(queue) == "bab"


def test_length_limits_drop_from_the_longest_lane():
    """A length limit drops from the longest lane, so that the client that floods the queue loses messages, and not one
    that has a single message there.
    """
    queue = fair_queue()
    publish(queue, *"baaaaacc")
    assert queue.drop(4) == 4
    assert sorted(values(queue)) == ["a", "b", "c", "c"]
    publish(queue, *"baaaaacc")
    dropped = [origin.routing_keys[0] for delivery in queue.fetch_dropped(4) for origin in delivery.origins]
    assert dropped == ["a"] * 4
    assert queue.totals().depth == 8


def test_expired_messages_leave_at_the_head_of_each_lane():
    queue = fair_queue()
    publish(queue, *"ab", expiry=50)
    publish(queue, *"ab")
    publish(queue, "c", expiry=10)
    assert queue.head_expiry() == 10
    assert queue.drop_expired(20, 100) == 1
    assert [message.origin.routing_keys[0] for message in queue.fetch_expired(50, 100)] == ["a", "b"]
    assert values(queue) == "ab"


def test_a_run_is_cut_where_the_value_changes():
    queue = fair_queue()
    column = [Origin("", (value,)) for value in "aabca"]
    assert queue.same_lane(column, [b""] * 5) == 2
    assert queue.same_lane(column[0], [b""] * 5) == 5


def test_levels_that_an_earlier_version_has_left_are_served_first():
    """An earlier version had a level for each lane. Their messages are sorted by value as well, and each comes before
    later messages of its value; tags have the level.
    """
    levels = {0: MemoryQueue(), 3: MemoryQueue(), 5: MemoryQueue()}
    for level, values in ((3, "aa"), (5, "bc"), (0, "a")):
        for value in values:
            levels[level].publish(Origin("", (value,)), [content(8, 1)], 8, None, False)
    queue = FairQueue(by_key, 256, levels)
    publish(queue, *"bca")
    assert len(queue) == 8
    while queue.is_behind:
        queue.sort()
    found = fetched(queue, ack_required=True)
    assert [value for value, _ in found] == list("abcabcaa")
    assert [(value, tag >> LEVEL_SHIFT) for value, tag in found if value != "b"] == [
        ("a", 3),
        ("c", 5),
        ("a", 3),
        ("c", 0),
        ("a", 0),
        ("a", 0),
    ]
    tags = [tag for _, tag in found]
    assert queue.requeue(tags[:4]) == 4
    assert fetched(queue, ack_required=True) == [found[1], found[2], found[0], found[3]]
    check(queue)
    assert queue.ack(range(min(tags), max(tags) + 1)) == 8
    assert not queue.totals().depth


def test_a_queue_that_loses_its_lanes_goes_on_when_old_levels_are_empty():
    levels = {0: MemoryQueue(), 3: MemoryQueue()}
    levels[3].publish(Origin("", ("a",)), [content(8, 1)], 8, None, False)
    queue = FairQueue(None, 256, levels)
    publish(queue, "b")
    [(value, tag)] = fetched(queue, 1, ack_required=True)
    assert value == "a"
    assert not queue.is_over, "an unacknowledged message may come back"
    assert queue.available(9) == 1
    [(value, later)] = fetched(queue, 9, ack_required=True)
    assert value == "b", "level 0 delivers meanwhile"
    assert queue.requeue([later]) == 1
    assert values(queue) == "b"
    publish(queue, "c")
    queue.ack([tag])
    assert queue.is_over
    assert queue.without_lanes() is levels[0]
    assert len(levels[0]) == 1


class Divided:
    """A queue whose lanes come, change and go, beside the messages that it must have. A body is its number."""

    sources = (None, by_key, lambda origin, body: origin.routing_keys[0].upper(), lambda origin, body: "one")

    def __init__(self):
        self.queue = MemoryQueue()
        self.count = 0
        self.there: list[int] = []
        self.held: dict[int, int] = {}

    def publish(self, value):
        self.queue.publish(Origin("", (value,)), [content(8, self.count)], 8, None, False)
        self.there.append(self.count)
        self.count += 1

    def divide(self, source, most):
        if isinstance(self.queue, FairQueue):
            self.queue.divide_by(self.sources[source], most)
        elif source:
            self.queue = FairQueue(self.sources[source], most, {0: self.queue})

    def fetch(self, count):
        for delivery in self.queue.fetch(count, True):
            self.held |= {
                tag: int.from_bytes(found[-9:-5], "big")
                for tag, found in zip(delivery.tags, delivery.contents, strict=True)
            }

    def settle(self, at, is_acked):
        if not self.held:
            return
        tag = sorted(self.held)[at % len(self.held)]
        number = self.held.pop(tag)
        if is_acked:
            self.there.remove(number)
            assert self.queue.ack([tag]) == 1
        else:
            assert self.queue.requeue([tag]) == 1

    def end_turn(self):
        """As the process of the queue does: sort more messages, and do without lanes as soon as possible."""
        if isinstance(self.queue, FairQueue):
            self.queue.sort()
            check(self.queue)
            if self.queue.is_over:
                self.queue = self.queue.without_lanes()


@settings(max_examples=100)
@given(st.data())
def test_changes_of_the_lanes_lose_no_message(data):
    """Whatever decides about the lanes, and how many there may be, each message is delivered, and settled by its
    tag.
    """
    divided = Divided()
    for _ in range(data.draw(st.integers(1, 40))):
        step = data.draw(st.sampled_from(["publish", "publish", "divide", "fetch", "settle"]))
        if step == "publish":
            divided.publish(data.draw(st.sampled_from("abAB")))
        elif step == "divide":
            divided.divide(data.draw(st.integers(0, 3)), data.draw(st.integers(1, 6)))
        elif step == "fetch":
            divided.fetch(data.draw(st.integers(1, 5)))
        else:
            divided.settle(data.draw(st.integers(0, 9)), data.draw(st.booleans()))
        assert len(divided.queue) + len(divided.held) == len(divided.there)
        divided.end_turn()
    divided.divide(0, 4)
    for _ in range(3):
        divided.end_turn()
        divided.fetch(1000)
    assert sorted(divided.held.values()) == divided.there
    divided.queue.ack(sorted(divided.held))
    divided.end_turn()
    assert isinstance(divided.queue, MemoryQueue)
    assert not divided.queue.totals().depth


class Operated:
    """A queue to which operations happen in any order."""

    def __init__(self, most):
        self.queue = fair_queue(most)
        self.held: list[int] = []

    def publish(self, value, expiry, confirm):
        self.queue.publish(Origin("", (value,)), [content(len(value))], len(value), expiry, confirm)

    def fetch(self, count):
        self.held += [tag for _, tag in fetched(self.queue, count, ack_required=True)]

    def settle(self, operation, at):
        if self.held:
            assert getattr(self.queue, operation)([self.held.pop(at % len(self.held))]) == 1

    def hold(self, messages):
        self.held += [message.tag for message in messages]

    def look(self):
        check(self.queue)
        assert self.queue.available(5) == min(5, len(self.queue))
        lanes = list(self.queue._table.round)
        lengths = sorted((lane.numbers.count for lane in lanes), reverse=True)
        assert [length for _, length, _ in self.queue.longest(10)] == lengths
        longest = self.queue._table.longest()
        assert (0 if longest is None else longest[0].numbers.count) == max(lengths, default=0)
        assert longest is None or longest[1] == (lengths[1:2] or [0])[0]
        expiries = [expiry for lane in lanes if (expiry := lane.numbers.first_expiry)]
        assert self.queue.head_expiry() == min(expiries, default=None)
        assert self.queue._table._by_place.keys() <= set(range(5))


@settings(max_examples=150)
@given(st.data())
def test_the_queue_has_what_its_lanes_have(data):
    """Lengths and bytes are those of all lanes together after any operation, and each confirm comes once."""
    operated = Operated(data.draw(st.integers(1, 5)))
    queue, awaited = operated.queue, 0
    numbers = st.integers(0, 9)
    for _ in range(data.draw(st.integers(1, 40))):
        step = data.draw(st.sampled_from(["publish"] * 6 + ["fetch", "settle", "drop", "expire", "discard", "purge"]))
        if step == "publish":
            confirm = data.draw(st.booleans())
            awaited += confirm
            expiry = data.draw(st.none() | numbers)
            operated.publish(data.draw(st.sampled_from(["a", "bb", "ccc", "d", "e", "f"])), expiry, confirm)
        elif step == "fetch":
            operated.fetch(data.draw(st.integers(1, 5)))
        elif step == "settle":
            operated.settle(data.draw(st.sampled_from(["ack", "requeue", "move"])), data.draw(numbers))
        elif step == "drop" and data.draw(st.booleans()):
            queue.drop(data.draw(st.integers(1, 3)))
        elif step == "drop":
            operated.held += [tag for delivery in queue.fetch_dropped(2) for tag in delivery.tags]
        elif step == "expire" and data.draw(st.booleans()):
            queue.drop_expired(data.draw(numbers), 2)
        elif step == "expire":
            operated.hold(queue.fetch_expired(data.draw(numbers), 2))
        elif step == "discard":
            queue.discard(Origin("", ("a",)), 2, True)
            awaited += 2
        else:
            queue.purge(data.draw(st.integers(1, 4)))
        operated.look()
        if data.draw(st.booleans()):
            awaited -= sum(last - first + 1 for first, last in queue.drain_confirmed())
            assert not awaited
    queue.delete_and_terminate()
    check(queue)


def steps(work):
    """How many lines of the broker's code run during `work`."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def with_lanes(lanes, **rules):
    queue = fair_queue(65_536, **rules)
    origins = [Origin("", (f"shop {number}",)) for number in range(lanes)]
    queue.publish(origins, [content(8)] * lanes, 8 * lanes, None, False)
    return queue


def one_message(queue):
    """Publish a message, look at the queue as its process does in each turn, and deliver and acknowledge one."""
    queue.publish(Origin("", ("shop 1",)), [content(8)], 8, 1 << 50, True)
    assert len(queue) and queue.totals().ready_bytes
    assert queue.available(1) == 1 and queue.overflow() == 0
    queue.head_expiry()
    queue.prepare()
    [(_, tag)] = fetched(queue, 1, ack_required=True)
    assert queue.ack([tag]) == 1
    assert len(queue.drain_confirmed()) == 1
    assert len(queue.longest(100)) == 100


def test_a_message_costs_the_same_with_many_lanes():
    """It costs as many steps with 20,000 lanes as with 200, or a bisection more (QP-67)."""
    few, many = (with_lanes(lanes) for lanes in (200, 20_000))
    for queue in (few, many):
        one_message(queue)
    assert steps(lambda: one_message(many)) < 1.2 * steps(lambda: one_message(few))


def test_a_length_limit_costs_the_same_with_many_lanes():
    """Each message that comes to a full queue has one dropped from the longest lane."""

    def drop(queue):
        for _ in range(20):
            publish(queue, "shop 2")
            assert queue.droppable() and queue.drop(1) == 1

    few, many = (with_lanes(lanes) for lanes in (200, 20_000))
    for queue in (few, many):
        publish(queue, *["shop 1"] * 30)
        drop(queue)
    assert steps(lambda: drop(many)) < 1.2 * steps(lambda: drop(few))


def test_a_queue_that_was_full_once_keeps_nothing_for_each_message_since():
    """A queue that has once dropped messages keeps nothing for each message that comes later. Until the next drop it
    once noted every length that a lane had.
    """

    def churn(count):
        for _ in range(count):
            publish(queue, "b")
            assert len(queue) == 4
            fetched(queue, 1)
            assert len(queue) == 3

    queue = fair_queue()
    publish(queue, *"aabc")
    assert queue.drop(1) == 1
    churn(100)
    gc.collect()
    before = sys.getallocatedblocks()
    churn(2000)
    gc.collect()
    assert sys.getallocatedblocks() < before + 500
    assert queue.droppable()
