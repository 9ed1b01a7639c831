"""Large messages to a fanout exchange with ten durable queues: confirmed messages per second, and their space on disk.

    python -m warren.bench.fan_out warren=127.0.0.1:5672 rabbitmq=127.0.0.1:5673

The first broker is the one under test; each ratio is its figure divided by that of another broker. Brokers take turns
within a round; the figures are medians of the rounds. Without arguments the program starts a warren on a temporary data
directory, and prints how much disk space the messages of one turn use.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

from ..amqp.fields import Table
from ..amqp.methods import ExchangeDeclare, ExchangeDelete, QueueBind, QueueDeclare, QueueDelete
from .load.broker import BrokerFailed, LoadClient, Warren, disk_used
from .load.generator import LoadFailed, LoadGenerator

EXCHANGE = "bench.fan_out"
SETUP_SECONDS = 60


def queue_names(count: int) -> list[str]:
    return [f"{EXCHANGE}.{number}" for number in range(count)]


def declare(address: str, count: int) -> None:
    with LoadClient(address) as client:
        client.call(ExchangeDeclare(exchange=EXCHANGE, type="fanout", durable=True, arguments=Table()))
        for name in queue_names(count):
            client.call(QueueDeclare(queue=name, durable=True, arguments=Table()))
            client.call(QueueBind(queue=name, exchange=EXCHANGE, arguments=Table()))


def delete(address: str, count: int) -> None:
    with LoadClient(address) as client:
        for name in queue_names(count):
            client.call(QueueDelete(queue=name))
        client.call(ExchangeDelete(exchange=EXCHANGE))


def measured(address: str, options: argparse.Namespace, data: Path | None) -> float:
    """Messages per second, confirmed after all queues have them."""
    declare(address, options.queues)
    try:
        arguments = [
            "--no-declare",
            "--exchange",
            EXCHANGE,
            "--consumers",
            "0",
            "--persistent",
            "--confirm",
            str(options.confirm),
            "--size",
            str(options.size),
            "--messages",
            str(options.messages),
            "--seconds",
            str(options.seconds),
        ]
        with LoadGenerator(address, arguments) as load:
            result = load.result(SETUP_SECONDS + options.seconds)
        if result["confirmed"] < options.messages:
            raise LoadFailed(
                f"{result['confirmed']} of {options.messages} messages were confirmed in {options.seconds:g} s"
            )
        if data is not None:
            print(
                f"{disk_used(data) / 1e6:,.0f} MB on disk for {options.messages * options.size / 1e6:,.0f} MB "
                f"of messages in {options.queues} queues"
            )
        return float(result["confirmed_per_s"])
    finally:
        delete(address, options.queues)


def run(options: argparse.Namespace) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        brokers = dict(item.split("=", 1) for item in options.brokers)
        data = None
        if not brokers:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
            warren = stack.enter_context(Warren(data))
            warren.start()
            brokers = {"warren": warren.address}
        figures: dict[str, list[float]] = {name: [] for name in brokers}
        for _ in range(options.rounds):
            for name, address in brokers.items():
                try:
                    figures[name].append(measured(address, options, data))
                except LoadFailed as error:
                    raise LoadFailed(f"{name}: {error}") from None
        return figures


def print_table(figures: dict[str, list[float]], options: argparse.Namespace) -> None:
    first = next(iter(figures))
    under_test = statistics.median(figures[first])
    print(
        f"{options.messages:,} messages of {options.size:,} B to {options.queues} durable queues, "
        f"{options.confirm} unconfirmed; {options.rounds} rounds\n"
    )
    print(f"{'broker':16}{'confirmed/s':>14}{'from':>12}{'to':>12}{first + ' over it':>22}")
    for name, rates in figures.items():
        rate = statistics.median(rates)
        ratio = "" if name == first else f"{under_test / rate:.2f} x"
        print(f"{name:16}{rate:14,.0f}{min(rates):12,.0f}{max(rates):12,.0f}{ratio:>22}")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.fan_out", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("brokers", nargs="*", metavar="NAME=HOST:PORT", help="the brokers, the one under test first")
    parser.add_argument("--queues", type=int, default=10, metavar="N", help="number of queues (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--messages", type=int, default=5000, metavar="N", help="messages in one turn (default %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, metavar="S", help="longest time of a turn in seconds (default %(default)s)"
    )
    parser.add_argument(
        "--size", type=int, default=16384, metavar="BYTES", help="size of a message body (default %(default)s)"
    )
    parser.add_argument(
        "--confirm", type=int, default=200, metavar="N", help="most unconfirmed messages (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    if any("=" not in item or ":" not in item for item in options.brokers):
        parser.error("a broker is given as NAME=HOST:PORT, such as warren=127.0.0.1:5672")
    return options


def main() -> int:
    options = parsed(sys.argv[1:])
    try:
        print_table(run(options), options)
    except (LoadFailed, BrokerFailed, OSError) as error:
        print(f"fan_out: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
