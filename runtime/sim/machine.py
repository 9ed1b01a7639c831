"""`SimMachine`: a machine of a simulation, which outlives the operating-system processes that run on it.

machine = world.machine("a")
base = machine.boot()                a system of actors; its addresses begin with "a-1", after the next boot with "a-2"
machine.pause(), machine.resume()    time goes on meanwhile, and the kernel still takes data and connections
machine.crash()                      the process dies without any call to its actors; the kernel closes its sockets
machine.crash(power=False)           the machine loses power; its sockets are not closed, they stop answering
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter
from typing import TYPE_CHECKING

from .sim_base import SimBase
from .system_link import SystemLink

if TYPE_CHECKING:
    from .world import SimWorld


class PowerCut(BaseException):
    """Stops the machine when an actor or a blocking call raises it, from a simulated disk for example.

    It is no Exception, so that no handler on the way catches it.
    """


class SimMemory:
    """`memory.Memory` and `memory.MemoryMeter` in one: `size` and `used` are in bytes, and a scenario sets `used`."""

    def __init__(self, size: int = 1 << 30, used: int = 1 << 26) -> None:
        self.size = size
        self.used = used

    def total(self) -> int:
        return self.size

    def meter(self) -> SimMemory:
        return self

    def anonymous(self) -> int:
        return self.used

    def close(self) -> None:
        """Nothing is held open."""

    def trimmer(self) -> Callable[[], object] | None:
        """None: a simulated machine has no heap to give back."""
        return None

    def collector(self) -> Callable[[], object] | None:
        """None: a scenario sets `used`, so a collection would not change it."""
        return None

    def cycles(self) -> int:
        return 0


class SimMachine:
    """One machine, made by `SimWorld.machine`.

    base          the system of actors that runs on it, None while none does
    memory        the memory that its actors measure
    links         the connections of its systems to those of other machines
    stopped_by    errors that mean a power cut; a faulty disk may add one of its own

    A scenario may change these:

    blocking_delay    seconds that a call which waits for the disk takes longer than on other machines, at most
    clock_offset      seconds by which its wall clock is ahead of the others'
    clock_rate        how fast its clocks run, with `set_clock_rate`; 1 is as fast as the time of the world
    """

    def __init__(self, world: SimWorld, name: str) -> None:
        self.name = name
        self.base: SimBase | None = None
        self.memory = SimMemory()
        self.is_paused = False
        self.is_up = True
        self.stopped_by: tuple[type[BaseException], ...] = (PowerCut,)
        self.boots = 0
        self.blocking_delay = self.clock_offset = 0.0
        self.clock_rate = 1.0
        #: What its monotonic clock would show at time 0 of the world if it always ran at its present rate.
        self._clock_at_0 = 0.0
        self.links: list[SystemLink] = []
        self._world = world

    def boot(self) -> SimBase:
        """Start a process with an empty system of actors. Raises RuntimeError if one runs already."""
        if self.base is not None:
            raise RuntimeError(f"a system of actors runs on machine {self.name} already")
        self.boots += 1
        self.is_up = True
        self.base = SimBase(self._world, self, f"{self.name}-{self.boots}")
        self._changed(f"boot-{self.boots}")
        for link in self.links:
            link.booted()
        return self.base

    def crash(self, power: bool = True) -> None:
        """End the process at once, if one runs. Without `power` the machine answers nothing until the next boot."""
        base, self.base = self.base, None
        self.is_paused = False
        self.is_up = power
        if base is not None:
            self._changed("crash" if power else "power cut")
            base.vanish(power)
            for link in self.links:
                link.crashed(self)

    def pause(self) -> None:
        """Keep the process from running until `resume`."""
        self.is_paused = True
        self._changed("pause")

    def resume(self) -> None:
        self.is_paused = False
        self._changed("resume")

    # -- its clocks

    def now(self) -> float:
        """The seconds that its monotonic clock shows."""
        return self._clock_at_0 + self._world.time * self.clock_rate

    def set_clock_rate(self, rate: float) -> None:
        """Let its clocks, and so the timers of its processes, run this many times as fast as the time of the world."""
        shown = self.now()
        self.clock_rate = rate
        self._clock_at_0 = shown - self._world.time * rate

    def time_of(self, shown: float) -> float:
        """The time of the world at which its monotonic clock shows `shown`, or a later moment."""
        time = (shown - self._clock_at_0) / self.clock_rate
        while self._clock_at_0 + time * self.clock_rate < shown:  # because numbers are rounded
            time = nextafter(time, inf)
        return time

    def _changed(self, event: str) -> None:
        self._world.record((self._world.time, "machine", self.name, event))
        self._world.machines_changed()
