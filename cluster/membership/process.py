"""`Members`: makes its node part of a cluster. Its decisions are those of the other files of this folder.

The start of a node goes through these stages (CL-38, CL-41); `await_up` is the question of Metadata that waits for the
end of them:

    founding    the node has no cluster: it asks the nodes of its list until `Founding` decides (`seeking`)
    stopped     its app is stopped: if it is a member, it votes and follows the log
    waiting     it is a member, and waits until the cluster declares this run of it up
    running     it is up

Every `HEARTBEAT_SECONDS` there is a *beat*: the node sends a heartbeat to every member, which is the question for a
lease as well; the leader judges who is down and up (`verdicts`); and a node whose lease has ended pauses (`pause`).

A beat wakes every node several times, so beats share their frames and their moments with the heartbeats of the
consensus. Metadata has its clock call `on_beat` just before the leader sends those, and the other nodes have their beat
when the leader's heartbeat arrives.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...actors.context.node_context import NodeContext
from ...actors.contracts.membership import (
    LaneRow,
    MemberItems,
    MembershipError,
    MembershipStage,
    MembershipStatus,
    StoppedWaiting,
)
from ...actors.contracts.node import ToNode, to_node
from ...actors.metadata.log.log import OutcomeUnknown
from ...actors.metadata.state.commands import AddNode, ChangeNodes, RemoveNode
from ...amqp.errors import AmqpError
from ...definitions.errors import DefinitionError
from ...definitions.features import FEATURES, PROMOTE_ON_SHUTDOWN
from ...definitions.records import Node
from ...runtime.contract import Address, Sender
from ...runtime.coroutines import ReplyHandle
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...runtime.system.address import node_of, system_of
from ...version import __version__
from ..links.admission import NO_MEMBER, SETTINGS
from ..links.contract import Facts, Membership, ToLinks, to_links
from ..links.links import Links
from ..metadata.contract import NO_LOG, ConsensusStatus, ToClusterMetadata, to_cluster_metadata
from ..metadata.log_members import MOST_VOTERS
from .addresses import address_of, own_address
from .contract import ReportFields, ToMembers, to_members
from .failure_detector import HEARTBEAT_SECONDS, FailureDetector
from .founding import Founding, Report
from .identity import ID_BYTES, Identity, IdentityError, read_identity, write_identity
from .lane_rows import lane_rows
from .lease import Asker
from .moving import Moving
from .pause import Action, Pause, Stage
from .seeking import Seeking
from .verdicts import Verdicts

log = logging.getLogger("warren.members")

#: The name under which the process is reached from other nodes.
NAME = "members"

#: Seconds between two looks at whether the cluster has declared this run up.
LOOK_SECONDS = 0.05

#: A node whose beats are so many seconds apart has stood still.
STOOD_STILL_SECONDS = 4 * HEARTBEAT_SECONDS

#: Seconds for which the other members must refuse a node that starts until it stops.
REMOVED_SECONDS = 5.0

#: Seconds that a node which stops in order waits for another leader, and for that one's answer.
HAND_OVER_SECONDS = 2.0

#: Seconds that a listing waits for a member.
STATUS_SECONDS = 5.0

#: Seconds for which a new member's request may wait for the metadata to list it.
ADMIT_SECONDS = 15.0


class Members(Process):
    """See the module."""

    contract = ToMembers
    reply_errors = (MembershipError, ProcessError)

    async def on_start(self, sender: Sender, context: NodeContext, node: Address[ToNode], is_founder: bool) -> bool:
        self.context = context
        self.settings = context.settings
        self.name = context.node_name
        self.node = node
        self.metadata: Address[ToClusterMetadata] = context.metadata  # type: ignore[assignment]
        self.incarnation = system_of(self.myAddress).rpartition("-")[2]
        #: Whether Metadata has started; commands may ask before it has, and even before this process has.
        self.has_metadata = False
        self.identity = Identity("")
        self.host, self.port = "", 0
        self.stage: MembershipStage = "founding"
        self.waits_for = ""
        #: The facts of each node that is linked now, and which run of it is.
        self.linked: dict[str, Facts] = {}
        self.runs: dict[str, str] = {}
        #: By node: the run that was up when the table of members changed last.
        self.were_up: dict[str, str] = {}
        #: Why a node could not be reached the last time.
        self.refusals: dict[str, str] = {}
        self.detector = FailureDetector(self.settings.net_ticktime, lambda: self.random_bytes(1)[0] / 255)
        self.asker = Asker(context.lease)
        self.pause: Pause | None = None
        self.leader: str | None = None
        self.term = 0
        #: Is woken when the leader or the term has changed, and when a link has ended.
        self.led = Signal(self)
        #: Is woken when a link has come up, and when a node has told of its cluster while this one has none.
        self.met = Signal(self)
        #: Is woken when this process has links, and when Metadata has started. An operator's command may come before.
        self.started = Signal(self)
        self.has_started = False
        self.verdicts: Verdicts | None = None
        self.is_judging = False
        #: What Metadata has sent last.
        self.consensus: ConsensusStatus | None = None
        #: When the last beat was, and from when on this node judges others by what it has heard.
        self.beat_at = self.judges_from = self.now()
        #: The nodes that this leader has proposed to declare down. It grants them no lease from then on: a lease that
        #: outlived the declaration would let such a node serve clients while others already act in its place.
        self.condemned: frozenset[str] = frozenset()
        self.has_been_up = False
        #: Whether an operator wants the app of this run to serve clients.
        self.wants_up = False
        #: Since when most other members refuse this node, because they do not list it.
        self.refused_since: float | None = None
        self.is_given_up = False
        #: Whether the node is a voter, or one of more data nodes than the cluster has voters (CL-40). Until then a
        #: majority may be one without this node, on which its clients would rely.
        self.has_vote = False
        self.is_serving = False
        #: What was committed at each of the last beats of a leader: (moment, index).
        self.committed: deque[tuple[float, int]] = deque()
        #: Of a leader: when it sent what a majority has answered.
        self.contact = 0.0
        self.founding: Founding | None = None
        #: The nodes of the list with which this node looked for a cluster, as long as they are no members.
        self.sought: set[str] = set()
        self.peers: dict[str, tuple[str, int]] = {}
        self.register(NAME)
        self.identity = await self._read_identity()
        self.links: Address[ToLinks] = self.createActor(Links)
        try:
            self.host, self.port = await self.ask(
                self.links, to_links.start(context, self.identity.node_id, self.incarnation)
            )
        except ProcessError as error:
            self.stop("cannot link to other nodes")
            raise MembershipError(str(error)) from None
        self.seeking = Seeking(self, is_founder)
        self.moving = Moving(self)
        self.has_started = True
        self.started.wake_all()
        self.show_membership()
        for watcher in (self.myAddress, self.metadata):
            self.send(self.links, to_links.subscribe(watcher))
        return True

    async def _read_identity(self) -> Identity:
        drawn = self.random_bytes(ID_BYTES)
        directory = self.settings.data_dir
        if directory is None:
            return Identity(drawn.hex())
        self.disk = self.context.open_disk(directory)
        try:
            return await self.run_blocking(read_identity, self.disk, drawn)
        except (IdentityError, OSError) as error:
            self.stop("cannot read its identity")
            raise MembershipError(str(error)) from None

    async def write_identity(self, **values: Any) -> None:
        """Change the identity, and return when the disk has it. Raises MembershipError."""
        self.identity = self.identity.changed(**values)
        if self.settings.data_dir is not None:
            try:
                await self.run_blocking(write_identity, self.disk, self.identity)
            except OSError as error:
                raise MembershipError(
                    f"{self.name} cannot write its identity to '{self.settings.data_dir}': {error.strerror}. Free space"
                    " on that disk, or make it writable, and start the node again"
                ) from None

    # -- who the members are ---

    @property
    def nodes(self) -> dict[str, Node]:
        """The members, by name."""
        return {node.name: node for node in self.context.definitions.nodes.values()}

    def has_own_data(self) -> bool:
        """Whether the node has metadata from a time when it was alone: it has created what a new node has."""
        return self.context.definitions.record("global_parameters", ("internal_cluster_id",)) is not None

    @property
    def replaces_lost(self) -> bool:
        """Whether a node with an empty data directory takes the place of the member of its name (CL-45).

        A node that keeps everything in memory has nothing left after its end, and so have the others of its cluster.
        """
        return self.settings.data_dir is None or bool(self.settings.cluster_formation["replace_lost"])

    def own_record(self, incarnation: str = "") -> Node:
        """This node as the metadata lists it."""
        return Node(
            self.name,
            self.identity.node_id,
            self.settings.cluster_role,
            address=own_address(self.settings, self.name, self.port),
            build=__version__,
            features=tuple(sorted(FEATURES)),
            incarnation=incarnation,
        )

    def on_nodes_changed(self, sender: Sender) -> None:
        self.show_membership()
        if self.nodes and not self.moving.is_stranger:
            self.follow_members()
        were_up, self.were_up = self.were_up, {name: node.incarnation for name, node in self.nodes.items()}
        for name, run in were_up.items():
            if run and self.were_up.get(name) != run:
                self._cut_off(name, run, "the cluster has declared this run down")

    def follow_members(self) -> None:
        """Link to the members that the metadata lists, and to nodes of the list that have not been members yet."""
        others = {name: node.address for name, node in self.nodes.items() if name != self.name}
        self.detector.watch(others, self.now())
        if self.founding is not None:
            self.sought = set(self.founding.others)
        self.sought -= set(others)
        peers = {**dict.fromkeys(self.sought, ""), **others}
        self.set_peers({name: address_of(self.settings, name, address) for name, address in peers.items()})

    def set_peers(self, peers: dict[str, tuple[str, int]]) -> None:
        """Have a link to each of these nodes."""
        if peers != self.peers:
            self.peers = peers
            self.send(self.links, to_links.set_peers(peers))

    def show_membership(self) -> None:
        """Have the links greet with what is true now."""
        is_stranger = self.moving.is_stranger
        membership = Membership(
            cluster_id=None if is_stranger else self.identity.cluster or None,
            members={} if is_stranger else {name: node.node_id for name, node in self.nodes.items()},
            replaces=self.replaces_lost,
            required=self.context.definitions.enabled_features(),
            facts={
                "address": own_address(self.settings, self.name, self.port),
                "build": __version__,
                SETTINGS: {
                    "net_ticktime": self.settings.net_ticktime,
                    # A channel and a queue of two nodes count by the same pair: the one that gives less, and later,
                    # would leave the other without credit for ever.
                    "credit_flow_default_credit": ", ".join(map(str, self.settings.credit_flow_default_credit)),
                },
            },
        )
        self.send(self.links, to_links.set_membership(membership))

    # -- links ---

    def on_link_up(self, sender: Sender, node: str, incarnation: str, node_id: str, facts: Facts) -> None:
        self.linked[node] = facts
        self.runs[node] = incarnation
        self.refusals.pop(node, None)
        self.detector.heard(node, self.now())
        self.met.wake_all()

    def on_link_down(self, sender: Sender, node: str, reason: str) -> None:
        self.linked.pop(node, None)
        self.runs.pop(node, None)
        self.refusals[node] = reason
        if self.verdicts is not None:
            self.verdicts.gone(node)
        if self.founding is not None:
            self.founding.lost(node)
        self.led.wake_all()

    def on_link_refused(self, sender: Sender, node: str, sentence: str, is_gone: bool) -> None:
        self.refusals[node] = sentence
        if is_gone:
            self.detector.refused(node, self.now())
            if self.verdicts is not None:
                self._judge()

    def _cut_off_lost(self, now: float) -> None:
        """End the links to nodes that have fallen silent, so that nobody waits for their answers any longer.

        A run that is not up yet may be reading its disk, and then it sends no heartbeats. And if this node has stood
        still itself, the heartbeats of the others may have arrived without having been read.
        """
        if now - self.beat_at >= STOOD_STILL_SECONDS:
            return
        for name, reason in self.detector.lost(now).items():
            node = self.nodes.get(name)
            if node is not None and node.incarnation:
                self._cut_off(name, node.incarnation, reason)

    def _cut_off(self, node: str, run: str, reason: str) -> None:
        """End the link to this run of the node, if there is one: asks and monitors across it get `noconnection`."""
        if self.runs.get(node) == run:
            self.send(self.links, to_links.disconnect(node, reason))

    def peer(self, node: str) -> Address[ToMembers] | None:
        """`Members` on a node that is linked now."""
        return self.named_address(node, NAME) if node in self.linked else None

    # -- finding a cluster ---

    async def on_await_up(self, sender: Sender) -> bool:
        self.has_metadata = True
        self.started.wake_all()
        self.send(self.metadata, to_cluster_metadata.watch_consensus(self.myAddress))
        await self.seeking.until_member()
        self.founding = None
        self.show_membership()
        await self.until_wanted()
        self._check_role()
        self.stage = "waiting"
        await self._until_up()
        return True

    def _check_role(self) -> None:
        """Raise MembershipError if an operator wants a witness, and the cluster lists a node that may have queues."""
        known = self.nodes.get(self.name)
        if known is not None and known.role != self.settings.cluster_role == "witness":
            raise MembershipError(
                f"{self.name} is a node with queues in its cluster, and is to start as a witness. Start it without"
                " --witness and without cluster_role, stop its app, and make it a witness with"
                " `warren change_cluster_node_type witness`"
            )

    async def until_wanted(self) -> None:
        """Return when the app of the node is not stopped. Raises StoppedWaiting if the run is to end instead."""
        before, self.stage = self.stage, "stopped"
        await self.ask(self.node, to_node.await_app())
        self.stage = before
        self.wants_up = True

    async def on_question(self, sender: Sender, report: ReportFields) -> ReportFields:
        asked = Report(*report)
        if self.founding is not None and self.founding.asked(asked):
            await self.write_identity(promised=self.founding.promised)
        if self.founding is not None:
            if asked.cluster:
                self.met.wake_all()
            answer = self.founding.report()
        else:
            identity = self.identity
            answer = Report(self.name, identity.node_id, identity.cluster, "", identity.promised)
        return tuple(answer)  # type: ignore[return-value]

    async def on_admit(self, sender: Sender, node: str, node_id: str, role: str, address: str, cluster: str) -> bool:
        if self.stage == "founding" or cluster != self.identity.cluster:
            raise ProcessError(
                f"{self.name} is no member of the cluster {cluster}; it belongs to {self.identity.cluster or 'none'}"
            )
        record = Node(node, node_id, role, address)
        known = self.nodes.get(node)
        try:
            if known is not None and known.node_id != node_id and self.replaces_lost:
                log.warning("%s comes back without the data that it had, and takes the place of the lost member", node)
                await self._propose(RemoveNode(node))
                known = None
            if known is None:
                await self._until_no_vote(node)
            await self._propose(AddNode(record))
        except MembershipError as error:
            # Another node knows the text, and not the class.
            raise ProcessError(str(error)) from None
        return True

    async def on_remove(self, sender: Sender, node: str, node_id: str) -> bool:
        known = self.nodes.get(node)
        if known is not None and known.node_id != node_id:
            raise ProcessError(f"{node} is a member with another data directory")
        try:
            await self._propose(RemoveNode(node))
            await self._until_no_vote(node)
        except MembershipError as error:
            raise ProcessError(str(error)) from None
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

    async def _until_started(self) -> None:
        """Wait until this process has links, and has read from the disk who the members are.

        The node answers commands before that. A member would count itself as alone, be reset without leaving, and its
        cluster would wait for its vote for ever.
        """
        await self.started.wait_for(lambda: self.has_started and self.has_metadata)

    async def _until_no_vote(self, node: str) -> None:
        """Return when no member of this name follows the log: one that was removed just now still may.

        Otherwise the leader would go on where the log of that member had ended.
        """
        ends = self.now() + ADMIT_SECONDS
        while True:
            status = await self.ask(self.metadata, to_cluster_metadata.consensus_status())
            if node not in (*status["voters"], *status["learners"]):
                return
            if self.now() > ends:
                raise MembershipError(f"the vote of the former {node} could not be taken away in time")
            await self.sleep(LOOK_SECONDS)

    async def _propose(self, command: Any) -> None:
        """Have this command applied. Raises MembershipError if it is refused or cannot be agreed on."""
        try:
            try:
                await self.ask(self.metadata, to_cluster_metadata.change_definitions(command), ADMIT_SECONDS)
            except OutcomeUnknown:
                # A node that has just joined gets snapshots. A command about a node changes nothing the second time.
                await self.sleep(LOOK_SECONDS)
                await self.ask(self.metadata, to_cluster_metadata.change_definitions(command), ADMIT_SECONDS)
        except (DefinitionError, AmqpError) as error:
            raise MembershipError(str(error)) from None
        except ProcessDown:
            raise MembershipError(f"{self.name} is ending") from None
        except ProcessTimeout:
            raise MembershipError("the members have not agreed on it in time; no majority of them may run") from None

    async def _until_up(self) -> None:
        """Return when this run of the node is up. Raises MembershipError when it has waited long enough (CL-41)."""
        settings = self.settings
        retries = settings.mnesia_table_loading_retry_limit
        next_line = self.now() + settings.mnesia_table_loading_retry_timeout / 1000
        is_up = False
        while not (is_up and self.has_vote and self.context.lease.holds(self.now())):
            node = self.nodes.get(self.name)
            if not is_up and node is not None and node.incarnation == self.incarnation:
                is_up = True
                await self._beat_now()  # which asks for the first lease
            elif is_up and not self.has_vote:
                await self._beat_now()
            self.waits_for = self._missing()
            self.check_wanted()
            self._check_not_removed()
            if self.now() >= next_line:
                retries -= 1
                if not retries:
                    raise MembershipError(
                        f"{self.name} has waited for its cluster as often as mnesia_table_loading_retry_limit allows:"
                        f" {self.waits_for}. Start the missing nodes, and this one again"
                    )
                log.info("%s, %d retries left", self.waits_for, retries)
                next_line += settings.mnesia_table_loading_retry_timeout / 1000
            await self.sleep(LOOK_SECONDS)
        self.has_been_up = True
        self.waits_for = ""
        self.stage = "running"
        self.pause = Pause(settings.cluster_pause_grace / 1000, restarted_at=self.now())
        log.info("%s is a member of the cluster %s and up", self.name, self.identity.cluster)
        if self.identity.is_forced:
            await self._remove_others()

    async def _beat_now(self) -> None:
        """Have a beat before the next is due, with what is known of the consensus now: clients wait for the start."""
        self.consensus = status = await self.ask(self.metadata, to_cluster_metadata.consensus_status())
        self._beat(status)

    async def _remove_others(self) -> None:
        """An operator has made this node the only voter (CL-48): nobody else is a member of its cluster any more."""
        for node in [name for name in self.nodes if name != self.name]:
            log.warning("%s is removed from the cluster, because %s was forced to boot without it", node, self.name)
            await self._propose(RemoveNode(node))
        await self.write_identity(is_forced=False)

    def on_give_up(self, sender: Sender) -> None:
        self.is_given_up = True

    def check_wanted(self) -> None:
        """Raise StoppedWaiting if an operator has stopped the node."""
        if self.is_given_up:
            raise StoppedWaiting(f"{self.name} was stopped while it waited for its cluster: {self.waits_for}")

    def _check_not_removed(self) -> None:
        """Raise MembershipError if most other members refuse this node, as they do once it was removed.

        A member that has just started may know an earlier state of the cluster only, so their refusal must last.
        """
        others = [name for name in self.nodes if name != self.name]
        refusing = [name for name in others if NO_MEMBER in self.refusals.get(name, "")]
        if 2 * len(refusing) <= len(others):
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = self.now()
        elif self.now() - self.refused_since >= REMOVED_SECONDS:
            raise MembershipError(self.refusals[refusing[0]])

    def _missing(self) -> str:
        """Whom a node that starts waits for, for people."""
        nodes = sorted({*self.nodes, self.name})
        here = [name for name in nodes if name == self.name or name in self.linked]
        missing = [name for name in nodes if name not in here]
        if not missing:
            return "waiting for a leader of the cluster"
        refusing = {self.refusals[name] for name in missing if NO_MEMBER in self.refusals.get(name, "")}
        text = (
            f"waiting for a majority of the cluster: {len(here)} of {len(nodes)} (have {', '.join(here)}; missing"
            f" {', '.join(missing)})"
        )
        return "; ".join([text, *sorted(refusing)])

    # -- beats ---

    def on_beat(self, sender: Sender, status: ConsensusStatus) -> None:
        self.consensus = status
        # Without the leader's heartbeats this is the only clock. It may be a little early, measured by this one.
        if self.leader == self.name or self.now() - self.beat_at >= 0.9 * HEARTBEAT_SECONDS:
            self._beat(status)

    def _has_stood_still(self, now: float) -> bool:
        """Whether this run, which has been up, has had no beat for long."""
        return self.has_been_up and now - self.beat_at >= STOOD_STILL_SECONDS

    def _beat_with_leader(self, node: str, now: float) -> None:
        """Have a beat now if `node` leads, whose heartbeat has come."""
        if node == self.leader and self.consensus is not None and now - self.beat_at >= 0.5 * HEARTBEAT_SECONDS:
            self._beat(self.consensus)

    def _beat(self, status: ConsensusStatus) -> None:
        if self.stage == "founding":
            return
        self.has_vote = self.name in status["voters"] or len(status["voters"]) >= MOST_VOTERS
        now = self.now()
        if self._has_stood_still(now):
            # What the others have sent meanwhile may wait unread, and nobody has got a lease. Two beats change that.
            self.judges_from = now + 2 * HEARTBEAT_SECONDS
        wants_up = self.wants_up and not self.has_been_up
        heartbeat = to_members.heartbeat(self.name, self.incarnation, wants_up, now, self.applied_index)
        for node in self.nodes:
            peer = None if node == self.name else self.peer(node)
            if peer is not None:
                self.send(peer, heartbeat)
        if self.verdicts is not None:
            self._lead(self.verdicts, status, now)
        self._cut_off_lost(now)
        self.beat_at = now
        self._step_pause(now)

    def on_heartbeat(
        self, sender: Sender, node: str, incarnation: str, wants_up: bool, asked_at: float, applied: int
    ) -> None:
        address = sender.address if isinstance(sender, ReplyHandle) else sender
        if f"{node}-{incarnation}" != system_of(address):
            return
        now = self.now()
        self.detector.heard(node, now)
        self._beat_with_leader(node, now)
        verdicts, row = self.verdicts, self.nodes.get(node)
        if verdicts is None or row is None:
            return
        verdicts.heard(node, incarnation, wants_up)
        may_grant = (
            node not in self.condemned and verdicts.granter.may_grant(now, self.contact) and applied >= self._due(now)
        )
        if may_grant and row.incarnation == incarnation:
            self.send(address, to_members.grant(asked_at, verdicts.granter.grant(node, now)))
        if wants_up or not verdicts.has_waited:
            self._judge()

    def on_grant(self, sender: Sender, asked_at: float, seconds: float) -> None:
        if node_of(system_of(sender)) == self.leader:
            self.asker.granted(asked_at, seconds)

    # -- leading ---

    def on_leader_is(self, sender: Sender, leader: str | None, term: int) -> None:
        if (leader, term) != (self.leader, self.term):
            log.info("%s", f"{leader} leads the cluster in term {term}" if leader else "the cluster has no leader")
        self.leader, self.term = leader, term
        self.led.wake_all()
        self.contact = 0.0
        self.committed.clear()
        self.verdicts = None
        if leader == self.name:
            self.verdicts = Verdicts(self.name, self.incarnation, self.now(), self.settings.net_ticktime)
        elif leader is not None and self.consensus is not None:
            # The new leader declares no node down, not even one that has stopped in order, before all have sent a beat.
            self._beat(self.consensus)

    def _lead(self, verdicts: Verdicts, status: ConsensusStatus, now: float) -> None:
        """A beat of the leader: prolong its own lease, and judge."""
        self.contact = now if status["voters"] == [self.name] else status["contact"]
        self.committed.append((now, status["committed"]))
        row = self.nodes.get(self.name)
        if row is not None and row.incarnation == self.incarnation:
            self.asker.granted(self.contact, verdicts.granter.seconds)
        self._judge()

    def _due(self, now: float) -> int:
        """Up to where a member must have applied the log to get a lease: what was committed a while ago."""
        committed, since = self.committed, now - self.settings.cluster_apply_lag / 1000
        while len(committed) > 1 and committed[1][0] <= since:
            committed.popleft()
        return committed[0][1] if committed and committed[0][0] <= since else 0

    def _judge(self) -> None:
        """Propose who is down and who is up, if that has changed."""
        now = self.now()
        if self.verdicts is None or self.is_judging or self._has_stood_still(now) or now < self.judges_from:
            return
        nodes = self.nodes
        self.verdicts.wants_up = self.wants_up
        judgement = self.verdicts.judge(
            {name: node.incarnation or None for name, node in nodes.items()}, self.detector, now
        )
        if judgement is None:
            return
        up = tuple(self._as_up(nodes[name], incarnation) for name, incarnation in judgement.up)
        reasons = self.detector.lost(now)
        for name, incarnation in judgement.down:
            log.warning("%s is down: %s", name, self.verdicts.reason(name, incarnation, reasons.get(name)))
        for node in up:
            log.info("%s is up", node.name)
        self.is_judging = True
        self.condemned = frozenset(name for name, _ in judgement.down)
        knows_stops = (PROMOTE_ON_SHUTDOWN,) in self.context.definitions.features
        stopped = self.verdicts.stopped(judgement.down) if knows_stops else ()
        self.spawn(self._declare(ChangeNodes(judgement.down, up, self.term, stopped)))

    def _as_up(self, node: Node, incarnation: str) -> Node:
        facts = self.linked.get(node.name, {})
        if node.name == self.name:
            return replace(self.own_record(incarnation), role=node.role, number=node.number)
        return replace(
            node,
            incarnation=incarnation,
            address=str(facts.get("address") or node.address),
            build=str(facts.get("build") or node.build),
            features=tuple(facts["features"]) if facts else node.features,
        )

    async def _declare(self, command: ChangeNodes) -> None:
        try:
            await self._propose(command)
        except MembershipError as error:
            # The next beat judges again.
            log.info("the ends and beginnings of nodes could not be declared: %s", error)
        finally:
            self.is_judging = False
            self.condemned = frozenset()

    # -- the lease ---

    def _step_pause(self, now: float) -> None:
        if self.pause is None:
            return
        row = self.nodes.get(self.name)
        is_declared_down = row is None or row.incarnation != self.incarnation
        was = self.pause.stage
        action = self.pause.step(now, self.context.lease.holds(now), is_declared_down)
        self.stage = self.pause.stage.value
        if self.pause.stage is not was:
            self._say_stage(was)
        if action is Action.PAUSE and self.is_serving:
            text = f"node '{self.name}' cannot reach a majority of its cluster"
            self.send(self.node, to_node.suspend("majority", text))
        elif action is Action.RESUME and self.is_serving:
            self.send(self.node, to_node.resume("majority"))
        elif action is Action.RESTART:
            self.send(self.node, to_node.begin_anew("the cluster has declared it down"))

    def _say_stage(self, was: Stage) -> None:
        assert self.pause is not None
        match self.pause.stage:
            case Stage.STALLED:
                log.warning("%s has no lease: %s", self.name, self._missing())
            case Stage.PAUSED:
                log.error(
                    "%s pauses and serves no clients, because it cannot reach a majority of its cluster: %s",
                    self.name,
                    self._missing(),
                )
            case Stage.RUNNING:
                log.info("%s belongs to the majority again, after it was %s", self.name, was.value)
            case Stage.RESTARTING:
                pass

    async def on_hand_over(self, sender: Sender) -> bool:
        # The cluster is about to declare this run down, which is no reason to begin another one.
        self.pause = None
        await self.hand_over_leadership()
        self.asker.give_up()
        leader = None if self.leader is None else self.peer(self.leader)
        if leader is not None:
            with suppress(ProcessDown, ProcessTimeout):
                await self.ask(leader, to_members.ended(self.name, self.incarnation), HAND_OVER_SECONDS)
        return True

    async def hand_over_leadership(self) -> None:
        """If this node leads, have another voter lead, and return when it does or takes too long.

        A cluster whose nodes all stop at the same time has nobody left to lead: then the last link ends the wait.
        """
        if self.leader == self.name and len(self.nodes) > 1:
            await self.ask(self.metadata, to_cluster_metadata.transfer_leadership(None))
            with suppress(ProcessTimeout):
                await self.led.wait_for(
                    lambda: not self.linked or self.leader not in (None, self.name), HAND_OVER_SECONDS
                )

    async def on_yield_leadership(self, sender: Sender) -> bool:
        await self.hand_over_leadership()
        return True

    def on_ended(self, sender: Sender, node: str, incarnation: str) -> bool:
        if self.verdicts is not None:
            self.verdicts.ended(node, incarnation)
            self._judge()
        return True

    def on_serving(self, sender: Sender) -> None:
        self.is_serving = True
        if self.pause is not None and self.pause.stage is Stage.PAUSED:
            text = f"node '{self.name}' cannot reach a majority of its cluster"
            self.send(self.node, to_node.suspend("majority", text))

    # -- operators ---

    async def on_membership(self, sender: Sender) -> MembershipStatus:
        status = NO_LOG
        if self.has_metadata:
            status = await self.ask(self.metadata, to_cluster_metadata.consensus_status())
        lost = self.detector.lost(self.now())
        left = self.context.lease.until - self.now()
        return {
            "stage": self.stage,
            "waits_for": self.waits_for,
            "cluster_id": self.identity.cluster,
            "leader": status["leader"],
            "term": status["term"],
            "committed": status["committed"],
            "applied": status["applied"],
            "host": self.host,
            "port": self.port,
            "lease": max(0, int(left * 1000)) if left > float("-inf") else 0,
            "voters": status["voters"],
            "members": [self._items(node, lost) for _, node in sorted(self.nodes.items())],
        }

    async def on_status(self, sender: Sender) -> dict[str, Any]:
        status: dict[str, Any] = await self.ask(self.node, to_node.operate("status", {}))
        return status

    async def on_statuses(self, sender: Sender) -> dict[str, dict[str, Any]]:
        peers = {node: peer for node in self.nodes if (peer := self.peer(node)) is not None}
        answers = await self.ask_each([(peer, to_members.status()) for peer in peers.values()], STATUS_SECONDS)
        return {node: answer for node, answer in zip(peers, answers) if not isinstance(answer, Exception)}

    async def on_links(self, sender: Sender) -> list[LaneRow]:
        links = await self.ask(self.links, to_links.links())
        return [row for link in links for row in lane_rows(link)]

    def _items(self, node: Node, lost: dict[str, str]) -> MemberItems:
        is_linked = node.name == self.name or node.name in self.linked
        return {
            "node": node.name,
            "node_id": node.node_id,
            "role": node.role,
            "address": node.address,
            "build": node.build,
            "incarnation": node.incarnation,
            "is_linked": is_linked,
            "linked_run": self.incarnation if node.name == self.name else self.runs.get(node.name, ""),
            "reason": "" if is_linked else lost.get(node.name) or self.refusals.get(node.name, ""),
            "in_maintenance": node.in_maintenance,
        }
