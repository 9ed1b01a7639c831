"""Lets processes run at a lower priority, so that they take what other programs leave of the processors.

A pipeline takes all of the processors that it gets, and beside it on the same machine the broker has other clients. On
an idle machine a low priority costs nothing.
"""

from __future__ import annotations

import contextlib
import os

#: The niceness of Spark's processes and of the commands of `warren pipeline`, as backup tools have it. A process with
#: 10 gets a tenth of a processor for which a process with 0 competes.
NICE = 10


def lower_priority(process: int, nice: int = NICE) -> None:
    """Give all threads of a process at least this niceness. Its later threads and child processes inherit it."""
    if not hasattr(os, "setpriority"):
        return
    is_changed = True
    while is_changed:
        is_changed = False
        for thread in _threads(process):
            with contextlib.suppress(ProcessLookupError):
                if os.getpriority(os.PRIO_PROCESS, thread) < nice:
                    os.setpriority(os.PRIO_PROCESS, thread, nice)
                    # Look again: the thread may have started another one before.
                    is_changed = True


def _threads(process: int) -> list[int]:
    """The threads of a process. Linux has a priority for each thread; elsewhere the process has one."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except FileNotFoundError:
        return [process]
