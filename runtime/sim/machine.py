"""A machine of a simulation: what is left when the process on it dies.

machine = world.machine("a")
base = machine.boot()                 a system of actors; "a-1" is the prefix of its addresses, "a-2" after the next boot
machine.pause(), machine.resume()     time goes on around it; its kernel still takes octets and connections
machine.crash()                       the process dies: no actor hears of it, the kernel closes its sockets
machine.crash(power=False)            the machine dies: nobody hears of it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .sim_base import SimBase

if TYPE_CHECKING:
    from .world import SimWorld


class PowerCut(BaseException):
    """Raised by what an actor or a blocking call uses (a disk, say), it stops the machine there. Not an Exception: nothing may catch it on the way."""


class SimMemory:
    """`memory.Memory` and its `Meter`: `size` and `used` are in bytes, and a scenario moves `used`."""

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
        """There is no heap to give back."""
        return None


class SimMachine:
    """`base` is the system of actors that runs on it, None while none does; `memory` is what the actors are told there is.

    `stopped_by` are errors that mean a power cut; a faulty disk may have one of its own.
    """

    def __init__(self, world: SimWorld, name: str) -> None:
        self.name = name
        self.base: SimBase | None = None
        self.memory = SimMemory()
        self.is_paused = False
        self.is_up = True
        self.stopped_by: tuple[type[BaseException], ...] = (PowerCut,)
        self.boots = 0
        self._world = world

    def boot(self) -> SimBase:
        """Start a process with an empty system of actors. RuntimeError if one runs."""
        if self.base is not None:
            raise RuntimeError(f"a system of actors runs on machine {self.name} already")
        self.boots += 1
        self.is_up = True
        self.base = SimBase(self._world, self, f"{self.name}-{self.boots}")
        self._changed(f"boot-{self.boots}")
        return self.base

    def crash(self, power: bool = True) -> None:
        """End the process on the spot; nothing happens if none runs. Without `power` the machine is silent until the next boot."""
        base, self.base = self.base, None
        self.is_paused = False
        self.is_up = power
        if base is not None:
            self._changed("crash" if power else "power cut")
            base.vanish(power)

    def pause(self) -> None:
        """Have the process do nothing until `resume`."""
        self.is_paused = True
        self._changed("pause")

    def resume(self) -> None:
        self.is_paused = False
        self._changed("resume")

    def _changed(self, event: str) -> None:
        self._world.record((self._world.time, "machine", self.name, event))
        self._world.machines_changed()
