"""`Leadership`: which node leads the cluster, and what this node does while it leads.

The leader grants leases to the members, itself included, and proposes who is down and who is up, as `Verdicts` decides.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ....actors.contracts.membership import MembershipError
from ....actors.metadata.state.commands import ChangeNodes
from ....definitions.features import PROMOTE_ON_SHUTDOWN
from ....runtime.errors import ProcessTimeout
from ....runtime.signal import Signal
from ...metadata.contract import to_cluster_metadata
from ..contract import to_members
from .verdicts import Verdicts

if TYPE_CHECKING:
    from ....actors.context.node_context import NodeContext
    from ....definitions.records import Node
    from ....runtime.contract import Address
    from ....runtime.process import Process
    from ...metadata.contract import ConsensusStatus
    from ..contract import ToMembers
    from ..member_table import MemberTable
    from ..own_node import OwnNode
    from ..peers import PeerLinks
    from .lease import Asker

log = logging.getLogger("warren.members")

#: Seconds that a node which stops in order waits for another leader, and then for that leader's answer to its end.
HAND_OVER_SECONDS = 2.0


class Leadership:
    """Belongs to `process`. `asker` has this node's own lease."""

    def __init__(
        self, process: Process, context: NodeContext, own: OwnNode, table: MemberTable, peers: PeerLinks, asker: Asker
    ) -> None:
        self._process = process
        self._definitions = context.definitions
        self._own = own
        self._table = table
        self._peers = peers
        self._asker = asker
        self.leader: str | None = None
        self._term = 0
        #: Woken when the leader or the term has changed, and when a link has ended.
        self._changed = Signal(process)
        #: What this node has observed since it leads; None while it does not.
        self._verdicts: Verdicts | None = None
        #: Whether a judgement was proposed and is not applied yet.
        self._is_judging = False
        #: The nodes that this leader has proposed to declare down. It grants them no lease from then on: a lease that
        #: outlived the declaration would let such a node serve clients while others already act in its place.
        self._condemned: frozenset[str] = frozenset()
        #: If this node leads: up to which index entries were committed at each of the last beats, as (moment, index).
        self._committed: deque[tuple[float, int]] = deque()
        #: If this node leads: when it sent the heartbeats that a majority has answered.
        self._contact = 0.0

    def leader_is(self, leader: str | None, term: int) -> None:
        """Note which node leads in this term, None if none does."""
        own, process = self._own, self._process
        if (leader, term) != (self.leader, self._term):
            log.info("%s", f"{leader} leads the cluster in term {term}" if leader else "the cluster has no leader")
        self.leader, self._term = leader, term
        self._changed.wake_all()
        self._contact = 0.0
        self._committed.clear()
        self._verdicts = None
        if leader == own.name:
            self._verdicts = Verdicts(own.name, own.incarnation, process.now(), own.settings.net_ticktime)

    # -- while this node leads ---

    def prolong(self, status: ConsensusStatus, now: float) -> None:
        """At a beat of the leader: prolong its own lease, unless it lags because its disk hangs."""
        if self._verdicts is not None:
            self._contact = now if status["voters"] == [self._own.name] else status["contact"]
            self._committed.append((now, status["committed"]))
            if self._table.is_declared_up() and status["applied"] >= self._due(now):
                self._asker.granted(self._contact, self._verdicts.granter.seconds)

    def heartbeat(
        self,
        address: Address[ToMembers],
        node: str,
        incarnation: str,
        wants_up: bool,
        asked_at: float,
        applied: int,
        now: float,
    ) -> bool:
        """Grant this run of the node a lease if it may have one. Returns whether to judge before the next beat."""
        verdicts, row = self._verdicts, self._table.nodes.get(node)
        if verdicts is None or row is None:
            return False
        verdicts.heard(node, incarnation, wants_up)
        may_grant = (
            node not in self._condemned and verdicts.granter.may_grant(now, self._contact) and applied >= self._due(now)
        )
        if may_grant and row.incarnation == incarnation:
            self._process.send(address, to_members.grant(asked_at, verdicts.granter.grant(node, now)))
        return wants_up or not verdicts.has_waited

    def link_down(self, node: str) -> None:
        """Note that the link to this node has ended."""
        if self._verdicts is not None:
            self._verdicts.gone(node)
        self._changed.wake_all()

    def ended(self, node: str, incarnation: str) -> None:
        """Note that this run of the node stops in order."""
        if self._verdicts is not None:
            self._verdicts.ended(node, incarnation)

    def _due(self, now: float) -> int:
        """The index up to which a member must have applied the log to get a lease: what was committed
        `cluster_apply_lag` ago.
        """
        committed, since = self._committed, now - self._own.settings.cluster_apply_lag / 1000
        while len(committed) > 1 and committed[1][0] <= since:
            committed.popleft()
        return committed[0][1] if committed and committed[0][0] <= since else 0

    def judge(self, wants_up: bool) -> None:
        """If this node leads, propose who is down and who is up, if that has changed.

        `wants_up`: whether this node is to be up itself.
        """
        verdicts, process = self._verdicts, self._process
        if verdicts is None or self._is_judging:
            return
        now, nodes, detector = process.now(), self._table.nodes, self._peers.detector
        verdicts.wants_up = wants_up
        judgement = verdicts.judge({name: node.incarnation or None for name, node in nodes.items()}, detector, now)
        if judgement is None:
            return
        up = tuple(self._as_up(nodes[name], incarnation) for name, incarnation in judgement.up)
        reasons = detector.lost(now)
        for name, incarnation in judgement.down:
            log.warning("%s is down: %s", name, verdicts.reason(name, incarnation, reasons.get(name)))
        for node in up:
            log.info("%s is up", node.name)
        self._is_judging = True
        self._condemned = frozenset(name for name, _ in judgement.down)
        knows_stops = (PROMOTE_ON_SHUTDOWN,) in self._definitions.features
        stopped = verdicts.stopped(judgement.down) if knows_stops else ()
        process.spawn(self._declare(ChangeNodes(judgement.down, up, self._term, stopped)))

    def _as_up(self, node: Node, incarnation: str) -> Node:
        facts = self._peers.linked.get(node.name, {})
        if node.name == self._own.name:
            return replace(self._own.record(incarnation), role=node.role, number=node.number)
        return replace(
            node,
            incarnation=incarnation,
            address=str(facts.get("address") or node.address),
            build=str(facts.get("build") or node.build),
            features=tuple(facts["features"]) if facts else node.features,
        )

    async def _declare(self, command: ChangeNodes) -> None:
        try:
            await self._table.propose(command)
        except MembershipError as error:
            # The next beat judges again.
            log.info("the ends and beginnings of nodes could not be declared: %s", error)
        finally:
            self._is_judging = False
            self._condemned = frozenset()

    async def hand_over(self) -> None:
        """If this node leads, have another voter lead, and return when it does or takes too long.

        If all nodes of a cluster stop at the same time, none is left to lead; the end of the last link ends the wait.
        """
        if self.leader == self._own.name and len(self._table.nodes) > 1:
            await self._process.ask(self._table.metadata, to_cluster_metadata.transfer_leadership(None))
            linked = self._peers.linked
            with suppress(ProcessTimeout):
                await self._changed.wait_for(
                    lambda: not linked or self.leader not in (None, self._own.name), HAND_OVER_SECONDS
                )
