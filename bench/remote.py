"""The cost of a queue on another node: the workloads W1 to W4 through the queue's home and through the other node.

    python -m warren.bench.remote                       two nodes of warren as processes on this machine
    python -m warren.bench.remote --rabbitmq            two nodes of RabbitMQ in the same set-up as well

The queues are at home on node b. The load generator connects to b for the local figures and to a for the remote ones,
in turns, so that changes in the speed of the machine affect both. For each workload the table has the medians of:

    local, remote    messages received per second, and remote / local
    µs local         µs of processor time of b for each message while the clients are on b
    µs a, µs b       the same of both nodes while the clients are on a
    µs link          the processor time of both nodes that the way over the link costs a message: a + b - local
    a frame          messages of clients in each frame between the nodes, both directions together
    frames/s         frames between the nodes each second, both directions together
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ..amqp import methods
from ..tests.cluster_system.nodes import Node, Nodes, linked_nodes
from ..tests.cluster_system.rabbit import rabbit_cluster
from .load.broker import LoadClient, processor_seconds
from .load.compare import WORKLOADS
from .load.generator import LoadGenerator


class RemoteRun(NamedTuple):
    """One run of a workload: messages received, and seconds of processor time and frames while it ran."""

    rate: float
    received: int
    seconds_a: float
    seconds_b: float
    frames: int


def frames_of(node: Node) -> int:
    """Frames that a node of warren has sent to and received from the others on the lane of clients' messages."""
    warren = Path(sys.executable).parent / "warren"
    listing = ["links", "lane", "sent_frames", "received_frames", "--formatter", "json"]
    command = [warren, "--data-dir", node.data_dir, *listing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return sum(
        [row["sent_frames"] + row["received_frames"] for row in json.loads(done.stdout) if row["lane"] == "data"]
    )


class RemoteBench:
    """The runs of one pair of nodes."""

    def __init__(self, nodes: Nodes, seconds: float, counts_frames: bool) -> None:
        self.a, self.b = list(nodes)
        self.seconds = seconds
        self._counts_frames = counts_frames

    def declare(self, workloads: Sequence[str]) -> None:
        """Make the queues at home on b, and wait until a has them."""
        with LoadClient(f"127.0.0.1:{self.b.port}") as client:
            for name in workloads:
                client.call(methods.QueueDeclare(queue=f"remote.{name}", durable="--durable" in WORKLOADS[name][1]))

    def run(self, name: str, is_remote: bool) -> RemoteRun:
        arguments = WORKLOADS[name][1].split()
        if "--queue" in arguments:
            at = arguments.index("--queue")
            del arguments[at : at + 2]
        through = self.a if is_remote else self.b
        frames, *before = self._counters()
        began = ["--queue", f"remote.{name}", "--seconds", str(self.seconds)]
        with LoadGenerator(f"127.0.0.1:{through.port}", [*arguments, *began]) as generator:
            result = generator.result(self.seconds + 60)
        after_frames, *after = self._counters()
        seconds = [now - then for now, then in zip(after, before)]
        return RemoteRun(result["received_per_s"], result["received"], *seconds, after_frames - frames)

    def _counters(self) -> tuple[int, float, float]:
        frames = frames_of(self.a) if self._counts_frames else 0
        return (frames, *[processor_seconds(node.process.pid) for node in (self.a, self.b)])


def table(name: str, bench: RemoteBench, workloads: Sequence[str], rounds: int) -> None:
    runs: dict[tuple[str, bool], list[RemoteRun]] = {}
    for _ in range(rounds):
        for workload in workloads:
            for is_remote in (False, True):
                runs.setdefault((workload, is_remote), []).append(bench.run(workload, is_remote))
    print(name.ljust(10), "   local   remote  ratio  µs local    µs a    µs b  µs link  a frame  frames/s")
    for workload in workloads:
        local, remote = runs[workload, False], runs[workload, True]
        rates = [statistics.median([run.rate for run in each]) for each in (local, remote)]
        costs = [
            statistics.median([seconds * 1e6 / run.received for run, seconds in each])
            for each in (
                [(run, run.seconds_b) for run in local],
                [(run, run.seconds_a) for run in remote],
                [(run, run.seconds_b) for run in remote],
            )
        ]
        frames = statistics.median([run.received / max(1, run.frames) for run in remote])
        print(
            workload.ljust(10),
            f"{rates[0]:8,.0f} {rates[1]:8,.0f} {rates[1] / rates[0]:6.2f} {costs[0]:9.2f} {costs[1]:7.2f}"
            f" {costs[2]:7.2f} {costs[1] + costs[2] - costs[0]:8.2f} {frames:8.1f} {rates[1] / frames:9,.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.remote", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each run (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each kind (default %(default)s)")
    parser.add_argument("--only", default="W1,W2,W3,W4", metavar="W,...", help="workloads (default %(default)s)")
    parser.add_argument("--rabbitmq", action="store_true", help="measure two nodes of RabbitMQ, too")
    options = parser.parse_args()
    workloads = options.only.split(",")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warren-remote-")))
        nodes = stack.enter_context(linked_nodes(directory / "warren", 2))
        nodes.start()
        bench = RemoteBench(nodes, options.seconds, counts_frames=True)
        bench.declare(workloads)
        table("warren", bench, workloads, options.rounds)
    if options.rabbitmq:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warren-remote-")))
            nodes = stack.enter_context(rabbit_cluster(directory, 2))
            nodes.start()
            bench = RemoteBench(nodes, options.seconds, counts_frames=False)
            bench.declare(workloads)
            table("RabbitMQ", bench, workloads, options.rounds)


if __name__ == "__main__":
    main()
