"""The frames of the control protocol."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.actors.control.frames import STEP, ControlFrameError, frame, pack, unpack, unpack_in_steps

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.binary(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
messages = st.dictionaries(st.text(max_size=3), values, max_size=4)


def in_steps(body):
    """The message, and in how many steps it was unpacked."""
    steps, count = unpack_in_steps(body), 1
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


def outcome(function, body):
    try:
        return function(body)
    except ControlFrameError:
        return ControlFrameError


@given(messages)
@example({"operation": "import_definitions", "arguments": {"document": {"queues": [{"name": "q"}, 1, []]}}})
def test_a_message_unpacked_in_steps_is_the_same(message):
    body = pack(message)
    assert in_steps(body)[0] == unpack(body) == message


@given(st.data())
def test_both_ways_refuse_the_same_bytes(data):
    """A frame that is cut off or damaged, and one with anything behind its message."""
    body = bytearray(pack(data.draw(messages)))
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    whole = bytes(body[: data.draw(st.integers(1, len(body)))]) + data.draw(st.binary(max_size=2))
    one, other = outcome(unpack, whole), outcome(lambda body: in_steps(body)[0], whole)
    assert repr(one) == repr(other)  # a damaged number may be no number, which equals nothing


@pytest.mark.parametrize("body", [b"", b"\x80\x80", b"\x90", b"\x81\x01\x01", b"\xdf\xff\xff\xff\xff", b"\xc1"])
def test_what_is_no_message_is_refused(body):
    assert outcome(unpack, body) is outcome(lambda body: in_steps(body)[0], body) is ControlFrameError


def test_definitions_are_unpacked_a_few_at_a_time():
    """20,000 queues in one step would hold up all clients for 12 ms."""
    queues = [{"name": f"q{number}", "arguments": {}} for number in range(10 * STEP)]
    message = {"operation": "import_definitions", "arguments": {"document": {"queues": queues}}}
    assert in_steps(frame(message)[4:]) == (message, 11)


def test_texts_with_undecodable_bytes_are_the_same_in_steps():
    message = {"name": "a\udcff"}
    assert in_steps(msgpack.packb(message, unicode_errors="surrogateescape"))[0] == message
