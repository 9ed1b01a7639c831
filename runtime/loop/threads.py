"""`OtherThreads`: how threads act in a loop that is not theirs.

A thread posts a call, which the loop makes soon, and wakes the loop if it sleeps. `call` also waits for the result.
Only one thread acts in a system at a time, the one that holds `running`: the thread that runs the loop or, while no
thread does, the one that is in `call`.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .waker import SystemWaker

#: Most calls of other threads that a round makes. A thousand clients may cause a thousand at once.
CALLS = 256

#: Seconds after which a thread that waits for Python's lock has it handed over, less than the loop's `POLL_INTERVAL`. A
#: busy loop gives the lock away for some microseconds at each poll. A thread that waits is woken then, comes too late,
#: and counts its waiting from the beginning, so that with Python's usual 5 ms it may wait for seconds. A broker in a
#: process of its own has no such threads. It leaves the 5 ms, because its confirms come in larger batches then: W15 and
#: W19 of compare.py have 9 to 16 % more messages a second.
SWITCH_SECONDS = 0.5e-3


class OtherThreads:
    """The calls of other threads in the loop of the system `name`. Any thread may use it.

    If the loop has a thread of its own, the threads of the program get Python's lock in time. A loop in the caller's
    thread leaves that to the program.
    """

    __slots__ = ("_name", "calls", "is_asleep", "is_closed", "runner", "running", "waker")

    def __init__(self, name: str, has_own_thread: bool) -> None:
        self._name = name
        if has_own_thread:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        #: The calls that were posted and not made yet.
        self.calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        #: Whether the loop sleeps, so that a thread that posts a call must wake it.
        self.is_asleep = False
        #: Whether every actor has ended, so that calls are dropped.
        self.is_closed = False
        #: Held by the thread that acts in the system.
        self.running = threading.Lock()
        #: The ident of the thread that runs the loop, if one does.
        self.runner: int | None = None
        self.waker = SystemWaker()

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Make the loop call `function(*args)` soon. Never waits; does nothing after shutdown.

        The calls that one thread posts are made in their order.
        """
        if self.is_closed:
            return
        self.calls.append((function, args))
        if self.is_asleep:
            self.waker.wake()

    def make_calls(self) -> None:
        """Make the calls that were posted, at most `CALLS` of them."""
        calls = self.calls
        for _ in range(min(len(calls), CALLS)):
            function, args = calls.popleft()
            function(*args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(*args)` on the loop and return its value or raise its error."""
        if self.is_run_by(threading.get_ident()):
            return function(*args)
        done = threading.Event()
        outcome: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                outcome.append((True, function(*args)))
            except BaseException as error:
                outcome.append((False, error))
            done.set()

        self.post(run)
        while not done.is_set():
            if self.is_closed:
                raise RuntimeError(f"the system {self._name} is shut down")
            if self.running.acquire(blocking=False):
                # No thread runs the loop (thread=False), so this one acts in its place.
                try:
                    self.make_calls()
                finally:
                    self.running.release()
            else:
                # Check again after a while, because the thread that runs the loop may leave it.
                done.wait(0.1)
        ok, value = outcome.pop()
        if ok:
            return value
        try:
            raise value
        finally:
            del value  # the error refers to this frame by its traceback, and would keep it alive

    def pause(self) -> Callable[[], None]:
        """Make the loop stand still until the returned function is called. Raises RuntimeError after shutdown."""
        standing, going = threading.Event(), threading.Event()

        def stand_still() -> None:
            standing.set()
            going.wait()

        self.post(stand_still)
        while not standing.wait(0.1):
            if self.is_closed:
                raise RuntimeError(f"the system {self._name} is shut down")
        return going.set

    def is_run_by(self, thread: int) -> bool:
        """Whether the thread with this ident runs the loop."""
        return self.runner == thread
