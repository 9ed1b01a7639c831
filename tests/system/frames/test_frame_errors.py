"""Faulty frames on a running connection: the second table of AB-38, with AB-25, AB-39, AB-40, AB-45 and AB-51.

Each fault is sent on a connection with frame_max 4096 whose channel 1 is open.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from warren.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from warren.amqp.frames import frame, method_frame
from warren.amqp.methods import (
    BasicCancel,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicPublish,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    QueueDeclare,
    QueueDeclareOk,
)

from ..oracle import deviates
from ..wire import NO_PROPERTIES, SLOW_DROP, HungUp, Wire, assert_reply, publish_frames

HEADER_OF_5 = b"\0\x3c\0\0" + (5).to_bytes(8, "big") + NO_PROPERTIES
PUBLISH = (60, 40)
DECLARE = (50, 10)


def begun(channel: int = 1, **fields) -> bytes:
    """A basic.publish whose content has not arrived."""
    return method_frame(channel, BasicPublish(routing_key="nowhere", **fields))


def declare_with(value: bytes) -> bytes:
    """A queue.declare with the argument `x` of this type letter and value."""
    table = b"\x01x" + value
    return frame(FRAME_METHOD, 1, b"\0\x32\0\x0a\0\0\x01q\0" + len(table).to_bytes(4, "big") + table)


@dataclass
class Fault:
    octets: bytes
    code: int
    text: str
    ids: tuple[int, int] = (0, 0)


OUT_OF_STEP = {
    "a method frame larger than frame_max": Fault(
        b"\x01\0\x01\0\0\x10\x01", 501, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4097,4088}"
    ),
    "a body frame of 4 GB": Fault(
        begun() + frame(FRAME_HEADER, 1, HEADER_OF_5) + b"\x03\0\x01\xff\xff\xff\xff",
        501,
        "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4294967295,4088}",
    ),
    "a header frame larger than frame_max": Fault(
        begun() + b"\x02\0\x01\0\0\x10\x01", 501, "FRAME_ERROR - type 2, all octets = <<>>: {frame_too_large,4097,4088}"
    ),
    "an unknown type larger than frame_max": Fault(
        b"\xff\xff\xff\x7f\xff\xff\xff",
        501,
        "FRAME_ERROR - type 255, all octets = <<>>: {frame_too_large,2147483647,4088}",
    ),
    "a wrong end octet": Fault(
        b"\x01\0\x01\0\0\0\x05\0\x14\0\x28\0\xcd",
        501,
        "FRAME_ERROR - type 1, all octets = <<0,20,0,40,0>>: {invalid_frame_end_marker,205}",
    ),
    "a wrong end octet after many": Fault(
        b"\x03\0\x01\0\0\0\x11abcdefghijklmnopq\0",
        501,
        'FRAME_ERROR - type 3, first 16 octets = <<"abcdefghijklmnop">>: {invalid_frame_end_marker,0}',
    ),
    "a heartbeat with a wrong end": Fault(
        b"\x08\0\0\0\0\0\0\x00", 501, "FRAME_ERROR - type 8, all octets = <<>>: {invalid_frame_end_marker,0}"
    ),
}

IN_STEP = {
    "an unknown frame type": Fault(frame(4, 1, b"x"), 501, 'FRAME_ERROR - type 4, all octets = <<"x">>: unknown_frame'),
    "an unknown frame type on channel 0": Fault(
        frame(255, 0, b""), 501, "FRAME_ERROR - type 255, all octets = <<>>: unknown_frame"
    ),
    "a method of three octets": Fault(
        frame(FRAME_METHOD, 1, b"\0\x14\0"), 501, "FRAME_ERROR - type 1, all octets = <<0,20,0>>: unknown_frame"
    ),
    "an empty method on channel 0": Fault(
        frame(FRAME_METHOD, 0, b""), 501, "FRAME_ERROR - type 1, all octets = <<>>: unknown_frame"
    ),
    "a short content header": Fault(
        begun() + frame(FRAME_HEADER, 1, b"\0\x3c"), 501, "FRAME_ERROR - type 2, all octets = <<0,60>>: unknown_frame"
    ),
    "a heartbeat with a payload": Fault(
        frame(FRAME_HEARTBEAT, 0, b"x"), 501, 'FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame'
    ),
    "arguments cut short": Fault(
        frame(FRAME_METHOD, 1, b"\0\x32\0\x0a\0"), 501, "FRAME_ERROR - cannot decode <<0>>", DECLARE
    ),
    "something after the arguments": Fault(
        frame(FRAME_METHOD, 1, b"\0\x3c\0\x64\0\0"), 501, "FRAME_ERROR - cannot decode <<0,0>>", (60, 100)
    ),
    "a queue name that is not UTF-8": Fault(
        frame(FRAME_METHOD, 1, b"\0\x32\0\x0a\0\0\x02\xff\xfe\0\0\0\0\0"),
        501,
        "FRAME_ERROR - Malformed UTF-8 in shortstr",
    ),
    "a header where a method is expected": Fault(
        frame(FRAME_HEADER, 1, HEADER_OF_5),
        505,
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
    "a body where a method is expected": Fault(
        frame(FRAME_BODY, 1, b"x"), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
    ),
    "a body where a header is expected": Fault(
        begun() + frame(FRAME_BODY, 1, b"x"),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        PUBLISH,
    ),
    "a method where a header is expected": Fault(
        begun() + begun(),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
        PUBLISH,
    ),
    "a header of another class": Fault(
        begun() + frame(FRAME_HEADER, 1, b"\0\x32" + HEADER_OF_5[2:]),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
        PUBLISH,
    ),
    "a method where a body is expected": Fault(
        begun() + frame(FRAME_HEADER, 1, HEADER_OF_5) + begun(),
        505,
        "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
        PUBLISH,
    ),
    "a header where a body is expected": Fault(
        begun() + frame(FRAME_HEADER, 1, HEADER_OF_5) * 2,
        505,
        "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
        PUBLISH,
    ),
    "a header on channel 0": Fault(
        frame(FRAME_HEADER, 0, HEADER_OF_5),
        505,
        "UNEXPECTED_FRAME - type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,5,0,0>>",
    ),
    "a body on channel 0": Fault(
        frame(FRAME_BODY, 0, b"hello"), 505, 'UNEXPECTED_FRAME - type 3, all octets = <<"hello">>'
    ),
    "a heartbeat on another channel": Fault(
        frame(FRAME_HEARTBEAT, 1, b""), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>"
    ),
    "a channel exception on channel 0": Fault(
        frame(FRAME_METHOD, 0, QueueDeclare(queue="q").encode()),
        504,
        "CHANNEL_ERROR - unexpected method in connection state running",
        DECLARE,
    ),
    "a deliver from the client": Fault(
        method_frame(1, BasicDeliver()) + frame(FRAME_HEADER, 1, b"\0\x3c" + bytes(12)),
        503,
        "COMMAND_INVALID - unimplemented method",
        (60, 60),
    ),
    "a get-ok from the client": Fault(
        method_frame(1, BasicGetOk()) + frame(FRAME_HEADER, 1, b"\0\x3c" + bytes(12)),
        503,
        "COMMAND_INVALID - unimplemented method",
        (60, 71),
    ),
    "a declare-ok from the client": Fault(
        method_frame(1, QueueDeclareOk("q", 1, 1)), 503, "COMMAND_INVALID - unimplemented method", (50, 11)
    ),
    "a connection's method on a channel": Fault(
        method_frame(1, ConnectionClose(200, "", 0, 0)), 503, "COMMAND_INVALID - unimplemented method", (10, 50)
    ),
}

# RabbitMQ crashes at these; the specification allows an orderly end.
ORDERLY = {
    "an unknown method": Fault(frame(FRAME_METHOD, 1, b"\0\x3c\0\xff"), 503, "COMMAND_INVALID - ...", (60, 255)),
    "an unknown class": Fault(frame(FRAME_METHOD, 1, b"\x12\x34\0\x0a"), 503, "COMMAND_INVALID - ...", (0x1234, 10)),
    "an unknown class on channel 0": Fault(
        frame(FRAME_METHOD, 0, b"\x12\x34\0\x0a"), 503, "COMMAND_INVALID - ...", (0x1234, 10)
    ),
    "an unknown type letter": Fault(declare_with(b"Zxxxx"), 503, "COMMAND_INVALID - ...", DECLARE),
    "a table that claims more than there is": Fault(
        declare_with(b"F\xff\xff\xff\xff"), 501, "FRAME_ERROR - ...", DECLARE
    ),
    "a body longer than declared": Fault(
        begun() + frame(FRAME_HEADER, 1, HEADER_OF_5) + frame(FRAME_BODY, 1, b"123456"),
        505,
        "UNEXPECTED_FRAME - ...",
        PUBLISH,
    ),
}


@pytest.fixture
def faulty(address):
    with Wire.open(address, frame_max=4096) as wire:
        wire.open_channel(1)
        yield wire


@pytest.mark.parametrize("fault", IN_STEP.values(), ids=IN_STEP.keys())
def test_a_faulty_frame_closes_the_connection(faulty, witness, fault):
    """AB-38, AB-51: connection.close has RabbitMQ's code, text and method; close-ok ends the connection at once."""
    faulty.send(fault.octets)
    faulty.expect_close(fault.code, fault.text, fault.ids)
    witness.check()


