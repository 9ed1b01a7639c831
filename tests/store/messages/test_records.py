"""The formats of frames, records, runs and spans: reading returns what was written, and damage is noticed."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warren.store.disk.faulty_disk import FaultyDisk
from warren.store.disk.walk_frames import WholeFrame, walk_frames
from warren.store.messages.message import Origin, body_size, each_of
from warren.store.messages.records import (
    Damaged,
    Kind,
    Type,
    decode_runs,
    decode_spans,
    encode_run,
    encode_spans,
    frame,
    make_stub,
    read_frame,
    record,
    records,
    skim_runs,
    stub_id,
)
from warren.store.messages.run import Run

contents = st.lists(
    st.integers(0, 40).map(lambda n: bytes(11) + n.to_bytes(8, "big") + bytes(n)), min_size=1, max_size=9
)
expiries = st.one_of(st.none(), st.integers(0, 1 << 60))
origins = st.builds(
    Origin,
    st.sampled_from(["", "x", "\udcff"]),
    st.tuples(st.text(max_size=3)),
    st.booleans(),
    st.integers(0, 255),
    st.one_of(st.none(), st.integers(0, 1 << 40)),
)


@given(
    contents,
    origins,
    st.lists(st.text(max_size=3), max_size=3),
    st.integers(0, 1 << 60),
    st.one_of(expiries, st.lists(expiries, min_size=9, max_size=9)),
    st.sampled_from([0, 77]),
    st.booleans(),
    st.booleans(),
)
def test_runs_come_back(contents, origin, keys, first, expiries, arrived, redelivered, is_stored):
    """Two runs in one buffer, with every field; strings that are not UTF-8 survive."""
    column = [origin._replace(routing_keys=(keys[n % len(keys)],)) for n in range(len(contents))] if keys else origin
    if isinstance(expiries, list):
        del expiries[len(contents) :]
    run = Run(first, contents, column, expiries, redelivered, 0, arrived=arrived)
    data = b"".join(encode_run(run, is_stored) * 2)
    for got, stored in decode_runs(data):
        assert (got.first, got.contents, got.origins, got.expiries, got.arrived, got.redelivered, stored) == (
            first,
            contents,
            column,
            expiries,
            arrived,
            redelivered,
            is_stored,
        )
        assert got.body_bytes == sum(map(body_size, contents))
    assert len(list(decode_runs(data))) == 2
    times = [expiry for expiry in each_of(expiries, 1) if expiry is not None]
    assert [head.expiry for head in skim_runs(data)] == [max(times, default=None)] * 2


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 1])
def test_a_run_of_very_many_origins_comes_back(count):
    column = [Origin("", (str(number),)) for number in range(count)]
    run = Run(5, [bytes(19)] * count, column, None, False, 0)
    ((got, _),) = decode_runs(b"".join(encode_run(run, False)))
    assert got.origins == column


@given(
    st.lists(
        st.builds(
            lambda first, count, step: range(first, first + count * step, step),
            st.integers(0, 1 << 50),
            st.integers(2, 1 << 33),
            st.integers(1, 9),
        )
    )
)
def test_spans_come_back(spans):
    """Spans have any stride, and may have more messages than 32 bits count."""
    got = decode_spans(encode_spans(spans))
    assert sum(map(len, got)) == sum(map(len, spans))
    assert {(span[0], span.step) for span in spans} <= {(span[0], span.step) for span in got}


@given(st.data())
def test_a_flipped_bit_costs_its_frame(data):
    """A flipped bit costs its frame, and all others are read (D-19)."""
    disk = FaultyDisk()
    payloads = [bytes([n]) * 30 for n in range(4)]
    whole = b"".join(frame(Kind.RECORDS, payload) + payload for payload in payloads)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    file = disk.open("f", create=True)
    file.append([bytes(damaged)])
    victim = bit // 8 // (len(whole) // 4)
    assert [part.payload for part in walk_frames(file) if isinstance(part, WholeFrame)] == payloads[:victim] + payloads[
        victim + 1 :
    ]


@pytest.mark.parametrize("sizes", list(product((0, 4, 20, 52), repeat=3)))
def test_a_damaged_size_may_lead_to_the_end_of_another_frame(sizes):
    """If a damaged size leads to the end of another frame, the frames in between are found all the same."""
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    whole = b"".join(frame(Kind.RECORDS, payload) + payload for payload in payloads)
    for bit in range(32, 64):  # of the payload's size
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file = FaultyDisk().open("f", create=True)
        file.append([bytes(damaged)])
        found = [part.payload for part in walk_frames(file) if isinstance(part, WholeFrame)]
        assert found == payloads[1:]


def test_zeros_are_no_frame():
    """Zeros that the file system appended are not read as frames (C-15)."""
    file = FaultyDisk().open("f", create=True)
    file.append([bytes(64)])
    with pytest.raises(Damaged):
        read_frame(file, 0)


def test_records_and_stubs_come_back():
    """A record keeps its type, queue and body. A stub has the body size where a content has it, and its id."""
    entries = list(records(b"".join(record(Type.ACK, 7, [b"ab", b"c"]) + record(Type.DELETE, 8, []))))
    assert [(e.type, e.queue, e.body) for e in entries] == [(Type.ACK, 7, b"abc"), (Type.DELETE, 8, b"")]
    stub = make_stub(bytes(range(16)), 70000)
    assert (body_size(stub), stub_id(stub)) == (70000, bytes(range(16)))
