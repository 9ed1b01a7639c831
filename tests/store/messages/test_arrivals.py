"""When the messages of runs arrived, however runs are cut and joined (SP-28)."""

from __future__ import annotations

from array import array
from itertools import groupby
from random import Random

import hypothesis.strategies as st
from hypothesis import given

from warren.store.messages.arrivals import Stretches, decode_arrived, encode_arrived, latest, stretches
from warren.store.messages.message import Origin
from warren.store.messages.records import decode_runs, encode_run, skim_runs
from warren.store.messages.run import Run
from warren.store.queue.memory_queue import MemoryQueue

ORIGIN = Origin("", ("q",), True)


def run_of(first, count, arrived):
    contents = [bytes(11) + (5).to_bytes(8, "big") + b"%05d" % number for number in range(first, first + count)]
    return Run(first, contents, ORIGIN, None, False, 5 * count, arrived=arrived)


def times(run):
    """The time of each message."""
    return [time for low, high, time in stretches(run.arrived, run.first, run.end) for _ in range(low, high)]


PARTS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=8)


@given(PARTS, st.data())
def test_each_message_keeps_its_time(parts, data):
    """Each message keeps its time of arrival, however runs are cut and joined (compared with a list of times)."""
    expected = [time for count, time in parts for _ in range(count)]
    run = run_of(100, *parts[0])
    for count, time in parts[1:]:
        added = run_of(run.end, count, time)
        if data.draw(st.booleans()):
            run.extend(added.contents, added.origins, added.expiries, added.body_bytes, added.arrived)
        else:
            run.join(added)
    assert times(run) == expected
    low = data.draw(st.integers(0, len(expected) - 1))
    high = data.draw(st.integers(low + 1, len(expected)))
    assert times(run.part(low, high)) == expected[low:high]
    ((read, _),) = decode_runs(b"".join(encode_run(run, False)))
    assert times(read) == expected
    (head,) = skim_runs(b"".join(encode_run(run.part(low, high), False)))
    assert head.arrived == expected[high - 1]
    if low:
        head = run.take(low)
        assert times(head) == expected[:low] and times(run) == expected[low:]
        run.join(head)
        assert times(run) == expected
    assert_brief(run)
    run.extend(run_of(0, 1, 7).contents, ORIGIN, None, 5, 7)
    assert latest(run.arrived) == 7


def assert_brief(run):
    """A run keeps one stretch for each change of the time among its own messages, and none of others."""
    found = list(stretches(run.arrived, run.first, run.end))
    times = [time for *_, time in found]
    assert times == [time for time, _ in groupby(times)]
    if not isinstance(run.arrived, int):
        assert list(zip(run.arrived.firsts, run.arrived.times)) == [(low, time) for low, _, time in found]


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 1 << 32))
def test_a_queue_that_is_never_empty_keeps_no_times_of_messages_that_have_left(ready, pending, seed):
    """Runs are extended at the tail and cut at the head all the time; each message still has its own time."""
    queue, random, waiting = MemoryQueue(), Random(seed), []
    for now in range(1, 400):
        queue.stamp(now)
        content = run_of(now - 1, 1, now).contents
        queue.publish(ORIGIN, content, 5, None, False)
        while len(queue) > ready:
            waiting += [number for fetched in queue.fetch(1, True) for number in fetched.tags]
        while len(waiting) > pending:
            # A message that comes back may lie in the middle of those that are ready or pending.
            tag = waiting.pop(0 if random.random() < 0.7 else random.randrange(len(waiting)))
            (queue.requeue if random.random() < 0.2 else queue.ack)([tag])
    runs = [*queue._ready.runs, *queue._pending.runs]
    for run in runs:
        assert_brief(run)
        assert times(run) == list(range(run.first + 1, run.end + 1))


def test_times_are_read_as_they_were_written():
    data = b"before" + encode_arrived(5, 3, 9)
    assert decode_arrived(data + b"behind", 6) == (5, len(data))
    data = b"before" + encode_arrived(Stretches(array("Q", (3, 7)), array("Q", (5, 6))), 3, 9)
    arrived, end = decode_arrived(data + b"behind", 6)
    assert list(stretches(arrived, 3, 9)) == [(3, 7, 5), (7, 9, 6)] and end == len(data)
