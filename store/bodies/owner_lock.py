"""`OwnerLock`: only jobs of the present owner of a message store may change its files.

Jobs run in other threads. When an owner crashes and the next one starts, a job of the first may still run, or not
have begun; it must not rename or append to files that the next owner has already scanned. So an owner holds a lock on a
lock file until it has ended and none of its jobs is under way; the next owner waits for that lock before it reads, and
a job that begins after its owner has ended does nothing.

The lock is one of the operating system: it excludes other processes as well as other threads, and the system releases
it when a process ends. A job itself only counts as under way: to open, lock, unlock and close the file, its thread
would wait for the interpreter four times more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..disk.system.file_lock import locks


class OwnerEnded(Exception):
    """The owner of a job has ended, so the job must not touch the files."""


class OwnerLock:
    """The lock of one owner. The file `path` is created if necessary."""

    def __init__(self, path: str) -> None:
        self._path = path
        #: Guards what follows.
        self._guard = threading.Lock()
        #: The descriptor that has the lock, None while the owner has not got it.
        self._fd: int | None = None
        self._under_way = 0
        #: Whether no further job may begin.
        self.is_ended = False

    def descriptors(self) -> tuple[int, ...]:
        """The descriptor that has the lock, if any. A process that is forked must not keep it, because it would keep
        the lock when the owner's process is killed.
        """
        fd = self._fd
        return () if fd is None else (fd,)

    def take(self) -> None:
        """Wait until no job of an earlier owner is under way, and take the lock. Does nothing if the owner has it.

        Raises OwnerEnded if the owner has ended meanwhile.
        """
        if self._fd is not None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            locks.lock(fd, is_shared=False)
        except BaseException:
            os.close(fd)
            raise
        with self._guard:
            if not self.is_ended:
                self._fd = fd
                return
        _give_back(fd)
        raise OwnerEnded(self._path)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count as under way what is done within. Raises OwnerEnded if the owner has ended."""
        with self._guard:
            if self.is_ended:
                raise OwnerEnded(self._path)
            self._under_way += 1
        try:
            yield
        finally:
            with self._guard:
                self._under_way -= 1
            self.release()

    def end(self) -> bool:
        """Let no further job begin. Returns True if none is under way; the owner then calls `release` when it has
        closed its files. Otherwise the last job releases the lock.
        """
        with self._guard:
            self.is_ended = True
            return not self._under_way

    def release(self) -> None:
        """Give the lock back if the owner has ended and no job is under way."""
        with self._guard:
            if not self.is_ended or self._under_way or self._fd is None:
                return
            fd, self._fd = self._fd, None
        _give_back(fd)


def _give_back(lock: int) -> None:
    # A process that is about to be forked may have the descriptor too, and would keep the lock: so unlock it first.
    locks.unlock(lock)
    os.close(lock)
