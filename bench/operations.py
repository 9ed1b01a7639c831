"""Operations per second that amqpload does not send: transactions, basic.get, RPC, dead letters, churn and others.

    python -m warren.bench.operations warren=127.0.0.1:5672 rabbitmq=127.0.0.1:5673

The first broker is the one under test; each ratio is its rate divided by that of another broker. Brokers take turns
within a round. The figures are those of the round with the highest rate, because other programs on the machine only
lower it. Without arguments the program starts a warren on a temporary data directory.

Beside each rate stands the processor time that the broker's process takes for one operation. On Linux this program
finds the process by the port on which it listens, if it runs on this machine and the user may look at its files (root
may); without it the column has a dash. The kernel counts this time in hundredths of a second, so a measurement of less
than a second gives only its first two digits.

Messages have 200 bytes, and one client in Python sends and receives all of them. It writes frames that were made before
and decodes nothing that it receives, but at hundreds of thousands of messages a second it is the limit itself.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from ..runtime.machine.port_holder import listening_process
from .load.broker import BrokerFailed, Warren, processor_seconds
from .scenarios import calls, publishing, receiving, short_lived
from .scenarios.scenario import Scenario, clean

#: Longest pause after a measurement, in which a broker ends what it does in the background, such as deleting messages.
#: Otherwise it would take a core from the broker that is measured next.
PAUSE_SECONDS = 0.3


class MeasuredOperation(NamedTuple):
    title: str
    scenario: Scenario


OPERATIONS = {
    "tx-one": MeasuredOperation("a transaction of one durable message", publishing.one_durable_message),
    "tx-transient": MeasuredOperation("messages in transactions of 50 transient ones", publishing.transient_messages),
    "tx-durable": MeasuredOperation("messages in transactions of 50 durable ones", publishing.durable_messages),
    "get": MeasuredOperation("basic.get without acknowledgement, 100 at a time", receiving.gets),
    "get-ack": MeasuredOperation("basic.get and ack, one at a time", receiving.gets_with_acks),
    "get-empty": MeasuredOperation("basic.get of an empty queue, 50 at a time", receiving.gets_of_nothing),
    "rpc-direct": MeasuredOperation("RPC with direct reply-to, 20 at a time", calls.direct_replies),
    "rpc": MeasuredOperation("RPC with a reply queue, one at a time", calls.replies_by_queue),
    "connection": MeasuredOperation("a connection, a channel and a confirmed message", short_lived.connections),
    "channel": MeasuredOperation("a channel opened and closed", short_lived.channels),
    "queue": MeasuredOperation("an exclusive queue declared, bound and deleted", short_lived.queues),
    "reply-queue": MeasuredOperation(
        "a reply queue declared, consumed from, used and deleted", short_lived.reply_queues
    ),
    "priority": MeasuredOperation("messages of ten priorities to a waiting consumer", receiving.priorities),
    "priority-backlog": MeasuredOperation(
        "messages of a backlog with ten priorities, filled and drained", receiving.backlog_with_priorities
    ),
    "ttl": MeasuredOperation("messages whose TTL of 1 ms ends in a dead-letter queue", receiving.expired_messages),
    "reject": MeasuredOperation("durable messages rejected to a dead-letter queue", receiving.rejected_messages),
    "requeue": MeasuredOperation("messages returned to their queue with a nack", receiving.requeued_messages),
    "fanout": MeasuredOperation("messages published to ten queues with consumers", publishing.fanout),
    "headers": MeasuredOperation("messages to a headers exchange with 20 bindings", publishing.headers_exchange),
    "mandatory": MeasuredOperation("mandatory messages returned", publishing.returned_messages),
    "max-length": MeasuredOperation("messages to a full queue with x-max-length 1,000", publishing.dropped_messages),
}


class BrokerFigures(NamedTuple):
    """What a broker did in one measurement."""

    #: Operations a second.
    rate: float
    #: Processor seconds of the broker for an operation; None if its process is not known.
    processor: float | None


def broker_process(address: str) -> int | None:
    """The id of the broker's process; None if it runs on another machine, or cannot be found."""
    host, port = address.rsplit(":", 1)
    is_local = host == "localhost" or host.startswith("127.")
    return listening_process(int(port)) if is_local else None


