"""Making a file's data and size durable: fdatasync, or the strongest sync that the system has.

`fdatasync` leaves out times and permissions, which saves the file system a write to its own journal. The twin uses
`F_FULLFSYNC` on macOS, where fsync stops at the drive's cache, which a power cut empties, and fsync elsewhere.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable
from typing import Any

from ....portable import IS_PORTABLE

#: What a file system answers to F_FULLFSYNC if it does not support it (network and FAT volumes).
_UNSUPPORTED = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)


def sync_data(fd: int) -> None:
    """Linux: fdatasync. Waits for the disk."""
    os.fdatasync(fd)


def sync_fully(fd: int) -> None:
    """The portable twin: F_FULLFSYNC where the system has it, else fsync. Waits for the disk."""
    if _FULL_SYNC is not None:
        try:
            _fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        else:
            return
    os.fsync(fd)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl = _module("fcntl")
_FULL_SYNC: int | None = getattr(_fcntl, "F_FULLFSYNC", None)

#: The function that this process uses.
sync_file: Callable[[int], None] = sync_fully if IS_PORTABLE else sync_data
