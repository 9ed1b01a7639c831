"""`ClusterNodes`: the nodes of a simulated cluster, and which of them can reach each other now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...actors.context.clustering import Clustering
from ...actors.contracts.membership import CountsAsDown
from ...actors.contracts.node import to_node
from ...cluster.membership.process import Members
from ...cluster.metadata.process import ClusterMetadata
from ...mirror.node_mirroring import NodeMirroring
from ...routing.table import RoutingTable
from ...runtime.sim.network import NetworkLink
from ...runtime.sim.port import SimAnswer
from ...runtime.sim.world import SimWorld
from ...store.data_dir.file_limits import FileLimits
from ..disks import LARGE_FILES, MachineDisks
from ..node import PORT, SimNode

#: The names of machines, in the order in which clusters get them. The node on machine `a` is `warren@a`.
LETTERS = "abcde"

CLUSTER_PORT = 25_672

_COOKIE = "the secret of a simulated cluster"


def node_name(letter: str) -> str:
    """The name of the node, and of its host in the simulated network."""
    return f"warren@{letter}"


class ClusterNode(SimNode):
    """One node of a cluster. With `replace_lost` a node whose disk is empty takes the place of the member of its name;
    otherwise it is refused.
    """

    def __init__(
        self,
        world: SimWorld,
        letter: str,
        letters: str,
        limits: FileLimits,
        replace_lost: bool = False,
        **settings: Any,
    ) -> None:
        names = [node_name(other) for other in letters]
        name = node_name(letter)
        super().__init__(
            world,
            name,
            with_store=True,
            limits=limits,
            clustering=Clustering(Members, ClusterMetadata, mirroring=NodeMirroring()),
            node_name=name,
            host=name,
            cluster_port=CLUSTER_PORT,
            cluster_cookie=_COOKIE,
            cluster_formation={"nodes": names, "replace_lost": replace_lost},
            cluster_peer_addresses={other: f"{other}:{CLUSTER_PORT}" for other in names},
            **settings,
        )
        self.letter = letter
        self._anew: SimAnswer[bool] | None = None

    def boot(self, app_stopped: bool = False) -> None:
        super().boot(app_stopped)
        self._anew = self.port.begin(self.address, to_node.await_anew())

    @property
    def is_running(self) -> bool:
        """Whether a run of the node has begun and not ended."""
        return self.base is not None

    @property
    def begins_anew(self) -> bool:
        """Whether the node asks to be stopped and started again, because its cluster has declared it down."""
        if self._is_refused:
            return True
        anew = self._anew
        if self.base is None or anew is None or not anew.is_here or anew.error is not None:
            return False  # an error: the node has ended before it answered
        return anew.value()

    @property
    def is_up(self) -> bool:
        return not self._is_refused and super().is_up

    @property
    def _is_refused(self) -> bool:
        """Whether the start has failed because the cluster has declared this run down. The node is booted again."""
        # `is_up` raises any other error.
        return self.starting is not None and isinstance(self.starting.error, CountsAsDown) and self.base is not None

    def wipe(self) -> None:
        """Give the machine empty disks. The node must not run."""
        assert self.disks is not None and self.base is None
        self.disks.close()
        self.disks = MachineDisks()
        self.settings = replace(self.settings, data_dir=self.disks.root)

    # -- what a check reads ---

    def process(self, kind: type[Any]) -> Any:
        """The only process of that class on the node; None if there is none."""
        found = self.processes(kind.__name__)
        return found[0] if found else None

    @property
    def listens(self) -> bool:
        """Whether clients can connect."""
        return self.base is not None and PORT in self.base.sockets.listening

    @property
    def routing(self) -> RoutingTable | None:
        """Its routing table, if the node serves clients: it has opened its listeners and holds a lease."""
        supervisor = self.supervisor
        if supervisor is None or self.starting is None or not self.starting.is_here:
            return None
        return supervisor.routing if supervisor.context.lease.holds(self.machine.now()) else None


class ClusterNodes:
    """The nodes by letter, and the links between their machines."""

    def __init__(self, world: SimWorld, letters: str, limits: FileLimits = LARGE_FILES, **settings: Any) -> None:
        self.world = world
        self.letters = letters
        self.by_letter = {letter: ClusterNode(world, letter, letters, limits, **settings) for letter in letters}

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(self.by_letter.values())

    def __getitem__(self, letter: str) -> ClusterNode:
        return self.by_letter[letter]

    @property
    def majority(self) -> int:
        return len(self.letters) // 2 + 1

    def are_up(self) -> bool:
        """Whether every node has started. Raises the error that a start failed with."""
        return all([node.is_up for node in self])

    def link(self, source: str, target: str) -> NetworkLink:
        """The way from one machine to another."""
        return self.world.link(node_name(source), node_name(target))

    def cut(self, source: str, target: str) -> None:
        """Let nothing from `source` arrive at `target`."""
        self.link(source, target).cut()

    def mend(self, delay: float) -> None:
        """Let everything arrive again, after `delay` seconds at most."""
        for source in self.letters:
            for target in self.letters:
                if source != target:
                    link = self.link(source, target)
                    link.max_delay = delay
                    if link.is_cut:
                        link.mend()

    def mend_links_of(self, node: str) -> None:
        """Let everything arrive again that passes between this node and the others."""
        for other in self:
            if other.name != node:
                for link in (self.world.link(node, other.name), self.world.link(other.name, node)):
                    if link.is_cut:
                        link.mend()

    def reach(self, one: str, other: str) -> bool:
        """Whether messages pass between these two nodes now, both ways."""
        return (
            self._acts(one)
            and self._acts(other)
            and not self.link(one, other).is_cut
            and not self.link(other, one).is_cut
        )

    def _acts(self, letter: str) -> bool:
        node = self.by_letter[letter]
        return node.base is not None and not node.machine.is_paused

    def close(self) -> None:
        """End all nodes and remove their files."""
        for node in self:
            node.close()
