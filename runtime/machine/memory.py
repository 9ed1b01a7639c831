"""Memory: how much there is, how much this operating-system process uses, and giving back what it does not (QS 8.1, QS-16).

**Used** is anonymous memory: heap and stacks. Mapped files (LMDB) and shared memory are left out, as the system takes their pages back by itself.
`/proc/self/statm` gives resident and shared pages, and anonymous is what is left: the `RssAnon` of `/proc/self/status`, for 1 µs a
sample instead of 40. `smaps_rollup` would be exact to the page, but walks all of the process's page tables.

**Total** is the machine's memory, or a control group's limit if that is less. Without /proc the system is asked for its physical pages.

**Giving back**: glibc keeps freed blocks for the next allocation, and pages in the middle of its heap for ever, unless `malloc_trim(0)` is called.
Measured with 1 KB blocks: 0.03 ms when there is nothing to give back, whatever the size of the heap; 0.2 to 0.3 ms for each MiB given back; 5 to 80
ms on a badly fragmented heap of 0.3 to 2 GB. Allocations of other threads wait meanwhile: 1.6 GiB purged at once stop the broker for 0.35 s. There is
no `gc.collect()`: reference counting has freed the messages, and a collection would stop the broker for half a second with two million containers
alive.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from .cgroups import cgroup_memory_limit

#: QS section 1: bytes that are assumed on a system that does not say.
UNKNOWN_TOTAL = 1 << 30

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def total_memory(proc: Path = _PROC) -> int:
    """Bytes that this process could use at most."""
    installed = _installed(proc)
    limit = cgroup_memory_limit(proc)
    return installed if limit is None else min(installed, limit)


def _installed(proc: Path) -> int:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        lines = []
    for name, count in filter(None, map(meminfo_line, lines)):
        if name == "MemTotal":
            return count
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        pages = -1
    return pages * _PAGE if pages > 0 else UNKNOWN_TOTAL


def meminfo_line(line: str) -> tuple[str, int] | None:
    """(name, bytes) of a line of /proc/meminfo, with or without colon, in kB or bytes; None if it is none."""
    fields = line.replace(":", " ").split()
    if len(fields) < 2 or not fields[1].isdigit():
        return None
    return fields[0], int(fields[1]) * (1024 if fields[2:3] and fields[2].lower() == "kb" else 1)


class ProcessMemory:
    """Reads the anonymous memory of the process that made it. Raises OSError when made where there is no /proc.

    The file stays open: a broker that has run out of descriptors must still see its memory.
    """

    def __init__(self, proc: Path = _PROC):
        self._fd = os.open(proc / "self" / "statm", os.O_RDONLY | os.O_CLOEXEC)

    def anonymous(self) -> int:
        """Bytes of anonymous memory, now."""
        _, resident, shared, *_ = os.pread(self._fd, 256, 0).split()
        return (int(resident) - int(shared)) * _PAGE

    def close(self) -> None:
        os.close(self._fd)


def heap_trimmer() -> Callable[[], object] | None:
    """A function that gives free heap back to the system and may take long; None where the C library has none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


class Memory(Protocol):
    """What a process may know of the memory around it, and do about it."""

    def total(self) -> int:
        """Bytes there are."""

    def meter(self) -> Meter:
        """Opens a view on the memory in use. OSError where that cannot be measured."""

    def trimmer(self) -> Callable[[], object] | None:
        """See `heap_trimmer`."""


class Meter(Protocol):
    def anonymous(self) -> int:
        """Bytes of anonymous memory, now."""

    def close(self) -> None: ...


class SystemMemory:
    """The machine's own."""

    def total(self) -> int:
        return total_memory()

    def meter(self) -> ProcessMemory:
        return ProcessMemory()

    def trimmer(self) -> Callable[[], object] | None:
        return heap_trimmer()
