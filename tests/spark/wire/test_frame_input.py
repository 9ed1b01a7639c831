"""Frames are cut out of what the socket receives, wherever it ends."""

import hypothesis.strategies as st
from hypothesis import given

from warren.amqp.frames import build_content, heartbeat, method_frame
from warren.amqp.methods import BasicDeliver
from warren.spark import frame_input
from warren.spark.frame_input import FrameInput

FRAME_MAX = 64
DELIVER = method_frame(1, BasicDeliver("tag", 7, False, "x", "key"))


def cut(data, sizes):
    """An input that receives these bytes in pieces of these sizes, over and over."""
    left, turn = memoryview(data), 0

    def receive(into):
        nonlocal left, turn
        count = min(len(left), len(into), sizes[turn % len(sizes)])
        assert count, "more input was asked for than there is"
        into[:count], left, turn = left[:count], left[count:], turn + 1
        return count

    return FrameInput(receive)


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=40), st.booleans()), max_size=6),
    st.lists(st.integers(1, 200), min_size=1, max_size=5),
    st.sampled_from([4, 100, 256 << 10]),
    st.sampled_from([FRAME_MAX, 0]),
)
def test_contents_and_bodies_are_read_wherever_the_input_is_cut(messages, sizes, buffer, frame_max):
    """A content is returned with its frames as they came, and a body without them. Heartbeats may come in between."""
    old, frame_input.RECEIVE_BYTES = frame_input.RECEIVE_BYTES, buffer
    try:
        contents = [build_content(1, b"\0\0" + props, body, frame_max) for body, props, _ in messages]
        sent = b"".join(
            DELIVER + (heartbeat() if is_beaten else b"") + content
            for content, (_, _, is_beaten) in zip(contents, messages)
        )
        whole, bare = cut(sent, sizes), cut(sent, sizes)
        for content, (body, _, _) in zip(contents, messages):
            for each in (whole, bare):
                assert each.frame() == (1, DELIVER[7:-1])
            assert whole.content() == content
            assert bytes(bare.body()) == body
        assert not whole and not bare
    finally:
        frame_input.RECEIVE_BYTES = old
