"""What it costs to operate a broker: flow control, routing, many queues, listings, the load tool, memory.

    python -m warren.bench.operators                      all cases
    python -m warren.bench.operators --case topic --case memory

    topic       routing one message with 10,000 bindings on a topic exchange
    declare     declaring 10,000 queues
    list        `warren list_queues` of 10,000 queues while W1 runs
    credit      W1 with the pairs {200, 50} and {400, 200} against W1 without credit
    bookkeeping the share of the processor time of W1 to W4 that the bookkeeping of credit takes
    perf-test   what `warren perf-test` carries with one process a side, against what the load generator in C and the
                broker reach, W1 to W4
    memory      memory over time with a consumer that reads nothing, and with a disk that is slow

Times are processor time of the broker, and rates are messages for each second of it, because elapsed time says little
on a busy machine. Processor time is what the broker would take if it had a core to itself. Durable queues wait for the
disk as well. The topic exchange runs in this process, and its time is the shortest elapsed one of 50 attempts.
Alternatives take turns, and figures of several rounds are medians. Exit code 0 if every bar holds, 1 if not, 2 if
nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import Broker
from ..amqp import methods
from ..amqp.fields import Table
from ..routing.exchanges.topic_trie import TopicTrie
from ..runtime.credit import CreditFlow
from .load.broker import BrokerFailed, LoadClient, Warren, memory, processor_seconds
from .load.compare import WORKLOADS
from .load.generator import LoadFailed, LoadGenerator

#: Bindings of the topic exchange, and queues that are declared and listed.
MANY = 10_000
#: Methods that are sent before the first of their answers is read.
PIPELINE = 500
#: Seconds between two listings, as often as RabbitMQ's management plugin collects its figures.
LISTING_INTERVAL = 5.0
#: W1 to W4 as options of `warren perf-test`: of the producing and of the consuming process.
PERF_TEST = {
    "W1": ("-s 100", "-a"),
    "W2": ("-s 1024", "-a"),
    "W3": ("-s 1024", "-q 200 -A 50"),
    "W4": ("-s 1024 -f persistent -c 1000 -ad false", "-f persistent -q 200 -A 50 -ad false"),
}
#: Columns and lines of a plot.
PLOT = (60, 8)


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure; `bar` is the most that it may be, or the least if `is_least`."""

    case: str
    name: str
    figure: float
    unit: str
    bar: float
    is_least: bool = False

    @property
    def holds(self) -> bool:
        return self.figure >= self.bar if self.is_least else self.figure <= self.bar


