"""`OwnerLock`: only jobs of the present owner of a message store may change its files.

Jobs run in other threads. When an owner crashes and the next one starts, a job of the first may still run, or not
have begun; it must not rename or append to files that the next owner has already scanned. So a job counts as under way
while it works, and does nothing if its owner has ended. The next owner of the same files ends the one before, and waits
until none of its jobs is under way, before it reads.

Both owners are in one operating-system process: other processes have no access, because they cannot claim the data
directory, and the jobs of a process that was killed have ended with it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class OwnerEnded(Exception):
    """The owner of a job has ended, so the job must not touch the files."""


class OwnerLock:
    """The lock of one owner of the files at `path`."""

    __slots__ = ("__weakref__", "_condition", "_path", "_under_way", "is_ended")

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        #: Guards the rest, and notifies when no job is under way any more.
        self._condition = threading.Condition()
        self._under_way = 0
        #: Whether no further job may begin.
        self.is_ended = False

    def take(self) -> None:
        """End the owner before, and wait until none of its jobs is under way. Raises OwnerEnded if this one has ended
        meanwhile.
        """
        with _guard:
            former = _present.get(self._path)
            _present[self._path] = self
        if former is not None and former is not self:
            # The wait counts as under way: if this owner ends meanwhile, the next one waits for the jobs of both.
            with self._condition:
                self._under_way += 1
            former.end()
            with former._condition:
                former._condition.wait_for(lambda: not former._under_way)
            self._done()
        if self.is_ended:
            raise OwnerEnded(self._path)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count as under way what is done within. Raises OwnerEnded if the owner has ended."""
        with self._condition:
            if self.is_ended:
                raise OwnerEnded(self._path)
            self._under_way += 1
        try:
            yield
        finally:
            self._done()

    def _done(self) -> None:
        with self._condition:
            self._under_way -= 1
            self._condition.notify_all()

    def end(self) -> bool:
        """Let no further job begin. Returns True if none is under way."""
        with self._condition:
            self.is_ended = True
            return not self._under_way


#: By path: the present owner, or the last one while something refers to it, such as a job that is under way.
_present: WeakValueDictionary[str, OwnerLock] = WeakValueDictionary()
_guard = threading.Lock()
