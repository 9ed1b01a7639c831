"""A few threads for calls that block: fdatasync, cold reads, DNS.

Threads are made when work waits and none is free, up to a limit, and end with the pool. They are daemons: a
call that hangs in the kernel must not keep the interpreter alive after the pool gave up waiting for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

Done = Callable[[bool, Any], None]
Work = tuple[Done, Callable[..., Any], tuple[Any, ...]]


class BlockingPool:
    """`submit(done, function, args)` runs `function(*args)` in a thread and calls `done(ok, value or error)` there. One thread submits."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        # Of the queues and locks of the standard library the one that hands over without a step of the interpreter: syncs wait for this.
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._submitted = self._finished = 0
        self._counting = threading.Lock()
        self._closed = False

    def submit(self, done: Done, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._closed:
            raise RuntimeError("the system is shutting down")
        self._submitted += 1
        self._work.put((done, function, args))
        if self._submitted - self._finished > len(self._threads) < self._limit:
            name = f"{self._name}-blocking-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def is_busy(self) -> bool:
        """Whether a call waits or runs."""
        return self._submitted > self._finished

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            done, function, args = work
            try:
                value = function(*args)
            except BaseException as error:
                done(False, error)
                del error
            else:
                done(True, value)
            # An idle thread must not keep the last result alive.
            work = value = done = function = args = None  # type: ignore[assignment]
            with self._counting:
                self._finished += 1

    def close(self, timeout: float) -> bool:
        """Drop what has not begun, wait for what has; True if every thread ended within `timeout` seconds."""
        self._closed = True
        while True:
            try:
                self._work.get_nowait()
            except Empty:
                break
        for _ in self._threads:
            self._work.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
