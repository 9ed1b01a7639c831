"""Nanoseconds per message of the backing queues: `python -m warren.bench.backing_queue`."""

from __future__ import annotations

import timeit
from collections.abc import Callable

from ..store.backing_queue import BackingQueue, Recover
from ..store.memory_queue import MemoryQueue
from ..store.message import Origin
from ..store.priority_queue import PriorityQueue

ORIGIN = Origin('', ('bench',), b'\x00\x00')
BODY = 1024


def contents(count: int) -> list[bytes]:
    head = b'\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00' + BODY.to_bytes(8, 'big') + b'\x00\x00\xce'
    return [head + b'\x03\x00\x01' + BODY.to_bytes(4, 'big') + bytes(BODY) + b'\xce' for _ in range(count)]


def rounds(queue: BackingQueue) -> dict[str, tuple[int, Callable[[], None]]]:
    run = contents(200)
    single = contents(1)

    def transient() -> None:
        queue.publish(ORIGIN, run, 200 * BODY, None, False)
        queue.fetch(200, False)

    def delivered() -> None:
        queue.ack(queue.publish_delivered(ORIGIN, run, 200 * BODY, None, False))

    def fifties() -> None:
        queue.publish(ORIGIN, run, 200 * BODY, None, True)
        for _ in range(4):
            for delivery in queue.fetch(50, True):
                queue.ack(delivery.tags)
        queue.drain_confirmed()

    def three_consumers() -> None:
        tags = queue.publish_delivered(ORIGIN, run, 200 * BODY, None, False)
        for consumer in range(3):
            queue.ack(tags[consumer::3])

    def singles() -> None:
        for _ in range(200):
            queue.publish(ORIGIN, single, BODY, None, False)
        for delivery in queue.fetch(200, True):
            for tag in delivery.tags:
                queue.ack(range(tag, tag + 1))

    return {'publish 200, fetch 200, no ack': (200, transient), 'publish_delivered 200, ack 200': (200, delivered),
            'publish 200, 4 x (fetch 50, ack 50)': (200, fifties), 'publish_delivered, 3 consumers ack': (200, three_consumers),
            '200 x publish 1, fetch 200, 200 x ack 1': (200, singles)}


def main() -> None:
    for queue in (MemoryQueue(), PriorityQueue(9, lambda priority: MemoryQueue())):
        queue.init(Recover.NEW)
        print(type(queue).__name__)
        for name, (count, work) in rounds(queue).items():
            best = min(timeit.repeat(work, number=500, repeat=5)) / 500 / count
            print(f'  {name:42s}{best * 1e9:8.1f} ns/message')


if __name__ == '__main__':
    main()
