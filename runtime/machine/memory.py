"""Memory, as processes get it from their host.

`SystemMemory` is the machine's, `sim.machine.SimMemory` a simulated one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...portable import IS_PORTABLE
from .linux_memory import LinuxMemory
from .portable_memory import PortableMemory


class Memory(Protocol):
    """The memory that a process can use."""

    def total(self) -> int:
        """Bytes that this operating-system process can use at most."""

    def meter(self) -> MemoryMeter:
        """A meter for the memory in use. Raises OSError where that cannot be measured."""

    def trimmer(self) -> Callable[[], object] | None:
        """A function that gives freed heap back to the system, and may take long; None where there is none."""

    def collector(self) -> Callable[[], object] | None:
        """A function that frees what only the garbage collector can free; None in a simulation.

        Finalizers run in the thread that calls it, so only the thread of the processes may call it.
        """

    def cycles(self) -> int:
        """How many objects the garbage collector has found in cycles, in all collections so far."""


class MemoryMeter(Protocol):
    """An open view on the memory of this operating-system process."""

    def anonymous(self) -> int:
        """Bytes of anonymous memory in use now: heap and stacks, without mapped files."""

    def close(self) -> None: ...


SystemMemory: type[LinuxMemory] | type[PortableMemory] = PortableMemory if IS_PORTABLE else LinuxMemory
