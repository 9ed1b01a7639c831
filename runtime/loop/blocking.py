"""`BlockingPool`: a few threads for calls that block: syncs, reads from a disk, name servers.

A thread is started when work waits and no thread is free, up to a limit, and runs until the pool is closed. The threads
are daemons, so that a call that hangs in the kernel cannot keep the interpreter alive after `close` has given up on it.

A call that takes microseconds is *brief*. All brief calls that wait run one after the other in one thread, and their
answers are passed on together. One by one, each would cost a few switches between threads: 200 µs because of the
interpreter's lock, and more if more threads take part. Ten thousand queues, each of which looks at its files when it
starts, took 2.5 s in that way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

#: Brief calls whose answers are passed on together, at most.
BRIEF_AT_ONCE = 256

Done = Callable[[bool, Any], None]
Work = tuple[Done, Callable[..., Any], tuple[Any, ...]]


class BlockingPool:
    """A pool of at most `limit` threads. Only one thread may call `submit`."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        # SimpleQueue hands an item over without running Python code, which matters because a publisher's confirm waits
        # for the call.
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._submitted = self._finished = 0
        self._counting = threading.Lock()
        self._brief: deque[Work] = deque()
        #: Whether a thread runs brief calls, or will soon. Used with the lock `_counting` only.
        self._is_running_brief = False
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

    def submit_brief(self, done: Done, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """As `submit`, for a call that takes microseconds."""
        with self._counting:
            self._brief.append((done, function, args))
            if self._is_running_brief:
                return
            self._is_running_brief = True
        self.submit(_ignore, self._run_brief, ())

    def _run_brief(self) -> None:
        """Run brief calls until none waits."""
        while True:
            with self._counting:
                batch = [self._brief.popleft() for _ in range(min(BRIEF_AT_ONCE, len(self._brief)))]
                if not batch:
                    self._is_running_brief = False
                    return
            outcomes: list[tuple[Done, bool, Any]] = []
            for done, function, args in batch:
                try:
                    outcomes.append((done, True, function(*args)))
                except BaseException as error:
                    outcomes.append((done, False, error))
            for done, ok, value in outcomes:
                done(ok, value)
            # An error refers to this frame by its traceback, and the frame must not refer back: a reference cycle.
            batch = outcomes = value = done = function = args = None  # type: ignore[assignment]

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
        with self._counting:
            self._brief.clear()
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


def _ignore(ok: bool, value: Any) -> None:
    """Ignore the result of `_run_brief`, which has answered each brief call itself."""
