"""The events of the reader for valid input: runs, credit, interleaved channels, limits, cost."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest

from warren.amqp.constants import FRAME_METHOD
from warren.amqp.errors import AmqpError
from warren.amqp.frames import build_content, frame, heartbeat, method_frame
from warren.amqp.methods import BasicAck, BasicDeliver, BasicNack, BasicPublish, QueueDeclare
from warren.amqp.parser import known_headers
from warren.amqp.parser.events import ACKS, HEARTBEAT, METHOD, OVERSIZED, RUN, Event
from warren.amqp.parser.reader import FrameReader
from warren.amqp.parser.skimmer import fate
from warren.amqp.properties import Properties, encode_properties

from ..conversations import unfinished

both_paths = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
PROPS = b"\x10\x00\x02"
PAYLOAD = BasicPublish(routing_key="q").encode()
KEY, _ = fate(PROPS)


def publish(body: bytes, channel: int = 1, key: str = "q", props: bytes = PROPS, frame_max: int = 4096) -> bytes:
    """The frames of one publish."""
    return method_frame(channel, BasicPublish(routing_key=key)) + build_content(channel, props, body, frame_max)


def events_of(reader: FrameReader) -> list[Event]:
    """All events that the reader returns now."""
    return list(iter(reader.next, None))


def a_reader(credit: int | None = 1000, fast: bool = True, frame_max: int = 4096) -> FrameReader:
    """A reader with credit for channels 1 and 2."""
    reader = FrameReader(frame_max, fast=fast)
    if credit is not None:
        reader.credit = {1: credit, 2: credit}
    return reader


def test_publishes_with_the_same_method_and_properties_are_one_run() -> None:
    """Publishes that have the same method and properties are one run, although their bodies differ."""
    bodies = [b"a", b"bb", b"cc", b"", b"dddd"] + [b"e" * 10] * 100
    reader = a_reader()
    reader.feed(b"".join(map(publish, bodies)))
    assert events_of(reader) == [
        (RUN, 1, PAYLOAD, KEY, [build_content(1, PROPS, body, 4096) for body in bodies], sum(map(len, bodies)), None)
    ]


@pytest.mark.parametrize(
    "second",
    [publish(b"x", props=b"\0\0"), publish(b"x", props=b"\x10\0\1"), publish(b"x", channel=2)],
    ids=["a property more", "value of a property", "channel"],
)
def test_a_run_ends_where_the_fate_differs(second: bytes) -> None:
    """A run has one channel and one fate, even if bodies are equal."""
    reader = a_reader()
    reader.feed(publish(b"x") * 3 + second * 2 + publish(b"x"))
    assert [len(event[4]) for event in events_of(reader)] == [3, 2, 1]


def test_messages_with_other_routing_keys_share_a_run() -> None:
    """A run with several method frames has one payload for each content."""
    reader = a_reader()
    reader.feed(publish(b"x") * 2 + publish(b"x", key="r") + publish(b"x"))
    other = BasicPublish(routing_key="r").encode()
    assert [event[2] for event in events_of(reader)] == [[PAYLOAD, PAYLOAD, other, PAYLOAD]]


def test_messages_with_ids_of_their_own_share_a_run() -> None:
    """Messages that differ in properties which decide nothing, such as ids, share a run, both before and after the
    reader has made a pattern of their headers.
    """
    reader = a_reader()
    octets = [
        publish(b"x" * (n % 7), props=encode_properties(Properties(message_id=f"{n:08}", delivery_mode=2)))
        for n in range(200)
    ]
    reader.feed(b"".join(octets))
    assert [(event[2], len(event[4])) for event in events_of(reader)] == [(PAYLOAD, 200)]


@both_paths
@pytest.mark.parametrize("before_a_pattern", [1, 1000])
def test_messages_with_other_expirations_share_a_run(fast: bool, before_a_pattern: int) -> None:
    """Messages with different expirations share a run, which has one expiration for each message, None for those
    without. An expiration of 0 ends the run (AB-96).
    """
    texts = [b"100", b"100", b"250", None, b"7", b"999", b"000", b"0", b"100", None, b"-1", b"none"]
    octets = [
        publish(b"x" * 5, props=encode_properties(Properties(expiration=text and text.decode(), delivery_mode=2)))
        for text in texts * 20
    ]
    with patch.object(known_headers, "headers_before_a_pattern", lambda: before_a_pattern):
        reader = a_reader(fast=fast)
    reader.feed(b"".join(octets))
    found: list[bytes | None] = []
    for _, _, _, key, contents, _, expirations in (events := events_of(reader)):
        column = expirations if isinstance(expirations, list) else [expirations] * len(contents)
        assert {key == b"m\x02z"} == {text in (b"0", b"000") for text in column}
        found += column
    assert found == texts * 20
    assert not fast or len(events) == 41


@pytest.mark.parametrize("props", [b"\0\0", b"\x10\0\1"], ids=["of another length", "of the same length"])
def test_a_fate_that_comes_back_begins_a_run_of_its_own(props: bytes) -> None:
    """A message with another fate begins a run, and so does the next one whose fate is that of the messages
    before it.
    """
    reader = a_reader()
    reader.feed(publish(b"x") * 4 + publish(b"x", props=props) + publish(b"x") * 4)
    assert [(event[3], len(event[4])) for event in events_of(reader)] == [(KEY, 4), (fate(props)[0], 1), (KEY, 4)]


@both_paths
def test_a_lower_limit_also_holds_for_repeated_messages(fast: bool) -> None:
    """When `frame_max` or `max_body_size` changes, the reader forgets shapes checked against the old limit."""
    data = publish(b"x" * 5000, frame_max=0)
    reader = a_reader(fast=fast, frame_max=131072)
    reader.feed(data * 4)
    assert {event[0] for event in events_of(reader)} == {RUN}
    reader.max_body_size = 4999
    reader.feed(data)
    assert [event[0] for event in events_of(reader)] == [OVERSIZED]
    reader.max_body_size = 5000
    reader.feed(data * 4)
    assert {event[0] for event in events_of(reader)} == {RUN}
    reader.frame_max = 4096
    reader.feed(data)
    with pytest.raises(AmqpError, match="frame_too_large,5000,4088"):
        events_of(reader)


def test_any_other_frame_ends_a_run() -> None:
    """Any other frame ends a run, so that events are returned in the order of the frames."""
    reader = a_reader()
    reader.feed(publish(b"x") * 2 + heartbeat() + publish(b"x") + method_frame(1, BasicAck(1)) * 2 + publish(b"x"))
    assert [event[0] for event in events_of(reader)] == [RUN, HEARTBEAT, RUN, ACKS, RUN]


def test_consecutive_acks_of_a_channel_are_one_event() -> None:
    """Consecutive acks of one channel are one event. An ack on another channel begins a new one, and basic.nack is a
    METHOD event.
    """
    reader = a_reader()
    data = [method_frame(1, BasicAck(tag, tag % 2 == 0)) for tag in (1, 2, 3)]
    reader.feed(b"".join(data) + method_frame(2, BasicAck(9)) + method_frame(2, BasicNack(9)))
    assert events_of(reader) == [
        (ACKS, 1, [(1, False), (2, True), (3, False)]),
        (ACKS, 2, [(9, False)]),
        (METHOD, 2, BasicNack(9)),
    ]


@pytest.mark.parametrize("credit", [None, 0, -5, 1, 2, 7, 33, 64, 1000])
def test_a_run_is_cut_at_the_credit_of_its_channel(credit: int | None) -> None:
    """A run has at most as many messages as its channel has credit, and one message if the channel has no entry or one
    of 0 or less.
    """
    reader = a_reader(credit)
    reader.feed(publish(b"x" * 20) * 100)
    limit = max(1, credit or 1)
    counts = [len(event[4]) for event in events_of(reader)]
    assert sum(counts) == 100
    assert counts[:-1] == [limit] * (len(counts) - 1)
    assert counts[-1] <= limit


def test_credit_may_change_between_calls() -> None:
    """The credit of a channel may change between calls: the caller counts it down, and the reader reads it at each
    call.
    """
    reader = a_reader(None)
    reader.feed(publish(b"x") * 10)
    counts = []
    for credit in (3, 1, 4, 100):
        reader.credit[1] = credit
        event = reader.next()
        assert event is not None
        counts.append(len(event[4]))
    assert counts == [3, 1, 4, 2]


def test_a_content_fed_in_two_pieces_is_in_one_run_with_those_after_it() -> None:
    """A content that arrived in two pieces is in one run with those after it, as far as the credit reaches."""
    for credit, expected in ((1000, [2, 4]), (3, [2, 3, 1]), (1, [1, 1, 1, 1, 1, 1])):
        reader = a_reader(credit)
        one = publish(b"x" * 50)
        counts = []
        for piece in (one * 2 + one[:60], one[60:] + one * 3):
            reader.feed(piece)
            counts += [len(event[4]) for event in events_of(reader)]
        assert counts == expected


def test_a_large_piece_of_input_is_not_copied_to_the_part_of_a_message_before_it() -> None:
    """If a large piece of input follows a part of a message, only the rest of that message is copied, and it is still
    in one run with the messages of the piece.
    """
    reader = a_reader()
    one = publish(b"x" * 1000)
    reader.feed(one + one[:60])
    assert [len(event[4]) for event in events_of(reader)] == [1]
    piece = one[60:] + one * 100
    reader.feed(piece)
    assert [len(event[4]) for event in events_of(reader)] == [101]
    assert reader._buffer is piece


@both_paths
def test_frames_of_other_channels_may_come_between_those_of_a_content(fast: bool) -> None:
    """Frames of other channels may come between those of a content: the reader assembles one content for each channel,
    and returns its event when it is complete (AB-45).
    """
    reader = a_reader(fast=fast)
    first = [method_frame(1, BasicPublish(routing_key="q")), *_frames(1, b"abcdef", 3)]
    second = [method_frame(2, BasicPublish(routing_key="q")), *_frames(2, b"uvwxyz", 2)]
    reader.feed(
        b"".join(a + b for a, b in zip(first, second + [b""] * 9, strict=False)) + b"".join(second[len(first) :])
    )
    assert events_of(reader) == [
        (RUN, 1, PAYLOAD, KEY, [b"".join(first[1:])], 6, None),
        (RUN, 2, PAYLOAD, KEY, [b"".join(second[1:])], 6, None),
    ]


def _frames(channel: int, body: bytes, step: int) -> list[bytes]:
    content = build_content(channel, PROPS, body, step + 8)
    size = len(content) - len(body) // step * (step + 8)
    return [content[:size], *[content[i : i + step + 8] for i in range(size, len(content), step + 8)]]


@both_paths
def test_empty_body_frames_are_accepted_and_not_kept(fast: bool) -> None:
    """Empty body frames are accepted before the body is complete, and are not kept (AB-40)."""
    reader = a_reader(fast=fast)
    empty = frame(3, 1, b"")
    data = publish(b"abc")
    head, body = data[:-11], data[-11:]
    reader.feed(head + empty * 3 + body + publish(b"abc"))
    contents = [content for event in events_of(reader) for content in event[4]]
    assert contents == [build_content(1, PROPS, b"abc", 4096)] * 2


@both_paths
def test_a_method_that_only_brokers_send_is_an_event_when_its_content_is_complete(fast: bool) -> None:
    """A method with content that only brokers send is an event once its content is complete: the channel refuses it,
    and the reader must skip the content (AB-58).
    """
    reader = a_reader(fast=fast)
    reader.feed(method_frame(1, BasicDeliver("t")) + build_content(1, PROPS, b"x" * 5000, 4096))
    reader.feed(method_frame(1, QueueDeclare()))
    assert events_of(reader) == [(METHOD, 1, BasicDeliver("t")), (METHOD, 1, QueueDeclare())]


@both_paths
def test_a_content_method_on_channel_0_is_not_followed_by_a_content(fast: bool) -> None:
    """A content method on channel 0 is not followed by a content: the connection refuses it like any other method
    (AB-5).
    """
    reader = a_reader(fast=fast)
    reader.feed(method_frame(0, BasicPublish()) + method_frame(0, BasicAck(1)))
    assert events_of(reader) == [(METHOD, 0, BasicPublish()), (METHOD, 0, BasicAck(1))]


@both_paths
def test_content_started_is_set_by_header_and_body_frames(fast: bool) -> None:
    """`content_started` is set by header and body frames: during an alarm the header of a publish blocks a connection,
    and its method frame does not (AB-33).
    """
    reader = a_reader(fast=fast)
    data = publish(b"abc")
    method = method_frame(1, BasicPublish(routing_key="q"))
    reader.feed(heartbeat() + method)
    events_of(reader)
    assert not reader.content_started
    reader.feed(data[len(method) : -11])
    events_of(reader)
    assert reader.content_started
    reader.content_started = False
    reader.feed(data[-11:])
    events_of(reader)
    assert reader.content_started
    reader.content_started = False
    reader.feed(data)
    events_of(reader)
    assert reader.content_started


@both_paths
def test_an_oversized_body_is_reported_at_its_header_and_not_kept(fast: bool) -> None:
    """A body that is too large is reported at its header and not kept: the channel refuses the message, and later
    messages are read as usual (AB-105).
    """
    reader = a_reader(fast=fast)
    reader.max_body_size = 1000
    reader.feed(publish(b"x" * 1000) * 2)
    assert sum(len(event[4]) for event in events_of(reader)) == 2
    data = publish(b"x" * 100_000)
    reader.feed(data[:200])
    assert events_of(reader) == [(OVERSIZED, 1, PAYLOAD, PROPS, 100_000)]
    for start in range(200, len(data), 3000):
        reader.feed(data[start : start + 3000])
        assert reader.next() is None
        assert unfinished(reader) == 0
    reader.feed(publish(b"x" * 1001) + publish(b"y"))
    assert [event[0] for event in events_of(reader)] == [OVERSIZED, RUN]


@both_paths
def test_a_header_may_declare_any_size(fast: bool) -> None:
    """A header may declare a body of any size, because no memory is reserved before the body arrives."""
    reader = a_reader(fast=fast)
    reader.max_body_size = 1 << 64
    header = (1 << 64) - 1
    reader.feed(method_frame(1, BasicPublish()) + frame(2, 1, b"\0\x3c\0\0" + header.to_bytes(8, "big") + b"\0\0"))
    reader.feed(frame(3, 1, b"x" * 100))
    assert reader.next() is None
    assert unfinished(reader) < 200


def test_the_number_of_remembered_method_frames_is_bounded() -> None:
    """The reader remembers 256 method frames at most, even of a client that varies its routing key."""
    reader = a_reader()
    for number in range(3000):
        reader.feed(publish(b"x", key=f"key.{number}"))
        event = reader.next()
        assert event is not None and event[2] == BasicPublish(routing_key=f"key.{number}").encode()
    assert len(reader._shapes) <= 256


@pytest.mark.parametrize("piece", [1460, 65536])
def test_a_large_body_costs_time_in_proportion_to_its_size(piece: int) -> None:
    """Reading a large body takes time in proportion to its size: the reader does not join the input again for each
    piece.
    """
    data = publish(b"x" * (16 << 20), frame_max=131072)
    reader = a_reader(frame_max=131072)
    started = time.process_time()
    events = []
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
        events += events_of(reader)
    # It takes 0.05 s on a slow machine; joining for each piece would take a minute.
    assert time.process_time() - started < 3
    assert [event[5] for event in events] == [16 << 20]


def test_a_frame_that_comes_byte_by_byte_is_joined_in_time_proportional_to_its_size() -> None:
    """Joining a frame that comes byte by byte takes time in proportion to its size. A method frame may be as long as a
    body frame, and is not received in place.
    """
    data = frame(FRAME_METHOD, 1, QueueDeclare(queue="q").encode() + bytes(400_000))
    reader = a_reader(frame_max=0)
    for start in range(len(data) - 1):
        reader.feed(data[start : start + 1])
        assert reader.next() is None
    started = time.process_time()
    reader.feed(data[-1:])
    with pytest.raises(AmqpError):
        reader.next()
    # It takes 0.1 s on a slow machine; removing each byte from the front of a list took 30 s.
    assert time.process_time() - started < 3


def test_a_large_frame_in_small_pieces_is_joined_once() -> None:
    """The pieces of a large frame are joined once, when it is complete."""
    data = publish(b"x" * 100_000, frame_max=0)
    reader = a_reader(frame_max=0)
    events = []
    joined = set()
    for start in range(0, len(data), 400):
        reader.feed(data[start : start + 400])
        events += events_of(reader)
        joined.add(id(reader._buffer))
    assert len(joined) <= 3
    assert len(events) == 1
