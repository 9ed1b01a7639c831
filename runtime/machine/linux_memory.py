"""Linux's memory: how much there is, how much this process uses, and how to give freed heap back to the system.

The requirements are queue-and-store section 8.1 and QS-16. A process is one of the operating system here.

**Used** is anonymous memory: heap and stacks. Mapped files (LMDB) and shared memory are left out, because the system
takes their pages back by itself (D-11). `/proc/self/statm` gives resident and shared pages, and their difference is
anonymous memory: the `RssAnon` of `/proc/self/status`, for 1 µs a sample instead of 40. `smaps_rollup` would be exact
to the page, but walks all page tables of the process.

**Total** is the machine's memory, or a control group's limit if that is less.

**Giving back**: glibc keeps freed blocks for the next allocation, and keeps pages in the middle of its heap for ever
unless `malloc_trim(0)` is called. Measured with blocks of 1 KB: a call takes 0.03 ms when there is nothing to give
back, whatever the size of the heap; 0.2 to 0.3 ms for each MiB given back; 5 to 80 ms on a badly fragmented heap of 0.3
to 2 GB. Allocations of other threads wait meanwhile. So what is free at the top of the heap, which is most of it after
a queue was drained, is given back in steps.

**Collecting**: reference counting frees messages as soon as they leave their queue. What refers to itself waits for the
garbage collector, whose thresholds count objects and not bytes, so a broker could block its publishers for memory that
nobody uses. A full collection stops a broker with two million containers for half a second; the memory monitor runs one
only when memory is short (`actors/resources/garbage.py`).
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

from .cgroups import cgroup_memory_limit
from .portable_memory import found_cycles, physical_memory

_PROC = Path("/proc")

#: The fewest bytes at the top of the heap that are given back in one step, and the most steps, since each goes through
#: the rest of the heap too.
TOP_STEP = 8 << 20
TOP_STEPS = 16


class LinuxMemory:
    """`memory.Memory` from /proc, control groups and glibc."""

    def total(self) -> int:
        return total_memory()

    def meter(self) -> ProcessMemory:
        return ProcessMemory()

    def trimmer(self) -> Callable[[], object] | None:
        return heap_trimmer()

    def collector(self) -> Callable[[], object]:
        return gc.collect

    def cycles(self) -> int:
        return found_cycles()


def total_memory(proc: Path = _PROC) -> int:
    """Bytes that this process can use at most."""
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
    return physical_memory()


def meminfo_line(line: str) -> tuple[str, int] | None:
    """(name, bytes) of a line of /proc/meminfo, with or without a colon, in kB or bytes; None for any other line."""
    fields = line.replace(":", " ").split()
    if len(fields) < 2 or not fields[1].isdigit():
        return None
    return fields[0], int(fields[1]) * (1024 if fields[2:3] and fields[2].lower() == "kb" else 1)


class ProcessMemory:
    """`memory.MemoryMeter`: the anonymous memory of the process that makes it. Raises OSError where there is no /proc.

    The file stays open, so that a broker that has run out of descriptors can still measure its memory.
    """

    def __init__(self, proc: Path = _PROC):
        self._fd = os.open(proc / "self" / "statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page_size = os.sysconf("SC_PAGE_SIZE")

    def anonymous(self) -> int:
        _, resident, shared, *_ = os.pread(self._fd, 256, 0).split()
        return (int(resident) - int(shared)) * self._page_size

    def close(self) -> None:
        os.close(self._fd)


class _HeapInfo(ctypes.Structure):
    """The `struct mallinfo2` of glibc's malloc.h. `keepcost` are the bytes that are free at the top of the heap."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def heap_trimmer() -> Callable[[], object] | None:
    """A function that gives free heap back to the system and may take long; None if the C library has none."""
    try:
        library = ctypes.CDLL(None)
        trim = library.malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    info = getattr(library, "mallinfo2", None)  # of glibc 2.33 and later
    if info is None:
        return lambda: trim(0)
    info.restype = _HeapInfo

    def trim_in_steps() -> None:
        free_at_top = info().keepcost
        step = max(TOP_STEP, free_at_top // TOP_STEPS)
        for kept in range(free_at_top - step, 0, -step):
            trim(kept)
        trim(0)

    return trim_in_steps