class OperatorsBench:
    """Runs the cases. `plots` are the curves of the case `memory`."""

    def __init__(self, rounds: int, seconds: float, directory: Path) -> None:
        self.rounds, self.seconds, self.directory = rounds, seconds, directory
        self.plots: list[str] = []

    @contextmanager
    def warren(self, **settings: Any) -> Iterator[Warren]:
        with tempfile.TemporaryDirectory(prefix="warren-operators-", dir=self.directory) as directory:
            with Warren(Path(directory) / "data", settings, is_silent=True) as warren:
                warren.start()
                yield warren

    def topic(self) -> Iterator[FigureRow]:
        literal, wildcards = TopicTrie(), TopicTrie()
        for number in range(MANY):
            literal.insert(f"region{number % 10}.site{number % 100}.device{number}", ("queue", str(number)))
        for number in range(MANY - 100):
            wildcards.insert(f"a{number % 10}.b{number % 100}.c{number}.d.e.f.g", ("queue", str(number)))
        words = "a1.b2.c3.d.e.f.g".split(".")
        for number in range(1, 101):
            pattern = ".".join("*" if number >> at & 1 else word for at, word in enumerate(words))
            wildcards.insert(pattern, ("queue", f"wild{number}"))
        key = (".".join(words),)
        assert len(wildcards.match(key)) == 100
        for name, trie, keys, bar in (
            ("a literal key", literal, ("region3.site43.device7743",), 5.0),
            ("a key that 100 wildcard patterns match", wildcards, key, 50.0),
        ):
            found = min(timeit.repeat(lambda trie=trie, keys=keys: trie.match(keys), number=100, repeat=50)) / 100
            yield FigureRow("topic", name, found * 1e6, "µs", bar)

    def declare(self) -> Iterator[FigureRow]:
        with self.warren() as warren:
            for kind in ("transient", "durable"):
                before = processor_seconds(warren.pid)
                declare_queues(warren.address, kind == "durable")
                used = processor_seconds(warren.pid) - before
                yield FigureRow("declare", f"{MANY:,} {kind} queues", used, "s", 10.0)

    def list(self) -> Iterator[FigureRow]:
        with self.warren() as warren:
            declare_queues(warren.address, False)
            lengths, shares = [], []
            for _ in range(self.rounds):
                messages, used, _ = self._w1(warren)
                each = used / messages
                messages, used, length = self._w1(warren, lambda: list_queues(warren))
                lengths.append(length)
                shares.append(1 - (used - each * messages) / LISTING_INTERVAL)
            yield FigureRow(
                "list", f"list_queues of {MANY:,} queues while W1 runs", statistics.median(lengths), "s", 2.0
            )
            name = f"what W1 keeps beside a listing every {LISTING_INTERVAL:g} s"
            yield FigureRow("list", name, statistics.median(shares), "×", 0.9, True)

    def _w1(self, warren: Warren, meanwhile: Callable[[], None] | None = None) -> tuple[int, float, float]:
        """The messages of a run of W1, the broker's processor time, and the part of that during `meanwhile`."""
        before = processor_seconds(warren.pid)
        with LoadGenerator(warren.address, [*WORKLOADS["W1"][1].split(), "--seconds", str(self.seconds)]) as load:
            length = 0.0
            if meanwhile is not None:
                time.sleep(self.seconds / 4)
                began = processor_seconds(warren.pid)
                meanwhile()
                length = processor_seconds(warren.pid) - began
            result = load.result(60 + self.seconds * 4)
        return result["received"], processor_seconds(warren.pid) - before, length

    def credit(self) -> Iterator[FigureRow]:
        rates: dict[tuple[int, int], list[float]] = {(200, 50): [], (400, 200): [], (0, 0): []}
        for _ in range(self.rounds):
            for pair, found in rates.items():
                with self.warren(credit_flow_default_credit=list(pair)) as warren:
                    messages, used, _ = self._w1(warren)
                    found.append(messages / used)
        unlimited = statistics.median(rates.pop((0, 0)))
        for pair, found in rates.items():
            name = f"W1 with {{{pair[0]}, {pair[1]}}} against no credit"
            yield FigureRow("credit", name, statistics.median(found) / unlimited, "×", 0.9, True)

    def bookkeeping(self) -> Iterator[FigureRow]:
        costs = call_seconds()
        for name in ("W1", "W2", "W3", "W4"):
            arguments = [*WORKLOADS[name][1].split(), "--seconds", str(self.seconds)]
            with self.warren() as warren:
                before = processor_seconds(warren.pid)
                with LoadGenerator(warren.address, arguments) as load:
                    messages = load.result(60 + self.seconds * 4)["received"]
                each = (processor_seconds(warren.pid) - before) / messages
            with tempfile.TemporaryDirectory(prefix="warren-operators-", dir=self.directory) as directory:
                with Broker(data_dir=directory) as broker, counted_calls() as calls:
                    with LoadGenerator(f"127.0.0.1:{broker.port}", arguments) as load:
                        counted = load.result(60 + self.seconds * 4)["received"]
            spent = sum(calls[method] * costs[method] for method in calls) / counted
            yield FigureRow("bookkeeping", f"of {name}'s processor time", spent / each * 100, "%", 2.0)

    def perf_test(self) -> Iterator[FigureRow]:
        with self.warren() as warren:
            for name, (producing, consuming) in PERF_TEST.items():
                ratios = []
                for _ in range(self.rounds):
                    ours = self._perf_test_rate(warren, name, producing, consuming)
                    ratios.append(ours / self._generator_rate(warren, name))
                yield FigureRow(
                    "perf-test",
                    f"{name}: what it carries, against the C generator's figure",
                    statistics.median(ratios),
                    "×",
                    0.6,
                    True,
                )

    def _generator_rate(self, warren: Warren, name: str) -> float:
        """What the generator and the broker could reach with a core each: the slower one decides."""
        before, own = processor_seconds(warren.pid), children_seconds()
        with LoadGenerator(warren.address, [*WORKLOADS[name][1].split(), "--seconds", str(self.seconds)]) as load:
            messages = load.result(60 + self.seconds * 4)["received"]
        slowest = max(processor_seconds(warren.pid) - before, children_seconds() - own)
        return float(messages / slowest)

    def _perf_test_rate(self, warren: Warren, name: str, producing: str, consuming: str) -> float:
        """What one process that publishes and another that consumes could carry with a core each."""
        queue = f"bench.operators.{name}"
        consumer = perf_test(warren, self.seconds + 1.0, f"-x 0 -y 1 -u {queue} -k {queue} {consuming}")
        time.sleep(0.5)
        producer = perf_test(warren, self.seconds, f"-x 1 -y 0 -u {queue} -k {queue} {producing}")
        sent, received = perf_test_result(producer), perf_test_result(consumer)
        return float(
            min(sent["sent"] / sent["processor_seconds"], received["received"] / received["processor_seconds"])
        )

    def memory(self) -> Iterator[FigureRow]:
        yield self._stalled_consumer()
        yield self._slow_disk()

    def _stalled_consumer(self) -> FigureRow:
        load = ["--consumers", "0", "--confirm", "1000", "--size", "1024", "--queue", "bench.stalled"]
        with self.warren(vm_memory_high_watermark=200_000_000) as warren, LoadClient(warren.address) as client:
            client.call(methods.QueueDeclare(queue="bench.stalled", arguments=Table()))
            client.call(methods.BasicConsume(queue="bench.stalled", no_ack=True, arguments=Table()))
            sizes = self._sampled(warren, [*load, "--no-declare", "--no-purge"])
        self.plots.append(plot("a consumer that reads nothing, watermark 200 MB", sizes, self.seconds * 4))
        return FigureRow(
            "memory", "growth in the last quarter, a consumer that reads nothing", growth(sizes), "MB", 20.0
        )

    def _slow_disk(self) -> FigureRow:
        # The queue is lazy: its backlog is on the disk, so memory could only grow with what waits for the disk.
        load = ["--consumers", "0", "--confirm", "100000", "--size", "1024", "--persistent", "--durable", "--lazy"]
        with slow_syncs(self.directory), self.warren() as warren:
            sizes = self._sampled(warren, [*load, "--queue", "bench.slow"])
        self.plots.append(plot("every sync takes 100 ms", sizes, self.seconds * 4))
        return FigureRow("memory", "growth in the last quarter, a slow disk", growth(sizes), "MB", 20.0)

    def _sampled(self, warren: Warren, arguments: list[str]) -> list[float]:
        """The resident memory of the broker, ten times a second."""
        sizes: list[float] = []
        with LoadGenerator(warren.address, [*arguments, "--seconds", str(self.seconds * 4)]) as load:
            while load.is_running:
                sizes.append(float(memory(warren.pid)["VmRSS"]))
                time.sleep(0.1)
        return sizes


