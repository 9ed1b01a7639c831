"""A world of nodes that look for a cluster. Their reports may be lost, late or out of order, and disks may be wiped.

`World.step` makes one thing happen, which a generator chooses. `check` must hold after every step: all clusters that
were ever founded are one, except for those that an operator forced a node to found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.cluster.membership.founding import AskAgain, Found, Founding, Join, Report, Stop


@dataclass
class Disk:
    """What is on a node's disk: the id of its directory, its cluster, and its promise."""

    node_id: str
    cluster: str = ""
    promised: str = ""


@dataclass
class World:
    """The nodes, their disks and the reports in flight; `lists` has the list of names with which each node starts."""

    lists: dict[str, tuple[str, ...]]
    disks: dict[str, Disk] = field(default_factory=dict)
    running: dict[str, Founding | None] = field(default_factory=dict)
    #: (sender, receiver, report, whether it is an answer)
    in_flight: list[tuple[str, str, Report, bool]] = field(default_factory=list)
    clusters: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    wiped: int = 0

    def start(self, node: str, is_forced: bool = False) -> None:
        disk = self.disks.setdefault(node, Disk(f"{node}-disk{self.wiped}"))
        self.stopped.pop(node, None)
        self.running[node] = (
            None if disk.cluster else Founding(node, disk.node_id, self.lists[node], disk.promised, is_forced)
        )

    def kill(self, node: str) -> None:
        self.running.pop(node, None)
        self.in_flight = [one for one in self.in_flight if node not in one[:2]]
        for other in self.running.values():
            if other is not None:
                other.lost(node)

    def wipe(self, node: str) -> None:
        self.kill(node)
        self.wiped += 1
        self.disks.pop(node, None)

    def ask(self, node: str) -> None:
        """The node asks all others of its list once."""
        founding = self.running.get(node)
        if founding is not None:
            self.in_flight += [(node, other, founding.report(), False) for other in founding.others]

    def deliver(self, at: int) -> None:
        sender, receiver, report, is_answer = self.in_flight.pop(at)
        if receiver not in self.running:
            return
        founding, disk = self.running[receiver], self.disks[receiver]
        if is_answer:
            if founding is not None:
                founding.heard(report)
            return
        if founding is not None:
            if founding.asked(report):
                disk.promised = founding.promised
                founding.stored()
            answer = founding.report()
        else:
            answer = Report(receiver, disk.node_id, disk.cluster, "", disk.promised)
        self.in_flight.append((receiver, sender, answer, True))

    def decide(self, node: str) -> None:
        founding = self.running.get(node)
        if founding is None:
            return
        disk = self.disks[node]
        decision = founding.decide()
        disk.promised = founding.promised
        founding.stored()
        match decision:
            case Found():
                disk.cluster = f"cluster of {disk.node_id}"
                self.clusters[disk.cluster] = node
                self.running[node] = None
            case Join(through, cluster):
                # The member through which the node joins must run, and the leader admits no second directory of a
                # member.
                if through in self.running and self.disks[through].cluster == cluster:
                    disk.cluster = cluster
                    self.running[node] = None
            case Stop(text):
                self.stopped[node] = text
                self.kill(node)
            case AskAgain():
                pass

    @property
    def members(self) -> dict[str, str]:
        """The cluster of each node that has one."""
        return {node: disk.cluster for node, disk in sorted(self.disks.items()) if disk.cluster}
