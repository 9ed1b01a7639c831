"""How the garbage collector runs in a server.

A collection stops all processes. Its cost is that of the references in the containers that it examines: 5 ns for each
waiting message in a run, besides 50 ns for each container. With thresholds alone, a queue with millions of messages, or
the arrival of a few thousand long runs, stopped everybody for 30 to 200 ms.

Processes free what they made by reference counting, and `tests/system_crash/test_nothing_left.py` proves it. So the
collector is needed only for the cycles of code that is not warren's, such as an extension's or an exception's. Most of
these are garbage soon after they were made. So `examine_once` has each container examined once, soon after it was made,
in small batches; whatever is in use then is never examined again, until memory runs short: before its alarm the memory
monitor calls `collect_all`, which examines everything.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

#: Containers that are made, less those that are freed, until the collector examines them. With runs of 1,000 messages
#: that takes 2 ms.
BATCH = 1_000

#: A threshold that is never reached.
_NEVER = 1 << 30


def examine_once() -> None:
    """Have the collector examine each container once, and those that exist now never."""
    if _freeze_after not in gc.callbacks:
        gc.callbacks.append(_freeze_after)
    gc.freeze()
    gc.set_threshold(BATCH, _NEVER, _NEVER)
    gc.enable()


def collect_all() -> None:
    """Examine all containers, which may take long. It frees the cycles that became garbage after they were examined.

    What a program around an embedded broker has frozen stays frozen.
    """
    if _freeze_after in gc.callbacks:
        gc.unfreeze()
    gc.collect()


def _freeze_after(phase: str, info: Mapping[str, int]) -> None:
    """Called by the collector: what it has just examined is not to be examined again."""
    if phase == "stop":
        gc.freeze()