def measured(scenario: Scenario, address: str, seconds: float, process: int | None) -> BrokerFigures:
    operations = 0
    wall = processor = 0.0
    clean(address)
    try:
        with contextlib.closing(scenario(address)) as stretches:
            for stretch in stretches:
                steps = 0
                processor_before = processor_seconds(process) if process else 0.0
                before = time.perf_counter()
                end = before + seconds - wall
                while steps != stretch.most and time.perf_counter() < end:
                    stretch.step()
                    steps += 1
                wall += time.perf_counter() - before
                processor += processor_seconds(process) - processor_before if process else 0.0
                operations += steps * stretch.operations
                if wall >= seconds:
                    break
    finally:
        clean(address)
    time.sleep(min(seconds, PAUSE_SECONDS))
    return BrokerFigures(operations / wall, processor / operations if process else None)


def run(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, BrokerFigures]]]:
    """The best figures of each broker, one operation after the other."""
    with contextlib.ExitStack() as stack:
        brokers = dict(item.split("=", 1) for item in options.brokers)
        if not brokers:
            warren = stack.enter_context(Warren(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"))
            warren.start()
            brokers = {"warren": warren.address}
        processes = {name: broker_process(address) for name, address in brokers.items()}
        for operation in options.only:
            scenario = OPERATIONS[operation].scenario
            rounds: dict[str, list[BrokerFigures]] = {name: [] for name in brokers}
            for _ in range(options.rounds):
                for name, address in brokers.items():
                    rounds[name].append(measured(scenario, address, options.seconds, processes[name]))
            yield operation, {name: max(figures, key=attrgetter("rate")) for name, figures in rounds.items()}


def print_head(names: list[str], options: argparse.Namespace) -> None:
    print(f"the best of {options.rounds} rounds of {options.seconds:g} s; µs: processor time for an operation\n")
    columns = "".join(f"{name + '/s':>14}{'µs':>9}" for name in names)
    print(f"{'operation':18}{columns}" + "".join(f"{names[0] + ' over ' + name:>24}" for name in names[1:]))


def print_row(operation: str, brokers: dict[str, BrokerFigures]) -> None:
    first, *others = brokers.values()
    columns = "".join(
        f"{figures.rate:14,.0f}{'-' if figures.processor is None else format(figures.processor * 1e6, '.1f'):>9}"
        for figures in brokers.values()
    )
    ratios = "".join(f"{format(first.rate / other.rate, '.2f') + ' x':>24}" for other in others)
    print(f"{operation:18}{columns}{ratios}", flush=True)


def parsed(arguments: list[str]) -> argparse.Namespace:
    listed = "".join(f"\n  {name:18}{operation.title}" for name, operation in OPERATIONS.items())
    parser = argparse.ArgumentParser(
        "python -m warren.bench.operations",
        description=__doc__,
        epilog=f"operations:{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("brokers", nargs="*", metavar="NAME=HOST:PORT", help="the brokers, the one under test first")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=0.7, metavar="S", help="time of a measurement (default %(default)s)"
    )
    parser.add_argument(
        "--only",
        default=",".join(OPERATIONS),
        metavar="NAME,...",
        help="operations (default: all listed below)",
    )
    options = parser.parse_args(arguments)
    if any("=" not in item or ":" not in item for item in options.brokers):
        parser.error("a broker is given as NAME=HOST:PORT, such as warren=127.0.0.1:5672")
    options.only = options.only.split(",")
    if unknown := [name for name in options.only if name not in OPERATIONS]:
        parser.error(f"unknown operation {unknown[0]!r}; there are {', '.join(OPERATIONS)}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    return options


def main() -> int:
    options = parsed(sys.argv[1:])
    try:
        for number, (operation, brokers) in enumerate(run(options)):
            if number == 0:
                print_head(list(brokers), options)
            print_row(operation, brokers)
    except (BrokerFailed, OSError) as error:
        print(f"operations: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
