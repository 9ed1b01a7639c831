"""Blocks against a reader that takes them apart message by message (SP-11)."""

from __future__ import annotations

from array import array
from itertools import groupby

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from warren.store.block import BlockBuilder
from warren.store.messages.arrivals import Stretches, stretches
from warren.store.messages.message import Origin
from warren.store.messages.run import Run

from .block_twin import BlockMessage, read_block

ORIGINS = [
    Origin("", ("q",), True),
    Origin("", ("q",), False, 3),
    Origin("amq.topic", ("a.b", "\udcff"), True, 0, 60_000),
    Origin("ü" * 100, (), False),
]
PROPERTIES = [b"\0\0", b"\x10\0\x02", b"\x80\0\x05plain", b"\x80\0\x05other"]


def content(props: bytes, body: bytes, frame: int = 1 << 20) -> bytes:
    head = b"\x02\0\x01" + (12 + len(props)).to_bytes(4, "big") + b"\0\x3c\0\0" + len(body).to_bytes(8, "big")
    frames = [body[at : at + frame] for at in range(0, len(body), frame)]
    return (
        head
        + props
        + b"\xce"
        + b"".join(b"\x03\0\x01" + len(each).to_bytes(4, "big") + each + b"\xce" for each in frames)
    )


@st.composite
def runs(draw):
    """Ascending runs, some with a column of origins, some with holes, some of which could be one run."""
    found, number = [], draw(st.integers(2, 1 << 60))
    for _ in range(draw(st.integers(0, 6))):
        number += draw(st.sampled_from([0, 0, 1, 500]))
        slots = draw(
            st.lists(
                st.one_of(
                    st.none(),
                    st.builds(
                        content, st.sampled_from(PROPERTIES), st.binary(max_size=12), st.sampled_from([5, 1 << 20])
                    ),
                ),
                min_size=1,
                max_size=8,
            )
        )
        origin = draw(st.sampled_from(ORIGINS))
        others = [each for each in ORIGINS if each[2:] == origin[2:]]
        origins = draw(
            st.one_of(st.just(origin), st.lists(st.sampled_from(others), min_size=len(slots), max_size=len(slots)))
        )
        sizes = tuple(0 if slot is None else int.from_bytes(slot[11:19], "big") for slot in slots)
        expiry = st.sampled_from([None, 77, 78])
        expiries = draw(st.one_of(expiry, st.lists(expiry, min_size=len(slots), max_size=len(slots))))
        run = Run(number, slots, origins, expiries, draw(st.booleans()), sum(sizes), sizes)
        times = Stretches(array("Q", (max(0, number - 2), number + 1, number + 3)), array("Q", (5, 6, 9)))
        run.arrived = draw(st.sampled_from([0, 5, times]))
        run.live = len(slots) - slots.count(None)
        found.append(run)
        number = run.end
    return found


def time_of(run, number):
    if isinstance(run.arrived, int):
        return run.arrived or None
    return [time for low, _, time in stretches(run.arrived, run.first, run.end) if low <= number][-1]


def messages_of(runs, has_bodies=True):
    """The messages that the block must have, found by going through every slot."""
    return [
        BlockMessage(
            run.first + index,
            run.origin_at(index).exchange,
            run.origin_at(index).routing_keys,
            run.origin_at(index).priority,
            slot[19 : 7 + int.from_bytes(slot[3:7], "big")],
            time_of(run, run.first + index),
            run.expiry_at(index),
            run.redelivered,
            run.origin_at(index).persistent,
            slot if has_bodies else slot[: 8 + int.from_bytes(slot[3:7], "big")],
        )
        for run in runs
        for index, slot in enumerate(run.contents)
        if slot is not None
    ]


@settings(max_examples=150, deadline=None)
@given(runs(), st.booleans())
def test_a_block_has_what_the_runs_have(runs, has_bodies):
    builder = BlockBuilder(0, has_bodies)
    for run in runs:
        builder.add(run)
    stop = runs[-1].end + 3 if runs else 3
    assert builder.count == len(messages_of(runs))
    block = read_block(b"".join(builder.build(stop)))
    assert (block.first, block.next) == (0, stop)
    assert block.messages == messages_of(runs, has_bodies)
    assert block.runs <= len(messages_of(runs))
    again = read_block(b"".join(builder.build(stop + 1)))
    assert (again.first, again.next, again.messages) == (stop, stop + 1, []), "the next block begins anew"


def test_neighbours_that_differ_in_nothing_are_one_run():
    """A block of single publishes that differ in nothing has one run, although each publish was a run of its own."""
    builder = BlockBuilder(0)
    for number in range(100):
        props = PROPERTIES[number // 50]
        builder.add(Run(number, [content(props, b"x" * number)], Origin("e", ("k",), True), None, False, number))
    block = read_block(b"".join(builder.build(100)))
    assert (block.runs, len(block.messages)) == (2, 100)
    assert [len(list(group)) for _, group in groupby(block.messages, key=lambda message: message.properties)] == [
        50,
        50,
    ]


def test_messages_with_ids_of_their_own_are_one_run():
    contents = [content(b"\x00\x80\x02%02d" % number, b"body") for number in range(50)]
    builder = BlockBuilder(0)
    builder.add(Run(0, contents, Origin("e", ("k",), True), None, False, 200))
    block = read_block(b"".join(builder.build(50)))
    assert block.runs == 1 and [message.properties[3:] for message in block.messages] == [
        b"%02d" % n for n in range(50)
    ]


@pytest.mark.parametrize("at", [0, 8, 30, 57, 70, 110])
def test_a_flipped_octet_is_seen(at):
    builder = BlockBuilder(0)
    builder.add(Run(0, [content(b"\0\0", b"abc")], Origin("e", ("key",), True), None, False, 3))
    data = bytearray(b"".join(builder.build(1)))
    data[at] ^= 1
    with pytest.raises(Exception):  # noqa: B017  # whatever the field means, the block is refused
        read_block(bytes(data))
