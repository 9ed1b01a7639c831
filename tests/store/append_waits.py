"""A disk with which tests hold a job of another thread in the middle of its work."""

from __future__ import annotations

import threading

from warren.store.disk.faulty_disk import FaultyDisk


class AppendWaits(FaultyDisk):
    """A disk on which appends wait until `may_append` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_append = threading.Event()
        self.is_appending = threading.Event()

    def step(self, kind: str) -> None:
        if kind == "append":
            self.is_appending.set()
            assert self.may_append.wait(60)
        super().step(kind)
