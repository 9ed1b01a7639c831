"""The links between the hosts of a simulation, one for each direction.

    octets of a connection   late, never lost, in order; while the link is cut they wait, as TCP sends them again and again
    messages of actors       late, in order, and lost while the link is cut, or now and then if the link is lossy

A host is a machine or whatever name a client says it connects from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .world import SimWorld

#: A delay is the longest one times 0/7 to 7/7: few enough that "none" is common, and a draw is small.
DELAY_LEVELS = 8


class Lane(Protocol):
    """Things on one lane arrive in the order in which they left. `last_arrival` is when the latest of them does."""

    last_arrival: float


class Link:
    """From one host to another. `max_delay` is in seconds; one message of actors in `loss` is lost, none with 0."""

    def __init__(self, world: SimWorld, max_delay: float) -> None:
        self.max_delay = max_delay
        self.loss = 0
        self.is_cut = False
        self.last_arrival = 0.0
        self._world = world
        self._held: list[tuple[Lane, Callable[..., None], tuple[Any, ...]]] = []

    def carry(self, lane: Lane, arrive: Callable[..., None], *args: Any) -> None:
        """Call `arrive(*args)` at the other end: at once, later, or once the link is whole again."""
        if self.is_cut:
            self._held.append((lane, arrive, args))
            return
        world = self._world
        delay = world.delay(self.max_delay)
        now = world.time
        # Between two steps of the world something may be due that has not arrived yet, and must do so first.
        if not delay and lane.last_arrival < now and not world.is_behind():
            arrive(*args)
            return
        lane.last_arrival = due = max(now + delay, lane.last_arrival)
        world.at(due, arrive, *args)

    def is_losing(self) -> bool:
        """Whether the next message of actors is lost."""
        return self.is_cut or (self.loss > 0 and self._world.chance(self.loss))

    def cut(self) -> None:
        """Nothing gets through from now on; what is on its way arrives."""
        self.is_cut = True

    def mend(self) -> None:
        self.is_cut = False
        held, self._held = self._held, []
        for lane, arrive, args in held:
            self.carry(lane, arrive, *args)
