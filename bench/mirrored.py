"""What it costs that a queue has replicas on three nodes: some workloads with and without mirrors.

    python -m warren.bench.mirrored                     three nodes of warren as processes on this machine

All queues are at home on node a. For each workload the table has the medians of messages received per second, or
confirmed where nobody consumes:

    alone       a queue without mirrors, clients on a
    mirrored    `ha-mode: all`, clients on a, the node of the master
    mirror      `ha-mode: all`, clients on b, the node of a mirror

and of the processor time that the nodes a, b and c take for each message of the workload `mirrored`, in µs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..amqp import methods
from ..tests.cluster_system.nodes import Node, Nodes, linked_nodes
from .load.broker import Client, processor_seconds
from .load.compare import WORKLOADS
from .load.generator import LoadGenerator

#: The prefix of the names of queues that the policy mirrors.
MIRRORED = "mirrored."
POLICY = ("set_policy", "mirrors", f"^{MIRRORED[:-1]}", '{"ha-mode": "all"}')


class Run(NamedTuple):
    """One run of a workload: messages per second, and µs of each node for a message."""

    rate: float
    costs: list[float]


def set_policy(node: Node) -> None:
    """Have a node of warren mirror the queues."""
    warren = Path(sys.executable).parent / "warren"
    subprocess.run([warren, "--data-dir", node.data_dir, *POLICY], capture_output=True, timeout=30, check=True)


class Bench:
    """The runs of three nodes."""

    def __init__(self, nodes: Nodes, seconds: float) -> None:
        self.nodes = list(nodes)
        self.seconds = seconds

    def declare(self, workloads: Sequence[str]) -> None:
        """Make the queues at home on a."""
        with Client(f"127.0.0.1:{self.nodes[0].port}") as client:
            for name in workloads:
                for prefix in ("alone.", MIRRORED):
                    durable = "--durable" in WORKLOADS[name][1]
                    client.call(methods.QueueDeclare(queue=f"{prefix}{name}", durable=durable))

    def run(self, name: str, prefix: str, through: int) -> Run:
        arguments = WORKLOADS[name][1].split()
        if "--queue" in arguments:
            at = arguments.index("--queue")
            del arguments[at : at + 2]
        began = ["--queue", f"{prefix}{name}", "--seconds", str(self.seconds)]
        before = [processor_seconds(node.process.pid) for node in self.nodes]
        with LoadGenerator(f"127.0.0.1:{self.nodes[through].port}", [*arguments, *began]) as generator:
            result = generator.result(self.seconds + 60)
        after = [processor_seconds(node.process.pid) for node in self.nodes]
        metric = WORKLOADS[name][2]
        messages = max(1, result[metric.removesuffix("_per_s")])
        return Run(result[metric], [(now - then) * 1e6 / messages for now, then in zip(after, before)])


def table(name: str, bench: Bench, workloads: Sequence[str], rounds: int) -> None:
    kinds = (("alone.", 0), (MIRRORED, 0), (MIRRORED, 1))
    runs: dict[tuple[str, tuple[str, int]], list[Run]] = {}
    for _ in range(rounds):
        for workload in workloads:
            for kind in kinds:
                runs.setdefault((workload, kind), []).append(bench.run(workload, *kind))
    print(name.ljust(10), "   alone mirrored   mirror    µs a    µs b    µs c")
    for workload in workloads:
        rates = [statistics.median([run.rate for run in runs[workload, kind]]) for kind in kinds]
        mirrored = runs[workload, kinds[1]]
        costs = [statistics.median(each) for each in zip(*[run.costs for run in mirrored])]
        print(
            workload.ljust(10),
            " ".join([f"{rate:8,.0f}" for rate in rates]),
            " ".join([f"{cost:7.2f}" for cost in costs]),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.mirrored", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each run (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each kind (default %(default)s)")
    parser.add_argument("--only", default="W3,W4,W8,W11", metavar="W,...", help="workloads (default %(default)s)")
    options = parser.parse_args()
    workloads = options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="warren-mirrored-") as directory:
        with linked_nodes(Path(directory), 3) as nodes:
            nodes.start()
            bench = Bench(nodes, options.seconds)
            set_policy(bench.nodes[0])
            bench.declare(workloads)
            table("warren", bench, workloads, options.rounds)


if __name__ == "__main__":
    main()
