"""Measures how long a broker with a full data directory takes to restart, after `kill -9` and after a clean stop.

    python -m warren.bench.restart              1 million persistent messages of 1 KB in 10 durable queues
    python -m warren.bench.restart --messages 100000 --queues 1 --lazy --rounds 5
    python -m warren.bench.restart --cold       reads the files from the disk, as after a power cut

The program starts a warren on a new data directory under --directory and fills it with confirmed messages. In every
round it kills and restarts the broker, then stops and restarts it. It measures the time from exec until a client has a
connection and a passive declare of every queue counts all its messages. A missing message is an error, and so is one
that cannot be consumed after the last restart. Files in the page cache are fast to read; --cold drops them from it
before every start.

The slowest round must take at most 5 s after kill -9 and 1 s after a clean stop. Exit code 0 if it does, 1 if not, 2 if
nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .load.broker import BrokerFailed, LoadClient, Warren, disk_used, memory
from .load.generator import LoadFailed, LoadGenerator

QUEUE = "bench.restart"
SECONDS_A_MESSAGE = 0.001
KILLED_BAR = 5.0
STOPPED_BAR = 1.0


@dataclass(slots=True)
class RestartFigures:
    """The seconds of each restart, one for each round, and what the broker had to recover."""

    fill_rate: float
    disk: int
    drain_rate: float = 0.0
    killed: list[float] = field(default_factory=list)
    stopping: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return max(self.killed) <= KILLED_BAR and max(self.stopped) <= STOPPED_BAR


def queue_names(count: int) -> list[str]:
    """The names that the load generator gives to the queues."""
    return [f"{QUEUE}_{number}" for number in range(count)] if count > 1 else [QUEUE]


def fill(warren: Warren, options: argparse.Namespace) -> float:
    """Confirmed messages per second."""
    limit = 60 + options.messages * SECONDS_A_MESSAGE
    arguments = [
        "--queue",
        QUEUE,
        "--queues",
        str(options.queues),
        "--publishers",
        str(options.queues),
        "--consumers",
        "0",
        "--durable",
        "--persistent",
        "--messages",
        str(options.messages),
        "--size",
        str(options.size),
        "--confirm",
        "1000",
        "--seconds",
        str(limit),
        *(["--lazy"] if options.lazy else []),
    ]
    with LoadGenerator(warren.address, arguments) as load:
        result = load.result(limit + 60)
    if result["confirmed"] != options.messages:
        raise LoadFailed(
            f"{result['confirmed']:,} of {options.messages:,} messages were confirmed in {limit:.0f} s, "
            f"{result['nacked']:,} refused"
        )
    return float(result["confirmed_per_s"])


def drain(warren: Warren, options: argparse.Namespace) -> float:
    """Consume all messages, since a counted message may still be unreadable; return messages per second."""
    limit = 60 + options.messages * SECONDS_A_MESSAGE
    arguments = [
        "--queue",
        QUEUE,
        "--queues",
        str(options.queues),
        "--consumers",
        str(options.queues),
        "--publishers",
        "0",
        "--no-declare",
        "--messages",
        str(options.messages),
        "--prefetch",
        "1000",
        "--ack-every",
        "200",
        "--seconds",
        str(limit),
    ]
    with LoadGenerator(warren.address, arguments) as load:
        result = load.result(limit + 60)
    if result["received"] != options.messages:
        raise LoadFailed(
            f"after the last restart {result['received']:,} of {options.messages:,} messages "
            f"could be consumed in {limit:.0f} s"
        )
    return float(result["received_per_s"])


def started(warren: Warren, options: argparse.Namespace) -> float:
    """Seconds from exec until every queue has all its messages."""
    if options.cold:
        forget_files(warren.data_dir)
    wanted = options.messages // options.queues

    def counted(client: LoadClient) -> dict[str, int]:
        return {name: client.declared(name) for name in queue_names(options.queues)}

    seconds, counts = warren.start_until(counted)
    wrong = {name: count for name, count in counts.items() if count != wanted}
    if wrong:
        raise BrokerFailed(
            f"after a restart these queues do not have {wanted:,} messages: "
            f"{', '.join(f'{name}: {count:,}' for name, count in wrong.items())}"
        )
    return seconds


def forget_files(directory: Path) -> None:
    """Drop the files from the page cache. The kernel keeps dirty pages, so write them first."""
    for parent, _, names in os.walk(directory):
        for name in names:
            file = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def measured(directory: Path, options: argparse.Namespace) -> RestartFigures:
    with Warren(directory / "data") as warren:
        warren.start()
        figures = RestartFigures(fill_rate=fill(warren, options), disk=disk_used(warren.data_dir))
        for _ in range(options.rounds):
            warren.kill()
            figures.killed.append(started(warren, options))
            figures.stopping.append(warren.stop())
            figures.stopped.append(started(warren, options))
            figures.resident.append(memory(warren.pid)["VmRSS"])
        figures.drain_rate = drain(warren, options)
        return figures


def print_table(figures: RestartFigures, options: argparse.Namespace) -> None:
    print(
        f"{options.messages:,} persistent messages of {options.size:,} B in {options.queues} durable "
        f"{'lazy ' if options.lazy else ''}queues, {figures.disk / 1e6:,.0f} MB on disk"
        f"{', cold' if options.cold else ''}; filled at {figures.fill_rate:,.0f}/s; {options.rounds} rounds\n"
    )
    print(f"{'seconds':44}{'median':>10}{'least':>10}{'most':>10}{'bar':>10}")
    rows: tuple[tuple[str, list[float], float | None], ...] = (
        ("restart after kill -9, until counts are right", figures.killed, KILLED_BAR),
        ("clean stop, SIGTERM to exit", figures.stopping, None),
        ("restart after it, until counts are right", figures.stopped, STOPPED_BAR),
    )
    for name, seconds, bar in rows:
        verdict = "" if bar is None else f"{bar:10.1f}   {'pass' if max(seconds) <= bar else 'FAIL'}"
        print(f"{name:46}{statistics.median(seconds):8.2f}{min(seconds):10.2f}{max(seconds):10.2f}{verdict}")
    print(
        f"\nafter the last restart: {figures.resident[-1] / 1e6:,.0f} MB resident; "
        f"then all messages were consumed, {figures.drain_rate:,.0f}/s"
    )


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.restart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, default=1_000_000, metavar="N", help="number of messages (default 1,000,000)"
    )
    parser.add_argument("--queues", type=int, default=10, metavar="N", help="number of queues (default %(default)s)")
    parser.add_argument(
        "--size", type=int, default=1024, metavar="BYTES", help="size of a message body (default %(default)s)"
    )
    parser.add_argument("--lazy", action="store_true", help="declare the queues lazy")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--cold", action="store_true", help="drop the data directory from the page cache before every start"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to create the data directory (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if options.queues < 1 or options.messages < 1 or options.messages % options.queues:
        parser.error("--messages must be a multiple of --queues, so that each gets the same number")
    return options


def main() -> int:
    options = parsed(sys.argv[1:])
    try:
        with tempfile.TemporaryDirectory(prefix="warren-restart-", dir=options.directory) as directory:
            figures = measured(Path(directory), options)
    except (LoadFailed, BrokerFailed, OSError) as error:
        print(f"restart: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(
            json.dumps(
                {
                    "messages": options.messages,
                    "queues": options.queues,
                    "size": options.size,
                    "lazy": options.lazy,
                    "cold": options.cold,
                    "fill_rate": figures.fill_rate,
                    "drain_rate": figures.drain_rate,
                    "disk": figures.disk,
                    "restart_after_kill_s": figures.killed,
                    "stop_s": figures.stopping,
                    "restart_after_stop_s": figures.stopped,
                    "resident": figures.resident,
                    "holds": figures.holds,
                }
            )
        )
    else:
        print_table(figures, options)
    return 0 if figures.holds else 1


if __name__ == "__main__":
    sys.exit(main())
