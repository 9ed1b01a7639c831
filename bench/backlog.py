"""Measures a backlog: publish persistent messages to a queue without consumers, then consume all of them.

    python -m warren.bench.backlog              10 million messages of 1 KB, lazy queue: 3 to 5 minutes, 11 GB of disk
    python -m warren.bench.backlog --mode both --csv backlog.csv --plot backlog.svg
    python -m warren.bench.backlog --messages 200000 --mode default --watermark 256MB
    python -m warren.bench.backlog --broker 127.0.0.1:5673 --pid 2642 --name rabbitmq --messages 1000000

The program starts a warren on a new data directory under --directory and removes it at the end. With --broker it
measures a running broker instead.

While the queue fills, confirmed messages are counted, which the load generator reports fifty times a second. A stall is
a time in which the rate is below a tenth of the mean. Memory is read from /proc ten times a second; the resident peak
is that of the kernel. Disk is the space that the files of the data directory occupy.

The limits (MB are 1,000,000 bytes):

    filling     100,000 messages/s over the whole and over the last tenth
                lazy: resident memory grows by less than 64 MB
                default: no stall above 250 ms; anonymous memory, which the watermark limits, never above the watermark
    draining    100,000 messages/s
                lazy: at most 100 MB resident
                default: at most 100 MB resident more than at the start of the drain
    afterwards  the data directory is at most 64 MiB larger than when it was empty

Exit code 0 if all limits hold, 1 if one does not, 2 if nothing could be measured. The plot needs matplotlib: pip
install 'warren-mq[bench]', or from a checkout pip install -e '.[bench]'. Curves of several runs in one plot: python -m
warren.bench.load.curves --help.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..amqp.methods import QueueDelete
from ..runtime.machine.memory import SystemMemory
from ..settings import Settings
from ..settings.limits import LimitError, memory_limit, read_watermark
from .load.broker import MIB, BrokerFailed, LoadClient, Warren, disk_used, forget_peak, memory
from .load.curves import INSTALL_HINT, CurveSample, can_plot, plot, write_csv
from .load.generator import LoadFailed, LoadGenerator, LoadProgress

QUEUE = "bench.backlog"
ACK_EVERY = 200
PREFETCH = 1000

MEMORY_SECONDS = 0.1
ROW_SECONDS = 0.5
PROGRESS_SECONDS = 0.02

MB = 1_000_000
RATE_BAR = 100_000
GROWTH_BAR = 64 * MB
STALL_BAR = 0.250
DRAIN_BAR = 100 * MB
EMPTY_BAR = 64 * MIB

#: Bytes on disk for a message besides its body, an upper bound.
OVERHEAD_BYTES = 150


@dataclass(frozen=True, slots=True)
class MeasuredBroker:
    """The broker under measurement."""

    address: str
    pid: int
    data_dir: Path | None

    def disk(self) -> int:
        return disk_used(self.data_dir) if self.data_dir else 0


@dataclass(slots=True)
class Phase:
    """The measurements while the queue fills, or while it drains."""

    name: str
    result: dict[str, Any] = field(default_factory=dict)
    progress: list[LoadProgress] = field(default_factory=list)
    rows: list[CurveSample] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    resident_peak: int = 0
    anonymous_peak: int = 0
    disk_peak: int = 0

    def count(self, progress: LoadProgress) -> int:
        return progress.confirmed if self.name == "fill" else progress.received

    @property
    def rate(self) -> float:
        return float(self.result["confirmed_per_s" if self.name == "fill" else "received_per_s"])

    @property
    def growth(self) -> int:
        return self.resident_peak - self.before["VmRSS"]

    def tenths(self) -> list[float]:
        """The rate over each tenth of the messages."""
        total = self.count(self.progress[-1])
        edges, wanted = [self.progress[0]], total / 10
        for progress in self.progress[1:]:
            if self.count(progress) >= wanted * len(edges):
                edges.append(progress)
        return [
            (self.count(after) - self.count(before)) / (after.at - before.at) for before, after in zip(edges, edges[1:])
        ]

    def longest_stall(self) -> float:
        """Seconds of the longest time with less than a tenth of the mean rate.

        Confirms come in bursts, one for every sync, which is no stall; a trickle of messages is one.
        """
        first, last = self.progress[0], self.progress[-1]
        enough = self.count(last) / (last.at - first.at) / 10
        longest = current = 0.0
        for before, after in zip(self.progress, self.progress[1:]):
            elapsed = after.at - before.at
            current = current + elapsed if self.count(after) - self.count(before) < enough * elapsed else 0.0
            longest = max(longest, current)
        return longest


@dataclass(frozen=True, slots=True)
class Bar:
    what: str
    seen: str
    wanted: str
    holds: bool


def watch(target: MeasuredBroker, run: str, name: str, arguments: Sequence[str], options: argparse.Namespace) -> Phase:
    """Runs the generator and samples the broker meanwhile."""
    phase = Phase(name, before=memory(target.pid))
    forget_peak(target.pid)
    base = [
        "--queue",
        QUEUE,
        "--durable",
        "--messages",
        str(options.messages),
        "--seconds",
        str(options.limit),
        *(["--lazy"] if run.endswith("lazy") else []),
    ]
    with LoadGenerator(target.address, [*base, *arguments], PROGRESS_SECONDS) as load:
        next_row = 0.0
        last: LoadProgress | None = None
        while load.is_running:
            time.sleep(MEMORY_SECONDS)
            now = memory(target.pid)
            phase.anonymous_peak = max(phase.anonymous_peak, now["RssAnon"])
            if load.progress and time.monotonic() >= next_row:
                next_row = time.monotonic() + ROW_SECONDS
                here, disk = load.progress[-1], target.disk()
                phase.disk_peak = max(phase.disk_peak, disk)
                if last is not None and here.at > last.at:
                    rate = (phase.count(here) - phase.count(last)) / (here.at - last.at)
                    phase.rows.append(
                        CurveSample(
                            run,
                            name,
                            here.at - load.progress[0].at,
                            phase.count(here),
                            rate,
                            now["VmRSS"],
                            now["RssAnon"],
                            disk,
                        )
                    )
                    show_progress(phase.rows[-1], options.messages)
                last = here
        phase.result = load.result()
        phase.progress = load.progress
    show_progress(None, 0)
    phase.resident_peak = memory(target.pid)["VmHWM"]
    done = phase.count(phase.progress[-1])
    if done < options.messages:
        raise LoadFailed(
            f"{run}, {name}: {done:,} of {options.messages:,} messages in {options.limit:g} s, "
            f"{phase.result['nacked']:,} refused"
        )
    return phase


def show_progress(row: CurveSample | None, total: int) -> None:
    """Print a progress line over the previous one; None erases it."""
    if sys.stderr.isatty():
        text = (
            ""
            if row is None
            else (
                f"{row.run}, {row.phase}: {row.messages:,} of {total:,}, {row.rate:,.0f}/s, "
                f"{row.resident / MB:,.0f} MB resident, {row.disk / MB:,.0f} MB on disk"
            )
        )
        print(f"\r{text:100}", end="\r" if row is None else "", file=sys.stderr, flush=True)


def wait_until(condition: Callable[[], bool], limit: float) -> float:
    """Wait until the condition holds, up to the limit; return the seconds."""
    began = time.monotonic()
    while not condition() and time.monotonic() - began < limit:
        time.sleep(0.2)
    return time.monotonic() - began


def measure(target: MeasuredBroker, run: str, options: argparse.Namespace) -> dict[str, Any]:
    """All measurements of one run, ready for JSON except its rows."""
    empty = target.disk()
    size = str(options.size)
    fill = watch(
        target,
        run,
        "fill",
        ["--consumers", "0", "--persistent", "--confirm", str(options.confirm), "--size", size],
        options,
    )
    drain = watch(
        target,
        run,
        "drain",
        ["--publishers", "0", "--no-purge", "--prefetch", str(PREFETCH), "--ack-every", str(ACK_EVERY), "--size", size],
        options,
    )
    with LoadClient(target.address) as client:
        # The last acks may still be in flight.
        wait_until(lambda: client.declared(QUEUE) == 0, options.settle)
        left = client.declared(QUEUE)
        settled = wait_until(lambda: target.disk() - empty <= EMPTY_BAR, options.settle) if target.data_dir else 0.0
        kept = target.disk() - empty
        client.call(QueueDelete(queue=QUEUE))
    phases = {
        phase.name: {
            "rate": phase.rate,
            "tenths": phase.tenths(),
            "longest_stall_s": phase.longest_stall(),
            "resident_before": phase.before["VmRSS"],
            "resident_peak": phase.resident_peak,
            "resident_growth": phase.growth,
            "anonymous_peak": phase.anonymous_peak,
            "disk_peak": phase.disk_peak,
        }
        for phase in (fill, drain)
    }
    bars = judged(run, fill, drain, options.watermark_bytes)
    bars.append(Bar("drained, messages left", f"{left:,}", "0", left == 0))
    if target.data_dir:
        bars.append(
            Bar(
                "drained, disk above empty",
                f"{kept / MIB:,.1f} MiB after {settled:.1f} s",
                f"<= {EMPTY_BAR // MIB} MiB",
                kept <= EMPTY_BAR,
            )
        )
    return {
        "run": run,
        "messages": options.messages,
        "size": options.size,
        "confirm": options.confirm,
        **phases,
        "disk_kept": kept,
        "bars": bars,
        "rows": fill.rows + drain.rows,
    }


def judged(run: str, fill: Phase, drain: Phase, watermark: int) -> list[Bar]:
    rate = f">= {RATE_BAR:,}/s"
    bars = [
        Bar("filling, rate", f"{fill.rate:,.0f}/s", rate, fill.rate >= RATE_BAR),
        Bar("filling, rate of the last tenth", f"{fill.tenths()[-1]:,.0f}/s", rate, fill.tenths()[-1] >= RATE_BAR),
    ]
    if run.endswith("lazy"):
        bars.append(
            Bar(
                "filling, resident memory grew by",
                f"{fill.growth / MB:,.1f} MB",
                f"< {GROWTH_BAR // MB} MB",
                fill.growth < GROWTH_BAR,
            )
        )
        drained, limit = drain.resident_peak, "resident"
    else:
        stall = fill.longest_stall()
        bars.append(
            Bar("filling, longest stall", f"{stall * 1e3:,.0f} ms", f"<= {STALL_BAR * 1e3:.0f} ms", stall <= STALL_BAR)
        )
        peak = fill.anonymous_peak
        bars.append(
            Bar("filling, anonymous memory", f"{peak / MB:,.0f} MB", f"<= {watermark / MB:,.0f} MB", peak <= watermark)
        )
        drained, limit = drain.growth, "above its beginning"
    bars.append(Bar("draining, rate", f"{drain.rate:,.0f}/s", rate, drain.rate >= RATE_BAR))
    bars.append(
        Bar(f"draining, memory {limit}", f"{drained / MB:,.1f} MB", f"<= {DRAIN_BAR // MB} MB", drained <= DRAIN_BAR)
    )
    return bars


def print_tables(found: dict[str, Any]) -> None:
    print(
        f"{found['run']}: {found['messages']:,} persistent messages of {found['size']:,} B, "
        f"confirm window {found['confirm']:,}, drained with prefetch {PREFETCH:,}, ack every {ACK_EVERY}\n"
    )
    print(
        f"{'':10}{'messages/s':>12}{'slowest tenth':>15}{'last tenth':>12}{'longest stall':>15}"
        f"{'resident, MB':>22}{'anonymous peak':>16}{'disk peak':>12}"
    )
    for name, title in (("fill", "filling"), ("drain", "draining")):
        seen = found[name]
        resident = f"{seen['resident_before'] / MB:,.1f} to {seen['resident_peak'] / MB:,.1f}"
        anonymous, disk = (
            f"{seen['anonymous_peak'] / MB:,.1f} MB",
            f"{seen['disk_peak'] / MB:,.0f} MB" if seen["disk_peak"] else "-",
        )
        print(
            f"{title:10}{seen['rate']:12,.0f}{min(seen['tenths']):15,.0f}{seen['tenths'][-1]:12,.0f}"
            f"{seen['longest_stall_s'] * 1e3:12,.0f} ms{resident:>22}{anonymous:>16}{disk:>12}"
        )
    print(f"\n{'bar':36}{'seen':>26}{'wanted':>18}")
    for bar in found["bars"]:
        print(f"{bar.what:36}{bar.seen:>26}{bar.wanted:>18}   {'pass' if bar.holds else 'FAIL'}")
    print(flush=True)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.backlog", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, default=10_000_000, metavar="N", help=f"(default 10,000,000), a multiple of {ACK_EVERY}"
    )
    parser.add_argument(
        "--mode",
        choices=("lazy", "default", "both"),
        default="lazy",
        help="queue mode; both: one run each on a new broker (default %(default)s)",
    )
    parser.add_argument(
        "--size", type=int, default=1024, metavar="BYTES", help="size of a message body (default %(default)s)"
    )
    parser.add_argument(
        "--confirm",
        type=int,
        default=1000,
        metavar="N",
        help="most unconfirmed messages (default %(default)s)",
    )
    parser.add_argument(
        "--watermark",
        default="0.4",
        metavar="LIMIT",
        help="vm_memory_high_watermark of the warren it starts: a share, or a size like 512MB (default %(default)s)",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to create the data directory (default %(default)s)",
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=30,
        metavar="S",
        help="seconds to wait for the directory to shrink after the drain (default %(default)s)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=1800,
        metavar="S",
        help="longest time for filling, and for draining, in seconds (default %(default)s)",
    )
    parser.add_argument(
        "--broker", metavar="HOST:PORT", help="measure this broker, which needs --pid, instead of a new warren"
    )
    parser.add_argument("--pid", type=int, help="process id of that broker, to read its memory")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="data directory of that broker, to read its size; optional"
    )
    parser.add_argument("--name", default="", help="name of that broker in tables and curves")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the curves to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the curves: FILE.svg or FILE.png")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    if options.messages < ACK_EVERY * 10 or options.messages % ACK_EVERY:
        parser.error(
            f"--messages must be a multiple of {ACK_EVERY}, because the consumer acknowledges that many at a time, "
            f"and at least {ACK_EVERY * 10:,}"
        )
    if bool(options.broker) != bool(options.pid):
        parser.error("--broker and --pid go together")
    if options.plot and not can_plot():
        parser.error(INSTALL_HINT)
    try:
        options.watermark = float(options.watermark) if "." in options.watermark else options.watermark
        options.watermark_bytes = memory_limit(read_watermark(options.watermark), SystemMemory().total())
    except (ValueError, LimitError) as error:
        parser.error(f"--watermark: {error}")
    # A quarter more, because messages in segments may still be in the journal as well.
    needed, free = (
        options.messages * (options.size + OVERHEAD_BYTES) * 5 // 4 + disk_reserve(),
        shutil.disk_usage(options.directory).free,
    )
    if not options.broker and free < needed:
        parser.error(
            f"{options.directory} has {free / 1e9:.1f} GB free, but the run needs up to {needed / 1e9:.1f} GB; "
            "choose another --directory or fewer --messages"
        )
    return options


def disk_reserve() -> int:
    """The disk_free_limit of a broker in bytes."""
    limit = Settings().disk_free_limit
    assert isinstance(limit, int)
    return limit


def measured_run(mode: str, options: argparse.Namespace) -> dict[str, Any]:
    run = f"{options.name} {mode}".strip()
    if options.broker:
        return measure(MeasuredBroker(options.broker, options.pid, options.data_dir), run, options)
    with tempfile.TemporaryDirectory(prefix="warren-backlog-", dir=options.directory) as directory:
        with Warren(Path(directory) / "data", {"vm_memory_high_watermark": options.watermark}) as warren:
            warren.start()
            return measure(MeasuredBroker(warren.address, warren.pid, warren.data_dir), run, options)


def main() -> int:
    options = parsed(sys.argv[1:])
    runs = []
    try:
        for mode in ("lazy", "default") if options.mode == "both" else (options.mode,):
            runs.append(measured_run(mode, options))
            if not options.json:
                print_tables(runs[-1])
    except (LoadFailed, BrokerFailed, OSError) as error:
        print(f"backlog: {error}", file=sys.stderr)
        return 2
    rows = [row for found in runs for row in found.pop("rows")]
    if options.csv:
        write_csv(options.csv, rows)
    if options.plot:
        plot(options.plot, rows, RATE_BAR)
    holds = all(bar.holds for found in runs for bar in found["bars"])
    if options.json:
        for found in runs:
            found["bars"] = [
                {"what": bar.what, "seen": bar.seen, "wanted": bar.wanted, "holds": bar.holds} for bar in found["bars"]
            ]
        print(json.dumps({"runs": runs, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
