"""`HeadRead`: which part of a queue's head is being read from the disk."""

from __future__ import annotations

from ....store.queue.backing_queue import BackingQueue
from ..effects import Effects


class HeadRead:
    """The read of the head that is in progress, if there is one.

    The backing queue gives out one job at a time (`store/queue/variable/read_ahead.py`). The replica runs it, sets
    `is_running` back and calls the role's `head_loaded`. A queue in memory (not `is_on_disk`) has nothing to read.
    """

    __slots__ = ("_effects", "_is_on_disk", "backing", "is_running")

    def __init__(self, backing: BackingQueue, effects: Effects, is_on_disk: bool) -> None:
        self.backing = backing
        self._effects = effects
        self._is_on_disk = is_on_disk
        self.is_running = False

    def prepare(self) -> None:
        """Have more of the head read, unless a read is in progress or nothing needs to be read."""
        if self.is_running or not self._is_on_disk:
            return
        job = self.backing.prepare()
        if job is not None:
            self.is_running = True
            self._effects.read_head(job)
