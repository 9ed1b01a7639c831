"""Runs the named cases of what happens to clusters (CL-116, CL-118), each with many seeds, on simulated nodes.

    python -m warren.bench.cases                             each case with 100 seeds
    python -m warren.bench.cases --schedules 20 --first 1000 --only crash_
    python -m warren.bench.cases --part 2/4                  the second quarter of the cases, on a machine of its own

Prints the seed and the story of each schedule that breaks a promise, and exits with 1 if there is any.
"""

from __future__ import annotations

from ..tests.simulation.cluster.cases import cases, plan_of
from .partitions import run_named

if __name__ == "__main__":
    run_named("python -m warren.bench.cases", __doc__, 100, cases(), plan_of)
