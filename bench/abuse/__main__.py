"""Measures how long one client waits while another does something large.

    python -m warren.bench.abuse                               a warren of its own
    python -m warren.bench.abuse --port 5673                   another broker, for example RabbitMQ
    python -m warren.bench.abuse --only fanout --scale 0.1     the rows with this word, with a tenth of everything

A witness publishes 100 messages a second on a queue of its own and consumes them. Meanwhile an abuser does what the row
says. The table has the witness's waits from publish to delivery: the longest, and the one that one in a thousand
exceeds. The first row is that of a witness alone, which is what the machine itself adds. The program needs pika.

Exit code 0 if no wait is longer than 25 ms, 1 if one is, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pika  # type: ignore[import-untyped]

from ..load.broker import BrokerFailed, Warren
from . import backlog, settling, topology
from .row import Row
from .witness import Waits, Witness

#: Seconds that no wait of the witness may exceed.
BAR = 0.025


def idle(port: int) -> Generator[None, None, None]:
    yield
    time.sleep(5)
    yield


def all_rows(scale: float) -> list[Row]:
    return [
        Row("nothing", idle),
        *settling.rows(int(30_000 * scale)),
        *backlog.rows(scale),
        *topology.rows(scale),
    ]


def measure(port: int, row: Row) -> tuple[float, Waits]:
    """Seconds that the abuse took, and the witness's waits meanwhile."""
    abuse = row.abuse(port)
    next(abuse)
    witness = Witness(port)
    witness.begin()
    began = time.monotonic()
    next(abuse)
    seconds = time.monotonic() - began
    time.sleep(0.2)
    waits = witness.stop()
    for _ in abuse:
        pass
    return seconds, waits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything, for a short run below 1")
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--port", type=int, help="of a broker that runs; by default one is started")
    options = parser.parse_args()
    longest = 0.0
    with ExitStack() as stack:
        try:
            port = options.port or started(stack)
            for row in all_rows(options.scale):
                if options.only not in row.name:
                    continue
                if options.port and row.not_for_rabbitmq:
                    print(f"{row.name:70} {row.not_for_rabbitmq}")
                    continue
                seconds, waits = measure(port, row)
                if row.abuse is not idle:
                    longest = max(longest, waits.longest)
                print(
                    f"{row.name:70} {seconds:6.1f} s, longest wait {waits.longest * 1000:8.1f} ms, "
                    f"p99.9 {waits.p999 * 1000:8.1f} ms of {waits.count}",
                    flush=True,
                )
        except (BrokerFailed, OSError, pika.exceptions.AMQPError) as error:
            print(f"nothing was measured: {error!r}", file=sys.stderr)
            return 2
    return int(longest > BAR)


def started(stack: ExitStack) -> int:
    """Start a warren that ends with `stack`, and return its port."""
    warren = Warren(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data", {"channel_max": 0})
    warren.start()
    stack.callback(warren.kill)
    return warren.port


if __name__ == "__main__":
    sys.exit(main())
