"""Memory of systems other than Linux, from their C libraries.

**Total** is the physical memory: POSIX has it in `sysconf`, Windows in `GlobalMemoryStatusEx`. Control groups and other
limits are not considered.

**Used** is the physical footprint on macOS and the private bytes on Windows. Both leave out mapped files, as Linux's
anonymous memory does. POSIX has nothing but the peak (`ru_maxrss`), after which publishers would stay blocked for ever,
so on other systems memory cannot be measured and its watermark has no effect.

**Giving back** is left to the C library.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import sys
from collections.abc import Callable

#: Bytes that are assumed on a system that does not report its memory (queue-and-store section 1).
UNKNOWN_TOTAL = 1 << 30


class PortableMemory:
    """`memory.Memory` where there is no /proc."""

    def total(self) -> int:
        return physical_memory()

    def meter(self) -> FunctionMeter:
        if sys.platform == "win32":
            return FunctionMeter(_windows_private_bytes)
        if sys.platform == "darwin":
            return FunctionMeter(_macos_footprint)
        raise OSError(errno.ENOSYS, "this system does not report how much memory a process uses")

    def trimmer(self) -> Callable[[], object] | None:
        return None

    def collector(self) -> Callable[[], object]:
        return gc.collect

    def cycles(self) -> int:
        return found_cycles()


class FunctionMeter:
    """`memory.MemoryMeter` from a function that returns bytes. It is called once when the meter is made.

    So a system on which it fails raises OSError there, and not in the middle of a broker's work.
    """

    def __init__(self, read: Callable[[], int]) -> None:
        self.anonymous = read
        read()

    def close(self) -> None:
        """Nothing is held open."""


def found_cycles() -> int:
    """How many objects the garbage collector has found in cycles, in all collections of this program."""
    return sum(generation["collected"] for generation in gc.get_stats())


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    if sys.platform == "win32":
        return _windows_physical_memory()
    try:
        pages, page_size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return UNKNOWN_TOTAL
    return pages * page_size if pages > 0 else UNKNOWN_TOTAL


class _RusageInfo(ctypes.Structure):
    """`struct rusage_info_v0` of macOS's <sys/resource.h>."""

    _fields_ = [
        ("uuid", ctypes.c_uint8 * 16),
        ("user_time", ctypes.c_uint64),
        ("system_time", ctypes.c_uint64),
        ("package_idle_wakeups", ctypes.c_uint64),
        ("interrupt_wakeups", ctypes.c_uint64),
        ("page_ins", ctypes.c_uint64),
        ("wired_size", ctypes.c_uint64),
        ("resident_size", ctypes.c_uint64),
        ("physical_footprint", ctypes.c_uint64),
        ("process_start", ctypes.c_uint64),
        ("process_exit", ctypes.c_uint64),
    ]


def _macos_footprint() -> int:
    info = _RusageInfo()
    try:
        failed = ctypes.CDLL(None).proc_pid_rusage(os.getpid(), 0, ctypes.byref(info))
    except AttributeError:
        raise OSError(errno.ENOSYS, "the C library has no proc_pid_rusage") from None
    if failed:
        raise OSError(errno.EIO, "proc_pid_rusage failed")
    return int(info.physical_footprint)


if sys.platform == "win32":

    class _MemoryStatus(ctypes.Structure):
        """`MEMORYSTATUSEX` of Windows's <sysinfoapi.h>."""

        _fields_ = [
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total_physical", ctypes.c_uint64),
            ("other", ctypes.c_uint64 * 6),
        ]

    class _MemoryCounters(ctypes.Structure):
        """`PROCESS_MEMORY_COUNTERS_EX` of Windows's <psapi.h>."""

        _fields_ = [
            ("length", ctypes.c_uint32),
            ("page_faults", ctypes.c_uint32),
            ("other", ctypes.c_size_t * 8),
            ("private_usage", ctypes.c_size_t),
        ]

    def _windows_physical_memory() -> int:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return UNKNOWN_TOTAL
        return int(status.total_physical)

    def _windows_private_bytes() -> int:
        counters = _MemoryCounters(length=ctypes.sizeof(_MemoryCounters))
        # A handle is as wide as a pointer, and the pseudo handle of this process is -1.
        if not ctypes.windll.kernel32.K32GetProcessMemoryInfo(
            ctypes.c_void_p(-1), ctypes.byref(counters), counters.length
        ):
            raise ctypes.WinError()
        return int(counters.private_usage)
