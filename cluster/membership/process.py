"""`Members`: makes its node part of a cluster. It runs the beats, and passes each message to the object it concerns.

The start of a node goes through these stages (CL-38, CL-41); `await_up` is the question of Metadata that waits for the
end of them:

    founding    the node has no cluster: it asks the nodes of its list until `Founding` decides (`Seeking`)
    stopped     its app is stopped: if it is a member, it votes and follows the log
    waiting     it is a member, and waits until the cluster declares this run of it up
    running     it is up

Every `HEARTBEAT_SECONDS` there is a *beat*: the node sends every member a heartbeat, which also asks for a lease; the
leader judges which nodes are down and which are up (`Leadership`); a node whose lease has ended pauses (`Serving`).

A beat wakes every node several times, so heartbeats travel at the same time, and in the same frames, as those of the
consensus. The clock of Metadata calls `on_beat` just before the leader sends the latter. The other nodes have their
beat when the leader's heartbeat arrives.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...actors.context.node_context import NodeContext
from ...actors.contracts.info_items import InfoItems
from ...actors.contracts.membership import LaneRow, MemberItems, MembershipError, MembershipStatus
from ...actors.contracts.node import ToNode, to_node
from ...definitions.records import Node
from ...runtime.contract import Address, Sender
from ...runtime.coroutines import ReplyHandle
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...runtime.system.address import node_of, system_of
from ..links.admission import Facts
from ..links.contract import ToLinks, to_links
from ..links.links import Links
from ..metadata.contract import NO_LOG, ConsensusStatus, to_cluster_metadata
from ..metadata.log_members import MOST_VOTERS
from .contract import ReportFields, ToMembers, to_members
from .founding import Report
from .lane_rows import lane_rows
from .majority.failure_detector import HEARTBEAT_SECONDS
from .majority.leadership import HAND_OVER_SECONDS, Leadership
from .majority.lease import Asker
from .majority.serving import Serving
from .member_table import MemberTable
from .moving import Moving
from .own_node import OwnNode
from .peers import NAME, PeerLinks
from .seeking import Seeking
from .starting import Starting

#: A node whose beats are this many seconds apart, or more, has stood still.
STOOD_STILL_SECONDS = 4 * HEARTBEAT_SECONDS

#: Seconds that a listing waits for the answer of a member.
STATUS_SECONDS = 5.0


class Members(Process):
    """See the module."""

    contract = ToMembers
    reply_errors = (MembershipError, ProcessError)

    def __init__(self) -> None:
        super().__init__()
        #: Woken when one of the following becomes true. Operators' commands may come before that.
        self.started = Signal(self)
        #: Whether the parts of this process exist.
        self.has_parts = False
        #: Whether this process has links.
        self.has_started = False
        #: Whether Metadata has started.
        self.has_metadata = False

    async def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode], is_founder: bool) -> bool:
        self.lease = context.lease
        self.node = node
        #: The last status of consensus that Metadata has sent.
        self.consensus: ConsensusStatus | None = None
        #: When the last beat was, and the time from which on this node decides by heartbeats whether others are lost.
        self.beat_at = self.judges_from = self.now()
        self.own = own = OwnNode(self, context, system_of(self.myAddress).rpartition("-")[2])
        self.table = table = MemberTable(self, context, own)
        self.asker = Asker(context.lease)
        self.peers = peers = PeerLinks(self, context, own, table)
        self.starting = Starting(self, node, context.lease, own, table, peers)
        self.leadership = Leadership(self, context, own, table, peers, self.asker)
        self.serving = Serving(self, node, context.lease, own, table, self.starting)
        self.has_parts = True
        self.started.wake_all()
        self.register(NAME)
        await own.read_identity()
        links: Address[ToLinks] = self.createActor(Links)
        peers.links = links
        try:
            own.host, own.port = await self.ask(links, to_links.start(context, own.identity.node_id, own.incarnation))
        except ProcessError as error:
            self.stop("cannot link to other nodes")
            raise MembershipError(str(error)) from None
        self.seeking = Seeking(self, own, table, peers, self.starting, is_founder)
        self.moving = Moving(self, own, table, peers, self.leadership)
        self.has_started = True
        self.started.wake_all()
        peers.show_membership()
        for watcher in (self.myAddress, table.metadata):
            self.send(links, to_links.subscribe(watcher))
        return True

    # -- the members, and the links to them ---

    def on_nodes_changed(self, sender: Sender) -> None:
        self.peers.nodes_changed()

    def on_link_up(self, sender: Sender, node: str, incarnation: str, node_id: str, facts: Facts) -> None:
        self.peers.link_up(node, incarnation, facts)

    def on_link_down(self, sender: Sender, node: str, reason: str) -> None:
        self.peers.link_down(node, reason)
        self.leadership.link_down(node)

    def on_link_refused(self, sender: Sender, node: str, sentence: str, is_gone: bool) -> None:
        self.peers.refusals[node] = sentence
        if is_gone:
            self.peers.detector.refused(node, self.now())
            self._judge()

    # -- finding a cluster ---

    async def on_await_up(self, sender: Sender) -> bool:
        self.has_metadata = True
        self.started.wake_all()
        self.send(self.table.metadata, to_cluster_metadata.watch_consensus(self.myAddress))
        await self.seeking.until_member()
        self.peers.founding = None
        self.peers.show_membership()
        await self.starting.until_wanted()
        await self.starting.until_up(self._beat_now)
        self.serving.node_up()
        if self.own.identity.is_forced:
            await self.table.remove_others()
            await self.own.write_identity(is_forced=False)
        return True

    def on_give_up(self, sender: Sender) -> None:
        self.starting.give_up()

    async def on_question(self, sender: Sender, report: ReportFields) -> ReportFields:
        asked, peers, own = Report(*report), self.peers, self.own
        founding = peers.founding
        if founding is not None and founding.asked(asked):
            await own.write_identity(promised=founding.promised)
            founding.stored()
        if peers.founding is not None:
            if asked.cluster:
                peers.met.wake_all()
            answer = peers.founding.report()
        else:
            identity = own.identity
            answer = Report(own.name, identity.node_id, identity.cluster, "", identity.promised)
        return tuple(answer)  # type: ignore[return-value]

    # -- joining and leaving ---

    async def on_admit(self, sender: Sender, node: str, node_id: str, role: str, address: str, cluster: str) -> bool:
        name, own_cluster = self.own.name, self.own.identity.cluster
        if self.starting.stage == "founding" or cluster != own_cluster:
            raise ProcessError(f"{name} is no member of the cluster {cluster}; it belongs to {own_cluster or 'none'}")
        await self.table.admit(Node(node, node_id, role, address))
        return True

    async def on_remove(self, sender: Sender, node: str, node_id: str) -> bool:
        await self.table.remove(node, node_id)
        return True

    async def on_join(self, sender: Sender, node: str, role: str) -> str:
        await self._until_started()
        return await self.moving.join(node, role)

    async def on_change_role(self, sender: Sender, role: str) -> bool:
        await self._until_started()
        await self.moving.change_role(role)
        return True

    async def on_leave(self, sender: Sender) -> bool:
        await self._until_started()
        await self.moving.leave()
        return True

    async def _until_parts(self) -> None:
        await self.started.wait_for(lambda: self.has_parts)

    async def _until_started(self) -> None:
        """Wait until this process has links, and Metadata has read from the disk which nodes are members.

        The node accepts commands before that, so they wait here. Otherwise a member would take itself for a node that
        is alone. A reset would then remove its data without leaving the cluster, which would wait for its vote for
        ever.
        """
        await self.started.wait_for(lambda: self.has_started and self.has_metadata)

    # -- beats ---

    def on_beat(self, sender: Sender, status: ConsensusStatus) -> None:
        self.consensus = status
        # On other nodes than the leader the leader's heartbeat triggers the beat (`_beat_with_leader`), and this
        # message does only if none has come. Metadata's clock may be a little early, measured by this one.
        if self.leadership.leader == self.own.name or self.now() - self.beat_at >= 0.9 * HEARTBEAT_SECONDS:
            self._beat(status)

    def _has_stood_still(self, now: float) -> bool:
        """Whether this run, which has been up, has had no beat for long."""
        return self.starting.has_been_up and now - self.beat_at >= STOOD_STILL_SECONDS

    def _beat_with_leader(self, node: str, now: float) -> None:
        """Have a beat now if `node`, from which a heartbeat has just arrived, leads."""
        leader = self.leadership.leader
        if node == leader and self.consensus is not None and now - self.beat_at >= 0.5 * HEARTBEAT_SECONDS:
            self._beat(self.consensus)

    async def _beat_now(self) -> None:
        """Have a beat before the next one is due, with the present status of the consensus."""
        self.consensus = status = await self.ask(self.table.metadata, to_cluster_metadata.consensus_status())
        self._beat(status)

    def _beat(self, status: ConsensusStatus) -> None:
        own, starting = self.own, self.starting
        if starting.stage == "founding":
            return
        starting.has_vote = own.name in status["voters"] or len(status["voters"]) >= MOST_VOTERS
        now = self.now()
        if self._has_stood_still(now):
            # What the others have sent meanwhile may still be unread, and if this node leads, it has granted no leases
            # meanwhile. After two beats neither is so.
            self.judges_from = now + 2 * HEARTBEAT_SECONDS
        wants_up = starting.wants_up and not starting.has_been_up
        heartbeat = to_members.heartbeat(own.name, own.incarnation, wants_up, now, self.applied_index)
        for node in self.table.others:
            peer = self.peers.members_on(node)
            if peer is not None:
                self.send(peer, heartbeat)
        self.leadership.prolong(status, now)
        self._judge()
        if now - self.beat_at < STOOD_STILL_SECONDS:
            # A node that has stood still may not have read yet the heartbeats that the others have sent.
            self.peers.cut_off_lost(now)
        self.beat_at = now
        self.serving.step(now)

    def _judge(self) -> None:
        """Have the leader judge, unless this node has stood still and has not read yet what the others have sent."""
        now = self.now()
        if not self._has_stood_still(now) and now >= self.judges_from:
            self.leadership.judge(self.starting.wants_up)

    def on_heartbeat(
        self, sender: Sender, node: str, incarnation: str, wants_up: bool, asked_at: float, applied: int
    ) -> None:
        address = sender.address if isinstance(sender, ReplyHandle) else sender
        if f"{node}-{incarnation}" != system_of(address):
            return
        now = self.now()
        self.peers.detector.heard(node, now)
        self._beat_with_leader(node, now)
        if self.leadership.heartbeat(address, node, incarnation, wants_up, asked_at, applied, now):
            self._judge()

    def on_grant(self, sender: Sender, asked_at: float, seconds: float) -> None:
        if node_of(system_of(sender)) == self.leadership.leader:
            self.asker.granted(asked_at, seconds)

    def on_leader_is(self, sender: Sender, leader: str | None, term: int) -> None:
        self.leadership.leader_is(leader, term)
        if leader is not None and leader != self.own.name and self.consensus is not None:
            # Send heartbeats at once: the new leader declares no node down, not even one that has stopped in order,
            # before every member has sent it one.
            self._beat(self.consensus)

    # -- serving clients, and the end ---

    def on_serving(self, sender: Sender) -> None:
        self.serving.begins()

    async def on_hand_over(self, sender: Sender) -> bool:
        self.serving.node_ends()
        await self.leadership.hand_over()
        self.asker.give_up()
        leader = self.leadership.leader
        peer = None if leader is None else self.peers.members_on(leader)
        if peer is not None:
            with suppress(ProcessDown, ProcessTimeout):
                await self.ask(peer, to_members.ended(self.own.name, self.own.incarnation), HAND_OVER_SECONDS)
        return True

    async def on_yield_leadership(self, sender: Sender) -> bool:
        await self._until_parts()
        await self.leadership.hand_over()
        return True

    def on_ended(self, sender: Sender, node: str, incarnation: str) -> bool:
        self.leadership.ended(node, incarnation)
        self._judge()
        return True

    # -- operators ---

    async def on_membership(self, sender: Sender) -> MembershipStatus:
        await self._until_parts()
        own, starting = self.own, self.starting
        status = NO_LOG
        if self.has_metadata:
            status = await self.ask(self.table.metadata, to_cluster_metadata.consensus_status())
        lost = self.peers.detector.lost(self.now())
        left = self.lease.until - self.now()
        return {
            "stage": starting.stage,
            "waits_for": starting.waits_for,
            "cluster_id": own.identity.cluster,
            "leader": status["leader"],
            "term": status["term"],
            "committed": status["committed"],
            "applied": status["applied"],
            "host": own.host,
            "port": own.port,
            "lease": max(0, int(left * 1000)) if left > float("-inf") else 0,
            "voters": status["voters"],
            "members": [self._items(node, lost) for _, node in sorted(self.table.nodes.items())],
        }

    async def on_status(self, sender: Sender) -> dict[str, Any]:
        status: dict[str, Any] = await self.ask(self.node, to_node.operate("status", {}))
        return status

    async def on_statuses(self, sender: Sender) -> dict[str, InfoItems]:
        await self._until_parts()
        peers = {node: peer for node in self.table.nodes if (peer := self.peers.members_on(node)) is not None}
        answers = await self.ask_each([(peer, to_members.status()) for peer in peers.values()], STATUS_SECONDS)
        return {node: answer for node, answer in zip(peers, answers) if not isinstance(answer, Exception)}

    async def on_reload_certificates(self, sender: Sender) -> str:
        await self.started.wait_for(lambda: self.has_started)
        return await self.ask(self.peers.links, to_links.reload_certificates())

    async def on_links(self, sender: Sender) -> list[LaneRow]:
        await self.started.wait_for(lambda: self.has_started)
        links = await self.ask(self.peers.links, to_links.links())
        return [row for link in links for row in lane_rows(link)]

    def _items(self, node: Node, lost: dict[str, str]) -> MemberItems:
        own, peers = self.own, self.peers
        is_linked = node.name == own.name or node.name in peers.linked
        return {
            "node": node.name,
            "node_id": node.node_id,
            "role": node.role,
            "address": node.address,
            "build": node.build,
            "incarnation": node.incarnation,
            "is_linked": is_linked,
            "linked_run": own.incarnation if node.name == own.name else peers.runs.get(node.name, ""),
            "reason": "" if is_linked else lost.get(node.name) or peers.refusals.get(node.name, ""),
            "in_maintenance": node.in_maintenance,
        }
