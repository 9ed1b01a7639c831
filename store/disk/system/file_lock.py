"""Locking a file against other processes and other threads: flock, or byte ranges on Windows.

A lock belongs to one open descriptor, keeps descriptors of the same process out as well, and ends when its descriptor
is closed or its process dies. All POSIX systems have `flock`, so `WARREN_PORTABLE=1` does not replace it.

Windows locks bytes of a file, each for one descriptor alone. The twin gives them the meaning of shared and exclusive
locks: a shared lock is any one of `_MAX_SHARED` bytes, an exclusive lock is all of them. The bytes lie far behind the
end of the file, because Windows lets no other descriptor read a locked byte, and the file names its holder.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any, Protocol

#: Where the locked bytes begin on Windows.
_LOCK_OFFSET = 1 << 30
#: How many descriptors may hold a shared lock at once on Windows.
_MAX_SHARED = 64
#: Seconds between two attempts on Windows, which has no wait without a limit.
_RETRY_SECONDS = 0.02


class FileLocks(Protocol):
    """Locks on descriptors of files."""

    def lock(self, fd: int, is_shared: bool) -> None:
        """Wait until this descriptor has the lock."""

    def try_lock(self, fd: int, is_shared: bool) -> bool:
        """Lock without waiting; False if another descriptor holds a lock that excludes this one."""

    def unlock(self, fd: int) -> None:
        """Give the lock back before the descriptor is closed.

        A process that was forked meanwhile has the descriptor too, and would keep the lock until it ends.
        """


class PosixLocks:
    """`flock`. `fcntl` is the standard library's module."""

    def __init__(self, fcntl: Any) -> None:
        self._fcntl = fcntl

    def lock(self, fd: int, is_shared: bool) -> None:
        """As `FileLocks.lock`."""
        self._fcntl.flock(fd, self._fcntl.LOCK_SH if is_shared else self._fcntl.LOCK_EX)

    def try_lock(self, fd: int, is_shared: bool) -> bool:
        """As `FileLocks.try_lock`."""
        kind = self._fcntl.LOCK_SH if is_shared else self._fcntl.LOCK_EX
        try:
            self._fcntl.flock(fd, kind | self._fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        """As `FileLocks.unlock`."""
        self._fcntl.flock(fd, self._fcntl.LOCK_UN)


class WindowsLocks:
    """The portable twin: ranges of bytes. `msvcrt` is the standard library's module."""

    def __init__(self, msvcrt: Any) -> None:
        self._msvcrt = msvcrt

    def lock(self, fd: int, is_shared: bool) -> None:
        """As `FileLocks.lock`."""
        while not self.try_lock(fd, is_shared):
            time.sleep(_RETRY_SECONDS)

    def try_lock(self, fd: int, is_shared: bool) -> bool:
        """As `FileLocks.try_lock`."""
        if not is_shared:
            return self._try_bytes(fd, _LOCK_OFFSET, _MAX_SHARED)
        return any(self._try_bytes(fd, _LOCK_OFFSET + index, 1) for index in range(_MAX_SHARED))

    def _try_bytes(self, fd: int, offset: int, count: int) -> bool:
        os.lseek(fd, offset, os.SEEK_SET)
        try:
            self._msvcrt.locking(fd, self._msvcrt.LK_NBLCK, count)
        except OSError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        """Do nothing: Windows does not fork, and closing the descriptor gives the lock back."""


class NoLocks:
    """For a system with neither kind of lock: a broker works in memory there, but cannot claim a data directory."""

    def lock(self, fd: int, is_shared: bool) -> None:
        """Raises OSError."""
        raise OSError("this system has no file locks")

    def try_lock(self, fd: int, is_shared: bool) -> bool:
        """Raises OSError."""
        raise OSError("this system has no file locks")

    def unlock(self, fd: int) -> None:
        """Do nothing: nothing was locked."""


def _find_locks() -> FileLocks:
    try:
        return PosixLocks(importlib.import_module("fcntl"))
    except ImportError:
        pass
    try:
        return WindowsLocks(importlib.import_module("msvcrt"))
    except ImportError:
        return NoLocks()


#: The locks of the system that warren runs on.
locks: FileLocks = _find_locks()
