"""`PaceClocks`: by which clocks a queue with a pace delivers, as its settings ask for, now and after they change.

The queue has one clock (`Pacing`), or each group of its consumers has one (`GroupPacing`). With `pace-group` other
queues share these clocks. A change of the settings keeps a clock that they still ask for, so that consumers get no
burst from a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....routing.arguments.queue_settings import QueueSettings
from ....store.queue.backing_queue import BackingQueue
from ..consumers.consumers import Consumers
from ..effects import Effects
from .admission import Admission
from .group_pacing import GroupPacing
from .queue_pacing import OwnPacing, Pacing
from .shared_group_pacing import SharedGroupPacing
from .shared_pacing import SharedPacing

if TYPE_CHECKING:
    from ...contracts.pace import ClockName


class PaceClocks:
    """The clocks of one queue of the virtual host `vhost`. `now` gives seconds of a monotonic clock."""

    __slots__ = ("_consumers", "_effects", "_now", "_vhost", "backing", "groups", "pacing")

    def __init__(
        self, vhost: str, backing: BackingQueue, consumers: Consumers, effects: Effects, now: Callable[[], float]
    ) -> None:
        self._vhost = vhost
        self.backing = backing
        self._consumers = consumers
        self._effects = effects
        self._now = now
        #: The clock of the queue; None if it has none.
        self.pacing: Pacing | None = None
        #: The clocks of the groups of consumers; None if they have none.
        self.groups: GroupPacing | None = None

    @property
    def admission(self) -> Admission | None:
        """Decides on arrival whether a message would have to wait for too long; None for a queue without a pace."""
        return self.pacing or self.groups

    def apply(self, settings: QueueSettings) -> None:
        """Use the clocks that these settings ask for."""
        if self._keeps_clock(settings):
            assert self.pacing is not None
            self.pacing.apply(settings)
        else:
            if self.pacing is not None:
                self.pacing.rest()
            self.pacing = self._new_pacing(settings) if settings.paces_queue else None
        if self.groups is not None and not self._keeps_group_clocks(settings):
            self.groups.end()
            self.groups = None
        if self.groups is None and settings.paces_consumers:
            self.groups = self._new_group_pacing(settings)
        if self.groups is not None:
            self.groups.apply(settings)

    def leased(self, clock: ClockName, first: int, last: int, count: int, sharers: int) -> bool:
        """Take slots of a clock that queues share. Returns whether the queue still uses that clock."""
        if isinstance(self.pacing, SharedPacing) and self.pacing.leases.name == clock:
            self.pacing.leased(first, last, count, sharers)
            return True
        return isinstance(self.groups, SharedGroupPacing) and self.groups.leased(
            clock, first, last, count, sharers, self._consumers
        )

    def pacer_lost(self) -> None:
        """Ask for slots again later: the pacer that leases them has ended, or holds the clock no more."""
        if isinstance(self.pacing, SharedPacing):
            self.pacing.lost()
        if isinstance(self.groups, SharedGroupPacing):
            self.groups.lost(self._consumers)

    def timer_fired(self) -> None:
        """Handle the timer of the next slot: a message may be delivered now."""
        if self.pacing is not None:
            self.pacing.timer_fired()
        if self.groups is not None:
            self.groups.timer_fired(self._consumers)

    def end(self) -> None:
        """Give back the slots that the queue does not use any more."""
        if self.pacing is not None:
            self.pacing.rest()
        if self.groups is not None:
            self.groups.end()

    def _keeps_clock(self, settings: QueueSettings) -> bool:
        """Whether the present clock of the queue fits these settings, so that it need not be replaced."""
        if not settings.paces_queue:
            return False
        if settings.pace_group is None:
            return isinstance(self.pacing, OwnPacing)
        return isinstance(self.pacing, SharedPacing) and self.pacing.leases.name == self._clock_name(settings)

    def _new_pacing(self, settings: QueueSettings) -> Pacing:
        if settings.pace_group is None:
            return OwnPacing(self.backing, self._effects, self._now, settings)
        return SharedPacing(self.backing, self._effects, self._now, settings, self._clock_name(settings))

    def _keeps_group_clocks(self, settings: QueueSettings) -> bool:
        """Whether the groups of consumers have the clocks already that these settings ask for."""
        if not settings.paces_consumers:
            return False
        if settings.pace_group is None:
            return not isinstance(self.groups, SharedGroupPacing)
        return isinstance(self.groups, SharedGroupPacing) and self.groups.name == self._clock_name(settings)

    def _new_group_pacing(self, settings: QueueSettings) -> GroupPacing:
        if settings.pace_group is None:
            return GroupPacing(self.backing, self._effects, self._now, settings)
        return SharedGroupPacing(self.backing, self._effects, self._now, settings, self._clock_name(settings))

    def _clock_name(self, settings: QueueSettings) -> ClockName:
        return self._vhost, settings.pace_group or ""
