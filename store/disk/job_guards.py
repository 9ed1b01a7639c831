"""`JobGuards`: a job that writes files for a process does nothing after the next process has begun to use these files.

Jobs run in other threads. When a process ends, its job may still run, or wait until a thread is free. The next process
reads the same files, and appends to them. If the old job ran after that, it would cut the files to the sizes that they
had before. So the next process first **ends** the job: it waits for a job that runs, and a job that has not begun does
nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class JobEnded(Exception):
    """The process that has taken the job has ended, so the job must not touch the files."""


class JobGuard:
    """The guard of one job, which may be run several times."""

    __slots__ = ("__weakref__", "_is_ended", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_ended = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """Run the job within this. Raises JobEnded."""
        with self._lock:
            if self._is_ended:
                raise JobEnded("the files belong to another process by now")
            yield

    def end(self) -> None:
        """Wait until the job does not run, and let it do nothing from now on."""
        with self._lock:
            self._is_ended = True


class JobGuards:
    """The guards of all jobs on one disk, by the names of what they write. There is one job at a time for a name."""

    def __init__(self) -> None:
        #: A guard is here as long as its job exists.
        self._guards: WeakValueDictionary[str, JobGuard] = WeakValueDictionary()

    def begin(self, name: str) -> JobGuard:
        """The guard of a new job."""
        guard = self._guards[name] = JobGuard()
        return guard

    def end(self, name: str) -> None:
        """End the job that a former process may have left. Waits for the disk if that job runs."""
        guard = self._guards.get(name)
        if guard is not None:
            guard.end()
