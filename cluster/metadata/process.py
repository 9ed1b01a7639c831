"""`ClusterMetadata`: the `Metadata` of a node that may have a cluster (`docs/internals/cluster.md`)."""

from __future__ import annotations

from ...actors.context.node_context import NodeContext
from ...actors.contracts.membership import to_membership
from ...actors.contracts.node import ToNode
from ...actors.metadata.process import Metadata
from ...actors.metadata.state.commands import Command
from ...actors.metadata.state.effects import Applied
from ...definitions.changes import RecordPut, RecordRemoved
from ...definitions.records import EnabledFeature, Node
from ...runtime.contract import Address, Sender
from ...runtime.exit_reason import ExitReason
from ...runtime.system.address import system_of
from ..links.admission import Facts
from .consensus_log import ConsensusLog
from .contract import ConsensusStatus, ToClusterMetadata, ToConsensusWatcher, to_cluster_metadata, to_consensus_watcher
from .in_force import AnswerTimeouts

#: The name to which the Metadata of other nodes sends messages about the log.
CONSENSUS_NAME = "consensus"

#: The name of the process that has this node join its cluster. A node without it counts as up at once.
MEMBERS_NAME = "members"

#: How the monitors of watchers are named.
WATCHER = "watcher of consensus"


class ClusterMetadata(Metadata):
    """See the module."""

    contract = ToClusterMetadata

    def __init__(self) -> None:
        super().__init__()
        #: The processes that follow the consensus, by their addresses.
        self._watchers: dict[str, Address[ToConsensusWatcher]] = {}

    async def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode]) -> None:
        self._context = context
        incarnation = system_of(self.myAddress).rpartition("-")[2]
        self.agreed = self.log = ConsensusLog(
            self,
            self.state,
            self,
            (context.node_name, incarnation),
            self._send_to,
            self._await_up,
            self._tell_watchers,
            self._beat,
            self._holds_lease,
            context.settings.channel_operation_timeout / 1000,
            AnswerTimeouts.of(context.settings.net_ticktime, context.settings.cluster_apply_lag / 1000),
        )
        self.register(CONSENSUS_NAME)
        await super().on_start(sender, context, node)

    def _send_to(self, node: str, data: bytes) -> None:
        address = self.named_address(node, CONSENSUS_NAME)
        if address is not None:
            self.send(address, to_cluster_metadata.consensus(self._context.node_name, data))

    def _holds_lease(self) -> bool:
        return self._context.lease.holds(self.now())

    async def _await_up(self) -> None:
        members = self.named_address(self._context.node_name, MEMBERS_NAME)
        if members is not None:
            await self.ask(members, to_membership.await_up())

    # --- the log ---

    def applied(self, command: Command, applied: Applied, is_own: bool) -> None:
        """See `LogOwner`."""
        super().applied(command, applied, is_own)
        self._tell_of_nodes(applied)

    def replaced(self, applied: Applied) -> None:
        """See `LogOwner`."""
        super().replaced(applied)
        self._tell_of_nodes(applied)

    def _tell_of_nodes(self, applied: Applied) -> None:
        changed = (each for each in applied.changes if isinstance(each, (RecordPut, RecordRemoved)))
        if any(isinstance(each.record, (Node, EnabledFeature)) for each in changed):
            for watcher in self._watchers.values():
                self.send(watcher, to_consensus_watcher.nodes_changed())

    async def on_consensus(self, sender: Sender, node: str, data: bytes) -> None:
        self.agreed.received(node, data)

    async def on_found(self, sender: Sender, node: Node) -> None:
        await self.agreed.found(node)
        self._tell_watchers()

    async def on_follow(self, sender: Sender) -> None:
        await self.agreed.follow()

    async def on_barrier(self, sender: Sender) -> int:
        return await self.agreed.barrier()

    def on_consensus_status(self, sender: Sender) -> ConsensusStatus:
        return self.agreed.status()

    def on_transfer_leadership(self, sender: Sender, to: str | None) -> str:
        return self.agreed.transfer(to)

    # --- watchers of the consensus ---

    async def on_watch_consensus(self, sender: Sender, watcher: Address[ToConsensusWatcher]) -> None:
        self._watchers[watcher.actorAddressString] = watcher
        self.monitor(watcher, (WATCHER, watcher.actorAddressString))
        self._tell(watcher)

    def on_timer(self, payload: None) -> None:
        self.agreed.timer_due()

    def _beat(self) -> None:
        status = self.agreed.status()
        for watcher in self._watchers.values():
            self.send(watcher, to_consensus_watcher.beat(status))

    def _tell_watchers(self) -> None:
        for watcher in self._watchers.values():
            self._tell(watcher)

    def _tell(self, watcher: Address[ToConsensusWatcher]) -> None:
        status = self.agreed.status()
        self.send(watcher, to_consensus_watcher.leader_is(status["leader"] or None, status["term"]))
        self.send(watcher, to_consensus_watcher.nodes_changed())

    def on_down(self, name: tuple[str, str], reason: ExitReason) -> None:
        if name[0] == WATCHER:
            self._watchers.pop(name[1], None)
        else:
            super().on_down(name, reason)

    # --- links ---

    async def on_link_up(self, sender: Sender, node: str, incarnation: str, node_id: str, facts: Facts) -> None:
        self.agreed.link_up(node)
        await self.changing.elsewhere.node_met(node, f"{node}-{incarnation}")
        self.replicas.node_met(node)

    async def on_link_down(self, sender: Sender, node: str, reason: str) -> None:
        self.agreed.link_down(node)

    async def on_link_refused(self, sender: Sender, node: str, sentence: str, is_gone: bool) -> None:
        """Do nothing: that a node could not be linked changes nothing, and `link_down` reports a link that is lost."""
