"""Operations about the program in which the node runs: its environment, its command line and its threads."""

from __future__ import annotations

import os
import sys
import threading

from .....runtime.machine.usage import program
from ..registry import OperationError, Operator, Rows, operation

#: Parts of the names of environment variables whose values are secret (CM-75).
SECRET_WORDS = ("PASS", "SECRET", "TOKEN", "KEY", "COOKIE")

#: The variables that warren reads begin with one of these.
PREFIXES = ("WARREN_", "XDG_")


@operation(while_booting=True)
async def os_env(operator: Operator) -> Rows:
    """The environment variables that warren reads (CM-202); secrets are blanked."""
    return [
        {"key": name, "value": "***" if any(word in name for word in SECRET_WORDS) else value}
        for name, value in sorted(os.environ.items())
        if name.startswith(PREFIXES)
    ]


@operation(while_booting=True)
async def command_line_arguments(operator: Operator) -> list[str]:
    """The command line of the program (CM-202). A secret cannot be in that of `warren start`."""
    return list(sys.argv)


@operation(while_booting=True)
async def runtime_thread_stats(operator: Operator, *, interval: float = 5.0) -> Rows:
    """The processor time of each thread of the program within `interval` seconds (CM-205)."""
    if not 0 < interval <= 3600:
        raise OperationError("data", f"Bad argument: the interval must be a number of seconds up to 3600: {interval}")
    before, begin = program.thread_seconds(), operator.process.now()
    if before is None:
        raise OperationError("unavailable", "the processor time of single threads can be read on Linux only")
    await operator.process.sleep(interval)
    after, seconds = program.thread_seconds() or {}, operator.process.now() - begin
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    return [
        {
            "thread": names.get(number, "system"),
            "id": number,
            "cpu_seconds": round(used - before.get(number, 0.0), 4),
            "percent": round(100 * (used - before.get(number, 0.0)) / seconds, 2),
        }
        for number, used in sorted(after.items())
    ]
