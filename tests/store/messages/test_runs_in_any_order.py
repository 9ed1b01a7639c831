"""Ready and pending runs against a dict, with messages that leave and come back in any order; and what that costs."""

from __future__ import annotations

import random
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from warren.store.messages import ascending_runs
from warren.store.messages.ascending_runs import AscendingRuns
from warren.store.messages.message import Origin
from warren.store.messages.pending_runs import PendingRuns
from warren.store.messages.run import COALESCE_BELOW, Run
from warren.store.messages.run_queue import RunQueue


def content(number):
    """A content whose body has `number % 3` bytes."""
    return bytes(11) + (number % 3).to_bytes(8, "big") + number.to_bytes(8, "big")


def expiry_of(number):
    return number % 5 or None


def origin_of(number, is_mixed, is_persistent):
    return Origin("", (str(number % 2) if is_mixed else "0",), is_persistent)


def run_of(first, count, is_mixed=False, redelivered=False, is_persistent=False):
    origins = [origin_of(number, True, is_persistent) for number in range(first, first + count)]
    contents = [content(number) for number in range(first, first + count)]
    size = sum(number % 3 for number in range(first, first + count))
    columns = (origins, [expiry_of(number) for number in range(first, first + count)])
    shared = origin_of(first, False, is_persistent), None
    return Run(first, contents, *(columns if is_mixed else shared), redelivered, size)


def spread(runs):
    """The messages of `runs`: number, content, origin, expiry, redelivered."""
    return [
        (message.tag, message.content, message.origin, message.expiry, message.redelivered)
        for run in runs
        for message in run.messages()
    ]


def assert_whole(part):
    """The runs ascend without overlap, no block is empty beside others, and the counts are right."""
    runs = list(part.runs)
    assert all(before.end <= after.first for before, after in zip(runs, runs[1:]))
    assert len(part.runs.blocks) == 1 or all(part.runs.blocks)
    assert list(reversed(part.runs)) == runs[::-1] and len(part.runs) == len(runs)
    found = spread(runs)
    assert part.count == len(found) and part.body_bytes == sum(number % 3 for number, *_ in found)
    kept = [number % 3 for number, _, origin, *_ in found if origin.persistent]
    assert (part.persistent, part.persistent_bytes) == (len(kept), sum(kept))
    assert all(run.live == sum(content is not None for content in run.contents) > 0 for run in runs)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 9), st.booleans(), st.booleans()),
        st.tuples(st.just("fetch"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["ack", "requeue"]), st.sets(st.integers(0, 60), min_size=1, max_size=12)),
        st.tuples(
            st.sampled_from(["ack", "requeue"]),
            st.builds(lambda first, count, step: range(first, first + count * step, step), *[st.integers(1, 12)] * 3),
        ),
        st.tuples(st.just("take_last"), st.integers(1, 6)),
    ),
    max_size=50,
)


@pytest.mark.parametrize("block_runs", [2, 256])
def test_ready_and_pending_runs_are_two_dicts(block_runs):
    """Each message is where the model has it, with its origin and its redelivered flag; no count drifts."""

    @given(steps)
    @settings(max_examples=150, deadline=None)
    def check(steps):
        ready, pending, next_number = RunQueue(), PendingRuns(), 0
        waiting, taken = {}, {}  # number: redelivered
        mixed = {}
        for name, *fields in steps:
            if name == "publish":
                count, is_mixed, is_persistent = fields
                if ready.count == len(waiting) and (not waiting or max(waiting) < next_number):
                    ready.push(run_of(next_number, count, is_mixed, is_persistent=is_persistent))
                for number in range(next_number, next_number + count):
                    waiting[number], mixed[number] = False, (is_mixed, is_persistent)
                next_number += count
            elif name == "fetch":
                runs = ready.take(fields[0])
                expected = sorted(waiting)[: fields[0]]
                assert [number for number, *_ in spread(runs)] == expected
                for run in runs:
                    pending.add(run)
                for number in expected:
                    taken[number] = waiting.pop(number)
            elif name == "take_last":
                runs = ready.take_last(fields[0])
                expected = sorted(waiting)[-fields[0] :]
                assert [number for number, *_ in spread(runs)] == expected
                ready.insert(runs) if runs else None
            elif name == "ack":
                tags = fields[0] if isinstance(fields[0], range) else sorted(fields[0])
                assert pending.discard(tags) == len([taken.pop(tag) for tag in tags if tag in taken])
            else:
                tags = fields[0] if isinstance(fields[0], range) else list(fields[0])
                known = sorted(tag for tag in tags if tag in taken)
                runs = pending.take(tags)
                assert [number for number, *_ in spread(runs)] == known
                if runs:
                    ready.insert(runs)
                for number in known:
                    del taken[number]
                    waiting[number] = True
            for part, model in ((ready, waiting), (pending, taken)):
                assert_whole(part)
                assert spread(part.runs) == [
                    (
                        number,
                        content(number),
                        origin_of(number, *mixed[number]),
                        expiry_of(number) if mixed[number][0] else None,
                        model[number],
                    )
                    for number in sorted(model)
                ]
            assert pending.lowest == min(taken, default=None)
            span = range(0, next_number + 1)
            assert pending.count_in(span) == len(taken)
            assert {number for part in pending.missing(span) for number in part} == set(span) - taken.keys()

    original, ascending_runs.BLOCK_RUNS = ascending_runs.BLOCK_RUNS, block_runs
    try:
        check()
    finally:
        ascending_runs.BLOCK_RUNS = original


