"""A few threads for calls that block: fdatasync, cold reads, DNS.

Threads are made when work waits and none is free, up to a limit, and end with the pool. They are daemons: a
call that hangs in the kernel must not keep the interpreter alive after the pool gave up waiting for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

Done = Callable[[bool, Any], None]


class BlockingPool:
    """`submit(done, function, args)` runs `function(*args)` in a thread and calls `done(ok, value or error)` there."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._work: deque[tuple[Done, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._closed = False

    def submit(self, done: Done, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("the system is shutting down")
            self._work.append((done, function, args))
            if self._free >= len(self._work) or len(self._threads) >= self._limit:
                self._changed.notify()
                return
            name = f"{self._name}-blocking-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
        thread.start()

    def is_busy(self) -> bool:
        """Whether a call waits or runs."""
        with self._changed:
            return bool(self._work) or self._free < len(self._threads)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._free += 1
                while not self._work and not self._closed:
                    self._changed.wait()
                self._free -= 1
                if not self._work:
                    return
                done, function, args = self._work.popleft()
            try:
                value = function(*args)
            except BaseException as error:
                done(False, error)
                del error
            else:
                done(True, value)
            # An idle thread must not keep the last result alive.
            value = done = function = args = None  # type: ignore[assignment]

    def close(self, timeout: float) -> bool:
        """Drop what has not begun, wait for what has; True if every thread ended within `timeout` seconds."""
        with self._changed:
            self._closed = True
            self._work.clear()
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
