"""A thousand clients that disconnect without closing leave nothing behind."""

from __future__ import annotations

import gc
import socket
import struct
import time

from warren.actors.connection import Connection
from warren.amqp.constants import FRAME_METHOD, PROTOCOL_HEADER
from warren.amqp.decoding import decode_method
from warren.amqp.fields import table_from
from warren.amqp.frames import method_frame
from warren.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicQos,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    TxSelect,
)
from warren.tests.system.wire import PLAIN, Wire, publish_frames

from .anatomy import TIMEOUT, resident_kib

SHARED = "shared by all"

#: The counts that clients which have gone must leave as they were.
KEPT = ("processes", "living", "watches", "queues", "reply channels")
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset

HELLO = PROTOCOL_HEADER + b"".join(
    method_frame(0, method)
    for method in (
        ConnectionStartOk(table_from({"capabilities": {"consumer_cancel_notify": True}}), "PLAIN", PLAIN, "en_US"),
        ConnectionTuneOk(2047, 131072, 60),
        ConnectionOpen("/"),
    )
)


def frames(channel, *methods):
    return b"".join(method_frame(channel, method) for method in methods)


def conversation(number: int) -> bytes:
    """All frames of one client, sent in one write. The last method has an answer."""
    own = f"own {number}"
    octets = HELLO + frames(
        1, ChannelOpen(), QueueDeclare(queue=own, exclusive=True), QueueBind(queue=own, exchange="amq.fanout")
    )
    octets += frames(
        1,
        BasicConsume(queue=own, consumer_tag="mine"),
        BasicQos(0, 3, number % 2 == 0),
        BasicConsume(queue=SHARED, consumer_tag="ours"),
    )
    octets += publish_frames(1, b"x" * 50, own) * 10 + publish_frames(1, b"y", SHARED) * 5
    octets += frames(2, ChannelOpen(), ConfirmSelect()) + publish_frames(2, b"z", SHARED) * 3
    octets += frames(2, QueueDeclare(queue=f"auto {number}", auto_delete=True), BasicConsume(queue=f"auto {number}"))
    octets += (
        frames(3, ChannelOpen(), TxSelect())
        + publish_frames(3, b"never committed", SHARED)
        + frames(3, BasicGet(queue=SHARED))
    )
    octets += frames(
        4,
        ChannelOpen(),
        BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True),
        QueueDeclare(queue=f"temporary {number}"),
    )
    octets += frames(4, QueueDelete(queue=f"temporary {number}"), ChannelClose(200, "", 0, 0))
    octets += frames(5, ChannelOpen(), BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
    return octets


ENDINGS = (
    b"",
    method_frame(1, BasicPublish(routing_key=SHARED)),  # a publish without its content
    frames(1, BasicAck(77777, False)),  # a channel error, whose close the client does not read
    frames(9, BasicAck(1, False)),  # a connection error, whose close the client does not read
    frames(0, ConnectionClose(200, "", 0, 0)),
    b"\x01\x00",  # the beginning of a frame
    frames(1, ChannelClose(200, "", 0, 0)),
)


def visit(address: tuple[str, int], number: int) -> None:
    """Run one client from its connect to its disconnect."""
    sock = socket.create_connection(address)
    try:
        sock.sendall(conversation(number))
        if number % 3:
            # Wait until the broker has handled the frames; every third client disconnects before.
            while b"ours" not in sock.recv(65536):
                pass
        sock.sendall(ENDINGS[number % len(ENDINGS)])
        if number % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        sock.close()


def assert_no_more(anatomy, before):
    """Wait until all counts are as before. A leak stays; a part of the node that was busy is done after a while.

    There may be fewer timers, because those of handshakes run out, and fewer descriptors, if earlier tests left some.
    """

    def counts():
        found = anatomy.census()
        return {**found, **{key: max(found[key], before[key]) for key in ("timers", "descriptors")}}

    deadline = time.monotonic() + TIMEOUT
    while (after := counts()) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert after == before


def test_a_thousand_clients_that_disconnect_leave_nothing(broker, anatomy):
    """A thousand clients that disconnect leave processes, timers, descriptors, monitors, credit, tables and memory as
    they were (FC-53, FC-54).
    """
    address = broker.host, broker.port
    with Wire.open(address) as wire:
        wire.open_channel(1)
        wire.call(1, QueueDeclare(queue=SHARED, arguments=table_from({"x-max-length": 20})))

        def memory():
            gc.collect()
            return resident_kib()

        def settle(count):
            anatomy.eventually(lambda: len(anatomy.processes(Connection)) == 1)
            for info in broker.queues():
                # A client that disconnected directly after a declare leaves this queue, as it should.
                if info.name != SHARED:
                    broker.delete_queue(info.name)
            anatomy.eventually(lambda: anatomy._census()["processes"] == count)
            broker.wait_idle(TIMEOUT)

        broker.delete_queue("none")  # makes the broker's own client open its channel
        before = anatomy.census()
        for number in range(400):
            visit(address, number)
        settle(before["processes"])
        warm = anatomy.census()
        assert {key: warm[key] for key in KEPT} == {key: before[key] for key in KEPT}
        grown = []
        # How much the broker has in hand at once depends on who gets the processor, so its memory may grow once more. A
        # leak grows each time.
        while not grown or grown[-1] >= 2048 and len(grown) < 3:
            resident = memory()
            for number in range(600):
                visit(address, number)
            settle(before["processes"])
            grown.append(memory() - resident)
        assert_no_more(anatomy, warm)
        assert grown[-1] < 2048, f"{grown} KiB, each for 600 clients"


def test_deleted_queues_and_closed_channels_leave_nothing_on_their_connection(broker, anatomy):
    """Deleted queues and closed channels leave nothing behind in their connection, or in a channel that uses many
    queues (FC-53).
    """
    with Wire.open((broker.host, broker.port)) as wire:
        wire.open_channel(1)

        def work(rounds):
            for number in range(rounds):
                queue = f"passing {number}"
                wire.send(
                    frames(
                        1,
                        QueueDeclare(queue=queue),
                        BasicConsume(queue=queue, consumer_tag="c", no_ack=number % 2 == 0),
                    )
                )
                wire.send(publish_frames(1, b"x", queue) * 3, frames(1, QueueDelete(queue=queue)))
                wire.send(frames(2, ChannelOpen(), QueueDeclare(queue=SHARED), BasicConsume(queue=SHARED, no_ack=True)))
                wire.send(publish_frames(2, b"x", SHARED) * 3, frames(2, ChannelClose(200, "", 0, 0)))
                while (frame := wire.on(2)).kind != FRAME_METHOD or not isinstance(
                    decode_method(frame.payload), ChannelCloseOk
                ):
                    pass
                wire.waiting.clear()
            broker.wait_idle(TIMEOUT)
            # A connection that was held back counts as in flow for some seconds more.
            anatomy.eventually(lambda: "FlowReporter.connections" not in anatomy._census()["tables"])
            output = anatomy.call(
                lambda: max(len(connection.output._unreported) for connection in anatomy.processes(Connection))
            )
            return output

        work(600)
        warm = anatomy.census()
        remembered = work(600)
        assert remembered <= 256
        assert_no_more(anatomy, warm)
