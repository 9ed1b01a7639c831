"""`PeerLinks`: the other nodes that this one links to: which of them are linked now, and why the others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.signal import Signal
from ...version import __version__
from ..links.admission import SETTINGS, ClusterMembership, Facts
from ..links.contract import to_links
from .addresses import address_of
from .majority.failure_detector import FailureDetector

if TYPE_CHECKING:
    from ...actors.context.node_context import NodeContext
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from ..links.contract import ToLinks
    from .contract import ToMembers
    from .founding import Founding
    from .member_table import MemberTable
    from .own_node import OwnNode

#: The name under which `Members` is reached from other nodes.
NAME = "members"


class PeerLinks:
    """A part of the process `process`, a `Members`."""

    #: The process that makes the links. It is started after this object is made, and before any node is linked.
    links: Address[ToLinks]

    def __init__(self, process: Process, context: NodeContext, own: OwnNode, table: MemberTable) -> None:
        self._process = process
        self._definitions = context.definitions
        self._own = own
        self._table = table
        #: The facts of each node that is linked now, and which run of it is.
        self.linked: dict[str, Facts] = {}
        self.runs: dict[str, str] = {}
        #: Why a node could not be reached the last time.
        self.refusals: dict[str, str] = {}
        self.detector = FailureDetector(own.settings.net_ticktime, lambda: process.random_bytes(1)[0] / 255)
        #: Woken when a link has come up, and when another node has reported its cluster while this node has none.
        self.met = Signal(process)
        #: How this node looks for a cluster, as long as it has none.
        self.founding: Founding | None = None
        #: Whether the node is asking to join a cluster, and greets as one without any.
        self.is_stranger = False
        #: The nodes of the list with which this node looked for a cluster, as long as they are no members.
        self._sought: set[str] = set()
        #: Where the links are to find each node.
        self._addresses: dict[str, tuple[str, int]] = {}
        #: By node: the run that was up when the table of members changed last.
        self._were_up: dict[str, str] = {}

    # -- whom to link to ---

    def nodes_changed(self) -> None:
        """React to a change of the table of members: link to these, and to no run that was declared down."""
        self.show_membership()
        nodes = self._table.nodes
        if nodes and not self.is_stranger:
            self.follow_members()
        were_up, self._were_up = self._were_up, {name: node.incarnation for name, node in nodes.items()}
        for name, run in were_up.items():
            if run and self._were_up.get(name) != run:
                self._cut_off(name, run, "the cluster has declared this run down")
        for name, run in self._were_up.items():
            if run and were_up.get(name) != run:
                self.detector.run_began(name)

    def follow_members(self) -> None:
        """Link to the members that the metadata lists, and to nodes of the list that have not been members yet."""
        own, nodes = self._own, self._table.nodes
        others = {name: node.address for name, node in nodes.items() if name != own.name}
        self.detector.watch(others, self._process.now())
        if self.founding is not None:
            self._sought = set(self.founding.others)
        self._sought -= set(others)
        peers = {**dict.fromkeys(self._sought, ""), **others}
        self.link_to({name: address_of(own.settings, name, address) for name, address in peers.items()})

    def link_to(self, addresses: dict[str, tuple[str, int]]) -> None:
        """Have a link to each of these nodes, and to no others."""
        if addresses != self._addresses:
            self._addresses = addresses
            self._process.send(self.links, to_links.set_peers(addresses))

    def show_membership(self) -> None:
        """Have the links send the present membership and settings in their greetings from now on."""
        own, settings = self._own, self._own.settings
        membership = ClusterMembership(
            cluster_id=None if self.is_stranger else own.identity.cluster or None,
            members={} if self.is_stranger else {name: node.node_id for name, node in self._table.nodes.items()},
            replaces=own.replaces_lost,
            required=self._definitions.enabled_features(),
            facts={
                "address": own.address,
                "build": __version__,
                SETTINGS: {
                    "net_ticktime": settings.net_ticktime,
                    # A channel and a queue on two nodes must count by the same pair. If one of them gave credit later
                    # than the other's initial credit allows, the other would wait for ever.
                    "credit_flow_default_credit": ", ".join(map(str, settings.credit_flow_default_credit)),
                },
            },
        )
        self._process.send(self.links, to_links.set_membership(membership))

    # -- who is linked ---

    def link_up(self, node: str, incarnation: str, facts: Facts) -> None:
        """Note that this run of the node is linked from now on."""
        self.linked[node] = facts
        self.runs[node] = incarnation
        self.refusals.pop(node, None)
        self.detector.heard(node, self._process.now())
        self.met.wake_all()

    def link_down(self, node: str, reason: str) -> None:
        """Note that the node is linked no longer."""
        self.linked.pop(node, None)
        self.runs.pop(node, None)
        self.refusals[node] = reason
        if self.founding is not None:
            self.founding.lost(node)

    def members_on(self, node: str) -> Address[ToMembers] | None:
        """`Members` on a node that is linked now."""
        return self._process.named_address(node, NAME) if node in self.linked else None

    def cut_off_lost(self, now: float) -> None:
        """End the links to nodes that have fallen silent, so that no process waits for their answers any longer.

        A run that is not up yet keeps its link: it sends no heartbeats while it reads its disk.
        """
        nodes = self._table.nodes
        for name, reason in self.detector.lost(now).items():
            node = nodes.get(name)
            if node is not None and node.incarnation:
                self._cut_off(name, node.incarnation, reason)

    def _cut_off(self, node: str, run: str, reason: str) -> None:
        """End the link to this run of the node, if there is one.

        The `ask` calls and monitors of processes on that node end with `noconnection`.
        """
        if self.runs.get(node) == run:
            self._process.send(self.links, to_links.disconnect(node, reason))
