"""Contents received in place: the events are those of the slow path, however frames and input are cut (AB-45)."""

from __future__ import annotations

import ctypes
import gc
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren.amqp.errors import AmqpError
from warren.amqp.frames import CONTENT_HEAD, FRAME_BODY, frame, heartbeat, method_frame
from warren.amqp.methods import BasicPublish
from warren.amqp.parser import large_content
from warren.amqp.parser.events import HEARTBEAT, RUN, Event
from warren.amqp.parser.frame_meanings import CLOSING
from warren.amqp.parser.large_content import REST_MIN, LargeContent
from warren.amqp.parser.reader import FrameReader

from .conversations import conversation, cut, normal, read_all
from .strategies import steady

FRAME = 4096


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of a few frames are received in place, so that the tests can have many of them."""
    monkeypatch.setattr(large_content, "REST_MIN", 1)
    monkeypatch.setattr(large_content, "FRAME_MIN", 1)


def header(size: int, channel: int = 1) -> bytes:
    return CONTENT_HEAD.pack(2, channel, 14, 60, 0, size) + b"\0\0\xce"


def bodies(rng: Random, size: int) -> list[bytes]:
    """The body frames of a content on channel 1: of equal size except the last, or, in some, of any size."""
    step = rng.choice((max(1, size // 50), 1000, FRAME - 8))
    frames = []
    while size:
        length = min(size, step if rng.random() < 0.9 else rng.randint(1, 2 * step), FRAME - 8)
        frames.append(frame(FRAME_BODY, 1, rng.randbytes(length)))
        size -= length
    return frames


def publish(rng: Random) -> bytes:
    """A large publish on channel 1. Frames of channel 0 or 2, empty frames and faults may come between its frames."""
    size = rng.choice((1, 900, 5000, 20_000))
    frames = bodies(rng, size)
    if rng.random() < 0.4:
        other = [heartbeat(), frame(FRAME_BODY, 1, b""), conversation(rng, 1)[0].replace(b"\0\1", b"\0\2")]
        frames.insert(rng.randint(0, len(frames)), rng.choice(other))
    data = b"".join(frames)
    if rng.random() < 0.1:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return method_frame(1, BasicPublish(routing_key="q")) + header(size) + data


def received(reader: FrameReader, pieces: list[bytes]) -> tuple[list[Event], tuple[int, str] | None]:
    """What `reader` returns if its caller receives into a large content for as long as that has room."""
    events: list[Event] = []
    fault = None
    for piece in pieces:
        large = reader.large
        if large is not None and large.filled < large.size:
            room = large.room
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            large.filled += count
            piece = piece[count:]
        found, error = read_all(reader, [piece])
        if fault is None:
            events += found
        if error is not None and fault is None:
            fault = error.code, str(error)
    return normal(events), fault


@given(st.integers(0, 1 << 32))
@settings(steady, max_examples=80)
def test_large_contents_are_read_like_small_ones(seed: int) -> None:
    """Large contents, which are received in place, give the same events, and the same fault if there is one, as on the
    slow path, for any cut.
    """
    rng = Random(seed)
    data = b"".join(publish(rng) * rng.randint(1, 3) for _ in range(rng.randint(1, 3)))
    outcomes = []
    for fast in (True, False):
        reader = FrameReader(FRAME, fast=fast)
        reader.credit = {1: 1000, 2: 1000}
        outcomes.append(received(reader, cut(Random(seed), data)))
    assert outcomes[0] == outcomes[1]


@given(st.integers(0, 1 << 32))
@example(21124)  # a content that begins like the one before, with its first body frames in the same piece
@settings(steady, max_examples=200)
def test_content_started_is_set_by_the_same_pieces(seed: int) -> None:
    """AB-33: a connection blocks at a frame of a content that is complete, not at a part of one."""
    rng = Random(seed)
    data = publish(rng) * rng.randint(1, 3)
    pieces = cut(rng, data)
    started = []
    for fast in (True, False):
        reader = FrameReader(FRAME, fast=fast)
        flags = []
        for piece in pieces:
            reader.feed(piece)
            try:
                while reader.next() is not None:
                    pass
            except AmqpError:
                break
            flags.append(reader.content_started)
            reader.content_started = False
        started.append(flags)
    assert started[0] == started[1]


def test_a_publish_that_begins_like_the_one_before_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish whose bytes before the body are those of the one before it is not decoded again. Another limit makes
    the bytes be checked again.
    """
    checked = []
    monkeypatch.setattr("warren.amqp.parser.frame_meanings.check_publish", checked.append)
    reader = FrameReader(FRAME)
    body = b"".join(frame(FRAME_BODY, 1, bytes([number]) * 1000) for number in range(3))
    data = method_frame(1, BasicPublish(routing_key="q")) + header(3000) + body
    contents = []
    for is_checked in (True, False, False, True):
        if is_checked:
            reader.frame_max = FRAME
        checked.clear()
        for piece in (data[:700], data[700:]):
            events, error = read_all(reader, [piece])
            assert error is None
            contents += [event[4] for event in events]
        assert bool(checked) == is_checked
    assert contents == [[header(3000) + body]] * 4


