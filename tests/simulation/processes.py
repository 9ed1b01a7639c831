"""A check that schedules of a simulation are the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

TRACES = """
import logging
from {module} import SeedChooser, {schedule}, {draw}
from warren.runtime.sim.trace import digest
logging.getLogger("warren").setLevel(logging.CRITICAL)
for seed in {seeds}:
    schedule = {schedule}({draw}(SeedChooser(seed).below), seed)
    schedule.run()
    print(seed, digest(schedule.world.trace))
"""


def check_same_traces(module: str, schedule: str, draw: str, seeds: range) -> None:
    """Run schedules of `module` in two processes, in which Python orders sets of texts differently, and compare them.

    Every step of each schedule is compared, and not only its story, because clients may not notice the order of
    messages between processes of the broker.
    """
    one, other = (
        subprocess.run(
            [sys.executable, "-c", TRACES.format(module=module, schedule=schedule, draw=draw, seeds=seeds)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            cwd="/",
            text=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    )
    assert len(one) == len(seeds)
    assert one == other
