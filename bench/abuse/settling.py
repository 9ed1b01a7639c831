"""Rows in which a client settles many messages in an awkward order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator

import pika  # type: ignore[import-untyped]

from .row import Abuse, AbuseRow

Order = Callable[[list[int]], list[int]]

ORDERS: dict[str, Order] = {
    "random order": lambda tags: random.Random(1).sample(tags, len(tags)),
    "even numbers, then odd": lambda tags: tags[::2] + tags[1::2],
    "reverse order": lambda tags: tags[::-1],
}


def rows(count: int) -> list[AbuseRow]:
    """The rows, each with `count` messages."""
    return [
        AbuseRow(
            f"{'requeues' if is_requeue else 'acknowledges'} {count:,} messages in {name}",
            _settle(count, order, is_requeue),
        )
        for name, order in ORDERS.items()
        for is_requeue in (True, False)
    ]


def _settle(count: int, order: Order, is_requeue: bool) -> Abuse:
    def settle(port: int) -> Generator[None, None, None]:
        with pika.BlockingConnection(pika.ConnectionParameters(port=port, heartbeat=0)) as connection:
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).method.queue
            for _ in range(count):
                channel.basic_publish("", queue, b"x" * 20)
            tags: list[int] = []
            tag = channel.basic_consume(queue, lambda channel, method, *rest: tags.append(method.delivery_tag))
            while len(tags) < count:
                connection.process_data_events(1)
            channel.basic_cancel(tag)
            yield
            for number in order(tags):
                if is_requeue:
                    channel.basic_reject(number, requeue=True)
                else:
                    channel.basic_ack(number)
            channel.queue_declare(queue, passive=True)
            while is_requeue and channel.queue_declare(queue, passive=True).method.message_count < count:
                time.sleep(0.05)  # a RabbitMQ answers before it has requeued everything
            yield

    return settle
