"""`Signal`: coroutines of one process wait for something to change in that process, in the spirit of trio's ParkingLot.

    class Store(Process):
        def __init__(self):
            self.is_busy = False
            self.became_idle = Signal(self)

        async def on_close(self, sender):
            await self.became_idle.wait_for(lambda: not self.is_busy)
            ...

        def finished(self):
            self.is_busy = False
            self.became_idle.wake_all()

A signal has no memory: `wake` does nothing if no coroutine waits. So a coroutine checks the condition before it waits,
and again after the wait, because other coroutines may have run between the wake-up and the wait's end. `wait_for` does
both.

Nothing is sent. A coroutine that is woken goes on at the beginning of the process's next turn, in the order in which it
was woken, and before the messages of that turn; in a simulation the chooser decides what comes first. So `wake` never
runs anything itself, and may be called in the middle of a change. When the process ends, its coroutines are closed
where they wait, as at any other `await`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from .coroutines import Pending, TimerCall
from .errors import ProcessTimeout

if TYPE_CHECKING:
    from .process import Process


class Signal:
    """The coroutines of `process` that wait for one thing, those that have waited longest first."""

    __slots__ = ("_process", "_waiting")

    def __init__(self, process: Process) -> None:
        self._process = process
        # A list while a coroutine waits. Queues have several signals each, and those of idle queues share the empty
        # tuple.
        self._waiting: list[Pending] | tuple[()] = ()

    def wait(self, timeout: float | None = None) -> Awaitable[None]:
        """Begin to wait now. `await` of the result returns when the signal wakes it; ProcessTimeout after `timeout`
        seconds.
        """
        pending = Pending(None)
        if self._waiting:
            self._waiting.append(pending)
        else:
            self._waiting = [pending]
        if timeout is not None:
            pending.timer = self._process.start_timer(timeout, TimerCall(partial(self._timed_out, pending)))
        return pending

    async def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> None:
        """Return when `condition()` is true, which is checked now and after each wake-up.

        Raises ProcessTimeout if it has not become true after `timeout` seconds.
        """
        deadline = None if timeout is None else self._process.now() + timeout
        while not condition():
            await self.wait(None if deadline is None else max(0.0, deadline - self._process.now()))

    def wake(self) -> None:
        """Let the coroutine that has waited longest go on."""
        if self._waiting:
            self._go_on(self._waiting.pop(0))

    def wake_all(self) -> None:
        """Let all coroutines that wait now go on, in the order in which they began to wait."""
        waiting, self._waiting = self._waiting, ()
        for pending in waiting:
            self._go_on(pending)

    def _go_on(self, pending: Pending) -> None:
        if pending.timer is not None:
            self._process.cancel_timer(pending.timer)
        self._process._host.resume_later(pending)

    def _timed_out(self, pending: Pending) -> None:
        assert self._waiting, "a coroutine that was woken has no timer any more"
        self._waiting.remove(pending)
        self._process._resume(pending, False, ProcessTimeout("not woken in the time allowed"))
