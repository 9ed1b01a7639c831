"""What the process `Members` receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from ...runtime.contract import message
from ...runtime.errors import ProcessError
from ..links.contract import ToLinkWatcher

if TYPE_CHECKING:
    from ...actors.node.context import NodeContext
    from ...actors.node.contract import ToNode
    from ...runtime.contract import Address

#: The fields of a `founding.Report`, in order.
ReportFields = tuple[str, str, str, str, str]

#: What a node does in its cluster: look for one, wait for a majority, serve clients, wait for its lease, serve nobody,
#: or end its app because the cluster has declared it down.
MembershipStage = Literal["founding", "waiting", "running", "stalled", "paused", "restarting"]


class MembershipError(ProcessError):
    """The node cannot become or stay a member of a cluster. The text names the reason and the way out."""


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


class ToMembers(ToLinkWatcher):
    """Its name on every node is `members`. All messages from other nodes go by the lane `control`."""

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

    @message
    def question(self, report: ReportFields) -> ReportFields:
        """From a node without a cluster: answered with this node's own report (`founding`)."""

    @message
    def admit(self, node: str, node_id: str, role: str, address: str, build: str, cluster: str) -> bool:
        """From a node that is to join: make it a member. Answered True when the metadata lists it.

        Raises MembershipError if this node's cluster is another one, or if it refuses the node.
        """

    @message
    def heartbeat(self, node: str, incarnation: str, wants_up: bool, asked_at: float, applied: int) -> None:
        """From a member, every 250 ms (CL-50). To the leader it is the question for a lease as well: `asked_at` is the
        moment of the question on the sender's own clock, and comes back with the grant.
        """

    @message
    def grant(self, asked_at: float, seconds: float) -> None:
        """From the leader: a lease of so many seconds from the moment of this question (CL-51)."""

    @message
    def leader_is(self, leader: str | None, term: int) -> None:
        """From the consensus of this node, when the leader changes."""

    @message
    def dismissed(self, sentence: str) -> None:
        """From a member: this node was removed from the cluster; the sentence is for its operator."""


to_members = ToMembers()
