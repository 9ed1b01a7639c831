"""`QueueExpiry`: a queue with `x-expires` ends when nobody has used it for that long (AB-93)."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.process import Process


class QueueExpiry:
    """The time since a queue was last used. Consumers, readers, basic.get and queue.declare are uses, publishes are
    not.

    `is_in_use`: a consumer or a reader is there. Without `expires_ms` the queue never expires.
    """

    __slots__ = ("_is_in_use", "_last_use", "_process", "_seconds", "_timer")

    def __init__(self, process: Process, expires_ms: int | None, is_in_use: Callable[[], bool]) -> None:
        self._process = process
        self._seconds = None if expires_ms is None else expires_ms / 1000
        self._is_in_use = is_in_use
        self._timer: int | None = None
        self._last_use = 0.0

    def restart(self) -> None:
        """The queue is used, or its last consumer has left.

        A timer that runs already is left alone: when it fires, `timer_fired` starts it again for the time that is left.
        """
        if self._seconds is not None:
            self._last_use = self._process.now()
            if self._timer is None and not self._is_in_use():
                self._timer = self._process.start_timer(self._seconds + 0.001, "queue_expiry")

    def suspend(self) -> None:
        """A consumer or reader has come: the queue cannot expire before `restart`."""
        if self._timer is not None:
            self._process.cancel_timer(self._timer)
            self._timer = None

    def timer_fired(self) -> bool:
        """Whether the queue has expired."""
        self._timer = None
        if self._is_in_use() or self._seconds is None:
            return False
        left = self._last_use + self._seconds - self._process.now()
        if left > 0:
            self._timer = self._process.start_timer(left + 0.001, "queue_expiry")
        return left <= 0
