"""`SimNode`: a node on a simulated machine, with or without disks."""

from __future__ import annotations

from typing import Any

from ..actors.context.clustering import Clustering
from ..actors.context.extensions import NO_EXTENSIONS
from ..actors.context.starting import to_new_node
from ..actors.contracts.info_items import InfoItems
from ..actors.contracts.node import NodeFacts, to_node
from ..actors.node.process import NodeSupervisor
from ..runtime.sim.port import SimAnswer, SimPort
from ..runtime.sim.sim_base import SimBase
from ..runtime.sim.world import SimWorld
from ..settings import Settings
from ..store.data_dir.file_limits import FileLimits
from ..store.disk.faulty_disk import Crash
from ..store.disk.progress import NO_PROGRESS
from .disks import LARGE_FILES, ChosenRandom, MachineDisks

PORT = 5672

#: Bytes of memory that the machine uses while memory is not low.
MEMORY_USED = 1 << 26


class SimNode:
    """A node that `boot` starts and `kill`, `lose_power` or `begin_stop` ends. After that it can be booted again.

    with_store   whether it has a data directory; if not it keeps everything in memory, and `disks` is None
    limits       the sizes at which its files are full
    clustering   the processes that make the node part of a cluster; None for a node that is alone
    settings     fields of `Settings`; `node_name` is `warren@<name>` by default
    """

    def __init__(
        self,
        world: SimWorld,
        name: str = "a",
        *,
        with_store: bool = False,
        limits: FileLimits = LARGE_FILES,
        clustering: Clustering | None = None,
        **settings: Any,
    ) -> None:
        self.world = world
        self.name = name
        self.machine = world.machine(name)
        self.machine.stopped_by += (Crash,)
        self.disks = MachineDisks() if with_store else None
        self.limits = limits
        self.clustering = clustering
        self.settings = Settings(
            port=PORT,
            data_dir=None if self.disks is None else self.disks.root,
            **{"node_name": f"warren@{name}", **settings},
        )
        #: The answer to the last start; None before the first.
        self.starting: SimAnswer[NodeFacts] | None = None
        self._stopping: SimAnswer[bool] | None = None

    # -- starting ---

    def boot(self, app_stopped: bool = False) -> None:
        """Begin to start. `is_up` is True when the node has started, which with `app_stopped` waits for `start_app`."""
        self._stopping = None
        self.port = SimPort(self.machine.boot())
        self.address = self.port.base.newPrimaryActor(NodeSupervisor)
        disks = self.disks
        if disks is None:
            start = to_new_node.start(self.settings, clustering=self.clustering, app_stopped=app_stopped)
        else:
            start = to_new_node.start(
                self.settings,
                NO_EXTENSIONS,
                disks.open,
                disks.boot_id,
                NO_PROGRESS,
                self.limits,
                self.clustering,
                app_stopped,
            )
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
        """The system of actors, while the machine runs."""
        return self.machine.base

    @property
    def is_up(self) -> bool:
        """Whether the node runs and has finished starting. Raises the error that the start failed with."""
        if self.base is None or self.starting is None or not self.starting.is_here:
            return False
        self.starting.value()
        return True

    @property
    def begins_anew(self) -> bool:
        """Whether the node asks to be stopped and started again. A node that is alone never does."""
        return False

    # -- ending ---

    def kill(self) -> None:
        """Kill the process; the machine keeps what was written."""
        self.machine.crash()
        if self.disks is not None:
            self.disks.kill()

    def lose_power(self) -> None:
        """Cut the power of the machine, unless a power cut in the middle of a write has stopped it already."""
        self.machine.crash(power=False)
        if self.disks is not None:
            self.disks.lose_power(ChosenRandom(self.world.below))

    def begin_stop(self) -> None:
        """Begin to stop, as an operator stops a node. `has_stopped` is True at the end."""
        self._stopping = self.port.begin(self.address, to_node.stop("shutdown"))

    def begin_operation(self, operation: str, **arguments: object) -> None:
        """Begin an operation without waiting for its end. If the node ends in the meantime, the operation is lost."""
        if self.is_up:
            self.port.begin(self.address, to_node.operate(operation, arguments))

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    @property
    def has_stopped(self) -> bool:
        return self._stopping is not None and self._stopping.is_here

    def close(self) -> None:
        """Remove the machine's files."""
        self.machine.crash()
        if self.disks is not None:
            self.disks.close()

    # -- asking ---

    def listing(self, kind: str) -> list[InfoItems]:
        """The rows of `warren list`. Runs the world until the answer has arrived."""
        return self.port.request(self.address, to_node.list(kind, None))

    @property
    def supervisor(self) -> NodeSupervisor | None:
        """The node's first process, while it runs. It is found by address, because conditions read it at each step."""
        cell = None if self.base is None else self.base.cells.get(self.address.addressDetails)
        return None if cell is None else cell.actor

    def processes(self, name: str) -> list[Any]:
        """The running actors of the class of that name."""
        base = self.base
        return (
            []
            if base is None
            else [
                cell.actor for address, cell in base.cells.items() if f"/{name}-" in address and cell.actor is not None
            ]
        )
