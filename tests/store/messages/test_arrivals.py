"""When the messages of runs arrived, however runs are cut and joined (SP-28)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from warren.store.messages.arrivals import decode_arrived, encode_arrived, latest, stretches
from warren.store.messages.message import Origin
from warren.store.messages.records import decode_runs, encode_run, skim_runs
from warren.store.messages.run import Run

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
    run.extend(run_of(0, 1, 7).contents, ORIGIN, None, 5, 7)
    assert latest(run.arrived) == 7


def test_times_are_read_as_they_were_written():
    for arrived in (5, [(3, 5), (7, 6)]):
        data = b"before" + encode_arrived(arrived, 3, 9)
        assert decode_arrived(data + b"behind", 6) == (arrived, len(data))
