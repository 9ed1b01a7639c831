"""`FileOperations`: how many reads and writes of files the program has made, and how long they took."""

from __future__ import annotations

import threading
from time import perf_counter


class FileOperations:
    """See the module. Threads that read and write count here; a reader may see a count before its seconds.

    `index_reads` and `index_writes` are those of the segment files of queue indexes.
    """

    __slots__ = ("_lock", "index_reads", "index_writes", "read_seconds", "reads", "write_seconds", "writes")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reads = self.writes = self.index_reads = self.index_writes = 0
        self.read_seconds = self.write_seconds = 0.0

    def count_read(self, began: float, is_index: bool) -> None:
        seconds = perf_counter() - began
        with self._lock:
            self.reads += 1
            self.index_reads += is_index
            self.read_seconds += seconds

    def count_write(self, began: float, is_index: bool) -> None:
        seconds = perf_counter() - began
        with self._lock:
            self.writes += 1
            self.index_writes += is_index
            self.write_seconds += seconds

    def values(self) -> dict[str, float]:
        return {
            "reads": self.reads,
            "read_seconds": self.read_seconds,
            "writes": self.writes,
            "write_seconds": self.write_seconds,
            "index_reads": self.index_reads,
            "index_writes": self.index_writes,
        }


#: Those of this program.
file_operations = FileOperations()
