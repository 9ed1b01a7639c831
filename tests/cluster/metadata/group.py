"""`Group`: several nodes in one simulated world, with real Metadata and disks, and stubs of all other processes."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

from warren.actors.context.node_context import NodeContext
from warren.actors.context.starting import to_new_metadata
from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.state.commands import AddNode, ChangeNodes
from warren.amqp.fields import table_from
from warren.cluster.metadata.contract import to_cluster_metadata
from warren.cluster.metadata.process import ClusterMetadata
from warren.definitions.records import Node
from warren.routing.rows import Binding
from warren.routing.table import RoutingTable
from warren.runtime.process import Process
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld
from warren.settings import Settings

V = "/"


class StubQueue(Process):
    def on_delete(self, sender, if_unused, if_empty):
        self.stop()
        return 0


class StubSupervisor(Process):
    """Stands for the process that supervises the queues of a virtual host, and starts and ends none."""

    def on_begin(self, sender):
        self.queues = {}
        return True

    def on_start_queue(self, sender, row):
        self.queues[row.queue_id] = self.createActor(StubQueue)
        return row.at(self.queues[row.queue_id])

    def on_forget_queue(self, sender, queue_id):
        self.queues.pop(queue_id, None)
        return True

    def on_recovered(self, sender):
        """Ignored: all rows of the virtual host are there."""


class StubNode(Process):
    """Stands for the process that starts and stops virtual hosts."""

    async def on_start_vhost(self, sender, name, rows, kept):
        supervisor = self.createActor(StubSupervisor)
        await self.ask(supervisor, ("begin",))
        return supervisor, [await self.ask(supervisor, ("start_queue", row)) for row in rows]

    def on_stop_vhost(self, sender, name):
        return True

    def on_node_met(self, sender, node, number):
        """Ignored: in these tests nothing is listed on other nodes."""


class Member:
    """A node: `boot` starts it, and `kill` ends it and leaves its disk. A node without a directory forgets
    everything.
    """

    def __init__(self, world: SimWorld, letter: str, has_disk: bool, **settings: Any) -> None:
        self.world = world
        self.name = f"warren@{letter}"
        self.machine = world.machine(self.name)
        self.directory = tempfile.mkdtemp(prefix="warren-group-", dir="/dev/shm") if has_disk else None
        self.settings = Settings(node_name=self.name, data_dir=self.directory, **settings)
        self.record = Node(self.name, letter * 32, address=f"{letter}:25672")
        self.boot()

    def boot(self) -> None:
        base = self.machine.boot()
        self.port = SimPort(base)
        self.stub = base.newPrimaryActor(StubNode)
        self.metadata = base.newPrimaryActor(ClusterMetadata)
        self.routing = RoutingTable()
        self.context = NodeContext(self.name, self.settings, self.routing, self.metadata, self.stub, self.stub)
        self.starting = self.port.begin(self.metadata, to_new_metadata.start(self.context, self.stub))

    @property
    def process(self) -> ClusterMetadata:
        return self.machine.base.cells[self.metadata.actorAddressString].actor

    @property
    def is_up(self) -> bool:
        return self.machine.base is not None

    @property
    def has_started(self) -> bool:
        """Whether the node has started. Raises the error with which its start failed."""
        if self.starting.is_here:
            self.starting.value()
        return self.starting.is_here

    @property
    def incarnation(self) -> str:
        return str(self.machine.boots)

    def kill(self) -> None:
        self.machine.crash()

    def close(self) -> None:
        if self.is_up:
            self.kill()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def run_of(self) -> Node:
        return Node(
            self.name, self.record.node_id, address=self.record.address, build="1", incarnation=self.incarnation
        )

    # -- asking ---

    def ask(self, message: Any) -> Any:
        return self.port.request(self.metadata, message)

    def begin(self, message: Any) -> Any:
        return self.port.begin(self.metadata, message)

    def declare(self, name: str, durable: bool = True, owner: str | None = None, **arguments: Any) -> Any:
        """The message that declares a queue."""
        return to_metadata.declare_queue(V, name, durable, owner, False, table_from(arguments), owner or "c")

    def bind(self, queue: str, exchange: str, key: str = "k") -> Any:
        return to_metadata.bind(V, "queue", queue, exchange, key, table_from({}), "c")

    def status(self) -> Any:
        return self.ask(to_cluster_metadata.consensus_status())

    # -- looking ---

    def rows(self) -> list[Any]:
        """All rows of the state, sorted, including those that serve only the log."""
        return sorted(map(repr, self.process.agreed.rows()))

    def queues(self) -> dict[str, str]:
        rows = self.process.state.vhosts.get(V)
        return {} if rows is None else {name: row.state for name, row in rows.queues.items()}

    def has_binding(self, queue: str, exchange: str, key: str = "k") -> bool:
        rows = self.process.state.vhosts[V]
        return rows.binding(Binding.of(exchange, "queue", queue, key, table_from({}))) is not None


class Group:
    """Several members and the links between them. The first has founded the cluster, and all are voters."""

    def __init__(
        self,
        letters: str = "abc",
        seed: int = 0,
        has_disks: bool = True,
        world: SimWorld | None = None,
        **settings: Any,
    ) -> None:
        self.world = SimWorld(seed) if world is None else world
        self.members = [Member(self.world, letter, has_disks, **settings) for letter in letters]
        self._sessions: dict[tuple[str, str], int | None] = {}
        self._links = []
        for at, one in enumerate(self.members):
            for other in self.members[:at]:
                self._links.append((one, other, self.world.link_systems(one.name, other.name)))
        self.world.after_step = self.report_links
        first, *others = self.members
        self.until(lambda: all(each.has_started for each in self.members))
        first.ask(to_cluster_metadata.found(first.run_of()))
        for other in others:
            other.ask(to_cluster_metadata.follow())
        first.ask(to_metadata.create_vhost(V))
        for other in others:
            self.add(first, other)
        self.wait_for_voters()

    def add(self, member: Member, new: Member) -> None:
        """Have `member` add the node `new` to the members, and declare its run up."""
        member.ask(to_metadata.change_definitions(AddNode(new.record)))
        member.ask(to_metadata.change_definitions(ChangeNodes(up=(new.run_of(),))))

    def close(self) -> None:
        for member in self.members:
            member.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def report_links(self) -> None:
        """Report a link that was made or has broken to the Metadata of both ends, as the process `Links` does."""
        for one, other, link in self._links:
            for member, peer in ((one, other), (other, one)):
                key = member.name, peer.name
                now = link.session(member.name) if member.is_up else None
                before = self._sessions.get(key)
                if now == before:
                    continue
                self._sessions[key] = now
                if member.is_up and before is not None:
                    member.port.tell(member.metadata, to_cluster_metadata.link_down(peer.name, "test"))
                if member.is_up and now is not None:
                    up = to_cluster_metadata.link_up(peer.name, peer.incarnation, peer.record.node_id, {})
                    member.port.tell(member.metadata, up)

    # -- waiting ---

    def until(self, condition: Any, seconds: float = 30.0) -> None:
        assert self.world.run_until(condition, seconds), "it did not come to pass"

    def running(self) -> list[Member]:
        return [member for member in self.members if member.is_up]

    def leader(self) -> Member | None:
        """The running leader with the latest term."""
        leading = [each for each in self.running() if each.process.agreed.replication is not None]
        leading = [each for each in leading if each.process.agreed.replication.leads]
        return max(leading, key=lambda each: each.process.agreed.replication.raft.term, default=None)

    def wait_for_leader(self) -> Member:
        self.until(lambda: self.leader() is not None)
        return self.leader()

    def wait_for_voters(self) -> None:
        wanted = tuple(sorted(member.name for member in self.members))
        self.until(
            lambda: all(each.process.agreed.replication.raft.log.members.voters == wanted for each in self.members)
        )

    def are_level(self) -> bool:
        """Whether there is a leader, and all members that run have applied the same entries."""
        applied = {member.process.agreed.replication.raft.log.applied for member in self.running()}
        leader = self.leader()
        return leader is not None and applied == {leader.process.agreed.replication.raft.log.last_index}

    def wait_until_level(self) -> None:
        self.until(self.are_level)

    def check_equal(self) -> None:
        """Assert that all nodes have the same state."""
        self.wait_until_level()
        states = [member.rows() for member in self.running()]
        for state in states[1:]:
            assert state == states[0]

    def restart(self, member: Member) -> None:
        """Boot a member that was killed, and declare its new run up."""
        member.boot()
        self.until(lambda: member.has_started)
        leader = self.wait_for_leader()
        leader.ask(to_metadata.change_definitions(ChangeNodes(up=(member.run_of(),))))
