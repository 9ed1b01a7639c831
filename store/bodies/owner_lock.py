"""`OwnerLock`: only jobs of the present owner of a message store may change its files.

Jobs run in other threads. When an owner crashes and the next one starts, a job of the first may still run, or not
have begun; it must not rename or append to files that the next owner has already scanned. So each job holds a shared
lock on a lock file while it works, and does nothing if its owner has ended; a start waits for the exclusive lock.
These are locks of the operating system: they exclude other processes as well as other threads, and the system releases
them when a process ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..disk.system.file_lock import locks


class OwnerEnded(Exception):
    """The owner of a job has ended, so the job must not touch the files."""


class OwnerLock:
    """The lock of one owner. The file `path` is created if necessary."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_ended = False

    def end(self) -> bool:
        """Let no further job begin. Returns True if none is under way."""
        self._is_ended = True
        lock = self._open()
        try:
            return locks.try_lock(lock, is_shared=False)
        finally:
            _give_back(lock)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Hold the shared lock around a job. Raises OwnerEnded if the owner has ended. Waits for the disk."""
        lock = self._open()
        try:
            locks.lock(lock, is_shared=True)
            if self._is_ended:
                raise OwnerEnded(self._path)
            yield
        finally:
            _give_back(lock)

    def wait(self) -> None:
        """Wait until no job of an earlier owner is under way."""
        lock = self._open()
        try:
            locks.lock(lock, is_shared=False)
        finally:
            _give_back(lock)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o640)


def _give_back(lock: int) -> None:
    locks.unlock(lock)
    os.close(lock)
