"""Malformed input: the reply code, text and method ids of each fault (AB-38, second table).

The texts are those of RabbitMQ 3.10.8, except where a comment describes a difference.
"""

from __future__ import annotations

import struct

import pytest

from warren.amqp.errors import AmqpError
from warren.amqp.frames import frame, heartbeat, method_frame
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicPublish,
    BasicQos,
    ConnectionClose,
    ConnectionUpdateSecret,
)
from warren.amqp.parser.events import ACKS, HEARTBEAT, METHOD, RUN
from warren.amqp.parser.frame_meanings import CLOSING, HANDSHAKE
from warren.amqp.parser.reader import FrameReader

from ..conversations import kept

PUBLISH = method_frame(1, BasicPublish(routing_key="nowhere"))
EXPECTED_METHOD = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
EXPECTED_HEADER = "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
EXPECTED_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"


def header(size: int = 3, class_id: int = 60, weight: int = 0, props: bytes = b"\0\0", channel: int = 1) -> bytes:
    """A content header frame."""
    return frame(2, channel, struct.pack(">HHQ", class_id, weight, size) + props)


def body(data: bytes = b"abc", channel: int = 1) -> bytes:
    """A body frame."""
    return frame(3, channel, data)


GOOD = PUBLISH + header() + body()

FAULTS = [
    (
        "unknown type",
        frame(4, 1, b"hello"),
        501,
        'FRAME_ERROR - type 4, all octets = <<"hello">>: unknown_frame',
        (0, 0),
    ),
    (
        "long unknown type",
        frame(4, 1, b"hello there, this is long"),
        501,
        'FRAME_ERROR - type 4, first 16 octets = <<"hello there, thi">>: unknown_frame',
        (0, 0),
    ),
    (
        "unknown type, channel 0",
        frame(4, 0, b""),
        501,
        "FRAME_ERROR - type 4, all octets = <<>>: unknown_frame",
        (0, 0),
    ),
    ("short method", frame(1, 1, b"\0\x3c"), 501, "FRAME_ERROR - type 1, all octets = <<0,60>>: unknown_frame", (0, 0)),
    (
        "short header",
        PUBLISH + frame(2, 1, b"\0\x3c\0\0"),
        501,
        "FRAME_ERROR - type 2, all octets = <<0,60,0,0>>: unknown_frame",
        (0, 0),
    ),
    (
        "arguments cut off",
        frame(1, 1, BasicConsume(queue="q").encode()[:-2]),
        501,
        "FRAME_ERROR - cannot decode <<0,0,1,113,0,0,0,0>>",
        (60, 20),
    ),
    (
        "publish with more than its arguments",
        frame(1, 1, BasicPublish().encode() + b"zz"),
        501,
        "FRAME_ERROR - cannot decode <<0,0,0,0,0,122,122>>",
        (60, 40),
    ),
    (
        "not UTF-8",
        method_frame(1, BasicGet(queue="\udcff")),
        501,
        "FRAME_ERROR - Malformed UTF-8 in shortstr",
        (0, 0),
    ),
    (
        "not UTF-8, channel 0",
        method_frame(0, ConnectionUpdateSecret(b"x", "\udcff")),
        501,
        "FRAME_ERROR - Malformed UTF-8 in shortstr",
        (10, 70),
    ),
    ("body first", body(), 505, EXPECTED_METHOD, (0, 0)),
    ("header first", header(), 505, EXPECTED_METHOD, (0, 0)),
    ("body after complete content", GOOD + body(), 505, EXPECTED_METHOD, (0, 0)),
    ("empty body frame after complete content", GOOD + body(b""), 505, EXPECTED_METHOD, (0, 0)),
    ("body after publish", PUBLISH + body(), 505, EXPECTED_HEADER, (60, 40)),
    ("publish after publish", PUBLISH + PUBLISH, 505, EXPECTED_HEADER, (60, 40)),
    ("ack after publish", PUBLISH + method_frame(1, BasicAck(1)), 505, EXPECTED_HEADER, (60, 40)),
    ("method after deliver", method_frame(1, BasicDeliver()) + PUBLISH, 505, EXPECTED_HEADER, (60, 60)),
    (
        "header of another class",
        PUBLISH + header(class_id=50),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
        (60, 40),
    ),
    ("weight", PUBLISH + header(weight=1), 505, EXPECTED_HEADER, (60, 40)),
    ("weight and another class", PUBLISH + header(weight=1, class_id=50), 505, EXPECTED_HEADER, (60, 40)),
    ("method in body", PUBLISH + header() + PUBLISH, 505, EXPECTED_BODY, (60, 40)),
    ("header in body", PUBLISH + header() + header(), 505, EXPECTED_BODY, (60, 40)),
    (  # RabbitMQ detects this at the next frame of another type, with the text EXPECTED_BODY.
        "more body than declared",
        PUBLISH + header() + body(b"abcdef"),
        505,
        "UNEXPECTED_FRAME - expected content body of 3 octets, got more instead",
        (60, 40),
    ),
    ("body on channel 0", body(channel=0), 505, 'UNEXPECTED_FRAME - type 3, all octets = <<"abc">>', (0, 0)),
    (
        "header on channel 0",
        header(channel=0),
        505,
        "UNEXPECTED_FRAME - type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,3,0,0>>",
        (0, 0),
    ),
    ("heartbeat on a channel", frame(8, 1, b""), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", (0, 0)),
    (
        "heartbeat with payload",
        frame(8, 0, b"x"),
        501,
        'FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame',
        (0, 0),
    ),
    (
        "heartbeat with payload on a channel",
        frame(8, 1, b"x"),
        501,
        'FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame',
        (0, 0),
    ),
    (  # RabbitMQ drops the connection.
        "unknown method",
        frame(1, 1, b"\0\x3c\0\x63"),
        503,
        "COMMAND_INVALID - unknown method (60, 99)",
        (60, 99),
    ),
    (  # RabbitMQ drops the connection.
        "unknown letter in a table",
        frame(1, 1, BasicConsume(queue="q").encode()[:-4] + b"\0\0\0\3\1aU"),
        503,
        "COMMAND_INVALID - field table: unknown type letter 'U'",
        (60, 20),
    ),
]
FATAL = [
    (
        "frame too large",
        struct.pack(">BHI", 1, 1, 4097),
        "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4097,4088}",
    ),
    (
        "bytes that are no frame",
        b"\xff\xce" * 12,
        "FRAME_ERROR - type 255, all octets = <<>>: {frame_too_large,3472871167,4088}",
    ),
    (  # RabbitMQ has a line break before the last 0 of the bytes.
        "no end octet",
        PUBLISH[:-1] + b"\x00",
        (
            "FRAME_ERROR - type 1, all octets = <<0,60,0,40,0,0,0,7,110,111,119,104,101,114,101,0>>: "
            "{invalid_frame_end_marker,0}"
        ),
    ),
    (
        "no end octet, printable",
        frame(3, 1, b"hello")[:-1] + b"\x05",
        'FRAME_ERROR - type 3, all octets = <<"hello">>: {invalid_frame_end_marker,5}',
    ),
]

both_paths = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


def read(reader: FrameReader) -> AmqpError:
    """Skip events up to the fault, and return the fault."""
    with pytest.raises(AmqpError) as caught:
        while reader.next() is not None:
            pass
    return caught.value


@both_paths
@pytest.mark.parametrize("before", [b"", GOOD * 3 + heartbeat()], ids=["first", "after others"])
@pytest.mark.parametrize(("data", "code", "text", "ids"), [pytest.param(*f[1:], id=f[0]) for f in FAULTS])
def test_fault(data: bytes, code: int, text: str, ids: tuple[int, int], before: bytes, fast: bool) -> None:
    """Each fault has its reply code, text and method ids, and the frames after it can be read (AB-38)."""
    reader = FrameReader(fast=fast)
    reader.feed(before + data)
    error = read(reader)
    assert (error.code, error.reply_text, (error.class_id, error.method_id)) == (code, text, ids)
    assert not error.fatal
    reader.phase = CLOSING
    reader.feed(body() + method_frame(0, ConnectionClose(200, "bye")))
    assert reader.next() == (METHOD, 0, ConnectionClose(200, "bye"))


@both_paths
@pytest.mark.parametrize("before", [b"", GOOD * 3], ids=["first", "after others"])
@pytest.mark.parametrize(("data", "text"), [pytest.param(*f[1:], id=f[0]) for f in FATAL])
def test_fatal_fault(data: bytes, text: str, before: bytes, fast: bool) -> None:
    """After a fault that loses the boundaries of frames nothing more is read or kept (AB-38)."""
    reader = FrameReader(fast=fast)
    reader.feed(before + data)
    error = read(reader)
    assert (error.code, error.reply_text, error.class_id) == (501, text, 0)
    assert error.fatal
    reader.feed(GOOD)
    assert reader.next() is None
    assert kept(reader) == 0 and not reader._chunks


@both_paths
def test_a_too_large_frame_is_refused_before_its_payload_arrives(fast: bool) -> None:
    """A frame that is too large is refused before its payload arrives, because its head has the length (AB-38)."""
    reader = FrameReader(131072, fast=fast)
    reader.feed(struct.pack(">BHI", 3, 1, 131073))
    assert read(reader).reply_text.endswith("{frame_too_large,131073,131064}")


@both_paths
@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_a_payload_of_frame_max_bytes_is_accepted(frame_max: int, fast: bool) -> None:
    """A payload of frame_max bytes is accepted, which makes the frame eight bytes longer than the text of 0-9-1 allows
    (AB-39).
    """
    reader = FrameReader(frame_max, fast=fast)
    reader.feed((PUBLISH + header(size=frame_max) + body(b"x" * frame_max)) * 2)
    for _ in range(2):
        event = reader.next()
        assert event is not None and event[5] == frame_max
    reader.feed(PUBLISH + header(size=frame_max + 1) + body(b"x" * (frame_max + 1)))
    assert read(reader).fatal


@both_paths
def test_every_event_before_a_fault_is_returned(fast: bool) -> None:
    """Every event before a fault is returned, in the order of the frames."""
    reader = FrameReader(fast=fast)
    reader.feed(GOOD + method_frame(1, BasicAck(1)) + heartbeat() + PUBLISH + PUBLISH)
    kinds = []
    with pytest.raises(AmqpError):
        while event := reader.next():
            kinds.append(event[0])
    assert kinds == [RUN, ACKS, HEARTBEAT]


@both_paths
def test_a_publish_on_channel_0_is_refused(fast: bool) -> None:
    """A publish on channel 0 is refused: its method is a METHOD event, which the connection refuses, and its header
    frame is a fault (AB-38).
    """
    reader = FrameReader(fast=fast)
    reader.feed(method_frame(0, BasicPublish()) + header(channel=0) + body(channel=0))
    assert reader.next() == (METHOD, 0, BasicPublish())
    assert read(reader).reply_text.startswith("UNEXPECTED_FRAME - type 2, all octets = ")


@both_paths
def test_frames_of_channels_are_refused_before_the_connection_is_open(fast: bool) -> None:
    """Before the connection is open, any frame on a channel is an UNEXPECTED_FRAME, even one of an unknown
    type (AB-6).
    """
    for data in (GOOD, frame(4, 1, b"x"), method_frame(1, BasicQos()), method_frame(1, BasicAck(1))):
        reader = FrameReader(fast=fast)
        reader.phase = HANDSHAKE
        reader.feed(data)
        error = read(reader)
        assert error.code == 505
        assert error.text.startswith(f"type {data[0]}, ")


@both_paths
def test_a_closing_connection_reads_channel_0_methods_only(fast: bool) -> None:
    """A closing connection reads only methods of channel 0 and ignores all other frames (AB-6, AB-29)."""
    reader = FrameReader(fast=fast)
    reader.phase = CLOSING
    reader.feed(GOOD + body() + frame(4, 1, b"x") + frame(4, 0, b"") + body(channel=0) + heartbeat())
    reader.feed(method_frame(1, BasicAck(1)) + frame(1, 1, b"") + method_frame(0, ConnectionClose()))
    assert reader.next() == (METHOD, 0, ConnectionClose())
    assert reader.next() is None