@deviates("its reader dies without a frame, or the fault is noticed later")
@pytest.mark.parametrize("fault", ORDERLY.values(), ids=ORDERLY.keys())
def test_faults_that_crash_rabbitmq_get_a_close(faulty, witness, fault):
    """Frames on which RabbitMQ drops the socket get a connection.close, and other connections go on (AB-38)."""
    faulty.send(fault.octets)
    faulty.expect_close(fault.code, fault.text, fault.ids)
    witness.check()


def test_after_a_frame_out_of_step_nothing_more_is_read(address, witness):
    """AB-38: after connection.close the input is out of step, so the broker reads no close-ok and ends after 3 s.

    One test for all faults, so that they wait at the same time.
    """
    waiting = []
    for case, fault in OUT_OF_STEP.items():
        wire = Wire.open(address, frame_max=4096)
        wire.open_channel(1)
        wire.send(fault.octets)
        assert_reply(wire.method(0, ConnectionClose), fault.code, fault.text, fault.ids)
        wire.send_method(0, ConnectionCloseOk())
        waiting.append((case, wire))
    began = time.monotonic()
    witness.check()
    for case, wire in waiting:
        with wire:
            wire.expect_hang_up()
        assert time.monotonic() - began > SLOW_DROP - 0.7, case
    assert time.monotonic() - began < SLOW_DROP + 2