def test_the_content_is_the_buffer_itself() -> None:
    """The content is the buffer itself, so what is received in place is not copied again."""
    content = LargeContent(1, header(3000), 1000, 3000)
    content.add(b"".join(frame(FRAME_BODY, 1, bytes([number]) * 1000) for number in range(3)))
    assert content.check() and not content.remaining
    address = ctypes.addressof(ctypes.c_char.from_buffer(content._view))
    gc.collect()  # until then ctypes keeps the view
    taken = content.take()
    assert type(taken) is bytes and len(taken) == content.size
    assert address == ctypes.cast(taken, ctypes.c_void_p).value


def test_a_body_of_any_size_is_received_in_place_from_the_start() -> None:
    """A body of any size is received in place from the start: otherwise what had been gathered elsewhere would be
    copied in one turn, which would grow with the body.
    """
    reader = FrameReader(131072)
    size = 50 << 20
    first = frame(FRAME_BODY, 1, bytes(131072 - 8))
    reader.feed(method_frame(1, BasicPublish(routing_key="q")) + header(size) + first[:1000])
    assert reader.next() is None and reader.large is not None
    assert reader.large.filled < 2000 and reader.large.size > size


def test_a_body_that_has_nearly_arrived_is_received_in_place_only_if_it_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A body that has nearly arrived is received in place only if it is large: a read of its own for the rest costs
    more than copying a small body.
    """
    monkeypatch.setattr(large_content, "REST_MIN", REST_MIN)
    for size, missing, is_in_place in ((20_000, 300, False), (20_000, 17_000, True), (100_000, 300, True)):
        reader = FrameReader(131072)
        data = method_frame(1, BasicPublish(routing_key="q")) + header(size) + frame(FRAME_BODY, 1, bytes(size))
        for _ in range(2):  # the second time the reader recognises the bytes before the body
            reader.feed(data[:-missing])
            assert reader.next() is None
            assert (reader.large is not None) == is_in_place
            reader.feed(data[-missing:])
            event = reader.next()
            assert event is not None and event[0] == RUN and event[5] == size


def test_frames_that_alternate_with_those_of_another_channel_are_copied_once() -> None:
    """A content whose frames alternate with those of another channel, and so are not as announced, is gathered frame by
    frame from then on, and copied once.
    """
    reader = FrameReader(FRAME)
    events: list[Event] = []
    reader.feed(method_frame(1, BasicPublish(routing_key="q")) + header(4000))
    for number in range(4):
        one = frame(FRAME_BODY, 1, bytes(1000))
        reader.feed(one[:500])
        assert reader.next() is None
        assert (reader.large is not None) == (number == 0)
        reader.feed(one[500:] + heartbeat())
        events += iter(reader.next, None)
    assert [event[0] for event in events] == [HEARTBEAT, HEARTBEAT, HEARTBEAT, RUN, HEARTBEAT]


def test_a_closing_connection_drops_the_content() -> None:
    """A connection that closes skips the rest of a large content, and finds the close behind it (AB-6)."""
    reader = FrameReader(FRAME)
    data = method_frame(1, BasicPublish(routing_key="q")) + header(2000) + frame(FRAME_BODY, 1, bytes(1000))
    reader.feed(data[:-10])
    assert reader.next() is None and reader.large is not None
    reader.phase = CLOSING
    reader.feed(data[-10:] + frame(FRAME_BODY, 1, bytes(1000)))
    assert reader.next() is None and reader.large is None
    assert reader._position == len(reader._buffer)