@given(st.lists(st.integers(0, 200), unique=True), st.integers(0, 200), st.integers(0, 20), st.data())
@settings(max_examples=100, deadline=None)
def test_runs_are_found_by_number(numbers, first, count, data):
    """Runs are found by number, wherever the blocks that hold them are cut."""

    class One:
        def __init__(self, first):
            self.first = first

        @property
        def end(self):
            return self.first + 1

    original, ascending_runs.BLOCK_RUNS = ascending_runs.BLOCK_RUNS, 2
    try:
        runs = AscendingRuns()
        for number in numbers:
            runs.insert(One(number))
        ordered = sorted(numbers)
        last = first + count
        assert [run.first for run in runs] == ordered
        assert [run.first for run in runs.overlapping(first, last)] == [n for n in ordered if first <= n <= last]
        assert [run.first for run in runs.from_number(first)] == [n for n in ordered if n >= first]
        found = runs.find(first)
        assert (found.first if found else None) == (first if first in numbers else None)
        below, above = runs.neighbours(first) if runs else (None, None)
        assert (below.first if below else None) == max([n for n in ordered if n <= first], default=None)
        assert (above.first if above else None) == min([n for n in ordered if n > first], default=None)
        for number in data.draw(st.lists(st.sampled_from(ordered), unique=True)) if ordered else []:
            runs.remove(runs.find(number))
            ordered.remove(number)
            assert [run.first for run in runs] == ordered and (len(runs.blocks) == 1 or all(runs.blocks))
    finally:
        ascending_runs.BLOCK_RUNS = original


def test_messages_that_come_back_one_by_one_are_joined_again():
    """Messages that come back one by one are joined again, so a queue whose messages were all requeued is as it was
    before.
    """
    ready, pending = RunQueue(), PendingRuns()
    for first in range(0, 10_000, 500):
        pending.add(run_of(first, 500))
    numbers = list(range(10_000))
    random.Random(1).shuffle(numbers)
    for number in numbers:
        ready.insert(pending.take([number]))
    assert spread(ready.runs) == spread([run_of(0, 10_000, redelivered=True)])
    assert len(ready.runs) < 10_000 / COALESCE_BELOW * 2.5 and not pending.runs


def test_memory_is_bounded_by_what_is_unacknowledged():
    """Memory is bounded by what is unacknowledged: if one message of each thousand is left, the memory of the others is
    freed.
    """
    pending = PendingRuns()
    for first in range(0, 100_000, 1000):
        pending.add(run_of(first, 1000))
    for number in range(100_000):
        if number % 1000 != 500:
            pending.discard([number])
    assert sum(len(run.contents) for run in pending.runs) == pending.count == 100


ORDERS = {
    "random": lambda numbers: random.Random(1).sample(numbers, len(numbers)),
    "even, then odd": lambda numbers: numbers[::2] + numbers[1::2],
    "reverse": lambda numbers: numbers[::-1],
}


def seconds(order, count, settle):
    """Processor time for settling `count` messages one by one; the best of three."""
    best = float("inf")
    for _ in range(3):
        ready, pending = RunQueue(), PendingRuns()
        for first in range(0, count, 500):
            pending.add(run_of(first, 500))
        numbers = ORDERS[order](list(range(count)))
        began = time.process_time()
        for number in numbers:
            settle(ready, pending, number)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "settle",
    [
        pytest.param(lambda ready, pending, number: ready.insert(pending.take([number])), id="requeue"),
        pytest.param(lambda ready, pending, number: pending.discard([number]), id="ack"),
    ],
)
def test_settling_in_any_order_costs_each_message_the_same(order, settle):
    """Eight times as many messages take about eight times as long; with a quadratic cost it would be 64 times."""
    assert seconds(order, 16_000, settle) < 24 * seconds(order, 2_000, settle)
