"""Rounds of faults against the nodes of a cluster while clients work, with a ledger of what they were promised.

    python -m warren.bench.rounds --rounds 200               three nodes; every kind of fault in turn
    python -m warren.bench.rounds --mirrored                 queues on all nodes; nodes lose their disks as well
    python -m warren.bench.rounds --nodes 1                  a broker without a cluster: only its process has faults
    python -m warren.bench.rounds --faults kill_one,isolate_one --rounds 20 --seed 17
    python -m warren.bench.rounds --rabbitmq                 the nodes are RabbitMQ's; it loses what it confirmed

`tests/cluster_system/rounds/` (`rounds.py`, `faults.py`) and the ledger (`simulation/cluster/ledger.py`) describe what
is done and checked. After a failure the directory is kept: `account` is the story with its times, and each node's
folder has its log and its data.

Exit code 0 if every promise was kept, else 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from ..simulation.cluster.ledger import RABBITMQ, WARREN, Ledger, Promises
from ..tests.cluster_system.nodes import Nodes, single_warren, warren_cluster
from ..tests.cluster_system.rabbit import rabbit_cluster
from ..tests.cluster_system.rounds.faults import NETWORK, PROCESSES, REPLICAS
from ..tests.cluster_system.rounds.rounds import Fault, Rounds

FAULTS = {fault.__name__: fault for fault in (*PROCESSES, *REPLICAS, *NETWORK)}


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.rounds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="number of faults (default %(default)s)")
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="number of nodes (default %(default)s)")
    parser.add_argument("--faults", metavar="NAME,...", help=f"any of {', '.join(FAULTS)} (default: all that fit)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="of all choices (default: random)"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="before and within a fault (default %(default)s)")
    parser.add_argument("--mirrored", action="store_true", help="mirror the queues on all nodes of warren")
    parser.add_argument("--rabbitmq", action="store_true", help="try RabbitMQ's nodes; their network has no faults")
    options = parser.parse_args(arguments)
    if options.mirrored and (options.rabbitmq or options.nodes < 3):
        parser.error("--mirrored needs at least 3 nodes of warren")
    default = PROCESSES if options.nodes == 1 or options.rabbitmq else (*PROCESSES, *NETWORK)
    if options.mirrored:
        default = (*default, *REPLICAS)
    names = options.faults.split(",") if options.faults else [fault.__name__ for fault in default]
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"there is no fault '{unknown[0]}'; the faults are {', '.join(FAULTS)}")
    options.chosen = [FAULTS[name] for name in names]
    return options


def nodes_of(options: argparse.Namespace, directory: Path) -> Nodes:
    if options.rabbitmq:
        return rabbit_cluster(directory, options.nodes)
    return single_warren(directory) if options.nodes == 1 else warren_cluster(directory, options.nodes)


def main() -> int:
    options = parsed(sys.argv[1:])
    directory = Path(tempfile.mkdtemp(prefix="warren-rounds-"))
    print(f"seed {options.seed}, in {directory}", flush=True)
    faults: list[Fault] = [options.chosen[number % len(options.chosen)] for number in range(options.rounds)]
    random.Random(options.seed).shuffle(faults)
    began = time.monotonic()
    with (directory / "account").open("w") as account, nodes_of(options, directory) as nodes:
        promises = RABBITMQ if options.rabbitmq else Promises(fails_over=True) if options.mirrored else WARREN
        ledger = Ledger(account, promises)
        try:
            nodes.start()
            if options.mirrored:
                node = next(iter(nodes))
                node.command("set_policy", "mirrors", ".*", '{"ha-mode": "all"}').check_returncode()
            rounds = Rounds(nodes, ledger, options.seed, options.seconds)
            rounds.declare()
            for number, fault in enumerate(faults, 1):
                rounds.run([fault])
                print(f"{time.monotonic() - began:6.0f} s  {number:4} {fault.__name__}", flush=True)
        except Exception:
            traceback.print_exc()
            print(f"\nFAILED, seed {options.seed}. The account and the nodes' logs are in {directory}", file=sys.stderr)
            return 1
    shutil.rmtree(directory)
    counts = ", ".join(f"{count:,} {name}" for name, count in ledger.counts.items())
    print(f"every promise was kept in {options.rounds} rounds: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
