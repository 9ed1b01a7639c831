"""Whether another process of this machine still runs.

Linux shows in /proc whether a process is a zombie: one that has ended, and that its parent has not awaited. The twin
for other POSIX systems counts a zombie as running. Windows needs a twin of its own, because `os.kill(pid, 0)` sends
Ctrl-C there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from ...portable import IS_PORTABLE


def runs_on_linux(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return runs_on_posix(pid)  # there is no such process, or no /proc
    return state != "Z"


def runs_on_posix(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # a process of another user
    return True


if sys.platform == "win32":
    import ctypes

    #: The right to ask how a process is, and the exit code of one that has not ended, of Windows's <winnt.h>.
    _QUERY, _STILL_ACTIVE = 0x1000, 259

    def runs_on_windows(pid: int) -> bool:
        kernel = ctypes.windll.kernel32
        kernel.OpenProcess.restype = ctypes.c_void_p
        handle = ctypes.c_void_p(kernel.OpenProcess(_QUERY, False, pid))
        if not handle:
            return False
        code = ctypes.c_uint32()
        is_known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.CloseHandle(handle)
        return bool(is_known) and code.value == _STILL_ACTIVE

    is_running: Callable[[int], bool] = runs_on_windows

else:
    #: Whether the process `pid` of this machine runs.
    is_running = runs_on_posix if IS_PORTABLE else runs_on_linux
