"""`NetworkLink`: the network between two hosts of a simulation, in one direction.

Data on a link arrives after a delay, in order, and is never lost; while the link is cut the data waits, as in TCP. Data
is lost only when an end crashes or gives up the connection (`system_link`).

A host is a machine, or any name from which a client connects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .world import SimWorld

#: A delay is 0/7 to 7/7 of the longest one. With so few levels, arrivals without a delay are common, and Hypothesis has
#: few values to draw from.
DELAY_LEVELS = 8


class Pipe(Protocol):
    """Data sent through one pipe arrives in the same order.

    `last_arrival` is the time at which the latest piece arrives.
    """

    last_arrival: float


class NetworkLink:
    """The way from one host to another.

    max_delay    longest delay in seconds
    watchers     called after each `cut` and `mend`
    """

    def __init__(self, world: SimWorld, max_delay: float) -> None:
        self.max_delay = max_delay
        self.watchers: list[Callable[[], None]] = []
        self.is_cut = False
        self.last_arrival = 0.0
        self._world = world
        self._held: list[tuple[Pipe, Callable[..., None], tuple[Any, ...]]] = []

    def carry(self, pipe: Pipe, arrive: Callable[..., None], *args: Any) -> None:
        """Call `arrive(*args)` at the other end: now, after a delay, or after the link is mended."""
        if self.is_cut:
            self._held.append((pipe, arrive, args))
            return
        world = self._world
        delay = world.delay(self.max_delay)
        now = world.time
        # Between two steps of the world an earlier arrival may be due and not made yet; this one must wait for it.
        if not delay and pipe.last_arrival < now and not world.has_due_events():
            arrive(*args)
            return
        pipe.last_arrival = due = max(now + delay, pipe.last_arrival)
        world.at(due, arrive, *args)

    def cut(self) -> None:
        """Carry nothing from now on; what is in flight arrives."""
        self.is_cut = True
        self._changed()

    def mend(self) -> None:
        """Carry again, and first the data that has waited."""
        self.is_cut = False
        held, self._held = self._held, []
        for pipe, arrive, args in held:
            self.carry(pipe, arrive, *args)
        self._changed()

    def _changed(self) -> None:
        for watcher in self.watchers:
            watcher()
