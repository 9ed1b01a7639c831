"""The files of a simulated machine: what survives when its process is killed, and what when it loses power.

    vhosts' directories   a `FaultyDisk` each: after a kill all that was written is there; after a power cut what was synced, and of the rest what luck left
    LMDB environments     real files in a private directory, in memory where the system has that: a commit is whole, and survives both. What is not synced (the location
                          index) may be anything after a power cut: here it is gone, or as it was. The boot id changes, so nobody may believe it

The directory belongs to the machine, whatever runs on it; `close` removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from ..store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from ..store.disk.disk import Disk
from ..store.disk.faulty_disk import Crash, FaultyDisk

_MEMORY_FILES = "/dev/shm"


class Luck:
    """The part of `random.Random` that a `FaultyDisk` asks, answered by the world's chooser: 0 keeps what was written, so that a shrunk schedule loses little."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below

    def random(self) -> float:
        return self._below(8) / 8

    def choice(self, options: Any) -> Any:
        return options[self._below(len(options))]

    def randint(self, low: int, high: int) -> int:
        return high - self._below(high - low + 1) if high > low else low


class MachineDisks:
    """`root` is the data directory; `boot_id` is that of the machine's run since it last lost power."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="warren-sim-", dir=_MEMORY_FILES if os.path.isdir(_MEMORY_FILES) else None)
        self._disks: dict[str, FaultyDisk] = {}
        self._boots = 1
        self._room: int | None = None  # octets that a disk has left since it began to be full

    @property
    def boot_id(self) -> str:
        return f"boot {self._boots}"

    def open(self, root: str) -> Disk:
        """The files of a directory; the same for as long as the machine exists."""
        name = os.path.relpath(root, self.root)
        disk = self._disks.get(name)
        if disk is None:
            disk = self._disks[name] = FaultyDisk()
            self._limit(disk)
        return disk

    def fill(self, is_full: bool, room: int = 0) -> None:
        """Have room for so many octets more in each virtual host's directory, or as much as one wants."""
        self._room = room if is_full else None
        for disk in self._disks.values():
            self._limit(disk)

    def _limit(self, disk: FaultyDisk) -> None:
        disk.limit = None if self._room is None else disk.held + self._room

    def cut_power_after(self, operations: int) -> None:
        """The machine stops at that operation of one of its disks, counted from now."""
        for disk in self._disks.values():
            disk.fail_after(operations, Crash())

    def heal(self) -> None:
        """Take back a power cut that has not come."""
        for disk in self._disks.values():
            disk.heal()

    def kill(self) -> None:
        """The process that used them is gone."""
        for disk in self._disks.values():
            disk.kill()

    def lose_power(self, luck: Luck) -> None:
        self._boots += 1
        for name, disk in self._disks.items():
            disk.crash(luck)  # type: ignore[arg-type]
            for store in (PERSISTENT, TRANSIENT):
                index = os.path.join(self.root, name, store, "index")
                if os.path.isdir(index) and luck.choice((False, True)):
                    shutil.rmtree(index)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
