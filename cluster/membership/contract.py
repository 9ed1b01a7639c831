"""What the process `Members` receives."""

from __future__ import annotations

from typing import Any

from ...actors.context.starting import ToNewMembership
from ...runtime.contract import message
from ..links.contract import ToLinkWatcher
from ..metadata.contract import ToConsensusWatcher

#: The fields of a `founding.Report`, in order.
ReportFields = tuple[str, str, str, str, str]


class ToMembers(ToNewMembership, ToLinkWatcher, ToConsensusWatcher):
    """What `Members` receives. Its name on every node is `members`, and messages from other nodes come by the lane
    `control`.
    """

    @message
    def question(self, report: ReportFields) -> ReportFields:
        """From a node without a cluster: answered with this node's own report (`founding`)."""

    @message
    def admit(self, node: str, node_id: str, role: str, address: str, cluster: str) -> bool:
        """From a node that is to join: make it a member. Answered True when the metadata lists it.

        Raises MembershipError if this node's cluster is another one, or if it refuses the node.
        """

    @message
    def status(self) -> dict[str, Any]:
        """From a member: answered with what the operation `status` of this node answers."""

    @message
    def heartbeat(self, node: str, incarnation: str, wants_up: bool, asked_at: float, applied: int) -> None:
        """From a member, every 250 ms (CL-50). To the leader it is the question for a lease as well: `asked_at` is the
        moment of the question on the sender's own clock, and comes back with the grant.
        """

    @message
    def ended(self, node: str, incarnation: str) -> bool:
        """To the leader, from a member that stops in order: this run has ended. Answered True."""

    @message
    def remove(self, node: str, node_id: str) -> bool:
        """From a member that leaves: remove it. Answered True when it has no vote any more. Raises ProcessError."""

    @message
    def grant(self, asked_at: float, seconds: float) -> None:
        """From the leader: a lease of this many seconds from the moment of this question (CL-51)."""


to_members = ToMembers()
