"""How long a thread may keep a processor when others want it: its time slice.

Linux gives each thread a slice of 1.4 to 3 ms. A thread that becomes ready takes the processor from one with a longer
slice at once, and waits until one with an equal slice has had it. So a broker with a short slice answers sooner on a
busy machine, and whatever works through a backlog with a long slice leaves the processor to all others that become
ready. The share of a thread is that of its niceness, whatever its slice is.

Linux has slices of a thread's own since 6.12, and ignores them before. Other systems have none.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from functools import cache
from typing import Any

from ...portable import IS_PORTABLE

#: Nanoseconds of the shortest and of the longest slice that Linux gives; 0 stands for the usual one.
SHORT, LONG, USUAL = 100_000, 100_000_000, 0

#: The numbers of sched_setattr and sched_getattr, which the C library has no functions for.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
#: `struct sched_attr` as it was at first: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
#: The policies whose runtime is a slice: SCHED_OTHER and SCHED_BATCH.
_WITH_SLICES = (0, 3)


@cache
def _system_call() -> Any:
    return ctypes.CDLL(None).syscall


def set_time_slice(thread: int, nanoseconds: int) -> bool:
    """Give a thread a slice, 0 for the calling one. Threads and processes that it starts later inherit it.

    Returns whether the kernel has taken it. Niceness and policy stay as they are.
    """
    numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" and not IS_PORTABLE else None
    if numbers is None:
        return False
    set_number, get_number = numbers
    call, room = _system_call(), ctypes.create_string_buffer(_ATTRIBUTES.size)
    if call(get_number, thread, room, _ATTRIBUTES.size, 0):
        return False
    size, policy, flags, nice, priority, _, deadline, period = _ATTRIBUTES.unpack(room.raw)
    if policy not in _WITH_SLICES:
        return False
    wanted = _ATTRIBUTES.pack(size, policy, flags, nice, priority, nanoseconds, deadline, period)
    return bool(call(set_number, thread, ctypes.create_string_buffer(wanted, len(wanted)), 0) == 0)
