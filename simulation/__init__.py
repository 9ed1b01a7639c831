"""Whole nodes on virtual time, with random work and random faults, all decided by one seed.

`Sim` is for tests of programs that use a broker; docs/simulation.md describes it.

A **schedule** is a node on a simulated machine, clients that do what a random plan says, and faults of the machine.
While it runs, a model of the broker's promises checks what the clients receive, and invariants check what the processes
hold. `schedule.run(seed)` runs one; docs/internals/simulation.md explains how.
"""

from .brokers import Failure
from .service import Sim

__all__ = ["Failure", "Sim"]
