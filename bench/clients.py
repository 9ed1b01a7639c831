"""Messages per second that Python's client libraries (pika, aio-pika, Celery) send and receive.

    python -m warren.bench.clients warren=127.0.0.1:5672 rabbitmq=127.0.0.1:5673

The first broker is the one under test; each ratio is its figure divided by that of another broker. Brokers take turns
within a round; the figures are medians of the rounds. Without arguments the program starts a warren on a temporary data
directory. Start it outside the repository's folder, whose folder `amqp` hides the library of that name that Celery
imports.

Beside each rate stands the CPU share of the client: the CPU time of its process divided by the elapsed time. A second
share is the time in which the client could run, but other processes (the broker among them) had all the cores. The rest
of the time the client waits for the broker. If both shares together are near 100 %, the client is the limit, and no
broker could make it faster.

Messages of pika and aio-pika are transient and have 1 KB and a message-id of their own. Celery's are its defaults:
persistent, in a durable queue. Every consumer acknowledges one message at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..amqp.methods import ExchangeDelete, QueueDelete
from .load.broker import BrokerFailed, LoadClient, Warren
from .load.stopwatch import ClientFigures, Stopwatch

QUEUE = "bench.clients"
#: The exchange and the queue of Celery's tasks; load/celery_worker.py cannot be imported where Celery is absent.
CELERY_QUEUE = "bench.clients.celery"
BODY = bytes(1024)
PREFETCH = 100
#: Messages that aio-pika publishes at a time, before it waits for their confirms.
WINDOW = 100
#: Time for a worker to import Celery and connect, before it executes its first task.
WORKER_START_SECONDS = 60


class ClientFailed(Exception):
    """A client library is absent, or its process ended early. The text has the reason."""


# -- pika --------------------------------------------------------------------------------------------


def pika_turn(address: str, seconds: float) -> list[ClientFigures]:
    import pika

    host, port = address.rsplit(":", 1)
    parameters = pika.ConnectionParameters(host, int(port))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE)
        sent = 0
        watch = Stopwatch()
        while not watch.passed(seconds):
            sent += 1
            channel.basic_publish("", QUEUE, BODY, pika.BasicProperties(message_id=f"message-{sent}"))
        # The answer comes after the broker has read every message, so no buffer on the way flatters the rate.
        channel.queue_declare(QUEUE, passive=True)
        published = watch.figures(sent)

        received = 0
        consuming = connection.channel()
        consuming.basic_qos(prefetch_count=PREFETCH)

        def take(channel, method, properties, body) -> None:
            nonlocal received
            channel.basic_ack(method.delivery_tag)
            received += 1
            if received == sent or watch.passed(seconds):
                channel.stop_consuming()

        consuming.basic_consume(QUEUE, take)
        watch = Stopwatch()
        consuming.start_consuming()
        return [published, watch.figures(received)]


# -- aio-pika ----------------------------------------------------------------------------------------


def aio_pika_turn(address: str, seconds: float) -> list[ClientFigures]:
    return asyncio.run(aio_pika_figures(address, seconds))


async def aio_pika_figures(address: str, seconds: float) -> list[ClientFigures]:
    from aio_pika import Message, connect

    async with await connect(f"amqp://guest:guest@{address}/") as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.declare_queue(QUEUE)
        publish = channel.default_exchange.publish
        sent = 0
        watch = Stopwatch()
        while not watch.passed(seconds):
            window = [Message(BODY, message_id=f"message-{sent + number}") for number in range(WINDOW)]
            await asyncio.gather(*(publish(message, QUEUE) for message in window))
            sent += WINDOW
        published = watch.figures(sent)

        received = 0
        watch = Stopwatch()
        async with queue.iterator() as deliveries:
            async for message in deliveries:
                await message.ack()
                received += 1
                if received == sent or watch.passed(seconds):
                    break
            # Leaving the iterator returns what was prefetched, which is not part of the measurement.
            consumed = watch.figures(received)
        return [published, consumed]


# -- Celery ------------------------------------------------------------------------------------------


def celery_turn(address: str, seconds: float) -> list[ClientFigures]:
    from kombu import pools

    from .load.celery_worker import application

    app, nothing = application(address, lambda: None)
    # The first task opens the connection and declares the queue.
    nothing.apply_async()
    sent = 0
    watch = Stopwatch()
    while not watch.passed(seconds):
        nothing.apply_async()
        sent += 1
    # The pool lends the connection that has just sent, so the answer comes after the broker has read every task.
    with app.producer_pool.acquire(block=True) as producer:
        producer.channel.queue_declare(CELERY_QUEUE, passive=True)
    published = watch.figures(sent)
    app.close()
    # kombu keeps connections for the next turn, and with them the belief that the queue of this turn exists.
    pools.reset()
    return [published, executed(address, sent + 1, seconds)]


def executed(address: str, tasks: int, seconds: float) -> ClientFigures:
    """What a worker process does with the tasks that wait in the queue."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.json", Path(folder) / "log"
        command = [sys.executable, "-m", f"{__package__}.load.celery_worker"]
        command += [address, str(tasks), str(seconds), str(result)]
        with open(log, "wb") as output:
            worker = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + WORKER_START_SECONDS + seconds
            while not result.exists():
                if worker.poll() is not None or time.monotonic() > deadline:
                    raise ClientFailed(f"the Celery worker did not finish:\n{log.read_text()[-2000:]}")
                time.sleep(0.02)
            return ClientFigures(*json.loads(result.read_text()))
        finally:
            # A stop in order would first execute the tasks that the worker has prefetched.
            worker.kill()
            worker.wait()


