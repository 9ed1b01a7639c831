"""`QueueExpiry`: a queue with `x-expires` ends when nobody has used it for that long (AB-93)."""

from __future__ import annotations

from collections.abc import Callable

from ....routing.arguments.queue_settings import QueueSettings
from ..effects import Effects


class QueueExpiry:
    """The time since a queue was last used. Consumers, readers, basic.get and queue.declare are uses, publishes are
    not. `now` gives seconds of a monotonic clock.
    """

    __slots__ = ("_effects", "_is_timing", "_last_use", "_now", "_seconds", "_users")

    def __init__(self, effects: Effects, now: Callable[[], float]) -> None:
        self._effects = effects
        self._now = now
        #: None: the queue never expires.
        self._seconds: float | None = None
        #: How many consumers and readers there are. Each keeps the queue from expiring.
        self._users = 0
        self._is_timing = False
        self._last_use = 0.0

    def apply(self, settings: QueueSettings) -> None:
        """Begin anew to count the time until the queue expires. RabbitMQ does so with each change of settings, too."""
        self._seconds = None if settings.expires is None else settings.expires / 1000
        self._stop_timer()
        self.use()

    def use(self) -> None:
        """Note a use of the queue.

        A timer that runs already is left alone: when it fires, `timer_fired` starts it again for the time that is left.
        """
        if self._seconds is not None:
            self._last_use = self._now()
            if not self._is_timing and not self._users:
                self._start_timer(self._seconds)

    def enter(self) -> None:
        """Note a new consumer or reader, before whose end the queue cannot expire."""
        self._users += 1
        self._stop_timer()

    def leave(self, count: int = 1) -> None:
        """Note that this many consumers or readers have left."""
        self._users -= count
        self.use()

    def timer_fired(self) -> bool:
        """Whether the queue has expired."""
        self._is_timing = False
        if self._users or self._seconds is None:
            return False
        left = self._last_use + self._seconds - self._now()
        if left > 0:
            self._start_timer(left)
        return left <= 0

    def _start_timer(self, seconds: float) -> None:
        self._is_timing = True
        self._effects.set_timer("queue_expiry", seconds + 0.001)

    def _stop_timer(self) -> None:
        if self._is_timing:
            self._is_timing = False
            self._effects.cancel_timer("queue_expiry")
