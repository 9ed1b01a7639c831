"""Runs the matrix of partitions (CL-117): simulated clusters that fall apart, in every way and for every time.

    python -m warren.bench.partitions                        each cell once
    python -m warren.bench.partitions --schedules 20 --first 1000
    python -m warren.bench.partitions --part 2/4             the second quarter of the cells, on a machine of its own

Prints the seed and the story of each schedule that breaks a promise, and exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..simulation.cluster.plan import ClusterPlan
from ..simulation.cluster.schedule import run
from ..tests.simulation.cluster.matrix import cells, plan_of

N = TypeVar("N")


def run_named(
    command: str, about: str | None, schedules: int, named: Sequence[N], plan: Callable[[N, int], ClusterPlan]
) -> None:
    """Run the plans of all `named`, each with as many seeds as the command line says, or `schedules`. Exits."""
    parser = argparse.ArgumentParser(command, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=schedules, metavar="N", help="of each (default %(default)s)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first seed (default %(default)s)")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="of all of them (default: all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose names have this text")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    part, parts = map(int, options.part.split("/"))
    failed = ran = 0
    began = time.process_time()
    for each in [each for each in named if options.only in str(each)][part - 1 :: parts]:
        for seed in range(options.first, options.first + options.schedules):
            outcome = run(seed, plan(each, seed))
            ran += 1
            if outcome.failure is not None:
                failed += 1
                print(f"{each}, seed {seed}: {outcome.failure}\n{outcome.story}", flush=True)
    print(f"{ran} schedules, {failed} of them broke a promise; {time.process_time() - began:.0f} s of the processor")
    sys.exit(failed > 0)


if __name__ == "__main__":
    run_named("python -m warren.bench.partitions", __doc__, 1, cells(), plan_of)
