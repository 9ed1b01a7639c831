"""Frames and contents (AB-41, AB-43 to AB-45)."""

from __future__ import annotations

import pamqp.frame
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.amqp import frames
from warren.amqp.errors import AmqpError
from warren.amqp.methods import QueueDeclareOk
from warren.amqp.properties import Properties, encode_properties

from .strategies import properties, steady

PROPS = b"\x10\x00\x02"
sizes = st.one_of(st.integers(0, 40), st.integers(0, 5000))


@pytest.mark.parametrize("frame_max", [11, 4096])
@pytest.mark.parametrize("frames_of_body", [0, 0.3, 1, 2, 2.5])
def test_content_framing(frame_max: int, frames_of_body: float) -> None:
    """No body frame exceeds frame_max, and the size in the header is the sum of the body frames (AB-44)."""
    body = b"x" * int(frames_of_body * (frame_max - 8))
    content = frames.build_content(5, PROPS, body, frame_max)
    header, *bodies = frames.split_frames(content)[0]
    assert header[:2] == (2, 5)
    assert int.from_bytes(header[2][4:12], "big") == sum(len(payload) for _, _, payload in bodies) == len(body)
    assert all(kind == 3 and channel == 5 and 0 < len(payload) <= frame_max - 8 for kind, channel, payload in bodies)
    assert b"".join(payload for _, _, payload in bodies) == body


@given(st.lists(st.binary(max_size=50), max_size=12), st.integers(9, 80))
def test_a_content_of_pieces_is_that_of_the_pieces_joined(pieces: list[bytes], frame_max: int) -> None:
    """A content built of pieces has the body of the pieces joined. Its frames end between pieces where they can, and
    are never too large or empty.
    """
    content = frames.build_content_of(1, b"\0\0", pieces, frame_max)
    assert frames.content_body(content) == b"".join(pieces)
    assert frames.content_size(content) == sum(map(len, pieces))
    found, rest = frames.split_frames(content)
    assert rest == b"" and all(0 < len(payload) <= frame_max - 8 for _, _, payload in found[1:])


def test_an_empty_body_has_no_body_frame() -> None:
    """A content with an empty body is only a header frame (AB-44)."""
    content = frames.build_content(1, PROPS, b"", 4096)
    assert len(frames.split_frames(content)[0]) == 1
    assert frames.content_body(content) == b""


def test_without_a_limit_the_body_is_one_frame() -> None:
    """With a frame_max of 0, which means no limit, the body is one frame (AB-44)."""
    assert len(frames.split_frames(frames.build_content(1, PROPS, b"x" * 300_000, 0))[0]) == 2


@steady
@given(st.binary(max_size=200), st.integers(9, 100), properties, st.integers(1, 65535))
def test_a_content_returns_what_it_was_built_from(body: bytes, frame_max: int, props: Properties, channel: int) -> None:
    """AB-43: properties, size and body can be read from a content of any number of frames."""
    encoded = encode_properties(props)
    content = frames.build_content(channel, encoded, body, frame_max)
    assert frames.content_properties(content) == encoded
    assert frames.content_size(content) == len(body)
    assert frames.content_body(content) == body


@steady
@given(st.lists(st.tuples(sizes, st.integers(9, 600)), max_size=12), st.integers(1, 65535), st.integers(1, 65535))
def test_rechannel_equals_a_content_built_on_the_other_channel(
    made: list[tuple[int, int]], channel: int, other: int
) -> None:
    """A content moved to another channel equals one that was built there, as a single content and in a run, with any
    number of frames (AB-45).
    """
    run = [frames.build_content(channel, PROPS, b"b" * size, frame_max) for size, frame_max in made]
    there = [frames.build_content(other, PROPS, b"b" * size, frame_max) for size, frame_max in made]
    assert [frames.rechannel(content, other) for content in run] == there
    assert frames.rechannel_run(run, other) == there


def test_a_run_of_contents_of_equal_length_with_different_framing() -> None:
    """AB-45: contents of the same length may differ in their number of frames."""
    one = frames.build_content(1, PROPS, b"x" * 30, 0)
    two = frames.build_content(1, PROPS, b"x" * 22, 28)
    assert len(one) == len(two)
    for run in ([one, two, one], [two, one, two]):
        assert [frames.content_body(content) for content in frames.rechannel_run(run, 2)] == [
            frames.content_body(content) for content in run
        ]
        assert all(channel == 2 for c in frames.rechannel_run(run, 2) for _, channel, _ in frames.split_frames(c)[0])


@steady
@given(sizes, st.integers(9, 6000), st.integers(9, 6000), st.integers(1, 3))
def test_fit_cuts_only_frames_that_are_too_large(size: int, came: int, goes: int, channel: int) -> None:
    """AB-44: a client with a smaller frame_max gets smaller frames; otherwise the frames stay as they came."""
    content = frames.build_content(1, PROPS, b"y" * size, came)
    fitted = frames.fit(content, channel, goes)
    limit = goes - 8
    pieces = frames.split_frames(fitted)[0]
    assert all(len(payload) <= limit for kind, _, payload in pieces if kind == 3)
    assert all(number == channel for _, number, _ in pieces)
    assert frames.content_body(fitted) == b"y" * size
    if came <= goes:
        assert fitted == frames.rechannel(content, channel)
    assert frames.fit(content, channel, 0) == frames.rechannel(content, channel)


@pytest.mark.parametrize("lengths", [[1000, 3000], [1000, 1000, 3000], [1000, 1000, 1001], [400, 3000, 600]])
def test_fit_looks_at_every_frame(lengths: list[int]) -> None:
    """AB-44: a client may cut a body as it likes, so a small first frame does not mean that the others are small."""
    header, *_ = frames.split_frames(frames.build_content(1, PROPS, b"z" * sum(lengths), 0))[0]
    content = b"".join([frames.frame(*header), *(frames.frame(3, 1, b"z" * length) for length in lengths)])
    fitted = frames.fit(content, 1, 1008)
    assert all(len(payload) <= 1000 for _, _, payload in frames.split_frames(fitted)[0])
    assert frames.content_body(fitted) == b"z" * sum(lengths)


def test_split_frames_accepts_input_cut_anywhere() -> None:
    """`split_frames` accepts input that is cut anywhere, and returns the complete frames and the rest (AB-41)."""
    encoded = frames.method_frame(1, QueueDeclareOk("q", 1, 2)) + frames.heartbeat()
    for cut in range(len(encoded) + 1):
        first, rest = frames.split_frames(encoded[:cut])
        second, end = frames.split_frames(rest + encoded[cut:])
        assert [(kind, channel) for kind, channel, _ in first + second] == [(1, 1), (8, 0)]
        assert end == b""


def test_a_frame_without_its_end_is_a_fault() -> None:
    """AB-41: a frame must end in 0xCE."""
    with pytest.raises(AmqpError):
        frames.split_frames(frames.heartbeat()[:-1] + b"\x00")


def test_pamqp_reads_our_content() -> None:
    """AB-43: another implementation reads the same header and body."""
    props = encode_properties(Properties(content_type="text/plain", delivery_mode=2, priority=4))
    content = frames.build_content(7, props, b"hello", 4096)
    used, channel, header = pamqp.frame.unmarshal(content)
    assert isinstance(header, pamqp.header.ContentHeader)
    assert (channel, header.body_size) == (7, 5)
    assert (header.properties.content_type, header.properties.delivery_mode, header.properties.priority) == (
        "text/plain",
        2,
        4,
    )
    assert pamqp.frame.unmarshal(content[used:])[2].value == b"hello"
