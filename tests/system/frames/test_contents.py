"""Bodies and headers of every size, in and out (AB-39, AB-40, AB-43 to AB-45, AB-48)."""

from __future__ import annotations

import pytest

from warren.amqp.constants import FRAME_BODY, FRAME_HEADER
from warren.amqp.fields import table_from
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warren.amqp.properties import Properties, encode_properties

from ..wire import NO_PROPERTIES, Wire, publish_frames

STEP = 4096 - 8


@pytest.fixture
def queue(channel):
    """An exclusive queue of `channel`."""
    return channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue


def get(wire, queue, number=1):
    wire.call(number, BasicGet(queue=queue, no_ack=True), BasicGetOk)
    return wire.content(number)


@pytest.mark.parametrize("size", [0, 1, STEP - 1, STEP, STEP + 1, 131064, 131065, 300_000])
def test_bodies_come_back_as_they_went(channel, queue, size):
    """A body of each size, in one frame or several, is delivered unchanged (AB-44)."""
    body = bytes(range(256)) * (size // 256 + 1)
    channel.publish(1, body[:size], routing_key=queue)
    assert get(channel, queue) == (NO_PROPERTIES, body[:size])


@pytest.mark.parametrize("number", [1, 7])
def test_large_bodies_of_a_client_that_hangs_up_are_published(address, channel, queue, number):
    """If a client hangs up directly behind large bodies, they are published, although the end of the connection may
    arrive with the rest of one.
    """
    bodies = [bytes([65 + at]) * (1_000_000 + at) for at in range(5)]
    with Wire.open(address, frame_max=131072) as publisher:
        publisher.open_channel(number)
        publisher.send(*[publish_frames(number, body, routing_key=queue, frame_max=131072) for body in bodies])
        publisher.hang_up()
    channel.call(1, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
    for body in bodies:
        channel.method(1, BasicDeliver)
        assert channel.content(1)[1] == body


@pytest.mark.parametrize(
    ("size", "frames"),
    [(0, []), (1, [1]), (STEP, [STEP]), (STEP + 1, [STEP, 1]), (10_000, [STEP, STEP, 10_000 - 2 * STEP])],
)
def test_bodies_are_cut_for_the_receiver(address, name, size, frames):
    """Bodies are cut for the frame_max of the receiver, whatever frames they came in, and an empty body has no frame
    (AB-44).
    """
    with Wire.open(address) as large, Wire.open(address, frame_max=4096) as small:
        for wire in (large, small):
            wire.open_channel(1)
        large.call(1, QueueDeclare(queue=name, auto_delete=True), QueueDeclareOk)
        small.call(1, BasicConsume(queue=name, no_ack=True), BasicConsumeOk)
        large.publish(1, b"x" * size, routing_key=name)
        small.method(1, BasicDeliver)
        assert small.on(1).kind == FRAME_HEADER
        for expected in frames:
            piece = small.on(1)
            assert (piece.kind, len(piece.payload)) == (FRAME_BODY, expected)
        small.call(1, BasicQos(0, 1), BasicQosOk)


def test_a_header_larger_than_the_receiver_s_frame_max_is_not_split(address, name):
    """A header larger than the frame_max of the receiver is sent whole (AB-44)."""
    props = encode_properties(Properties(headers=table_from({"long": "x" * 20_000})))
    with Wire.open(address) as large, Wire.open(address, frame_max=4096) as small:
        for wire in (large, small):
            wire.open_channel(1)
        large.call(1, QueueDeclare(queue=name), QueueDeclareOk)
        large.publish(1, b"body", routing_key=name, props=props)
        large.call(1, BasicQos(0, 1), BasicQosOk)
        small.call(1, BasicConsume(queue=name, no_ack=True), BasicConsumeOk)
        small.method(1, BasicDeliver)
        assert small.content(1) == (props, b"body")


def test_empty_body_frames_count_for_nothing(channel, queue):
    """Empty body frames change nothing, whether they come before, between or after others, or in an empty
    body (AB-40).
    """
    channel.send(method_frame(1, BasicPublish(routing_key=queue)))
    channel.send_frame(FRAME_HEADER, 1, b"\0\x3c\0\0" + (3).to_bytes(8, "big") + NO_PROPERTIES)
    for piece in (b"", b"a", b"", b"", b"bc"):
        channel.send_frame(FRAME_BODY, 1, piece)
    assert get(channel, queue)[1] == b"abc"


def test_deliveries_of_two_channels_interleave_only_between_frames(address, name):
    """The method, header and body frames of a delivery are contiguous on their channel; those of two channels
    interleave only between frames (AB-45).
    """
    body = b"x" * 50_000
    with Wire.open(address, frame_max=4096) as wire:
        for number in (1, 2):
            wire.open_channel(number)
            queue = wire.call(number, QueueDeclare(exclusive=True), QueueDeclareOk).queue
            for _ in range(10):
                wire.publish(number, body, routing_key=queue)
            wire.call(number, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
        for _ in range(10):
            for number in (1, 2):
                wire.method(number, BasicDeliver)
                assert wire.content(number)[1] == body


def test_every_property_and_every_type_of_field_passes_unchanged(channel, queue):
    """Every property and every type of field passes unchanged, byte by byte, whether the broker decodes it or not
    (AB-46 to AB-48).
    """
    letters = [
        b"t\x01", b"b\xff", b"B\xff", b"s\xff\xfe", b"u\xff\xfe", b"I\xff\xff\xff\xfe", b"i\xff\xff\xff\xfe",
        b"l" + b"\xff" * 8, b"f\x40\x49\x0f\xdb", b"d\x40\x09\x21\xfb\x54\x44\x2d\x18", b"D\x02\0\0\x01\0",
        b"S\0\0\0\x02\xff\0", b"x\0\0\0\x02\xff\0", b"T\0\0\0\0\x5f\0\0\0", b"F\0\0\0\x04\x01at\x01",
        b"A\0\0\0\x04t\x01t\x00", b"V",
    ]  # fmt: skip
    table = b"".join(bytes([1, 65 + at]) + value for at, value in enumerate(letters))
    headers = len(table).to_bytes(4, "big") + table
    known = Properties(
        "text/plain", "utf-8", None, 1, 9, "corr", "reply", None, "id", 2**63, "type", None, "app", "cluster"
    )
    plain = encode_properties(known)
    flags = int.from_bytes(plain[:2], "big") | 0x2000
    encodings = len(b"\x0atext/plain\x05utf-8")
    props = flags.to_bytes(2, "big") + plain[2 : 2 + encodings] + headers + plain[2 + encodings :]
    channel.publish(1, b"x", routing_key=queue, props=props)
    assert get(channel, queue)[0] == props


def test_a_large_body_in_many_small_frames(channel, queue):
    """Four hundred frames of 100 bytes are one message."""
    channel.send(method_frame(1, BasicPublish(routing_key=queue)))
    channel.send_frame(FRAME_HEADER, 1, b"\0\x3c\0\0" + (40_000).to_bytes(8, "big") + NO_PROPERTIES)
    for number in range(400):
        channel.send_frame(FRAME_BODY, 1, b"%c" % (number % 256) * 100)
    assert get(channel, queue)[1] == b"".join(b"%c" % (number % 256) * 100 for number in range(400))


def test_two_contents_and_what_lies_between(channel, queue):
    """Between two contents of a channel other frames lose none of them, and no frame of the channel comes inside a
    content (AB-45).
    """
    for number in range(100):
        channel.publish(1, b"a%d" % number, routing_key=queue)
        channel.send_method(1, BasicQos(0, number))
        channel.publish(1, b"b%d" % number, routing_key=queue)
    for _ in range(100):
        channel.method(1, BasicQosOk)
    for number in range(100):
        assert get(channel, queue)[1] == b"a%d" % number
        assert get(channel, queue)[1] == b"b%d" % number
