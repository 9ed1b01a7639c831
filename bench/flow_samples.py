"""What samples of flow control cost the broker: its processor time with and without somebody who is bound to them.

    python -m warren.bench.flow_samples              1, 100 and 500 connections
    python -m warren.bench.flow_samples 1000         1,000 connections

Each connection has a channel and publishes a message to a queue of its own twice a second, so that all connections,
channels and queues are read for each sample. Phases with and without a binding follow each other, because the machine's
speed changes with what else runs there. Printed are medians: milliseconds of processor time in a second.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from ..actors.node.flow_sampler import MOST_READ
from ..amqp import methods
from ..amqp.fields import table_from
from ..amqp.frames import build_content, method_frame
from ..amqp.properties import NO_PROPERTIES
from .load.broker import LoadClient, Warren, processor_seconds

#: Phases of each kind, the seconds of one, and the seconds before it that do not count, because the first sample after
#: a binding reads everything.
PHASES, SECONDS, SETTLING = 5, 6.0, 2.5
#: Seconds between two messages of a connection.
PAUSE = 0.5
#: The queue that is bound to the samples.
SAMPLES = "bench-samples"


class Crowd:
    """Connections that publish now and then."""

    def __init__(self, address: str, count: int) -> None:
        self._clients = [LoadClient(address) for _ in range(count)]
        self._messages = []
        content = build_content(1, NO_PROPERTIES, b"x" * 100, 131_072)
        for number, client in enumerate(self._clients):
            queue = f"bench-{number}"
            client.call(methods.QueueDeclare(queue=queue, arguments=table_from({"x-max-length": 1})))
            self._messages.append(method_frame(1, methods.BasicPublish(routing_key=queue)) + content)

    def publish_for(self, seconds: float) -> None:
        """Publish as fast as the broker takes messages, for this many seconds."""
        began = due = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for client, frames in zip(self._clients, self._messages):
                client.write(frames)
            due += PAUSE
            time.sleep(max(0.0, due - time.perf_counter()))

    def close(self) -> None:
        for client in self._clients:
            client.close()


def measure(broker: Warren, count: int) -> tuple[float, float]:
    """The processor time of the broker in a second, in milliseconds: without samples and with them."""
    crowd = Crowd(broker.address, count)
    found: dict[bool, list[float]] = {False: [], True: []}
    try:
        with LoadClient(broker.address) as client:
            client.call(methods.QueueDeclare(queue=SAMPLES, arguments=table_from({"x-max-length": 10})))
            for phase in range(2 * PHASES):
                is_bound = phase % 2 == 1
                bind = methods.QueueBind(queue=SAMPLES, exchange="amq.rabbitmq.event", routing_key="flow.sample")
                unbind = methods.QueueUnbind(queue=SAMPLES, exchange=bind.exchange, routing_key=bind.routing_key)
                client.call(bind if is_bound else unbind)
                crowd.publish_for(SETTLING)
                before, began = processor_seconds(broker.pid), time.perf_counter()
                crowd.publish_for(SECONDS)
                used = processor_seconds(broker.pid) - before
                found[is_bound].append(used / (time.perf_counter() - began) * 1000)
            client.call(methods.QueueDelete(queue=SAMPLES))
    finally:
        crowd.close()
    return statistics.median(found[False]), statistics.median(found[True])


def main() -> None:
    counts = [int(each) for each in sys.argv[1:]] or [1, 100, 500]
    print("connections   without   with samples   difference   for a process that is read")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            with Warren(Path(folder, "data"), {"event_exchange_vhost": "/"}) as broker:
                broker.start()
                without, with_samples = measure(broker, count)
        more = with_samples - without
        each = more / min(3 * count, MOST_READ) * 1000
        row = f"{count:11,}   {without:4.1f} ms   {with_samples:9.1f} ms   {more:7.1f} ms   {each:6.0f} µs"
        print(row, flush=True)


if __name__ == "__main__":
    main()
