"""The files of a simulated machine: which survive when its process is killed, and which when it loses power.

    vhost directories    a `FaultyDisk` each. A kill loses nothing that was written. A power cut keeps what was synced,
                         and of the rest what the world's chooser decides
    LMDB environments    real files in a private directory, which is in memory where the system has such a place. A
                         commit is whole and survives both. The location index is not synced, so after a power cut it
                         may hold anything: here it is gone or unchanged. The boot id changes, so no process trusts it

The directory belongs to the machine and outlives the nodes on it; `close` removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..store.data_dir.file_limits import REAL_FILES
from ..store.data_dir.vhost_dir import PERSISTENT, TRANSIENT
from ..store.disk.disk import Disk
from ..store.disk.faulty_disk import Crash, FaultyDisk

_MEMORY_FILES = "/dev/shm"

#: The sizes of files on real disks, with a reserve that takes no time to write: a `FaultyDisk` keeps it in memory.
LARGE_FILES = replace(REAL_FILES, reserve=4 << 10)
T = TypeVar("T")


class ChosenRandom:
    """The methods of `random.Random` that a `FaultyDisk` calls, decided by the world's chooser.

    Where the chooser returns 0, everything that was written is kept, so a shrunk schedule loses little.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below

    def random(self) -> float:
        return self._below(8) / 8

    def choice(self, options: Sequence[T]) -> T:
        return options[self._below(len(options))]

    def randint(self, low: int, high: int) -> int:
        return high - self._below(high - low + 1) if high > low else low


class MachineDisks:
    """The disks of one machine; `root` is the data directory."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="warren-sim-", dir=_MEMORY_FILES if os.path.isdir(_MEMORY_FILES) else None)
        self._disks: dict[str, FaultyDisk] = {}
        self._boots = 1
        #: Bytes that each disk could take when it was made full; None while disks are not full.
        self._room: int | None = None

    @property
    def boot_id(self) -> str:
        """Changes when the machine loses power."""
        return f"boot {self._boots}"

    def open(self, root: str) -> Disk:
        """The disk of a directory, always the same one."""
        name = os.path.relpath(root, self.root)
        disk = self._disks.get(name)
        if disk is None:
            disk = self._disks[name] = FaultyDisk()
            self._limit(disk)
        return disk

    def fill(self, is_full: bool, room: int = 0) -> None:
        """Let each disk take `room` more bytes, or any number if `is_full` is False."""
        self._room = room if is_full else None
        for disk in self._disks.values():
            self._limit(disk)

    def _limit(self, disk: FaultyDisk) -> None:
        disk.limit = None if self._room is None else disk.held + self._room

    def cut_power_after(self, operations: int) -> None:
        """Stop the machine when one of its disks has done that many more operations."""
        for disk in self._disks.values():
            disk.fail_after(operations, Crash())

    def heal(self) -> None:
        """Cancel a power cut that has not happened."""
        for disk in self._disks.values():
            disk.heal()

    def kill(self) -> None:
        """The process that used the disks is gone."""
        for disk in self._disks.values():
            disk.kill()

    def lose_power(self, random: ChosenRandom) -> None:
        """Lose what was not synced, as far as `random` decides."""
        self._boots += 1
        for name, disk in self._disks.items():
            disk.crash(random)  # type: ignore[arg-type]
            for store in (PERSISTENT, TRANSIENT):
                index = os.path.join(self.root, name, store, "index")
                if os.path.isdir(index) and random.choice((False, True)):
                    shutil.rmtree(index)

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.root, ignore_errors=True)
