"""Benchmark: what a cluster of three nodes costs. Run it with `python -m warren.bench.cluster_metadata [queues]`.

It starts three `warren start` processes that form a cluster on this machine, and prints what each of them costs while
nobody is connected, how many durable queues 20 clients with a channel each declare a second, on the leader and on
another node, and how long one declare takes. The leader is the node whose name sorts first. All three disks are one
disk here, and all three nodes share the processors of the machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..amqp.methods import QueueDeclare
from .load.broker import LoadClient, free_port, memory, processor_seconds

NODES = 3
CHANNELS = 20
#: Declares that are measured one at a time.
SINGLE = 300
#: Seconds over which the idle nodes are measured.
IDLE_SECONDS = 20.0
START_SECONDS = 60.0


class BrokerProcesses:
    """The processes, in the order of their names. `stop` ends them."""

    def __init__(self, directory: Path) -> None:
        names = [f"warren{number}@localhost" for number in range(1, NODES + 1)]
        self.ports = [free_port() for _ in names]
        cluster_ports = [free_port() for _ in names]
        self.processes: list[subprocess.Popen[bytes]] = []
        for number, name in enumerate(names):
            lines = [
                f"node_name = {name!r}",
                f"port = {self.ports[number]}",
                f"cluster_port = {cluster_ports[number]}",
                f"data_dir = {str(directory / f'warren{number}')!r}",
                f"cluster_cookie_file = {str(directory / 'cookie')!r}",
                f"cluster_formation.nodes = {names!r}",
                "[cluster_peer_addresses]",
                *(f'"{other}" = "127.0.0.1:{port}"' for other, port in zip(names, cluster_ports) if other != name),
            ]
            settings = directory / f"warren{number}.toml"
            settings.write_text("\n".join(lines) + "\n")
            command = [
                Path(sys.executable).parent / "warren",
                "start",
                "--no-management",
                "--log-level",
                "error",
                "--config",
                settings,
            ]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def client(self, node: int) -> LoadClient:
        """A client of this node, which may still be starting."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return LoadClient(f"127.0.0.1:{self.ports[node]}")
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def processor_seconds(self) -> list[float]:
        return [processor_seconds(process.pid) for process in self.processes]

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def print_idle(cluster: BrokerProcesses) -> None:
    before = cluster.processor_seconds()
    time.sleep(IDLE_SECONDS)
    used = [after - was for after, was in zip(cluster.processor_seconds(), before)]
    percent = ", ".join(f"{100 * seconds / IDLE_SECONDS:.2f}" for seconds in used)
    resident = ", ".join(f"{memory(process.pid)['VmRSS'] / (1 << 20):.1f}" for process in cluster.processes)
    print(f"idle: {percent} % of a core, {resident} MiB resident")


def print_declares(cluster: BrokerProcesses, node: int, count: int, place: str) -> None:
    """Declare `count` queues by `CHANNELS` clients; each sends all of its declares before it reads an answer."""
    clients = [cluster.client(node) for _ in range(CHANNELS)]
    used = sum(cluster.processor_seconds())
    started = time.monotonic()
    for channel, client in enumerate(clients):
        client.send([_declare(f"{place}.{number}") for number in range(channel, count, CHANNELS)])
    for channel, client in enumerate(clients):
        client.answers(len(range(channel, count, CHANNELS)))
    seconds = time.monotonic() - started
    used = sum(cluster.processor_seconds()) - used
    print(f"{count / seconds:,.0f} declares/s on {place}; {used / count * 1e6:,.0f} µs of a core each, on all nodes")
    waits = []
    for number in range(SINGLE):
        started = time.monotonic()
        clients[0].call(_declare(f"{place}.one.{number}"))
        waits.append((time.monotonic() - started) * 1e3)
    percentiles = statistics.quantiles(waits, n=100)
    print(f"one declare on {place}: p50 {percentiles[49]:.1f} ms, p99 {percentiles[98]:.1f} ms")
    for client in clients:
        client.close()


def _declare(name: str) -> QueueDeclare:
    return QueueDeclare(queue=name, durable=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as directory:
        cluster = BrokerProcesses(Path(directory))
        try:
            for node in range(NODES):
                cluster.client(node).close()
            print_idle(cluster)
            print_declares(cluster, 0, count, "the leader")
            print_declares(cluster, 1, count, "another node")
            print_idle(cluster)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
