"""Appending and syncing in one system call: pwritev with RWF_DSYNC.

Between a write and a sync the thread would have to wait for the interpreter, which the event loop holds; one call
instead of two makes workload W4 a seventh faster. Only Linux has the call. Elsewhere `has_synced_writes` returns False,
and `RealFile` writes and then syncs.

Even on Linux the call is not used on FUSE: the program that serves such a file system may handle a synced write as an
ordinary one. Only an fdatasync is certain to reach it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from functools import cache

from ....portable import IS_PORTABLE

_RWF_DSYNC = 0 if IS_PORTABLE else getattr(os, "RWF_DSYNC", 0)
#: `f_type` of statfs for a FUSE file system.
_FUSE_MAGIC = 0x65735546

#: Errors of the write itself: nothing was synced, so the caller may cut the file and try again.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Errors of a kernel, or of a sandbox, that lacks the flag.
UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@cache
def _statfs() -> tuple[Callable[[bytes, ctypes.Array[ctypes.c_char]], int], type[ctypes.Array[ctypes.c_char]]]:
    """statfs of the C library, and the type of its result. They are looked up once, because each look-up makes classes
    that only the garbage collector frees.
    """
    return ctypes.CDLL(None).statfs, ctypes.c_char * 256


def has_synced_writes(path: str) -> bool:
    """Whether files below `path` may be written with `write_synced`."""
    return bool(_RWF_DSYNC) and not is_fuse(path)


def is_fuse(path: str) -> bool:
    """Whether a program in user space serves the file system of `path`. Linux only."""
    statfs, status_type = _statfs()
    status = status_type()
    is_known = statfs(os.fsencode(path), status) == 0
    return is_known and ctypes.c_long.from_buffer(status).value == _FUSE_MAGIC


def write_synced(fd: int, buffers: Sequence[bytes]) -> int:
    """Append to a descriptor opened with O_APPEND and sync; returns the bytes written, which may be too few.

    Linux appends to such a descriptor whatever offset it is given. Waits for the disk.
    """
    return os.pwritev(fd, buffers, 0, _RWF_DSYNC)
