"""What hostile or careless clients send: RabbitMQ's answer, a broker that goes on serving others, and bounded
memory."""

from __future__ import annotations

import gc
import threading

import pytest

from warren.actors.channel import Channel
from warren.actors.connection import Connection
from warren.actors.queue.process import Queue
from warren.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT
from warren.amqp.fields import table_from
from warren.amqp.frames import frame, method_frame
from warren.amqp.methods import (
    BasicAck,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from warren.amqp.parser.reader import FrameReader
from warren.amqp.properties import Properties, encode_properties

from ..child import ChildBroker
from ..oracle import ORACLE, deviates
from ..wire import NO_PROPERTIES, HungUp, Wire, assert_reply, publish_frames
from ..witness import Witness

MIB = 1 << 20


@pytest.fixture(scope="module")
def child():
    if ORACLE:
        pytest.skip("needs a broker of its own to measure")
    with ChildBroker() as running, Witness(running.address) as witness:
        for _ in range(50):
            witness.check()  # memory that a broker keeps after its first use
        running.witness = witness
        yield running
        witness.check()


def nested(depth: int, kind: str = "F") -> bytes:
    """A field table with `depth` tables, or arrays, inside one another."""
    value = b"t\x01"
    for _ in range(depth):
        content = (b"\x01a" if kind == "F" else b"") + value
        value = kind.encode() + len(content).to_bytes(4, "big") + content
    content = b"\x01a" + value
    return len(content).to_bytes(4, "big") + content


def while_served(witness: Witness, trouble) -> float:
    """Run `trouble` in a thread while the witness makes round trips; return the longest of them in seconds."""
    thread = threading.Thread(target=trouble)
    thread.start()
    longest = witness.round_trip()
    while thread.is_alive():
        longest = max(longest, witness.round_trip())
    thread.join()
    return longest


# -- much of something ---


def test_a_gigabyte_published_to_nobody_is_dropped_as_it_comes(child):
    """1,024 unfinished messages of 1 MiB are not kept, and do not hinder other clients."""
    with Wire.open(child.address) as wire:
        wire.open_channel(1)
        before = child.memory()
        octets = publish_frames(1, bytes(MIB), "nowhere", frame_max=wire.frame_max)

        def flood():
            for _ in range(1024):
                wire.send(octets)
            wire.call(1, BasicQos(0, 1), BasicQosOk)

        assert while_served(child.witness, flood) < 1.0
        assert child.memory() - before < 48 * MIB


def test_a_body_declared_larger_than_allowed_is_refused_and_not_kept(child):
    """A body declared larger than `max_message_size` is refused with 406 and RabbitMQ's text, and its bytes are skipped
    (amqp-broker section 1).
    """
    size = 134_217_729
    with Wire.open(child.address) as wire:
        wire.open_channel(1)
        wire.open_channel(2)
        before = child.memory()
        wire.send(method_frame(1, BasicPublish(routing_key="nowhere")))
        wire.send_frame(FRAME_HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + NO_PROPERTIES)
        piece = frame(FRAME_BODY, 1, bytes(131064))
        for _ in range(size // 131064):
            wire.send(piece)
        wire.send_frame(FRAME_BODY, 1, bytes(size % 131064))
        text = f"PRECONDITION_FAILED - message size {size} is larger than configured max size {size - 1}"
        assert_reply(wire.method(1, ChannelClose), 406, text, (60, 40))
        wire.send_method(1, ChannelCloseOk())
        wire.open_channel(1)
        wire.call(2, BasicQos(0, 1), BasicQosOk)
        assert child.memory() - before < 16 * MIB


@pytest.mark.parametrize("size", [2**63, 2**64 - 1])
def test_a_body_of_exabytes_is_refused_at_its_header(child, size):
    """A body of exabytes, a size that the 64 bits of the header can hold, is refused at the header."""
    with Wire.open(child.address) as wire:
        wire.open_channel(1)
        wire.send(
            method_frame(1, BasicPublish(routing_key="nowhere")),
            frame(FRAME_HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + NO_PROPERTIES),
        )
        assert_reply(
            wire.method(1, ChannelClose), 406, f"PRECONDITION_FAILED - message size {size} is larger than...", (60, 40)
        )


def test_a_million_tiny_frames(child):
    """A million tiny frames do no harm: heartbeats, empty body frames (AB-40), and acknowledgements on a channel that
    awaits close-ok (AB-54).
    """
    with Wire.open(child.address) as wire:
        for number in (1, 2, 3):
            wire.open_channel(number)
        wire.send_method(1, QueueDeclare(queue="no-such-queue", passive=True))
        wire.method(1, ChannelClose)
        wire.send(
            method_frame(2, BasicPublish(routing_key="nowhere")),
            frame(FRAME_HEADER, 2, b"\0\x3c\0\0" + bytes(7) + b"\x01\0\0"),
        )
        before = child.memory()
        block = (
            frame(FRAME_HEARTBEAT, 0, b"") * 3000
            + frame(FRAME_BODY, 2, b"") * 3000
            + method_frame(1, BasicAck(1)) * 4000
        )

        def flood():
            for _ in range(100):
                wire.send(block)
            wire.call(3, BasicQos(0, 1), BasicQosOk)

        assert while_served(child.witness, flood) < 1.0
        assert child.memory() - before < 16 * MIB
        wire.send_frame(FRAME_BODY, 2, b"x")
        wire.call(2, BasicQos(0, 1), BasicQosOk)


def test_pipelined_methods_wait_in_bounds(child):
    """FC-34: if a client pipelines 80,000 declares and does not read, the broker stops reading it, and loses
    nothing."""
    count = 80_000
    with Wire.open(child.address) as wire:
        wire.open_channel(1)
        queue = wire.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
        before = child.memory()
        one = method_frame(1, QueueDeclare(queue=queue, passive=True))
        sender = threading.Thread(target=lambda: [wire.sock.sendall(one * 1000) for _ in range(count // 1000)])
        sender.start()
        for _ in range(20):
            child.witness.round_trip()
        assert child.memory() - before < 16 * MIB
        for _ in range(count):
            assert wire.frame().channel == 1
        sender.join()


def test_an_ever_new_routing_key_leaves_no_trace(child):
    """Caches stay bounded with 60,000 routing keys of 250 bytes, each with its own properties."""
    with Wire.open(child.address) as wire:
        wire.open_channel(1)
        wire.call(1, ExchangeDeclare(exchange="bad-input", type="topic", auto_delete=True), ExchangeDeclareOk)
        queue = wire.call(
            1, QueueDeclare(exclusive=True, arguments=table_from({"x-max-length": 1})), QueueDeclareOk
        ).queue
        wire.call(1, QueueBind(queue=queue, exchange="bad-input", routing_key="#.end"), QueueBindOk)
        before = child.memory()
        for start in range(0, 60_000, 500):
            wire.send(
                *(
                    publish_frames(
                        1,
                        b"x",
                        f"{number:0244d}.{'end' if number % 9 else 'no'}",
                        "bad-input",
                        encode_properties(Properties(message_id=f"{number:0240d}")),
                    )
                    for number in range(start, start + 500)
                )
            )
        wire.call(1, BasicQos(0, 1), BasicQosOk)
        assert child.memory() - before < 20 * MIB


# -- many channels ---


def test_the_2048th_of_65535_channels_ends_the_connection(address, witness):
    """The channel that exceeds the negotiated number of channels ends the connection (AB-22)."""
    with Wire.open(address) as wire:
        wire.send(b"".join(method_frame(number, ChannelOpen()) for number in range(1, 65_536)))
        opened = 0
        while (found := wire.frame()).channel:
            assert found.payload == ChannelOpenOk(b"").encode()
            opened += 1
        assert opened <= 2047
        wire.waiting.appendleft(found)
        text = "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)"
        assert_reply(wire.method(0, ConnectionClose), 530, text, (0, 0))
    witness.check()


def test_a_node_may_allow_more_channels_than_rabbitmq_does():
    """AB-21, AB-22: 16,000 channels cost less than 16 KiB each, and other clients are served meanwhile."""
    count = 16_000
    with ChildBroker(channel_max=65_535) as child, Witness(child.address) as witness:
        before = child.memory()
        with Wire.open(child.address) as wire:
            for start in range(1, count, 4000):
                numbers = range(start, start + 4000)
                wire.send(b"".join(method_frame(number, ChannelOpen()) for number in numbers))
                for number in numbers:
                    assert wire.frame().channel == number
            assert child.memory() - before < count * 16 * 1024
            assert witness.round_trip() < 1.0
        witness.check()


# -- deep and large ---


@pytest.mark.parametrize("kind", ["F", "A"])
@deviates("it decodes any depth")
def test_tables_deeper_than_the_limit_are_a_syntax_error(channel, witness, kind):
    """AB-46: ten levels are accepted; ten thousand are refused without exhausting the stack."""
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    empty = QueueBind(queue=queue, exchange="amq.headers").encode()[:-4]
    channel.send_frame(1, 1, empty + nested(10, kind))
    channel.method(1, QueueBindOk)
    channel.send_frame(1, 1, empty + nested(10_000, kind))
    close = channel.method(0, ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (502, 50, 20)
    witness.check()


@deviates("it decodes any depth")
def test_headers_deeper_than_the_limit_are_refused_where_they_are_read(channel, witness, name):
    """Headers nested too deeply are refused by a headers exchange, which has to decode them; on the way to a queue they
    are not decoded (AB-38).
    """
    channel.call(1, ExchangeDeclare(exchange=name, type="headers", auto_delete=True), ExchangeDeclareOk)
    queue = channel.call(1, QueueDeclare(exclusive=True), QueueDeclareOk).queue
    channel.call(1, QueueBind(queue=queue, exchange=name, arguments=table_from({"a": 1})), QueueBindOk)
    channel.publish(1, b"x", exchange=name, props=b"\x20\x00" + nested(5000))
    assert channel.method(0, ConnectionClose).reply_code == 502
    witness.check()


def test_a_reply_text_full_of_a_client_s_octets_is_still_a_reply(channel, witness):
    """A reply text full of unprintable names, cut in the middle of a character, is still a reply (AB-50)."""
    channel.send_method(1, QueueDeclare(queue="\x00\x01é" * 60, passive=True))
    close = channel.method(1, ChannelClose)
    assert (close.reply_code, len(close.reply_text.encode()) <= 255) == (404, True)
    witness.check()


# -- what never ends, and what ends early ---


def test_half_open_connections_are_dropped_in_time(start_broker):
    """AB-3: two hundred clients that stop during the handshake do not hinder others."""
    target = start_broker(handshake_timeout=400)
    with Witness(target.address) as witness:
        idle = []
        for number in range(200):
            wire = Wire(target.address)
            wire.send(b"AMQP\0\0\x09\x01"[: number % 9])
            idle.append(wire)
        witness.check()
        for wire in idle:
            with wire:
                try:
                    while wire.frame():
                        pass
                except HungUp:
                    pass
        assert len(target.embedded.connections()) == 1
        witness.check()


def test_unfinished_contents_are_forgotten_with_their_connection(child):
    """Unfinished contents are forgotten with their connection: here a hundred messages that lack only the last byte."""
    witness = child.witness
    piece = bytes(100_000)
    before = child.memory()
    for _ in range(3):
        with Wire.open(child.address) as wire:
            for number in range(1, 101):
                wire.open_channel(number)
                header = b"\0\x3c\0\0" + (len(piece) + 1).to_bytes(8, "big") + NO_PROPERTIES
                wire.send(
                    method_frame(number, BasicPublish()),
                    frame(FRAME_HEADER, number, header),
                    frame(FRAME_BODY, number, piece),
                )
            wire.call(100 + 1, ChannelOpen(), ChannelOpenOk)
    witness.check()
    assert child.memory() - before < 24 * MIB


def test_what_ended_processes_held_is_free_at_once(start_broker):
    """Connections, channels and queues are freed when they end. The collector of cycles would come too late, since it
    counts objects and not bytes."""
    target = start_broker()
    kinds = (Connection, Channel, Queue, FrameReader)

    def living() -> list[int]:
        objects = gc.get_objects()
        return [sum(type(item) is kind for item in objects) for kind in kinds]

    gc.collect()
    gc.disable()
    try:
        before = living()
        for _ in range(5):
            with Wire.open(target.address) as wire:
                wire.open_channel(1)
                queue = wire.call(1, QueueDeclare(), QueueDeclareOk).queue
                wire.publish(1, b"x", routing_key=queue)
                wire.call(1, QueueDelete(queue=queue), QueueDeleteOk)
        target.embedded.wait_idle()
        assert living() == before
    finally:
        gc.enable()
