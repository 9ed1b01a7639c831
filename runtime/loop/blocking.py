"""`BlockingPool`: a few threads for calls that block: syncs, reads from a disk, name servers.

A thread is started when work waits and no thread is free, up to a limit, and runs until the pool is closed. The threads
are daemons, so that a call that hangs in the kernel cannot keep the interpreter alive after `close` has given up on it.

Each thread waits for work of its own, so that a call wakes no more than one. A thread is free as soon as it has a
result, before it passes that on, and the one that became free last gets the next call. So calls that follow each other,
such as the commits of a client that waits for each, are made by one thread, which has mostly not fallen asleep.

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
from typing import Any

#: Brief calls whose answers are passed on together, at most.
BRIEF_AT_ONCE = 256

Done = Callable[[bool, Any], None]
Work = tuple[Done, Callable[..., Any], tuple[Any, ...]]


class _Worker:
    """A thread of the pool. It waits for the lock `has_work`, which `give` releases; it ends if it gets no
    `work` then.
    """

    __slots__ = ("has_work", "thread", "work")

    thread: threading.Thread

    def __init__(self, work: Work) -> None:
        self.work: Work | None = work
        self.has_work = threading.Lock()

    def give(self, work: Work | None) -> None:
        self.work = work
        self.has_work.release()


class BlockingPool:
    """A pool of at most `limit` threads. Only one thread may call `submit`."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._workers: list[_Worker] = []
        #: Guards everything below but `_submitted`.
        self._lock = threading.Lock()
        #: The threads that have nothing to do, the one that became free last at the end.
        self._free: list[_Worker] = []
        self._waiting: deque[Work] = deque()
        self._submitted = self._finished = 0
        self._brief: deque[Work] = deque()
        #: Whether a thread runs brief calls, or will soon.
        self._is_running_brief = False
        self._is_closed = False

    def submit(self, done: Done, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Run `function(*args)` in a thread, then call `done(ok, value or error)` in the same thread.

        `done` must not wait: the thread may have its next call already. Raises RuntimeError after `close`.
        """
        if self._is_closed:
            raise RuntimeError("the system is shutting down")
        self._submitted += 1
        with self._lock:
            if self._free:
                self._free.pop().give((done, function, args))
                return
            if len(self._workers) == self._limit:
                self._waiting.append((done, function, args))
                return
        worker = _Worker((done, function, args))
        name = f"{self._name}-blocking-{len(self._workers)}"
        worker.thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
        self._workers.append(worker)
        worker.thread.start()

    def submit_brief(self, done: Done, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """As `submit`, for a call that takes microseconds."""
        with self._lock:
            self._brief.append((done, function, args))
            if self._is_running_brief:
                return
            self._is_running_brief = True
        self.submit(_ignore, self._run_brief, ())

    def _run_brief(self) -> None:
        """Run brief calls until none waits."""
        while True:
            with self._lock:
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

    def _run(self, worker: _Worker) -> None:
        worker.has_work.acquire()
        while (work := worker.work) is not None:
            done, function, args = work
            # A thread that waits for work must not keep its last result alive.
            worker.work = work = None
            try:
                value, ok = function(*args), True
            except BaseException as error:
                value, ok = error, False
            self._becomes_free(worker)
            done(ok, value)
            value = done = function = args = None  # type: ignore[assignment]
            with self._lock:
                self._finished += 1
            worker.has_work.acquire()

    def _becomes_free(self, worker: _Worker) -> None:
        with self._lock:
            if self._is_closed:
                worker.give(None)
            elif self._waiting:
                worker.give(self._waiting.popleft())
            else:
                self._free.append(worker)

    def close(self, timeout: float) -> bool:
        """Drop the calls that wait, and wait for those that run. True if every thread ends within `timeout` seconds."""
        with self._lock:
            self._is_closed = True
            self._brief.clear()
            self._waiting.clear()
            while self._free:
                self._free.pop().give(None)
        deadline = time.monotonic() + timeout
        for worker in self._workers:
            worker.thread.join(max(0.0, deadline - time.monotonic()))
        return not any(worker.thread.is_alive() for worker in self._workers)


def _ignore(ok: bool, value: Any) -> None:
    """Ignore the result of `_run_brief`, which has answered each brief call itself."""
