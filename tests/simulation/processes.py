"""Whether schedules of a simulation are the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

STORIES = """
import logging
from {module} import run
logging.getLogger("warren").setLevel(logging.CRITICAL)
for seed in range({seeds}):
    print(run(seed).story)
"""


def check_same_stories(module: str, seeds: int) -> None:
    """Run the first schedules of `module` in two processes, in which Python orders sets of texts differently."""
    stories = [
        subprocess.run(
            [sys.executable, "-c", STORIES.format(module=module, seeds=seeds)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            cwd="/",
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert stories[0] and stories[0] == stories[1]
