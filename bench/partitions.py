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

from ..simulation.cluster.schedule import run
from ..tests.simulation.cluster.matrix import cells, plan_of


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.partitions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=1, metavar="N", help="of each cell (default %(default)s)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first seed (default %(default)s)")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="of the cells (default: all)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    part, parts = map(int, options.part.split("/"))
    failed = ran = 0
    began = time.process_time()
    for cell in cells()[part - 1 :: parts]:
        for seed in range(options.first, options.first + options.schedules):
            outcome = run(seed, plan_of(cell, seed))
            ran += 1
            if outcome.failure is not None:
                failed += 1
                print(f"{cell}, seed {seed}: {outcome.failure}\n{outcome.story}", flush=True)
    print(f"{ran} schedules, {failed} of them broke a promise; {time.process_time() - began:.0f} s of the processor")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
