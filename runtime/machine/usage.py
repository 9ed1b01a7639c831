"""What this program uses of the machine: its disks, its processors and the pages of its mappings.

Linux counts all of it in /proc, except for context switches, which POSIX systems report by `getrusage`. The portable
twin has these only, and nothing on Windows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...portable import IS_PORTABLE

_PROC = Path("/proc/self")


class DiskBytes(NamedTuple):
    """The bytes that the program has read from disks and written to them."""

    read: int
    written: int


class PortableUsage:
    """The portable twin of `LinuxUsage`."""

    def disk_bytes(self) -> DiskBytes | None:
        """None where the system does not count them."""
        return None

    def context_switches(self) -> int:
        """How often a thread of the program has left its processor; 0 on Windows, which does not count it."""
        try:
            import resource
        except ImportError:
            return 0
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_nvcsw + usage.ru_nivcsw

    def thread_seconds(self) -> dict[int, float] | None:
        """For each thread, by its number, the seconds that it has had a processor; None where they are not counted."""
        return None

    def mappings(self) -> list[tuple[str, int]] | None:
        """For each mapping its path, empty for anonymous memory, and its resident bytes; None where there is no list.

        Waits for the kernel, which walks all pages.
        """
        return None


class LinuxUsage(PortableUsage):
    """Reads the files of the program in /proc; `proc` is that directory."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc

    def disk_bytes(self) -> DiskBytes | None:
        try:
            text = (self._proc / "io").read_text("ascii")
        except OSError:
            return None
        counts = dict(line.split(": ") for line in text.splitlines())
        return DiskBytes(int(counts.get("read_bytes", 0)), int(counts.get("write_bytes", 0)))

    def thread_seconds(self) -> dict[int, float] | None:
        tick = os.sysconf("SC_CLK_TCK")
        found = {}
        try:
            folders = list((self._proc / "task").iterdir())
        except OSError:
            return None
        for folder in folders:
            try:
                fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:
                continue  # the thread has ended
            found[int(folder.name)] = (int(fields[11]) + int(fields[12])) / tick
        return found

    def mappings(self) -> list[tuple[str, int]] | None:
        try:
            with (self._proc / "smaps").open(encoding="utf-8", errors="surrogateescape") as lines:
                return list(_resident(lines))
        except OSError:
            return None


def _resident(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
    path = ""
    for line in lines:
        fields = line.split(None, 5)
        if not fields[0].endswith(":"):
            path = fields[5].rstrip("\n") if len(fields) > 5 else ""
        elif fields[0] == "Rss:":
            yield path, int(fields[1]) * 1024


#: The usage of this program.
program: PortableUsage = PortableUsage() if IS_PORTABLE else LinuxUsage()
