"""`MemberTable`: the members as the metadata lists them, and the commands that change the list."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ...actors.contracts.membership import MembershipError
from ...actors.metadata.log.log import OutcomeUnknown
from ...actors.metadata.state.commands import AddNode, RemoveNode
from ...amqp.errors import AmqpError
from ...definitions.errors import DefinitionError
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ..metadata.contract import to_cluster_metadata

if TYPE_CHECKING:
    from ...actors.context.node_context import NodeContext
    from ...definitions.records import Node
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from ..metadata.contract import ToClusterMetadata
    from .own_node import OwnNode

log = logging.getLogger("warren.members")

#: Seconds for which a new member's request may wait for the metadata to list it.
ADMIT_SECONDS = 15.0

#: Seconds that the removal of a vote may take. A node that starts waits 30 s for its admission (`seeking`) and asks
#: again, so on a busy machine it only starts later. A refusal before that would end its start.
VOTE_SECONDS = 60.0

#: Seconds between two looks at whether a former member still follows the log.
LOOK_SECONDS = 0.05


class MemberTable:
    """A part of the process `process`, a `Members`."""

    def __init__(self, process: Process, context: NodeContext, own: OwnNode) -> None:
        self._process = process
        self._own = own
        self._definitions = context.definitions
        self.metadata: Address[ToClusterMetadata] = context.metadata  # type: ignore[assignment]

    @property
    def nodes(self) -> dict[str, Node]:
        """The members, by name."""
        return {node.name: node for node in self._definitions.nodes.values()}

    @property
    def others(self) -> list[str]:
        """The names of the members other than this node."""
        return [name for name in self.nodes if name != self._own.name]

    @property
    def own_row(self) -> Node | None:
        """This node as the metadata lists it; None if it is no member."""
        return self.nodes.get(self._own.name)

    def is_declared_up(self) -> bool:
        """Whether the cluster counts this run of the node as up."""
        row = self.own_row
        return row is not None and row.incarnation == self._own.incarnation

    def has_own_data(self) -> bool:
        """Whether the node has started completely before. Then it has metadata of its own, which a join would drop."""
        return self._definitions.record("global_parameters", ("internal_cluster_id",)) is not None

    # -- changing the list ---

    async def admit(self, record: Node) -> None:
        """Have this node become a member, or change its role and address if it is one. Raises ProcessError."""
        node, ends = record.name, self._process.now() + VOTE_SECONDS
        while self._own.replaces_lost and self._is_another(record) and not self.is_declared_up():
            # The log refuses to remove a member as long as this run counts as down. After a power cut of all nodes the
            # one with an empty disk asks while the others are still starting.
            if self._process.now() > ends:
                raise ProcessError(f"{self._own.name} does not run, so it cannot replace the lost {node}")
            await self._process.sleep(LOOK_SECONDS)
        known = self.nodes.get(node)
        try:
            if self._own.replaces_lost and self._is_another(record):
                log.warning("%s comes back without the data that it had, and takes the place of the lost member", node)
                await self.propose(RemoveNode(node))
                known = None
            if known is None:
                await self._until_no_vote(node)
            await self.propose(AddNode(record))
        except MembershipError as error:
            # The error crosses to other nodes, which know its text but not its class.
            raise ProcessError(str(error)) from None

    def _is_another(self, record: Node) -> bool:
        """Whether a member has the name of this node, and another data directory."""
        known = self.nodes.get(record.name)
        return known is not None and known.node_id != record.node_id

    async def remove(self, node: str, node_id: str) -> None:
        """Remove the member with this data directory, and return when it has no vote any more. Raises ProcessError."""
        known = self.nodes.get(node)
        if known is not None and known.node_id != node_id:
            raise ProcessError(f"{node} is a member with another data directory")
        try:
            await self.propose(RemoveNode(node))
            await self._until_no_vote(node)
        except MembershipError as error:
            raise ProcessError(str(error)) from None

    async def remove_others(self) -> None:
        """Remove all other members, because an operator has made this node the only voter (CL-48).

        The last node with queues cannot be removed. If this node is a witness, one of the lost members stays listed
        until a new node has joined: without that, an operator would have no node that keeps the metadata.
        """
        name, own = self._own.name, self.own_row
        nodes = sorted(self.others, key=lambda node: self.nodes[node].role == "data")
        for node in nodes:
            if node == nodes[-1] and own is not None and own.role == "witness":
                log.warning(
                    "%s stays a member of the cluster, because %s is a witness. Have a node with queues join the"
                    " cluster, and then remove the lost one with `warren forget_cluster_node %s`",
                    node,
                    name,
                    node,
                )
                return
            log.warning("%s is removed from the cluster, because %s was forced to boot without it", node, name)
            await self.propose(RemoveNode(node))

    async def propose(self, command: Any) -> None:
        """Have this command applied. Raises MembershipError if it is refused or cannot be agreed on."""
        process, request = self._process, to_cluster_metadata.change_definitions(command)
        try:
            try:
                await process.ask(self.metadata, request, ADMIT_SECONDS)
            except OutcomeUnknown:
                # A snapshot has replaced this node's state, as happens when it has just joined, so it cannot learn what
                # became of the command. Propose it again: a command about a node changes nothing the second time.
                await process.sleep(LOOK_SECONDS)
                await process.ask(self.metadata, request, ADMIT_SECONDS)
        except (DefinitionError, AmqpError) as error:
            raise MembershipError(str(error)) from None
        except ProcessDown:
            raise MembershipError(f"{self._own.name} is ending") from None
        except ProcessTimeout:
            raise MembershipError("the members have not agreed on it in time; no majority of them may run") from None

    async def _until_no_vote(self, node: str) -> None:
        """Return when no member of this name follows the log: one that was removed just now still may.

        A new member of this name begins with an empty log. If the former one were not removed, the leader would send
        the new one only the entries that the former lacked.
        """
        process = self._process
        ends = process.now() + VOTE_SECONDS
        while True:
            status = await process.ask(self.metadata, to_cluster_metadata.consensus_status())
            if node not in (*status["voters"], *status["learners"]):
                return
            if process.now() > ends:
                raise MembershipError(f"the vote of the former {node} could not be taken away in time")
            await process.sleep(LOOK_SECONDS)
