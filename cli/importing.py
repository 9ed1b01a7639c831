"""The command imports its modules at its start without the garbage collector, which would examine all of them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Import inside without the garbage collector: it would take a seventh of the time of the imports, to find nothing.

    Modules, classes and functions refer to one another in cycles, and stay until the process ends.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
