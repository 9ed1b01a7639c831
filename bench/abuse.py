"""Measures how long one client waits while another settles many messages in an awkward order.

    python -m warren.bench.abuse                               a warren of its own, 30,000 messages
    python -m warren.bench.abuse --messages 100000 --port 5673 another broker, for example RabbitMQ

A witness publishes 100 messages a second on a queue of its own and consumes them. Meanwhile an abuser holds all
messages of another queue unacknowledged, and requeues or acknowledges them one by one in the order of the row. The
table has the witness's longest wait from publish to delivery. The program needs pika.

Exit code 0 if no wait is longer than 25 ms, 1 if one is, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pika  # type: ignore[import-untyped]

from .load.broker import BrokerFailed, Warren

#: Seconds that the witness may wait for a message.
BAR = 0.025
INTERVAL = 0.01

ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "random order": lambda tags: random.Random(1).sample(tags, len(tags)),
    "even numbers, then odd": lambda tags: tags[::2] + tags[1::2],
    "reverse order": lambda tags: tags[::-1],
}


class Witness(multiprocessing.Process):
    """Publishes and consumes in a process of its own; `stop` returns its longest wait in seconds."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._longest = multiprocessing.Value("d", 0.0)
        self._is_stopped = multiprocessing.Event()
        self._port = port

    def run(self) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters(port=self._port)) as connection:
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.basic_consume(queue, self._received, auto_ack=True)
            due = time.monotonic()
            while not self._is_stopped.is_set():
                channel.basic_publish("", queue, repr(time.monotonic()).encode())
                due = max(due + INTERVAL, time.monotonic())
                while (left := due - time.monotonic()) > 0:
                    connection.process_data_events(left)

    def _received(self, channel: object, method: object, properties: object, body: bytes) -> None:
        self._longest.value = max(self._longest.value, time.monotonic() - float(body))

    def stop(self) -> float:
        self._is_stopped.set()
        self.join()
        return self._longest.value


def settle(port: int, count: int, order: Callable[[list[int]], list[int]], is_requeue: bool) -> tuple[float, float]:
    """Seconds that the abuser took, and the witness's longest wait meanwhile."""
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
        witness = Witness(port)
        witness.start()
        time.sleep(0.5)
        began = time.monotonic()
        for number in order(tags):
            if is_requeue:
                channel.basic_reject(number, requeue=True)
            else:
                channel.basic_ack(number)
        channel.queue_declare(queue, passive=True)
        while is_requeue and channel.queue_declare(queue, passive=True).method.message_count < count:
            time.sleep(0.05)  # a RabbitMQ answers before it has requeued everything
        seconds = time.monotonic() - began
        time.sleep(0.2)
        return seconds, witness.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--port", type=int, help="of a broker that runs; by default one is started")
    options = parser.parse_args()
    with ExitStack() as stack:
        try:
            port = options.port or started(stack)
            longest = 0.0
            for name, order in ORDERS.items():
                for is_requeue in (True, False):
                    seconds, wait = settle(port, options.messages, order, is_requeue)
                    longest = max(longest, wait)
                    what = f"{'requeues' if is_requeue else 'acknowledges'} {options.messages:,} in {name}"
                    print(f"{what:55} {seconds:6.1f} s, longest wait {wait * 1000:8.1f} ms", flush=True)
        except (BrokerFailed, pika.exceptions.AMQPError) as error:
            print(f"nothing was measured: {error!r}", file=sys.stderr)
            return 2
    return int(longest > BAR)


def started(stack: ExitStack) -> int:
    """Start a warren that ends with `stack`, and return its port."""
    warren = Warren(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data")
    warren.start()
    stack.callback(warren.kill)
    return warren.port


if __name__ == "__main__":
    sys.exit(main())
