"""`PublishDelay`: publishes that wait before they enter a queue, because deliveries have priority (FC-33)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ....store.queue.backing_queue import BackingQueue
from ..consumers.consumer import ChannelRecord
from ..effects import Effects
from .dispatch import Dispatch

if TYPE_CHECKING:
    from ...contracts.queue import PublishEntry

    #: A `publish` message: the channel that sent it, and its runs. A NamedTuple would cost 0.1 µs a message more.
    Publish = tuple[ChannelRecord, list[PublishEntry]]

#: Seconds without a delivery written to a socket after which delayed publishes are accepted all the same.
DELAY_SECONDS = 0.002

#: The highest `allowance` of publishes that a queue may save up while deliveries are written.
MAX_ALLOWANCE = 1000


class PublishDelay:
    """Publishes that wait because deliveries have priority (FC-33).

    While messages are ready and a consumer waits only for its socket, publishes are taken half as fast as deliveries
    are written: a publish costs fewer turns of the broker's thread than a delivery, so a publisher that never pauses
    would otherwise grow the queue without end. If no delivery is written for `DELAY_SECONDS`, the consumers are
    *stalled*, and publishes do not wait again until a delivery is written.
    """

    __slots__ = ("backing", "_dispatch", "_effects", "allowance", "delayed", "is_stalled", "is_timing")

    def __init__(self, backing: BackingQueue, dispatch: Dispatch, effects: Effects) -> None:
        self.backing = backing
        self._dispatch = dispatch
        self._effects = effects
        #: The publishes that wait; None until one does, because an empty deque takes 760 bytes of each queue.
        self.delayed: deque[Publish] | None = None
        #: Whether the timer runs that ends the wait of publishes.
        self.is_timing = False
        self.is_stalled = False
        #: Publishes that may be taken while deliveries wait for sockets; the queue subtracts those that it takes.
        self.allowance = 0

    def must_wait(self) -> bool:
        """Whether a publish that arrives now must wait. It never overtakes one that waits."""
        return bool(self.delayed) or self._dispatch.awaits_write and self.allowance <= 0 and not self.is_stalled

    def add(self, publish: Publish) -> None:
        if not self.is_timing:
            self.is_timing = True
            self._effects.set_timer("delay", DELAY_SECONDS)
        if self.delayed is None:
            self.delayed = deque()
        self.delayed.append(publish)

    def count_written(self, count: int) -> None:
        """Note that `count` deliveries were written to a socket."""
        self.allowance = min(self.allowance + count // 2, MAX_ALLOWANCE) if len(self.backing) else 0
        self.is_stalled = False

    def timer_fired(self) -> None:
        """Let the queue take everything that waits, because no delivery was written in time."""
        self.is_timing = False
        self.is_stalled = True

    def take_next(self) -> Publish | None:
        """Remove and return the next publish that need not wait any longer; None if there is none. Stops the timer when
        no publish waits any more.
        """
        if self.delayed and (not self._dispatch.awaits_write or self.allowance > 0):
            return self.delayed.popleft()
        if self.is_timing and not self.delayed:
            self.is_timing = False
            self.delayed = None
            self._effects.cancel_timer("delay")
        return None
