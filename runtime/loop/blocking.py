"""`BlockingPool`: a few threads for calls that block: syncs, reads from a disk, name servers.

A thread is started when work waits and no thread is free, up to a limit, and runs until the pool is closed. The threads
are daemons, so that a call that hangs in the kernel cannot keep the interpreter alive after `close` has given up on it.
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
    """A pool of at most `limit` threads. Only one thread may call `submit`."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        # SimpleQueue hands an item over without running any Python code in between; a publisher's confirm waits for
        # this.
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._submitted = self._finished = 0
        self._counting = threading.Lock()
        self._is_closed = False

    def submit(self, done: Done, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run `function(*args)` in a thread, then call `done(ok, value or error)` in the same thread.

        Raises RuntimeError after `close`.
        """
        if self._is_closed:
            raise RuntimeError("the system is shutting down")
        self._submitted += 1
        self._work.put((done, function, args))
        if self._submitted - self._finished > len(self._threads) < self._limit:
            name = f"{self._name}-blocking-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def is_busy(self) -> bool:
        """Whether any call waits or runs."""
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
            # A thread that waits for work must not keep its last result alive.
            work = value = done = function = args = None  # type: ignore[assignment]
            with self._counting:
                self._finished += 1

    def close(self, timeout: float) -> bool:
        """Drop the calls that wait, and wait for those that run. True if every thread ends within `timeout` seconds."""
        self._is_closed = True
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
