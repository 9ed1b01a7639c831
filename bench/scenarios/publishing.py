"""Scenarios of publishers: transactions, what an exchange does, and messages that no queue keeps."""

from __future__ import annotations

from contextlib import ExitStack

from ...amqp.fields import table_from
from ...amqp.frames import method_frame
from ...amqp.methods import (
    BasicDeliver,
    BasicReturn,
    ExchangeDeclare,
    QueueBind,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from ...amqp.properties import NO_PROPERTIES, Properties, encode_properties
from ..load.broker import LoadClient
from .scenario import EXCHANGE, FANOUT_QUEUES, PERSISTENT, QUEUE, Stretch, Stretches, consume, declare, publish

HEADER_BINDINGS = 20
#: The limit of the queue that drops messages.
MAX_LENGTH = 1000


def one_durable_message(address: str) -> Stretches:
    return transactions(address, 1, True)


def transient_messages(address: str) -> Stretches:
    return transactions(address, 50, False)


def durable_messages(address: str) -> Stretches:
    return transactions(address, 50, True)


def transactions(address: str, messages: int, durable: bool) -> Stretches:
    with LoadClient(address) as client:
        declare(client, QUEUE, durable)
        client.call(TxSelect())
        frames = publish(QUEUE, PERSISTENT if durable else NO_PROPERTIES) * messages + method_frame(1, TxCommit())

        def step() -> None:
            client.write(frames)
            client.wait_for(TxCommitOk, 1)

        yield Stretch(step, messages)


def fanout(address: str) -> Stretches:
    messages = 100
    with ExitStack() as stack:
        publisher = stack.enter_context(LoadClient(address))
        publisher.call(ExchangeDeclare(exchange=EXCHANGE, type="fanout"))
        consumers = [stack.enter_context(LoadClient(address)) for _ in FANOUT_QUEUES]
        for consumer, queue in zip(consumers, FANOUT_QUEUES, strict=True):
            declare(consumer, queue)
            consumer.call(QueueBind(queue=queue, exchange=EXCHANGE))
            consume(consumer, queue)
        frames = publish("any", exchange=EXCHANGE) * messages

        def step() -> None:
            publisher.write(frames)
            for consumer in consumers:
                consumer.wait_for(BasicDeliver, messages)

        yield Stretch(step, messages)


def headers_exchange(address: str) -> Stretches:
    messages = 200
    with LoadClient(address) as publisher, LoadClient(address) as consumer:
        publisher.call(ExchangeDeclare(exchange=EXCHANGE, type="headers"))
        declare(consumer, QUEUE)
        for number in range(HEADER_BINDINGS):
            matched = table_from({"x-match": "all", "kind": f"k{number}", "region": "eu"})
            consumer.call(QueueBind(queue=QUEUE, exchange=EXCHANGE, routing_key=str(number), arguments=matched))
        consume(consumer, QUEUE)
        kinds = [
            encode_properties(Properties(headers=table_from({"kind": f"k{number}", "region": "eu"})))
            for number in range(HEADER_BINDINGS)
        ]
        frames = b"".join(publish("", kinds[number % HEADER_BINDINGS], exchange=EXCHANGE) for number in range(messages))

        def step() -> None:
            publisher.write(frames)
            consumer.wait_for(BasicDeliver, messages)

        yield Stretch(step, messages)


def returned_messages(address: str) -> Stretches:
    messages = 100
    with LoadClient(address) as client:
        # Nobody declares the queue of this name, so the default exchange has no route to it.
        frames = publish(QUEUE, mandatory=True) * messages

        def step() -> None:
            client.write(frames)
            client.wait_for(BasicReturn, messages)

        yield Stretch(step, messages)


def dropped_messages(address: str) -> Stretches:
    with LoadClient(address) as client:
        declare(client, QUEUE, arguments={"x-max-length": MAX_LENGTH})
        frames = publish(QUEUE) * MAX_LENGTH

        def step() -> None:
            client.write(frames)
            # The answer comes after the queue has taken all of them.
            client.declared(QUEUE)

        yield Stretch(step, MAX_LENGTH)
