"""The checkpoint of an archive: where each of its micro-batches ends.

TARGET/_warren/checkpoint/offsets/<number>

An end is written before the tasks of its micro-batch start, so that a run after a crash writes the same files again.
The micro-batch is complete when its files are noted (`notes`). The files have the form of the checkpoints of Spark,
which wrote them in earlier versions.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .notes import OWN, replace_text

#: So many ends are kept; only the last two are ever read.
KEPT = 100


class ArchiveCheckpoint:
    """The checkpoint below `target`."""

    def __init__(self, target: str) -> None:
        self._folder = f"{target}/{OWN}/checkpoint/offsets"

    def last_planned(self) -> int:
        """The number of the last micro-batch whose end is known; -1 if there is none."""
        return max(self._numbers(), default=-1)

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._folder) if name.isdigit()]
        except FileNotFoundError:
            return []

    def offset(self, batch: int) -> Any:
        """The end of a micro-batch."""
        return json.loads(Path(self._folder, str(batch)).read_text("utf-8").splitlines()[-1])

    def plan(self, batch: int, offset: Any) -> None:
        """Write down where a micro-batch ends."""
        os.makedirs(self._folder, exist_ok=True)
        replace_text(f"{self._folder}/{batch}", f"v1\n{{}}\n{json.dumps(offset)}")
        for number in self._numbers():
            if number <= batch - KEPT:
                os.unlink(f"{self._folder}/{number}")
