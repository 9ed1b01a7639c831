"""Confirmed messages per second in a thousand durable queues, each with a publisher that sends one message at a time.

    python -m warren.bench.durable_queues warren=127.0.0.1:5672 rabbitmq=127.0.0.1:5673

Each publisher waits for the confirm of a persistent message before it sends the next. The first broker is the one under
test; each ratio is its figure divided by that of another broker. Brokers take turns within a round, so that changes in
the speed of the machine affect all of them. The figures are medians of the rounds. Without arguments the program starts
a warren on a temporary data directory.

Since each publisher has one message in flight, the mean wait for a confirm is the number of publishers divided by the
rate. It is printed beside the rate.

RabbitMQ derives its limit of connections from its limit of open files: with the usual 1,024 it accepts 832 connections,
and the next one waits. Start it with `su rabbitmq -s /bin/sh -c 'ulimit -n 20000; exec
/usr/lib/rabbitmq/bin/rabbitmq-server'`, because /usr/sbin/rabbitmq-server begins a new login, which resets the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..amqp.methods import QueueDelete
from .load.broker import BrokerFailed, LoadClient, Warren
from .load.generator import LoadFailed, LoadGenerator

QUEUE = "bench.durable_queues"
#: Seconds to open the connections and to declare and empty the queues; RabbitMQ takes 4 ms for each.
SETUP_SECONDS_A_QUEUE = 0.05


def queue_names(count: int) -> list[str]:
    """The names that the load generator gives to the queues."""
    return [f"{QUEUE}_{number}" for number in range(count)] if count > 1 else [QUEUE]


def measured(address: str, options: argparse.Namespace) -> float:
    """Confirmed messages per second."""
    arguments = [
        "--publishers",
        str(options.queues),
        "--queues",
        str(options.queues),
        "--queue",
        QUEUE,
        "--durable",
        "--persistent",
        "--confirm",
        str(options.confirm),
        "--size",
        str(options.size),
        "--seconds",
        str(options.seconds),
    ]
    arguments += (
        ["--consumers", str(options.queues), "--prefetch", "10", "--ack-every", "1"]
        if options.consume
        else ["--consumers", "0"]
    )
    with LoadGenerator(address, arguments) as load:
        result = load.result(60 + options.seconds + options.queues * SETUP_SECONDS_A_QUEUE)
    if result["nacked"]:
        raise LoadFailed(f"{result['nacked']} messages were refused")
    return float(result["confirmed_per_s"])


def delete_queues(address: str, count: int) -> None:
    with LoadClient(address) as client:
        for name in queue_names(count):
            client.call(QueueDelete(queue=name))


def print_table(figures: dict[str, list[float]], options: argparse.Namespace) -> None:
    first = next(iter(figures))
    under_test = statistics.median(figures[first])
    print(
        f"{options.queues:,} durable queues, {options.size} B persistent, {options.confirm} unconfirmed each, "
        f"{'one consumer each' if options.consume else 'no consumer'}; "
        f"{options.rounds} rounds of {options.seconds:g} s\n"
    )
    print(f"{'broker':16}{'confirmed/s':>14}{'from':>12}{'to':>12}{'mean wait':>14}{first + ' over it':>22}")
    for name, rates in figures.items():
        rate = statistics.median(rates)
        wait = f"{options.queues * options.confirm / rate * 1e3:,.1f} ms" if rate else "-"
        ratio = "" if name == first else f"{under_test / rate:.2f} x" if rate else "-"
        print(f"{name:16}{rate:14,.0f}{min(rates):12,.0f}{max(rates):12,.0f}{wait:>14}{ratio:>22}")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.durable_queues",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("brokers", nargs="*", metavar="NAME=HOST:PORT", help="the brokers, the one under test first")
    parser.add_argument(
        "--queues", type=int, default=1000, metavar="N", help="queues and publishers (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=10, metavar="S", help="seconds of load in one turn (default %(default)s)"
    )
    parser.add_argument(
        "--size", type=int, default=1024, metavar="BYTES", help="size of a message body (default %(default)s)"
    )
    parser.add_argument(
        "--confirm",
        type=int,
        default=1,
        metavar="N",
        help="messages a publisher may have unconfirmed (default %(default)s)",
    )
    parser.add_argument(
        "--consume", action="store_true", help="one consumer for each queue, prefetch 10, acknowledging every message"
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the queues and their messages")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if any("=" not in item or ":" not in item for item in options.brokers):
        parser.error("a broker is given as NAME=HOST:PORT, such as warren=127.0.0.1:5672")
    return options


def run(options: argparse.Namespace) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        brokers = dict(item.split("=", 1) for item in options.brokers)
        if not brokers:
            warren = stack.enter_context(Warren(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"))
            warren.start()
            brokers = {"warren": warren.address}
        figures: dict[str, list[float]] = {name: [] for name in brokers}
        try:
            for _ in range(options.rounds):
                for name, address in brokers.items():
                    try:
                        figures[name].append(measured(address, options))
                    except LoadFailed as error:
                        raise LoadFailed(f"{name}: {error}") from None
        finally:
            if not options.keep:
                for address in brokers.values():
                    # If the broker is gone, the exception being handled reports it already.
                    with contextlib.suppress(OSError):
                        delete_queues(address, options.queues)
        return figures


def main() -> int:
    options = parsed(sys.argv[1:])
    try:
        figures = run(options)
    except (LoadFailed, BrokerFailed, OSError) as error:
        print(f"durable_queues: {error}", file=sys.stderr)
        return 1
    if options.json:
        medians = {name: statistics.median(rates) for name, rates in figures.items()}
        report: dict[str, Any] = {
            "queues": options.queues,
            "confirm": options.confirm,
            "size": options.size,
            "confirmed_per_s": figures,
            "medians": medians,
        }
        print(json.dumps(report))
    else:
        print_table(figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
