"""A node on a simulated machine, with its disks or without."""

from __future__ import annotations

from typing import Any

from ..actors.node.contract import NodeFacts, to_node
from ..actors.node.extensions import NO_EXTENSIONS
from ..actors.node.process import NodeSupervisor
from ..runtime.sim.port import SimAnswer, SimPort
from ..runtime.sim.sim_base import SimBase
from ..runtime.sim.world import SimWorld
from ..settings import Settings
from ..store.data_dir.file_limits import REAL_FILES, FileLimits
from ..store.disk.faulty_disk import Crash
from ..store.disk.progress import NO_PROGRESS
from .disks import Luck, MachineDisks

PORT = 5672
MEMORY_USED = 1 << 26


class SimNode:
    """Is started by `boot`, ended by `kill`, `lose_power` or `stop`, and may then be booted again. `disks` is None for a node that keeps everything in memory.

    with_store   it has a data directory
    limits       when its files are full
    settings     of `Settings`
    """

    def __init__(
        self,
        world: SimWorld,
        name: str = "a",
        *,
        with_store: bool = False,
        limits: FileLimits = REAL_FILES,
        **settings: Any,
    ) -> None:
        self.world = world
        self.name = name
        self.machine = world.machine(name)
        self.machine.stopped_by += (Crash,)
        self.disks = MachineDisks() if with_store else None
        self.limits = limits
        self.settings = Settings(
            port=PORT, node_name=f"warren@{name}", data_dir=None if self.disks is None else self.disks.root, **settings
        )
        self.starting: SimAnswer[NodeFacts] | None = None
        self._stopping: SimAnswer[bool] | None = None

    # -- starting ----------------------------------------------------------------------------------

    def boot(self) -> None:
        """Begin to start; see `is_up`."""
        self._stopping = None
        self.port = SimPort(self.machine.boot())
        self.address = self.port.base.newPrimaryActor(NodeSupervisor)
        disks = self.disks
        if disks is None:
            start = to_node.start(self.settings)
        else:
            start = to_node.start(self.settings, NO_EXTENSIONS, disks.open, disks.boot_id, NO_PROGRESS, self.limits)
        self.starting = self.port.begin(self.address, start)

    def start(self) -> SimNode:
        """Boot, and run the world until clients can connect."""
        self.boot()
        self.world.run_until(lambda: self.starting is not None and self.starting.is_here)
        assert self.starting is not None
        self.starting.value()
        return self

    @property
    def base(self) -> SimBase | None:
        """The system of actors that runs, if one does."""
        return self.machine.base

    @property
    def is_up(self) -> bool:
        """Whether it runs and has finished starting. Raises what the start failed with."""
        if self.base is None or self.starting is None or not self.starting.is_here:
            return False
        self.starting.value()
        return True

    # -- ending ------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies; the machine goes on."""
        self.machine.crash()
        if self.disks is not None:
            self.disks.kill()

    def lose_power(self) -> None:
        """The machine dies, if a power cut from within has not stopped it already."""
        self.machine.crash(power=False)
        if self.disks is not None:
            self.disks.lose_power(Luck(self.world.below))

    def begin_stop(self) -> None:
        """As an operator stops it; see `has_stopped`."""
        self._stopping = self.port.begin(self.address, to_node.stop("shutdown"))

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    @property
    def has_stopped(self) -> bool:
        return self._stopping is not None and self._stopping.is_here

    def end_stopped(self) -> None:
        """The process of a node that has stopped ends."""
        self.kill()

    def close(self) -> None:
        """Let go of the machine's files."""
        self.machine.crash()
        if self.disks is not None:
            self.disks.close()

    # -- asking ------------------------------------------------------------------------------------

    def listing(self, kind: str) -> list[dict[str, Any]]:
        """As `warren list`; runs the world until the answer is there."""
        return self.port.request(self.address, to_node.list(kind, None))

    def processes(self, name: str) -> list[Any]:
        """The actors of a class that run."""
        base = self.base
        return (
            []
            if base is None
            else [
                cell.actor for address, cell in base.cells.items() if f"/{name}-" in address and cell.actor is not None
            ]
        )
