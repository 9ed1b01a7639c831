"""`Founding`: what a node without a cluster does until it has one (CL-38). Reports of others in, a decision out.

Nodes that start with a list of names must end in one cluster, in whatever order they start, and even if some of them
cannot reach others. Three rules make that certain:

- Only the node whose name is the lowest of the list founds a cluster. Every other node waits for it, and joins.
- That node founds only after a majority of the list, itself included, has **promised** it to its data directory: the
  promise names the random id of that directory, is on the disk of the node that gives it before it is sent, and is
  given once. Two founders would need two majorities, which share a node, and that node has promised one of them only.
  So a founder whose disk was lost after it had founded cannot found again: its new directory has another id.
- Nodes whose lists differ might disagree about the lowest name and about what a majority is, so both stop.

A node that belongs to a cluster answers with the cluster's id, and whoever has asked joins it. An operator's
`warren start --found` overrides all of this on one node.

The caller asks every other node of the list twice a second, gives `heard` what they answer, and performs `decide`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from ...seams import seam


class Report(NamedTuple):
    """What a node answers about itself when it is asked by a node without a cluster.

    node       its name
    node_id    the id of its data directory
    cluster    the id of its cluster; empty if it has none
    nodes      the hash of its list (`hash_of`); empty if it has no list
    promised   the id of the directory that it has promised to; empty if it has promised nothing
    """

    node: str
    node_id: str
    cluster: str
    nodes: str
    promised: str


class Found(NamedTuple):
    """Found a cluster with this node as its only member."""


class Join(NamedTuple):
    """Ask the node `through` to have its cluster, whose id is `cluster`, admit this node."""

    through: str
    cluster: str


class Stop(NamedTuple):
    """End: no order of starts will ever make one cluster of these nodes. The text is for the operator."""

    text: str


class AskAgain(NamedTuple):
    """Ask again later; the text says what is missing."""

    text: str


Decision = Found | Join | Stop | AskAgain


def hash_of(nodes: Iterable[str]) -> str:
    """The hash by which two nodes compare their lists; the order of the names does not matter."""
    return blake2b("\n".join(sorted(set(nodes))).encode(), digest_size=8).hexdigest()


class Founding:
    """One node without a cluster.

    node, node_id   its name and the id of its data directory
    nodes           the list, which should have its own name; empty if it is to found a cluster of its own
    promised        the id of the directory that it promised to before it started; empty if none
    is_forced       an operator has decided that this node founds
    """

    def __init__(
        self, node: str, node_id: str, nodes: Iterable[str], promised: str = "", is_forced: bool = False
    ) -> None:
        self.node = node
        self.node_id = node_id
        self.promised = promised
        #: What is known to be on the disk of `promised`.
        self._stored = promised
        self._is_forced = is_forced
        self._reports: dict[str, Report] = {}
        #: How often each member has not answered when this node asked to join.
        self._silences: Counter[str] = Counter()
        self.nodes: tuple[str, ...] = ()
        self.listed(nodes)

    def listed(self, nodes: Iterable[str]) -> None:
        """Use these nodes: the list was read again, because that of a file or of a name server may change."""
        self.nodes = tuple(sorted(set(nodes)))
        self._reports = {name: report for name, report in self._reports.items() if name in self.nodes}

    @property
    def others(self) -> tuple[str, ...]:
        """The nodes to ask."""
        return tuple(name for name in self.nodes if name != self.node)

    def report(self) -> Report:
        """What this node answers to a question of another one."""
        return Report(self.node, self.node_id, "", hash_of(self.nodes) if self.nodes else "", self._stored)

    # -- what others say ---

    def asked(self, report: Report) -> bool:
        """Note the report of another node without a cluster, which has asked for that of this node.

        Returns whether this node has promised something that is not known to be on its disk. The caller then writes
        `promised` there, and calls `stored`, before it answers.
        """
        self.heard(report)
        if self._may_promise(report):
            self.promised = report.node_id
        return self.promised != self._stored

    def stored(self) -> None:
        """Note that the disk has `promised`. No report contains it before, because a crash could undo it."""
        self._stored = self.promised

    @seam("founding: whom a node lets found a cluster")
    def _may_promise(self, report: Report) -> bool:
        """Whether the sender is the one node that may found, and nobody was promised before."""
        is_founder = bool(self.nodes) and report.node == self.nodes[0] and report.nodes == hash_of(self.nodes)
        return is_founder and not report.cluster and not self.promised

    def heard(self, report: Report) -> None:
        """Note what a node has answered or asked. Only nodes of the list count."""
        if report.node in self.others:
            self._reports[report.node] = report

    def lost(self, node: str) -> None:
        """Forget what this node reported, because its link has ended and its next report may differ. Its promise stays:
        a promise is given once.
        """
        report = self._reports.get(node)
        if report is not None and (report.cluster or not report.promised):
            del self._reports[node]

    def not_admitted(self, through: str) -> None:
        """Note that this member has not answered in time. Another one is asked next, because the app of this one may be
        stopped, and then it cannot have the cluster replace a lost member.
        """
        self._silences[through] += 1

    # -- deciding ---

    def decide(self) -> Decision:
        """What to do now."""
        clusters = sorted({report.cluster for report in self._reports.values() if report.cluster})
        if len(clusters) > 1:
            return Stop(self._two_clusters(clusters))
        if clusters:
            members = [name for name, report in self._reports.items() if report.cluster]
            return Join(min(members, key=lambda name: (self._silences[name], name)), clusters[0])
        if self._is_forced or self.nodes in ((), (self.node,)):
            return Found()
        differing = self._differing()
        if differing is not None:
            return Stop(
                f"the lists of {self.node} and {differing} differ, so they could found two clusters: give"
                " cluster_formation the same names on all nodes, and start them again"
            )
        if self.node not in self.nodes:
            return AskAgain(f"{self.node} is not in its own list, so it only joins a cluster; it has found none yet")
        if self.nodes[0] != self.node:
            return AskAgain(f"{self.nodes[0]} has the lowest name of the list, and founds the cluster; it has not yet")
        return self._as_founder()

    def _two_clusters(self, clusters: list[str]) -> str:
        named: dict[str, list[str]] = {cluster: [] for cluster in clusters}
        for name, report in sorted(self._reports.items()):
            if report.cluster:
                named[report.cluster].append(name)
        shown = "; ".join(f"{cluster} ({', '.join(names)})" for cluster, names in named.items())
        return (
            f"the nodes of the list belong to {len(clusters)} clusters: {shown}. Decide which one is to stay, `warren"
            " reset` the nodes of the others, and start them again"
        )

    @seam("founding: whose list differs")
    def _differing(self) -> str | None:
        own = hash_of(self.nodes)
        return min((name for name, report in self._reports.items() if report.nodes not in ("", own)), default=None)

    def _as_founder(self) -> Decision:
        if not self.promised:
            self.promised = self.node_id
        if self.promised != self.node_id:
            return Stop(
                f"{self.node} has promised another data directory to found the cluster; start it with that directory,"
                " or with --found if that one is lost for ever"
            )
        promises = [self.node, *(name for name, report in self._reports.items() if report.promised == self.node_id)]
        if self._is_majority(len(promises)):
            return Found()
        refusing = sorted(name for name, report in self._reports.items() if report.promised not in ("", self.node_id))
        if refusing and not self._is_majority(len(self.nodes) - len(refusing)):
            return Stop(
                f"{', '.join(refusing)} let another data directory of {self.node} found the cluster. If that one is"
                f" not mounted, mount it; if it is lost, start {self.node} once with --found"
            )
        missing = sorted(set(self.nodes) - set(promises))
        return AskAgain(
            f"{len(promises)} of {len(self.nodes)} nodes agree that there is no cluster yet, and"
            f" {len(self.nodes) // 2 + 1} are needed; missing {', '.join(missing)}"
        )

    @seam("founding: how many promises are needed")
    def _is_majority(self, count: int) -> bool:
        return count > len(self.nodes) // 2
