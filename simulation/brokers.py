"""The broker of a `Sim`: one node, or several that are a cluster, and what happens to their machines.

`single(…)` makes the one and `cluster(…)` the other. A node is named by its index, from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..actors.queue.process import Queue
from ..runtime.sim.world import SimWorld
from .cluster.nodes import LETTERS, ClusterNodes
from .node import SimNode

Tell = Callable[[str, str], None]

#: The most nodes that a simulated cluster has.
MOST_NODES = len(LETTERS)

#: What may happen to a node: its process is killed, its machine loses power or stands still, or it is cut off from all
#: other nodes.
FailureKind = Literal["kill", "lose_power", "pause", "cut_off"]
FAILURES_OF_ONE: tuple[FailureKind, ...] = ("kill", "lose_power", "pause")
FAILURES: tuple[FailureKind, ...] = (*FAILURES_OF_ONE, "cut_off")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of the node with the index `node`: it starts after `after` virtual seconds and lasts `seconds`."""

    kind: FailureKind
    node: int
    after: float
    seconds: float


class Brokers:
    """The nodes of one broker. Every change adds a line to the story.

    nodes   the nodes, by index
    down    the indexes of the nodes that were killed or lost power, and were not started again
    """

    def __init__(self, world: SimWorld, tell: Tell, nodes: Sequence[SimNode], network: ClusterNodes | None) -> None:
        self.world = world
        self.nodes = list(nodes)
        self.down: set[int] = set()
        self._tell = tell
        self._network = network
        #: Nodes that the cluster has declared down. They are stopping now, and are booted again when they have stopped.
        self._stopping: set[int] = set()

    def start_all(self) -> None:
        """Start every node, and run the world until clients can connect to each. Raises what a start fails with."""
        for node in self.nodes:
            node.boot()
        if not self.world.run_until(lambda: self.are_up, 60.0):
            raise RuntimeError("the nodes of the simulated broker have not started within 60 s")

    def node(self, index: int) -> SimNode:
        """A node. Raises ValueError if there is none of that index."""
        if not 0 <= index < len(self.nodes):
            raise ValueError(f"there is no node {index}; the simulated broker has {len(self.nodes)}, counted from 0")
        return self.nodes[index]

    @property
    def are_up(self) -> bool:
        """Whether every node has started and is up. Raises what a start failed with."""
        return not self._stopping and all([node.is_up and not node.machine.is_paused for node in self.nodes])

    @property
    def serving(self) -> SimNode:
        """The first node that runs. Raises RuntimeError if none does."""
        for node in self.nodes:
            if node.is_up and not node.machine.is_paused:
                return node
        raise RuntimeError("no node of the simulated broker runs")

    @property
    def queues(self) -> list[Queue]:
        """The processes of queues on all nodes."""
        return [queue for node in self.nodes for queue in node.processes("Queue")]

    def close(self) -> None:
        """Remove the files of all machines."""
        for node in self.nodes:
            node.close()

    # -- what happens to a node ---

    def kill(self, index: int) -> None:
        """Kill the process of the node."""
        node = self.node(index)
        if index not in self.down:
            self._tell(node.name, "is killed")
            node.kill()
            self._is_down(index)

    def lose_power(self, index: int) -> None:
        """Cut the power of the node's machine."""
        node = self.node(index)
        if index not in self.down:
            self._tell(node.name, "loses power")
            node.lose_power()
            self._is_down(index)

    def _is_down(self, index: int) -> None:
        self.down.add(index)
        self._stopping.discard(index)

    def start(self, index: int) -> None:
        """Start a node that has ended."""
        node = self.node(index)
        if index in self.down:
            self._tell(node.name, "starts")
            self.down.discard(index)
            if node.disks is not None:
                node.disks.heal()
            node.boot()

    def pause(self, index: int) -> None:
        """Let the machine of the node stand still."""
        node = self.node(index)
        if index not in self.down and not node.machine.is_paused:
            self._tell(node.name, "stands still")
            node.machine.pause()

    def resume(self, index: int) -> None:
        """Let the machine of the node go on."""
        node = self.node(index)
        if node.machine.is_paused:
            self._tell(node.name, "goes on")
            node.machine.resume()

    def end_failure(self, failure: Failure) -> None:
        """End a failure: start the node, let it go on, or mend its links to the others."""
        if failure.kind == "pause":
            self.resume(failure.node)
        elif failure.kind != "cut_off":
            self.start(failure.node)
        elif self._network is not None:
            self._tell(self.node(failure.node).name, "is heard by the others again")
            self._network.mend_links_of(self.nodes[failure.node].name)

    # -- what happens to the network ---

    def partition(self, one: int, other: int, oneway: bool) -> None:
        """Let nothing pass between two nodes; with `oneway` only what `one` sends is lost."""
        first, second = self.node(one), self.node(other)
        if self._network is None or one == other:
            raise ValueError("a network is cut between two nodes: give two indexes, and make the Sim with nodes=3")
        self._tell(first.name, f"is not heard by {second.name}" if oneway else f"and {second.name} are cut off")
        self.world.link(first.name, second.name).cut()
        if not oneway:
            self.world.link(second.name, first.name).cut()

    def heal(self) -> None:
        """Let everything run and pass again."""
        if self._network is not None:
            self._network.mend(self.world.conditions.link_delay)
        for index in range(len(self.nodes)):
            self.resume(index)
            self.start(index)

    # -- after each step ---

    def after_step(self) -> None:
        """Stop each node that its cluster has declared down, and boot it again, as the program `warren` does in
        reality.
        """
        for index, node in enumerate(self.nodes):
            if self._network is None or index in self.down or node.base is None:
                continue
            if index in self._stopping:
                if node.has_stopped or node.base.living == 0:
                    self._stopping.discard(index)
                    node.kill()
                    node.boot()
            elif node.begins_anew:
                self._tell(node.name, "was declared down and begins another run")
                self._stopping.add(index)
                node.begin_stop()


def single(world: SimWorld, tell: Tell, with_store: bool, **settings: Any) -> Brokers:
    """A broker of one node, named `broker`."""
    return Brokers(world, tell, [SimNode(world, "broker", with_store=with_store, **settings)], None)


def cluster(world: SimWorld, tell: Tell, count: int, **settings: Any) -> Brokers:
    """A broker of several nodes with disks, named `warren@a`, `warren@b` and so on."""
    network = ClusterNodes(world, LETTERS[:count], **settings)
    return Brokers(world, tell, list(network), network)