@pytest.mark.parametrize("size", [4088, 4089, 4096])
def test_payloads_up_to_frame_max_are_accepted(faulty, size):
    """Payloads of up to frame_max bytes are accepted, which makes frames eight bytes longer than is strictly legal
    (AB-39).
    """
    queue = faulty.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    faulty.send(method_frame(1, BasicPublish(routing_key=queue)))
    faulty.send_frame(FRAME_HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + NO_PROPERTIES)
    faulty.send_frame(FRAME_BODY, 1, b"x" * size)
    faulty.call(1, BasicGet(queue=queue), BasicGetOk)
    assert faulty.content(1)[1] == b"x" * size


def test_what_was_sent_before_the_fault_is_done(faulty, address, name):
    """What a client sent before a faulty frame takes effect."""
    with Wire.open(address) as other:
        other.open_channel(1)
        other.call(1, QueueDeclare(queue=name, exclusive=True), QueueDeclareOk)
        faulty.send(publish_frames(1, b"kept", name), frame(4, 1, b"x"))
        faulty.expect_close(501, "FRAME_ERROR - ...")
        other.call(1, BasicGet(queue=name), BasicGetOk)
        assert other.content(1)[1] == b"kept"


def test_undecodable_properties_are_an_internal_error(faulty, witness):
    """Properties that cannot be decoded are an internal error, noticed when the publish is handled (AB-38)."""
    faulty.send(begun(), frame(FRAME_HEADER, 1, b"\0\x3c" + bytes(10) + b"\x20\x00\0\0\0\x09\x01xSshort"))
    close = faulty.method(0, ConnectionClose)
    assert (close.reply_code, close.reply_text.split(" ")[0]) == (541, "INTERNAL_ERROR")
    witness.check()


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_a_frame_may_come_in_any_pieces(faulty, pieces):
    """AB-41: a frame may arrive in any pieces."""
    octets = method_frame(1, QueueDeclare(exclusive=True))
    for start in range(0, len(octets), pieces):
        faulty.send(octets[start : start + pieces])
    faulty.method(1, QueueDeclareOk)


def test_a_fault_on_one_channel_ends_all_of_them(faulty, address):
    """A fault on one channel ends all of them; methods that others sent before it are answered or dropped as a whole
    (AB-55).
    """
    faulty.open_channel(2)
    faulty.send_method(2, QueueDeclare(exclusive=True))
    faulty.send_frame(FRAME_BODY, 1, b"x")
    found = []
    try:
        while True:
            found.append(faulty.frame(timeout=2))
            if found[-1].channel == 0:
                faulty.send_method(0, ConnectionCloseOk())
    except HungUp:
        pass
    assert [item.channel for item in found] in ([0], [2, 0])


def test_cancel_with_an_unknown_first_channel_is_refused(faulty):
    """basic.cancel as the first method of a channel is refused like any other but channel.open (AB-52)."""
    faulty.send_method(9, BasicCancel("t"))
    faulty.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'", (60, 30))


def test_channel_open_with_a_fault_opens_nothing(faulty):
    """A truncated channel.open ends the connection with 501 (AB-38, AB-52)."""
    faulty.send_frame(FRAME_METHOD, 2, ChannelOpen().encode()[:-1])
    faulty.expect_close(501, "FRAME_ERROR - cannot decode <<>>", (20, 10))
