"""`ClusterChecks`: what no client can see, and an observer of all nodes can.

- A term has one leader.
- The entries that two nodes hold for committed are the same, one by one, now and for ever.
- A node that has not reached a majority for as long as a lease lasts holds no lease (CL-51).
- A node that is declared down in the leader's log holds no lease.
- A queue whose declare was answered is on every node that serves clients, and one whose delete was answered on none
  (P6 of the cluster's promises).
- At rest all nodes have the same metadata, and all replicas of a mirrored queue the same messages and lives (I7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actors.queue.inspection import QueueView
from ...cluster.consensus.log import Entry
from ...cluster.membership.process import Members
from ...cluster.metadata.inspection import ConsensusView
from ...cluster.metadata.process import ClusterMetadata
from ...routing.rows import MirrorGroup
from ...store.messages.lives import Lives
from ..model.copies import PromiseBroken
from .nodes import ClusterNode

if TYPE_CHECKING:
    from .schedule import ClusterSchedule

VHOST = "/"


class ClusterChecks:
    """See the module. Every check raises PromiseBroken."""

    def __init__(self, schedule: ClusterSchedule) -> None:
        self._schedule = schedule
        self._world = schedule.world
        self._nodes = schedule.nodes
        #: The node that was seen leading in each term.
        self._leaders: dict[int, str] = {}
        #: The committed entries by index, each with the node that was the first to have it committed.
        self._agreed: dict[int, tuple[Entry, str]] = {}
        #: For each run of a node, the index of the last committed entry that was compared with those of the others.
        self._compared: dict[str, int] = {}

    def after_step(self) -> None:
        """Check the process that has acted."""
        cell = self._world.acting_cell
        actor = None if cell is None else cell.actor
        if type(actor) is ClusterMetadata:
            view = ConsensusView(actor)
            if view.has_log:
                self._check_log(str(cell.address.addressDetails).partition("/")[0], view)  # type: ignore[union-attr]
        if type(actor) in (ClusterMetadata, Members):
            self._check_leases()

    def _check_log(self, system: str, view: ConsensusView) -> None:
        node = system.rpartition("-")[0]
        term = view.leads_in
        if term is not None and self._leaders.setdefault(term, node) != node:
            raise PromiseBroken(f"{node} and {self._leaders[term]} both lead in term {term}")
        compared = self._compared.get(system, 0)
        if view.committed < compared:
            raise PromiseBroken(f"{node} has known entry {compared} to be committed, and now only {view.committed}")
        if term is not None:
            self._check_declared_down(node, view)
        if view.committed == compared:
            return
        self._compared[system] = view.committed
        for entry in view.entries(compared + 1, view.committed):
            agreed, by = self._agreed.setdefault(entry.index, (entry, node))
            if agreed != entry:
                raise PromiseBroken(
                    f"{node} has entry {entry.index} of term {entry.term} committed, and {by} has that of term "
                    f"{agreed.term}"
                )

    def _check_declared_down(self, leader: str, view: ConsensusView) -> None:
        if view.leads_in != max(self._leaders):
            return  # this leader was paused; it has not learned yet that another node leads, nor whom that one declared
        for node in self._nodes:
            base, run = node.base, view.run_of(node.name)
            if base is None or run is None or node.machine.is_paused or node.routing is None:
                continue
            if self._schedule.faults.is_stopping(node):
                continue  # a stopping node reports itself down once it has no clients and no queues any more
            if base.name != f"{node.name}-{run}":
                raise PromiseBroken(f"{node.name} holds a lease, though {leader} knows that it was declared down")

    def _check_leases(self) -> None:
        for letter, since in self._schedule.faults.alone.items():
            node = self._nodes[letter]
            ends = since + self._schedule.faults.lease
            if self._world.time > ends and node.routing is not None and not node.machine.is_paused:
                seconds = self._world.time - since
                raise PromiseBroken(f"{node.name} has reached no majority for {seconds:.2f} s and holds a lease (P4)")

    def check_in_force(self, queue: str, is_there: bool) -> None:
        """Check that each node which serves clients has the queue, or that none has it."""
        for node in self._nodes:
            routing = node.routing
            if routing is not None and (routing.queue(VHOST, queue) is not None) != is_there:
                raise PromiseBroken(
                    f"{node.name} serves clients and {'does not know' if is_there else 'still has'} queue {queue}, "
                    f"whose {'declare' if is_there else 'delete'} was answered (P6)"
                )

    def check_equal(self) -> None:
        """At rest: all nodes have the same metadata."""
        views = {node.name: self.view(node) for node in self._nodes}
        first, *others = views
        rows = views[first].rows()
        for other in others:
            found = views[other].rows()
            if found != rows:
                different = sorted(key for key in {*rows, *found} if rows.get(key) != found.get(key))
                key = different[0]
                raise PromiseBroken(
                    f"{first} and {other} have different metadata: {key[0]} {key[1]} is {rows.get(key)} there and "
                    f"{found.get(key)} here"
                )

    def are_equal(self) -> bool:
        """Whether all nodes have applied the same entries and have the same metadata."""
        if not self.are_level():
            return False
        first, *others = [self.view(node) for node in self._nodes]
        return all(other.rows() == first.rows() for other in others)

    def have_same_queues(self) -> bool:
        """Whether all nodes serve clients with the same queues."""
        tables = [node.routing for node in self._nodes]
        names = [None if table is None else {row.name for row in table.queues(VHOST)} for table in tables]
        return None not in names and all(each == names[0] for each in names)

    def are_level(self) -> bool:
        """Whether all nodes have applied the same entries."""
        return len({self.view(node).applied for node in self._nodes}) == 1

    def view(self, node: ClusterNode) -> ConsensusView:
        """The cluster's log as the node has it."""
        return ConsensusView(node.process(ClusterMetadata))

    # -- the messages of replicas ---

    def are_in_sync(self) -> bool:
        """Whether each mirrored queue has a ring of exactly the replicas that it shall have, and no learners."""
        groups = self._groups()
        return groups is not None and all(
            group is None or (not group.learners and {member.node for member in group.ring} == {*group.wanted})
            for group in groups.values()
        )

    def differing(self) -> str:
        """At rest: which replica has other messages than its master, or knows of other numbers that were left out,
        as a text; empty if there is none (I7, SP-25)."""
        for row, group in (self._groups() or {}).items():
            if group is None:
                continue
            found = {member.node: self._held(member.node, row) for member in group.ring}
            master = found[group.master.node]
            for node, held in found.items():
                if held != master:
                    lacks, more = sorted({*master} - {*held})[:5], sorted({*held} - {*master})[:5]
                    return (
                        f"the replica of {row} on {node} lacks {lacks} and has {more} beyond its master on "
                        f"{group.master.node} (number, bytes)"
                    )
            lives = {member.node: self._lives(member.node, row) for member in group.ring}
            for node, known in lives.items():
                if known != lives[group.master.node]:
                    return (
                        f"the replica of {row} on {node} knows {known}, and its master on {group.master.node} "
                        f"{lives[group.master.node]}"
                    )
        return ""

    def _groups(self) -> dict[str, MirrorGroup | None] | None:
        """The groups of all queues, None for a queue without mirrors; None if no node serves clients at the moment."""
        routing = next((node.routing for node in self._nodes if node.routing is not None), None)
        return None if routing is None else {row.name: row.group for row in routing.queues(VHOST)}

    def _held(self, name: str, queue: str) -> list[tuple[int, int]]:
        """The number and the size of each message of a replica. A replica that has not started has none."""
        view = self._replica(name, queue)
        return [] if view is None else list(view.held())

    def _lives(self, name: str, queue: str) -> Lives | None:
        """The lives of a replica that can be read by number."""
        view = self._replica(name, queue)
        return None if view is None else view.lives

    def _replica(self, name: str, queue: str) -> QueueView | None:
        """The replica on this node; None if it has not started."""
        node = next(node for node in self._nodes if node.name == name)
        views = [view for view in map(QueueView, node.processes("Queue")) if view.is_started and view.name == queue]
        return views[-1] if views and views[-1].is_open else None
