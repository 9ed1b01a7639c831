"""How the C library's heap behaves in a server.

By default glibc gives the top of the heap back to the system as soon as twice the largest freed block is free there,
and asks for it again with the next message. With bodies of 1 MB the kernel took the pages of each body away and gave
zeroed ones for the next, with a page fault each, which was half of the broker's processor time. And
when a client goes away with thousands of queues, whichever turn freed the last block at the top gave back everything
below it too, which took 17 ms for 32 MiB. So nothing is given back when memory is freed.

By default each of the threads that write segments and bodies also has a heap of its own, an arena, which keeps what it
needed once: a broker whose queues paged out took 15 MB more memory than with one heap. All threads but one wait for the
interpreter most of the time, so one heap is enough.

What a server keeps is given back a few seconds later in another thread, when the server does not need it again
(`heap_trimmer` in `runtime/machine/linux_memory.py`).

Large blocks that live as long as the server, and of which it rarely uses more than the beginning, are better off
outside the heap (`outside_heap`): within it they are filled with zeros when they are allocated, and take memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .portable import IS_PORTABLE

#: The value of `M_TRIM_THRESHOLD` with which glibc gives nothing back by itself.
_NEVER = -1

#: Bytes from which on a block is mapped by itself, outside the heap, and unmapped when it is freed. 32 MiB is the most
#: that glibc allows, and what its own adjustment comes to after a block of that size was freed.
MAPPED = 32 << 20

#: The same for what is allocated within `outside_heap`; glibc's own value at the start of a process.
MAPPED_OUTSIDE = 128 << 10

# The numbers of the parameters in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

#: The function `mallopt` of the C library once `keep_freed_heap` has used it.
_mallopt: Callable[[int, int], int] | None = None


def keep_freed_heap() -> bool:
    """Have the C library keep freed memory for the next messages, in one heap for all threads.

    Call it before other threads start. Returns whether the C library has accepted these settings.
    """
    if IS_PORTABLE:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    global _mallopt
    _mallopt = mallopt
    wanted = ((_M_TRIM_THRESHOLD, _NEVER), (_M_MMAP_THRESHOLD, MAPPED), (_M_ARENA_MAX, 1))
    return all([mallopt(parameter, value) for parameter, value in wanted])


@contextmanager
def outside_heap() -> Iterator[None]:
    """Have large blocks that are allocated in the `with` block mapped by themselves. Any thread may use it at any time.

    Does nothing unless `keep_freed_heap` was called, because glibc maps large blocks by itself by default.
    """
    if _mallopt is None:
        yield
        return
    _mallopt(_M_MMAP_THRESHOLD, MAPPED_OUTSIDE)
    try:
        yield
    finally:
        _mallopt(_M_MMAP_THRESHOLD, MAPPED)
