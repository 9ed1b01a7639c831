"""Input that completes no event: the reader hands control back after a bounded number of frames."""

from __future__ import annotations

import pytest

from warren.amqp.constants import FRAME_BODY, FRAME_METHOD
from warren.amqp.frames import build_content, content_body, frame, method_frame
from warren.amqp.methods import BasicPublish, ConnectionClose
from warren.amqp.parser.events import METHOD, PARTS, RUN
from warren.amqp.parser.frame_meanings import CLOSING
from warren.amqp.parser.reader import PARTS_MAX, FrameReader

both_paths = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])

#: How many times as many frames as one call reads.
TIMES = 5


@both_paths
def test_a_body_in_very_many_frames_is_read_a_part_at_a_time(fast: bool) -> None:
    """A client may send any number of empty body frames, and one byte in each of the others (AB-40). A call reads a
    bounded number of frames, and the message is complete in the end.
    """
    reader = FrameReader(4096, fast=fast)
    size = TIMES * PARTS_MAX
    header = build_content(1, b"\0\0", bytes(size), 0)[: 7 + 14 + 1]
    body = b"".join(frame(FRAME_BODY, 1, piece) for byte in range(size) for piece in (b"", b"%c" % (byte % 256)))
    reader.feed(method_frame(1, BasicPublish(routing_key="q")) + header + body)
    events = list(iter(reader.next, None))
    assert [event[0] for event in events] == [PARTS] * (2 * TIMES) + [RUN]
    assert all(event == (PARTS, 0) for event in events[:-1])
    assert content_body(events[-1][4][0]) == bytes(byte % 256 for byte in range(size))


@both_paths
def test_frames_are_skipped_a_part_at_a_time(fast: bool) -> None:
    """While the connection closes, frames of its channels are skipped, a bounded number in one call."""
    reader = FrameReader(4096, fast=fast)
    reader.phase = CLOSING
    skipped = frame(FRAME_METHOD, 1, b"") * (TIMES * PARTS_MAX)
    reader.feed(skipped + method_frame(0, ConnectionClose()))
    assert [event[0] for event in iter(reader.next, None)] == [PARTS] * TIMES + [METHOD]
