"""The open data files of a message store. They stay open for later reads, up to `OPEN_MOST` of them.

A read in another thread holds its file, so the file is not closed under it. A file that was combined or deleted
meanwhile is closed when its last reader releases it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..disk.disk import Disk, File
from .rdq_file import file_name

#: How many files stay open without a reader.
OPEN_MOST = 32


@dataclass
class OpenFile:
    """An open file with a count of its readers.

    A stale one, whose file was replaced or deleted, gets no new readers.
    """

    number: int
    file: File
    readers: int = 0
    is_stale: bool = False


class OpenFiles:
    """The open files of one directory. Only the owner uses it; other threads get `OpenFile.file`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._open: OrderedDict[int, OpenFile] = OrderedDict()

    def hold(self, number: int) -> OpenFile:
        """The file of that number, opened if necessary. The caller gives it back with `release`."""
        held = self._open.pop(number, None)
        if held is None:
            held = OpenFile(number, self._disk.open(f"{self._directory}/{file_name(number)}"))
        self._open[number] = held  # the most recently used is last
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
        """Close a file that was replaced or deleted, now or when its last reader releases it."""
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
