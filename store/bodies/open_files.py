"""The data files that a message store reads from, open while somebody reads and a while longer.

Whoever reads in another thread holds the file meanwhile, so it is not closed under the reader, even when it has been combined or
deleted: then it is closed by the last reader.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..disk.disk import Disk, File
from .rdq_file import file_name

OPEN_MOST = 32
"""So many stay open that nobody reads from just now."""


@dataclass
class OpenFile:
    """`readers` hold it; a stale one is not given out again."""

    number: int
    file: File
    readers: int = 0
    is_stale: bool = False


class OpenFiles:
    """Of one directory. Used by the owner alone; only `OpenFile.file` goes to other threads."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._open: OrderedDict[int, OpenFile] = OrderedDict()

    def hold(self, number: int) -> OpenFile:
        """Opened if need be; to be given back by `release`."""
        held = self._open.pop(number, None)
        if held is None:
            held = OpenFile(number, self._disk.open(f"{self._directory}/{file_name(number)}"))
        self._open[number] = held  # last in the order: used last
        held.readers += 1
        return held

    def release(self, held: OpenFile) -> None:
        held.readers -= 1
        if held.is_stale:
            self._close(held)
        elif len(self._open) > OPEN_MOST:
            for idle in [other for other in self._open.values() if not other.readers][: len(self._open) - OPEN_MOST]:
                self.forget(idle.number)

    def forget(self, number: int) -> None:
        """The file of that number is no longer what it was."""
        held = self._open.pop(number, None)
        if held is not None:
            held.is_stale = True
            self._close(held)

    def _close(self, held: OpenFile) -> None:
        if not held.readers:
            held.file.close()

    def close(self) -> None:
        for number in list(self._open):
            self.forget(number)
