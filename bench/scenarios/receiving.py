"""Scenarios of receivers: basic.get, priorities, and messages that are returned to a queue or become dead letters."""

from __future__ import annotations

import random
from collections.abc import Callable

from ...amqp.frames import method_frame
from ...amqp.method import Method
from ...amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
)
from ...amqp.properties import Properties, encode_properties
from ..load.broker import LoadClient
from .scenario import OTHER_QUEUE, PERSISTENT, QUEUE, Stretch, Stretches, consume, declare, publish

#: Messages that a queue is filled with before they are fetched.
FILLED = 10_000
PRIORITIES = 10
#: Messages of the backlog with priorities.
BACKLOG = 20_000


def getting(client: LoadClient, answer: type[Method], count: int) -> Callable[[], None]:
    """A step that sends `count` basic.get at once, and waits for as many answers of this kind."""
    frames = method_frame(1, BasicGet(queue=QUEUE, no_ack=True)) * count

    def step() -> None:
        client.write(frames)
        client.wait_for(answer, count)

    return step


def gets(address: str) -> Stretches:
    messages = 100
    with LoadClient(address) as client:
        declare(client, QUEUE)
        step = getting(client, BasicGetOk, messages)
        while True:
            fill(client)
            yield Stretch(step, messages, FILLED // messages)


def gets_with_acks(address: str) -> Stretches:
    with LoadClient(address) as client:
        declare(client, QUEUE)
        get = method_frame(1, BasicGet(queue=QUEUE))
        acknowledged = b""
        delivery_tag = 0

        def step() -> None:
            nonlocal acknowledged, delivery_tag
            client.write(acknowledged + get)
            client.wait_for(BasicGetOk, 1)
            delivery_tag += 1
            acknowledged = method_frame(1, BasicAck(delivery_tag))

        while True:
            fill(client)
            yield Stretch(step, 1, FILLED)


def fill(client: LoadClient) -> None:
    client.write(publish(QUEUE) * FILLED)
    # The answer comes after the queue has taken all of them.
    client.declared(QUEUE)


def gets_of_nothing(address: str) -> Stretches:
    asked = 50
    with LoadClient(address) as client:
        declare(client, QUEUE)
        yield Stretch(getting(client, BasicGetEmpty, asked), asked)


def priorities(address: str) -> Stretches:
    messages = 200
    with LoadClient(address) as publisher, LoadClient(address) as consumer:
        declare(publisher, QUEUE, arguments={"x-max-priority": PRIORITIES})
        consume(consumer, QUEUE)
        frames = with_priorities(messages)

        def step() -> None:
            publisher.write(frames)
            consumer.wait_for(BasicDeliver, messages)

        yield Stretch(step, messages)


def backlog_with_priorities(address: str) -> Stretches:
    with LoadClient(address) as publisher, LoadClient(address) as consumer:
        declare(publisher, QUEUE, arguments={"x-max-priority": PRIORITIES})
        frames = with_priorities(BACKLOG)

        def step() -> None:
            publisher.write(frames)
            # The answer comes after the queue has taken all of them.
            publisher.declared(QUEUE)
            consumer.send([BasicConsume(queue=QUEUE, consumer_tag="drain", no_ack=True)])
            consumer.wait_for(BasicDeliver, BACKLOG)
            consumer.call(BasicCancel(consumer_tag="drain"))

        yield Stretch(step, BACKLOG)


def with_priorities(messages: int) -> bytes:
    """Messages of random priorities, which are the same in each run."""
    drawn = random.Random(1)
    props = [encode_properties(Properties(priority=priority)) for priority in range(PRIORITIES)]
    return b"".join(publish(QUEUE, drawn.choice(props)) for _ in range(messages))


def requeued_messages(address: str) -> Stretches:
    messages = 50
    with LoadClient(address) as publisher, LoadClient(address) as consumer:
        declare(publisher, QUEUE)
        publisher.write(publish(QUEUE) * messages)
        publisher.declared(QUEUE)
        consumer.call(BasicQos(prefetch_count=messages))
        consume(consumer, QUEUE, no_ack=False)
        consumer.wait_for(BasicDeliver, messages)
        last = messages

        def step() -> None:
            nonlocal last
            consumer.send([BasicNack(tag, False, True) for tag in range(last - messages + 1, last + 1)])
            consumer.wait_for(BasicDeliver, messages)
            last += messages

        yield Stretch(step, messages)


def expired_messages(address: str) -> Stretches:
    messages = 200
    with LoadClient(address) as publisher, LoadClient(address) as consumer:
        declare(publisher, OTHER_QUEUE)
        declare(publisher, QUEUE, arguments={"x-message-ttl": 1, **dead_letters_to(OTHER_QUEUE)})
        consume(consumer, OTHER_QUEUE)
        frames = publish(QUEUE) * messages

        def step() -> None:
            publisher.write(frames)
            consumer.wait_for(BasicDeliver, messages)

        yield Stretch(step, messages)


def rejected_messages(address: str) -> Stretches:
    messages = 100
    with LoadClient(address) as publisher, LoadClient(address) as rejecter, LoadClient(address) as consumer:
        declare(publisher, OTHER_QUEUE, durable=True)
        declare(publisher, QUEUE, durable=True, arguments=dead_letters_to(OTHER_QUEUE))
        consume(consumer, OTHER_QUEUE)
        rejecter.call(BasicQos(prefetch_count=messages))
        consume(rejecter, QUEUE, no_ack=False)
        frames = publish(QUEUE, PERSISTENT) * messages
        last = 0

        def step() -> None:
            nonlocal last
            publisher.write(frames)
            rejecter.wait_for(BasicDeliver, messages)
            rejecter.send([BasicNack(last + number, False, False) for number in range(1, messages + 1)])
            consumer.wait_for(BasicDeliver, messages)
            last += messages

        yield Stretch(step, messages)


def dead_letters_to(queue: str) -> dict[str, str]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
