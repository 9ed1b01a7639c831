"""Reserving blocks for a file that is going to grow: Linux's fallocate, or nothing. And making a file of some size.

With blocks reserved beyond the end of the file, a sync need not find and record them: 1 MB written and synced took
0.65 ms instead of 3 ms (ext4). It is a hint: a file without reserved blocks behaves the same, so the twin does nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from ....portable import IS_PORTABLE

#: FALLOC_FL_KEEP_SIZE: the file's size stays as it is. `os.posix_fallocate` has no such mode, hence ctypes.
_KEEP_SIZE = 1
#: Bytes that `allocate_blocks` writes at a time.
_PIECE = 1 << 20


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's fallocate from the C library; None if the library has none."""
    try:
        function = ctypes.CDLL(None).fallocate
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found: Callable[[int, int, int, int], int] = function
    return found


_fallocate = None if IS_PORTABLE else _find_fallocate()


def reserve_blocks(fd: int, size: int) -> None:
    """Reserve blocks for the first `size` bytes of a file if the file system has room for them. Ignores failures."""
    if _fallocate is None:
        return
    space, file = os.fstatvfs(fd), os.fstat(fd)
    # With less free space than that, fallocate would use up the rest before failing and starve concurrent writers.
    if space.f_bavail * space.f_frsize >= size - file.st_blocks * 512:
        _fallocate(fd, _KEEP_SIZE, 0, size)


def allocate_blocks(fd: int, size: int) -> None:
    """Make an empty file `size` bytes long, with blocks for all of them. Raises OSError if there is no room."""
    if IS_PORTABLE or not hasattr(os, "posix_fallocate"):
        # Random bytes, because a file system that compresses would hardly reserve any space for zeros.
        for start in range(0, size, _PIECE):
            os.write(fd, os.urandom(min(_PIECE, size - start)))
    else:
        os.posix_fallocate(fd, 0, size)
