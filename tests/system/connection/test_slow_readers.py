"""Clients that do not read what they asked for: memory is bounded, and others are served (FC-32, FC-35)."""

from __future__ import annotations

import threading

import pytest

from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)

from ..wire import Wire, publish_frames
from ..witness import Witness

KIB, MIB = 1 << 10, 1 << 20
SIZE = 64 * KIB

#: The most messages that a consumer that does not read may get: those in flight in the broker, and those in the buffers
#: of the operating system at both ends.
GIVEN = 250 + 14 * MIB // SIZE


def publish_confirmed(wire: Wire, count: int, queue: str) -> None:
    """Publish, and return when the queue has all messages."""
    wire.call(1, ConfirmSelect(), ConfirmSelectOk)
    octets = publish_frames(1, bytes(SIZE), queue, frame_max=wire.frame_max)
    for _ in range(count):
        wire.send(octets)
    while wire.method(1, BasicAck).delivery_tag < count:
        pass


@pytest.fixture
def mute(address):
    """A client with a channel that does not read yet."""
    with Wire.open(address) as wire:
        wire.open_channel(1)
        yield wire


def test_a_consumer_that_does_not_read_gets_two_hundred_and_no_more(mute, channel, witness):
    """A consumer that does not read gets two hundred messages and what the buffers take; the others stay in the queue
    for other consumers. When it reads, it gets its own in order (FC-32).
    """
    count = 2 * GIVEN
    queue = mute.call(1, QueueDeclare(auto_delete=True), QueueDeclareOk).queue
    mute.call(1, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
    publish_confirmed(channel, count, queue)
    witness.check()
    left = channel.call(1, BasicGet(queue=queue, no_ack=True), BasicGetOk).message_count
    channel.content(1)
    assert count - GIVEN <= left < count
    for tag in range(1, count):
        assert mute.method(1, BasicDeliver).delivery_tag == tag
        assert len(mute.content(1)[1]) == SIZE


def test_a_consumer_that_reads_gets_what_a_slow_one_leaves(address, mute, channel):
    """If one of two consumers of a queue does not read, the other one gets what that leaves (FC-32)."""
    count = 2 * GIVEN
    with Wire.open(address) as reader:
        reader.open_channel(1)
        queue = channel.call(1, QueueDeclare(), QueueDeclareOk).queue
        for wire in (mute, reader):
            wire.call(1, BasicConsume(queue=queue, no_ack=True), BasicConsumeOk)
        publisher = threading.Thread(target=publish_confirmed, args=(channel, count, queue))
        publisher.start()
        for _ in range(count - GIVEN):
            reader.method(1, BasicDeliver)
            reader.content(1)
        publisher.join()


@pytest.mark.parametrize("what", ["returns", "messages"])
def test_replies_that_nobody_reads_stop_the_input(start_broker, what):
    """If a client does not read its replies, the broker stops reading its input at a limit, here 1 MB, and nothing is
    lost (FC-35).
    """
    limit = 1 * MIB
    target = start_broker(output_buffer_limit=limit)
    with Witness(target.address) as witness, Wire.open(target.address) as wire:
        wire.open_channel(1)
        queue = "nowhere"
        if what == "messages":
            queue = wire.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
        request = publish_frames(1, bytes(8 * KIB), queue, mandatory=True, frame_max=wire.frame_max)
        if what == "messages":
            request += method_frame(1, BasicGet(queue=queue, no_ack=True))
        sent = wire.send_until_refused(request, 100 * MIB)
        assert sent < 40 * MIB
        witness.check()
        count = -(-sent // len(request))
        rest = threading.Thread(target=wire.send, args=(request[sent % len(request) or len(request) :],))
        rest.start()
        for _ in range(count):
            wire.method(1, BasicReturn if what == "returns" else BasicGetOk)
            assert len(wire.content(1)[1]) == 8 * KIB
        rest.join()
        witness.check()
