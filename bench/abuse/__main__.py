"""Measures how long one client waits while another does something large.

    python -m warren.bench.abuse                               a warren of its own
    python -m warren.bench.abuse --port 5673                   another broker, for example RabbitMQ
    python -m warren.bench.abuse --only fanout --scale 0.1     the rows with this word, with a tenth of everything
    python -m warren.bench.abuse --port 5673 --command "rabbitmqctl -n rabbit@localhost" --tls-port 5671

A witness publishes 100 messages a second on a queue of its own and consumes them. Meanwhile an abuser does what the row
says. The table has the witness's waits from publish to delivery: the longest, and the 99.9th percentile. In rows with a
memory alarm, which blocks publishers, the witness asks for the length of its queue instead. In the first row the
witness is alone; its waits are what the machine itself adds. The program needs pika and trustme.

For a warren that the program has started, the table has more: the longest turn of one of its processes, in processor
time; in the longest wait, the processor time of the broker's main thread, and the time in which that thread and the
witness had no core; and the most processor time of the broker in any wait in which the witness had a core. On a busy
machine this last figure is what the broker adds.

Exit code 0 if no wait beside an abuser is longer than 25 ms, 1 if one is, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pika  # type: ignore[import-untyped]
import trustme

from ..load.broker import BrokerFailed, Warren, free_port
from . import backlog, operating, settling, topology
from .row import AbuseRow
from .target import AbusedBroker
from .witness import Waits, Witness

#: Seconds that no wait of the witness may exceed.
BAR = 0.025


def idle(port: int) -> Generator[None, None, None]:
    yield
    time.sleep(5)
    yield


def all_rows(scale: float, target: AbusedBroker) -> list[AbuseRow]:
    return [
        AbuseRow("nothing", idle),
        *settling.rows(int(30_000 * scale)),
        *backlog.rows(scale),
        *topology.rows(scale),
        *operating.rows(scale, target),
    ]


def measure(target: AbusedBroker, row: AbuseRow) -> Waits:
    """Print a line of the table, and return the witness's waits."""
    abuse = row.abuse(target.port)
    next(abuse)
    witness = Witness(target.port, row.publishes, target.pid)
    witness.begin()
    began, clock, before = time.monotonic(), time.time(), target.account()
    next(abuse)
    seconds, after = time.monotonic() - began, target.account()
    time.sleep(0.2)
    waits = witness.stop()
    turn = target.longest_turn(clock)
    for _ in abuse:
        pass
    line = (
        f"{row.name:70} {seconds:6.1f} s, longest wait {waits.longest.seconds * 1000:8.1f} ms, "
        f"p99.9 {waits.p999 * 1000:8.1f} ms of {waits.count}"
    )
    if before is not None and after is not None and waits.longest.broker is not None:
        (processor, coreless), own = waits.longest.broker, waits.longest.own_coreless
        line += (
            f" (the broker ran {processor * 1000:.1f} ms of it and had no core {coreless * 1000:.1f} ms, the witness "
            f"had none {own * 1000:.1f} ms; the broker ran for at most {waits.most_processor * 1000:.1f} ms of a wait "
            f"in which the witness had one, and for {after.processor - before.processor:.1f} s in all)"
        )
    if turn is not None:
        line += f", longest turn {turn['seconds'] * 1000:.1f} ms: {turn['process']}, {turn['message']}"
    print(line, flush=True)
    return waits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything, for a short run below 1")
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--port", type=int, help="of a broker that runs; by default one is started")
    parser.add_argument("--command", default="", help="what operates the broker on that port, such as rabbitmqctl")
    parser.add_argument("--tls-port", type=int, help="of the broker on that port")
    options = parser.parse_args()
    given = AbusedBroker(options.port, shlex.split(options.command), options.tls_port) if options.port else None
    longest = 0.0
    try:
        for at, row in enumerate(all_rows(options.scale, given or AbusedBroker(0))):
            if options.only not in row.name:
                continue
            if given is not None and row.left_out:
                print(f"{row.name:70} {row.left_out}")
                continue
            with ExitStack() as stack:
                # A warren of its own for each row, because `warren status` has the longest turns since its start.
                target = given or started(stack)
                # The rows are made again, because their abuse refers to the broker that was started for this one.
                waits = measure(target, all_rows(options.scale, target)[at])
                if row.abuse is not idle:
                    longest = max(longest, waits.longest.seconds)
    except (BrokerFailed, OSError, pika.exceptions.AMQPError) as error:
        print(f"nothing was measured: {error!r}", file=sys.stderr)
        return 2
    return int(longest > BAR)


def started(stack: ExitStack) -> AbusedBroker:
    """Start a warren that ends with `stack`."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    certificate, tls_port = directory / "cert.pem", free_port()
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    settings = {"channel_max": 0, "tls_port": tls_port, "tls_cert_file": str(certificate)}
    warren = Warren(directory / "data", settings)
    warren.start()
    stack.callback(warren.kill)
    command = ("env", f"WARREN_DATA_DIR={warren.data_dir}", str(Path(sys.executable).parent / "warren"))
    return AbusedBroker(warren.port, command, tls_port, warren.pid)


if __name__ == "__main__":
    sys.exit(main())
