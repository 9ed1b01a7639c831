"""What `Members`, the process that makes a node part of a cluster, receives from its own node, and what the processes
receive that send contents to other nodes.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from ...amqp.errors import AmqpError
from ...runtime.contract import Contract, message
from ...runtime.errors import ProcessError
from .info_items import InfoItems

#: What a node does in its cluster: look for one, vote while its app is stopped, wait for a majority, serve clients,
#: wait for its lease, serve nobody, or end its app because the cluster has declared it down.
MembershipStage = Literal["founding", "stopped", "waiting", "running", "stalled", "paused", "restarting"]


class MembershipError(ProcessError):
    """The node cannot become or stay a member of a cluster. The text names the reason and the way out."""


class StoppedWaiting(MembershipError):
    """An operator has stopped the node while it waited for its cluster."""


class AppStopped(StoppedWaiting):
    """This run of the node ended before its app had started. The next run begins with its app stopped."""


class CountsAsDown(AmqpError):
    """The cluster has declared the run of the node that sent the command down: only a later run may change anything."""


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
    #: The run of the member that is linked; empty if none is.
    linked_run: str
    #: Why the member counts as lost, or why it could not be reached; empty if it is linked.
    reason: str
    in_maintenance: bool


class MembershipStatus(TypedDict):
    """The cluster as a node sees it, for `cluster_status`."""

    stage: MembershipStage
    #: What the node waits for; empty if it waits for nothing.
    waits_for: str
    cluster_id: str
    leader: str
    term: int
    committed: int
    applied: int
    #: Where the node listens for the others.
    host: str
    port: int
    #: Milliseconds until the lease of this node ends; 0 if it has none.
    lease: int
    voters: list[str]
    members: list[MemberItems]


class LaneRow(TypedDict):
    """One lane of the link to another node, for `links`. A link that is not up has one row, whose `lane` is empty."""

    node: str
    lane: str
    #: `up`, `connecting`, `waiting` before the next attempt, or `refused`.
    state: str
    #: Seconds for which the link has been in this state.
    since: float
    sent_bytes: int
    received_bytes: int
    #: Bytes that wait to be written.
    unsent: int
    #: Why the last session ended, or why the last attempt failed; empty if neither has happened.
    last_error: str
    #: By reason: the attempts of this node to connect that one of the two nodes has refused.
    rejected: dict[str, int]
    #: Milliseconds from a ping to its answer; None before the first one.
    round_trip: float | None
    address: str
    incarnation: str
    #: How many asks to either side wait for an answer, plus how many processes are monitored across the link.
    open: int
    #: How often the link has been made since the node started.
    sessions: int
    #: Version of the protocol; 0 if the link is not up.
    version: int
    sent_frames: int
    received_frames: int
    sent_messages: int
    received_messages: int
    #: Bytes that have arrived, and wait until this node has applied the metadata to which they refer.
    held: int


class ToMembership(Contract):
    """What `Members` receives from the processes of its node."""

    @message
    def await_up(self) -> bool:
        """From Metadata, when it has read what is on the disk: answered True when the cluster has declared this run of
        the node up, and the metadata has everything that was committed before.

        Raises MembershipError, whose text is for the operator, if the node cannot become a member or if it has waited
        long enough.
        """

    @message
    def give_up(self) -> None:
        """From the node, which an operator stops: have `await_up` raise StoppedWaiting if it waits."""

    @message
    def hand_over(self) -> bool:
        """From the node, which stops in order and has closed its clients' connections already.

        Membership hands leadership to another voter if this node leads, and asks the leader to declare this run down
        at once (CL-48). Without that, clients of the other nodes would wait until these notice that it is silent.
        Answered True when that is done or given up.
        """

    @message
    def join(self, node: str, role: str) -> str:
        """From operations, while the app is stopped: make this node a member of the cluster of `node`.

        Answered when that cluster lists it, and what this node has is to be deleted by its next start; or with a text
        if it is a member already. Raises MembershipError.
        """

    @message
    def change_role(self, role: str) -> bool:
        """From operations, while the app is stopped: make this node one with queues (`data`) or a `witness`.

        Answered True when the cluster lists it so. Raises MembershipError.
        """

    @message
    def leave(self) -> bool:
        """From operations, while the app is stopped: have the other members remove this node. Answered True when they
        have, or when there are none. Raises MembershipError.
        """

    @message
    def yield_leadership(self) -> bool:
        """From operations: if this node leads, have another voter lead. Answered True when that is done or given up."""

    @message
    def serving(self) -> None:
        """From the node: its listeners are open. From now on a pause closes them."""

    @message
    def membership(self) -> MembershipStatus:
        """From operations: the cluster as this node sees it."""

    @message
    def statuses(self) -> dict[str, InfoItems]:
        """From operations: what the operation `status` of each linked member answers, by name; a member that does not
        answer is left out.
        """

    @message
    def reload_certificates(self) -> str:
        """From the node: read the files of the certificate that other nodes are shown again, as
        `ToListener.reload_certificate` does.
        """

    @message
    def links(self) -> list[LaneRow]:
        """From operations: the lanes of the links to other nodes, sorted by node."""


to_membership = ToMembership()


class ToLinkSender(Contract):
    """What processes receive that send contents of messages to other nodes: channels and queues (CL-15)."""

    @message
    def link_full(self, node: str) -> None:
        """From the link to another node: too many bytes wait to be written. Count as blocked until `link_free`."""

    @message
    def link_free(self, node: str) -> None:
        """From the link to another node: enough is written, or the link has ended. Send to that node again."""


to_link_sender = ToLinkSender()
