"""Lets processes run at a lower priority, so that they take what other programs leave of the processors.

A pipeline takes all of the processors that it gets, and beside it on the same machine the broker has other clients. On
an idle machine a low priority costs nothing. Linux also gives these processes the longest time slice (`time_slice`), so
that others that become ready need not wait until it is over.
"""

from __future__ import annotations

import contextlib
import os

from .time_slice import LONG, set_time_slice

#: The niceness of Spark's processes and of the commands of `warren pipeline`. A process with 5 gets a third of what one
#: with 0 gets that competes with it for a processor. With 10 it would be a tenth. Spark gives up a query whose Python
#: process takes longer than 10 s to start, and that happened with 10 on a machine with a load of 14.
NICE = 5


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
                    set_time_slice(thread, LONG)
                    # It may have started another thread with its old priority before, so look at all again.
                    is_changed = True


def _threads(process: int) -> list[int]:
    """The threads of a process. Linux has a priority for each thread; elsewhere the process has one."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except FileNotFoundError:
        return [process]