# -- turns and the table -----------------------------------------------------------------------------


class Library(NamedTuple):
    """A client library: its turn returns the figures of its workloads in their order."""

    module: str
    workloads: tuple[str, ...]
    turn: Callable[[str, float], list[ClientFigures]]


LIBRARIES = {
    "pika": Library("pika", ("pika: publish, no confirms", "pika: consume"), pika_turn),
    "aio-pika": Library("aio_pika", (f"aio-pika: publish, {WINDOW} unconfirmed", "aio-pika: consume"), aio_pika_turn),
    "celery": Library("celery.app.base", ("Celery: tasks sent", "Celery: tasks executed"), celery_turn),
}


def check_imports(libraries: list[str]) -> None:
    """Import the libraries before anything is measured. Raises ClientFailed if one is absent."""
    for name in libraries:
        try:
            importlib.import_module(LIBRARIES[name].module)
        except ImportError as error:
            raise ClientFailed(
                f"{name} cannot be imported ({error}). Install the project's extra `test`, start this outside the "
                f"repository's folder, or choose other libraries with --only."
            ) from None


def clean(address: str) -> None:
    with LoadClient(address) as client:
        client.call(QueueDelete(queue=QUEUE))
        client.call(QueueDelete(queue=CELERY_QUEUE))
        client.call(ExchangeDelete(exchange=CELERY_QUEUE))


@contextlib.contextmanager
def cleaned(address: str) -> Iterator[None]:
    """Delete the queues before a turn, because an interrupted one may have left messages, and after it."""
    clean(address)
    try:
        yield
    finally:
        clean(address)


def run(options: argparse.Namespace) -> dict[str, dict[str, list[ClientFigures]]]:
    """The figures of each round, by workload and broker."""
    check_imports(options.only)
    with contextlib.ExitStack() as stack:
        brokers = dict(item.split("=", 1) for item in options.brokers)
        if not brokers:
            warren = stack.enter_context(Warren(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"))
            warren.start()
            brokers = {"warren": warren.address}
        libraries = [LIBRARIES[name] for name in options.only]
        table: dict[str, dict[str, list[ClientFigures]]] = {
            workload: {name: [] for name in brokers} for library in libraries for workload in library.workloads
        }
        for _ in range(options.rounds):
            for library in libraries:
                for name, address in brokers.items():
                    with cleaned(address):
                        turn = library.turn(address, options.seconds)
                    for workload, figures in zip(library.workloads, turn, strict=True):
                        table[workload][name].append(figures)
        return table


def print_table(table: dict[str, dict[str, list[ClientFigures]]], options: argparse.Namespace) -> None:
    print(
        f"medians of {options.rounds} measurements of {options.seconds:g} s\n"
        f"The client is the limit where its CPU and the time in which it had no core are together near 100 %.\n"
    )
    first = next(iter(next(iter(table.values()))))
    print(f"{'workload':38}{'broker':16}{'messages/s':>12}{'client CPU':>12}{'no core':>9}{first + ' over it':>22}")
    for workload, brokers in table.items():
        under_test = statistics.median(figures.rate for figures in brokers[first])
        for name, rounds in brokers.items():
            rate = statistics.median(figures.rate for figures in rounds)
            share = statistics.median(figures.share for figures in rounds)
            coreless = statistics.median(figures.coreless_share for figures in rounds)
            ratio = "" if name == first else f"{under_test / rate:.2f} x" if rate else "-"
            print(f"{workload:38}{name:16}{rate:12,.0f}{share:12.0%}{coreless:9.0%}{ratio:>22}")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("brokers", nargs="*", metavar="NAME=HOST:PORT", help="the brokers, the one under test first")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=3, metavar="S", help="longest time of a measurement (default %(default)s)"
    )
    parser.add_argument(
        "--only", default=",".join(LIBRARIES), metavar="LIBRARY,...", help="libraries (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    if any("=" not in item or ":" not in item for item in options.brokers):
        parser.error("a broker is given as NAME=HOST:PORT, such as warren=127.0.0.1:5672")
    options.only = options.only.split(",")
    if unknown := [name for name in options.only if name not in LIBRARIES]:
        parser.error(f"unknown library {unknown[0]!r}; there are {', '.join(LIBRARIES)}")
    return options


def main() -> int:
    options = parsed(sys.argv[1:])
    try:
        print_table(run(options), options)
    except (ClientFailed, BrokerFailed, OSError) as error:
        print(f"clients: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
