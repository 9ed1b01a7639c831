"""Who may touch a message store's files: its owner's jobs, until the owner ends; then the next owner's.

Jobs run in other threads, so one may still run, or not have begun, when its owner has crashed and the next one starts. It must
not then rename or append to what the next one has looked through. So each job works under a shared lock of a file, and does
nothing if the owner has ended; a start waits for the lock alone. The operating system's locks vanish with the process that held
them, and hold between processes as between threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..disk.system.file_lock import locks


class OwnerEnded(Exception):
    """The job does nothing any more."""


class Lease:
    """Of one owner. `path` is that of the lock file, which is made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_ended = False

    def end(self) -> bool:
        """No job begins from now on; True if none is under way."""
        self._is_ended = True
        lock = self._open()
        try:
            return locks.try_lock(lock, is_shared=False)
        finally:
            os.close(lock)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Around a job. Raises OwnerEnded."""
        lock = self._open()
        try:
            locks.lock(lock, is_shared=True)
            if self._is_ended:
                raise OwnerEnded(self._path)
            yield
        finally:
            os.close(lock)

    def wait(self) -> None:
        """Until no job of an owner before this one is under way."""
        lock = self._open()
        try:
            locks.lock(lock, is_shared=False)
        finally:
            os.close(lock)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o640)
