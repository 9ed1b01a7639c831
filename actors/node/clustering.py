"""`Clustering`: the processes by which a node is part of a cluster, as the node sees them.

The processes belong to rooms that `actors` does not import. So the program that starts the node hands their classes in,
and this file has what the node says to them. A node without a `Clustering` is alone: it opens no cluster port, starts
none of these processes, and its metadata is ordered by `LocalLog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from ...runtime.contract import Contract, message
from ...runtime.errors import ProcessError

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from .context import NodeContext
    from .contract import ToNode

#: What a node does in its cluster: look for one, wait for a majority, serve clients, wait for its lease, serve nobody,
#: or end its app because the cluster has declared it down.
MembershipStage = Literal["founding", "waiting", "running", "stalled", "paused", "restarting"]


class MembershipError(ProcessError):
    """The node cannot become or stay a member of a cluster. The text names the reason and the way out."""


class Lease:
    """Until when this node may act as a part of the majority of its cluster (CL-51). A node without one always may."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        #: A moment on the monotonic clock of this node.
        self.until = float("inf")

    def holds(self, now: float) -> bool:
        """Whether the node may act now."""
        return now < self.until


class Clustering(NamedTuple):
    """The classes of the processes that only a node of a cluster has."""

    #: Keeps the contract `ToMembership`, and links the node to the others.
    members: type[Process]
    #: The `Metadata` whose log is agreed with the other members.
    metadata: type[Process]


class MemberItems(TypedDict):
    """One member in `MembershipStatus`."""

    node: str
    node_id: str
    role: str
    address: str
    build: str
    #: Empty while the cluster counts the member as down.
    incarnation: str
    #: Whether this node and the member are linked now.
    is_linked: bool
    #: Why the member counts as lost, or why it could not be reached; empty if it is linked.
    reason: str
    in_maintenance: bool


class MembershipStatus(TypedDict):
    """What a node knows of its cluster, for `cluster_status`."""

    stage: MembershipStage
    #: What the node waits for; empty if it waits for nothing.
    waits_for: str
    cluster_id: str
    leader: str
    term: int
    applied: int
    #: Milliseconds until the lease of this node ends; 0 if it has none.
    lease: int
    voters: list[str]
    members: list[MemberItems]


class ToMembership(Contract):
    """What the process `Members` receives from its own node."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode]) -> bool:
        """From the node, before Metadata starts: link to the other nodes, and find or found a cluster meanwhile.

        Answered True when the node has a cluster port. Raises MembershipError if the port, the secret or the node's
        identity cannot be used.
        """

    @message
    def await_up(self) -> bool:
        """From Metadata, when it has read what is on the disk: answered True when the cluster has declared this run of
        the node up, and the metadata has everything that was committed before.

        Raises MembershipError, whose text is for the operator, if the node cannot become a member or if it has waited
        long enough.
        """

    @message
    def serving(self) -> None:
        """From the node: its listeners are open. From now on a pause closes them."""

    @message
    def membership(self) -> MembershipStatus:
        """From operations: what this node knows of its cluster."""

    @message
    def forget(self, node: str, accept_loss: bool) -> str:
        """From operations: remove this member from the cluster. Answered with what was done, for people.

        Raises MembershipError if the member runs, is none, or would take data with it that nobody else has.
        """


to_membership = ToMembership()
