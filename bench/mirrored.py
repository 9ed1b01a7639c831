"""The cost of replicas of a queue on three nodes: some workloads with and without mirrors.

    python -m warren.bench.mirrored                     three nodes of warren as processes on this machine
    python -m warren.bench.mirrored --rabbitmq          and three of RabbitMQ, by turns in the same run

All queues are at home on node a. For each workload the table has the medians of messages received per second, of
messages confirmed where nobody consumes, or of a latency in µs:

    alone       a queue without mirrors, clients on a
    mirrored    `ha-mode: all`, clients on a, the node of the master
    mirror      `ha-mode: all`, clients on b, the node of a mirror

and of the processor time that warren's nodes a, b and c take for each message of the workload `mirrored`, in µs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ..amqp import methods
from ..tests.cluster_system.nodes import Node, Nodes, linked_nodes
from ..tests.cluster_system.rabbit import rabbit_cluster, rabbitmqctl
from .load.broker import LoadClient, processor_seconds
from .load.compare import WORKLOADS, figure
from .load.generator import LoadGenerator

#: The prefix of the names of queues that the policy mirrors.
MIRRORED = "mirrored."
POLICY = ("set_policy", "mirrors", f"^{MIRRORED[:-1]}", '{"ha-mode": "all"}')
#: Prefix of the queues' names, and the index of the node that the clients use, for each column.
KINDS = {"alone": ("alone.", 0), "mirrored": (MIRRORED, 0), "mirror": (MIRRORED, 1)}


class MirroredRun(NamedTuple):
    """One run of a workload: its figure, and µs of each node for a message."""

    figure: float
    costs: list[float]


def set_policy_of_warren(node: Node) -> None:
    """Have the cluster of a node of warren mirror the queues."""
    warren = Path(sys.executable).parent / "warren"
    subprocess.run([warren, "--data-dir", node.data_dir, *POLICY], capture_output=True, timeout=30, check=True)


class MirroredBench:
    """The runs of three nodes, which have the queues from the beginning."""

    def __init__(self, nodes: Nodes, set_policy: Callable[[Node], None], workloads: Sequence[str]) -> None:
        nodes.start()
        self.nodes = list(nodes)
        #: By workload and column.
        self.runs: dict[tuple[str, str], list[MirroredRun]] = {}
        set_policy(self.nodes[0])
        with LoadClient(f"127.0.0.1:{self.nodes[0].port}") as client:
            for name in workloads:
                for prefix in ("alone.", MIRRORED):
                    durable = "--durable" in WORKLOADS[name][1]
                    client.call(methods.QueueDeclare(queue=f"{prefix}{name}", durable=durable))

    def run(self, name: str, kind: str, seconds: float) -> None:
        prefix, through = KINDS[kind]
        _, options, path, _ = WORKLOADS[name]
        arguments = options.split()
        if "--queue" in arguments:
            at = arguments.index("--queue")
            del arguments[at : at + 2]
        began = ["--queue", f"{prefix}{name}", "--seconds", str(seconds)]
        before = [processor_seconds(node.process.pid) for node in self.nodes]
        with LoadGenerator(f"127.0.0.1:{self.nodes[through].port}", [*arguments, *began]) as generator:
            result = generator.result(seconds + 60)
        after = [processor_seconds(node.process.pid) for node in self.nodes]
        messages = max(1, result["confirmed" if path == "confirmed_per_s" else "received"])
        costs = [(now - then) * 1e6 / messages for now, then in zip(after, before)]
        self.runs.setdefault((name, kind), []).append(MirroredRun(figure(result, path), costs))

    def median(self, name: str, kind: str) -> float:
        return statistics.median([run.figure for run in self.runs[name, kind]])

    def costs(self, name: str) -> list[float]:
        """µs of each node for a message of the mirrored queue."""
        return [statistics.median(each) for each in zip(*[run.costs for run in self.runs[name, "mirrored"]])]


def table(benches: dict[str, MirroredBench], workloads: Sequence[str]) -> None:
    """The figures of each broker; with two of them, how many times as much the first has as the second."""
    print(
        "workload ", *[f"{name:>9} {kind:8}" for name in benches for kind in KINDS], "   µs a    µs b    µs c", end=""
    )
    print("    ratios" if len(benches) > 1 else "")
    for workload in workloads:
        cells = [f"{bench.median(workload, kind):18,.0f}" for bench in benches.values() for kind in KINDS]
        first, *others = benches.values()
        costs = [f"{cost:7.2f}" for cost in first.costs(workload)]
        ratios = [
            f"{first.median(workload, kind) / max(1.0, other.median(workload, kind)):5.2f}"
            for other in others
            for kind in KINDS
        ]
        print(workload.ljust(9), *cells, *costs, *ratios, "" if WORKLOADS[workload][3] else "(less is better)")


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.mirrored", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each run (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each kind (default %(default)s)")
    parser.add_argument(
        "--only", default="W3,W4,W8,W9,W10,W11", metavar="W,...", help="workloads (default %(default)s)"
    )
    parser.add_argument("--rabbitmq", action="store_true", help="measure three nodes of RabbitMQ, too")
    options = parser.parse_args()
    workloads = options.only.split(",")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warren-mirrored-")))
        nodes = stack.enter_context(linked_nodes(directory / "warren", 3))
        benches = {"warren": MirroredBench(nodes, set_policy_of_warren, workloads)}
        if options.rabbitmq:
            nodes = stack.enter_context(rabbit_cluster(directory / "rabbitmq", 3))
            benches["rabbitmq"] = MirroredBench(nodes, lambda node: rabbitmqctl(node, *POLICY), workloads)
        for _ in range(options.rounds):
            for workload in workloads:
                for kind in KINDS:
                    for bench in benches.values():
                        bench.run(workload, kind, options.seconds)
        table(benches, workloads)


if __name__ == "__main__":
    main()
