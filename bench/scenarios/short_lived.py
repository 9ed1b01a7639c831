"""Scenarios of connections, channels and queues that are used once, as by web requests that each open their own."""

from __future__ import annotations

from ...amqp.frames import method_frame
from ...amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
)
from ..load.broker import LoadClient
from .scenario import QUEUE, Stretch, Stretches, publish


def connections(address: str) -> Stretches:
    # No queue has this name: the broker confirms the message at once, so that the connection is what is measured.
    frames = method_frame(1, ConfirmSelect()) + publish(QUEUE)

    def step() -> None:
        with LoadClient(address) as client:
            client.write(frames)
            client.wait_for(BasicAck, 1)
            client.write(method_frame(0, ConnectionClose(200)))
            client.answers(1)

    yield Stretch(step, 1)


def channels(address: str) -> Stretches:
    opened = 50
    with LoadClient(address) as client:
        # Channel 1 is the client's own.
        frames = b"".join(
            method_frame(channel, ChannelOpen()) + method_frame(channel, ChannelClose(200))
            for channel in range(2, 2 + opened)
        )

        def step() -> None:
            client.write(frames)
            client.wait_for(ChannelCloseOk, opened)

        yield Stretch(step, opened)


def queues(address: str) -> Stretches:
    names = [f"{QUEUE}.{number}" for number in range(20)]
    with LoadClient(address) as client:
        methods = [
            method
            for name in names
            for method in (
                QueueDeclare(queue=name, exclusive=True),
                QueueBind(queue=name, exchange="amq.topic", routing_key=name),
                QueueDelete(queue=name),
            )
        ]

        def step() -> None:
            client.send(methods)
            client.wait_for(QueueDeleteOk, len(names))

        yield Stretch(step, len(names))


def reply_queues(address: str) -> Stretches:
    names = [f"{QUEUE}.{number}" for number in range(10)]
    with LoadClient(address) as client:
        used = b"".join(
            method_frame(1, QueueDeclare(queue=name, exclusive=True))
            + method_frame(1, BasicConsume(queue=name, consumer_tag=name, no_ack=True))
            + publish(name)
            for name in names
        )
        deleted = b"".join(method_frame(1, QueueDelete(queue=name)) for name in names)

        def step() -> None:
            client.write(used)
            client.wait_for(BasicDeliver, len(names))
            client.write(deleted)
            client.wait_for(QueueDeleteOk, len(names))

        yield Stretch(step, len(names))