def declare_queues(address: str, durable: bool, count: int = MANY) -> None:
    with LoadClient(address, 300.0) as client:
        names = [f"bench.operators.{durable}.{number}" for number in range(count)]
        for start in range(0, count, PIPELINE):
            client.pipeline(
                [
                    methods.QueueDeclare(queue=name, durable=durable, arguments=Table())
                    for name in names[start : start + PIPELINE]
                ]
            )


def warren_command() -> str:
    return str(Path(sys.executable).parent / "warren")


def list_queues(warren: Warren) -> None:
    command = [warren_command(), "list_queues", "--quiet", "--data-dir", str(warren.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode or done.stdout.count("\n") <= MANY:
        raise BrokerFailed(f"list_queues failed: {done.stderr or done.stdout[-200:]}")


def perf_test(warren: Warren, seconds: float, options: str) -> subprocess.Popen[str]:
    uri = f"amqp://guest:guest@{warren.address}/%2F"
    command = [warren_command(), "perf-test", "--uri", uri, "--quiet", "--time", str(seconds), "--json", "-"]
    return subprocess.Popen([*command, *options.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def perf_test_result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    if process.returncode:
        raise LoadFailed(f"perf-test failed: {err}")
    found: dict[str, Any] = json.loads(out[out.index("{") :])
    found["processor_seconds"] = found["processor_share"] * found["seconds"]
    return found


def children_seconds() -> float:
    """The processor time of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def call_seconds() -> dict[str, float]:
    """The seconds of one call of each method of the bookkeeping, without the time in the others that it calls."""
    credit = CreditFlow((400, 200))

    def seconds(called: Callable[[], None], calls: int = 1) -> float:
        return min(timeit.repeat(called, number=2000, repeat=20)) / 2000 / calls

    def without_block() -> None:
        credit.spend("free", 200)
        credit.bump("free", 200)

    def with_block() -> None:
        credit.spend("peer", 400)
        credit.bump("peer", 400)

    plain = seconds(without_block, 2)
    blocking = (seconds(with_block) - 2 * plain) / 2
    take = seconds(lambda: credit.take("peer", 100))
    return {"spend": plain, "bump": plain, "take": take, "_enter": blocking, "_leave": blocking}


@contextmanager
def counted_calls() -> Iterator[dict[str, int]]:
    """Counts the calls of the bookkeeping in the brokers of this process."""
    calls = dict.fromkeys(("spend", "take", "bump", "_enter", "_leave"), 0)
    originals = {name: getattr(CreditFlow, name) for name in calls}

    def counted(name: str) -> Callable[..., Any]:
        original = originals[name]

        def method(self: CreditFlow, *arguments: Any) -> Any:
            calls[name] += 1
            return original(self, *arguments)

        return method

    for name in originals:
        setattr(CreditFlow, name, counted(name))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(CreditFlow, name, original)


@contextmanager
def slow_syncs(directory: Path) -> Iterator[None]:
    """Processes that are started meanwhile take 100 ms longer for each sync."""
    source = Path(__file__).with_name("load") / "slow_sync.c"
    with tempfile.TemporaryDirectory(prefix="warren-slow-", dir=directory) as where:
        library = Path(where) / "slow_sync.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        added = {"LD_PRELOAD": str(library), "SYNC_DELAY_US": "100000"}
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def growth(sizes: list[float]) -> float:
    """MB by which the last quarter of a curve is above the quarter before it, on average."""
    quarter = len(sizes) // 4
    return (statistics.mean(sizes[-quarter:]) - statistics.mean(sizes[-2 * quarter : -quarter])) / 1e6


def plot(title: str, sizes: list[float], seconds: float) -> str:
    """Memory over time as text."""
    width, height = PLOT
    top = max(sizes) * 1.1
    columns = [sizes[min(len(sizes) - 1, at * len(sizes) // width)] for at in range(width)]
    lines = [f"MB   {title}"]
    for line in range(height, 0, -1):
        dots = "".join("#" if size / top * height >= line - 0.5 else " " for size in columns)
        lines.append(f"{top / 1e6 * line / height:4.0f} |{dots}".rstrip())
    return "\n".join([*lines, f"   0 +{'-' * width} {seconds:g} s"])


CASES = {
    "topic": OperatorsBench.topic,
    "declare": OperatorsBench.declare,
    "list": OperatorsBench.list,
    "credit": OperatorsBench.credit,
    "bookkeeping": OperatorsBench.bookkeeping,
    "perf-test": OperatorsBench.perf_test,
    "memory": OperatorsBench.memory,
}


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.operators", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, action="append", help="only this case; may be given more than once")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="number of rounds (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="length of one measurement (default %(default)s)"
    )
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    return parser.parse_args(arguments)


def main() -> int:
    options = parsed(sys.argv[1:])
    bench = OperatorsBench(options.rounds, options.seconds, options.directory)
    rows: list[FigureRow] = []
    for name in options.case or CASES:
        try:
            for row in CASES[name](bench):
                rows.append(row)
                if not options.json:
                    sign = "≥" if row.is_least else "≤"
                    verdict = "pass" if row.holds else "FAIL"
                    print(f"{row.case:12}{row.name:58}{row.figure:9.2f} {row.unit:3}{sign} {row.bar:5g}  {verdict}")
                    sys.stdout.flush()
        except (BrokerFailed, LoadFailed, OSError, subprocess.SubprocessError) as error:
            print(f"operators: {name}: {error}", file=sys.stderr)
            return 2
    if options.json:
        print(json.dumps([{**asdict(row), "holds": row.holds} for row in rows]))
    else:
        print("".join(f"\n{text}\n" for text in bench.plots), end="")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
