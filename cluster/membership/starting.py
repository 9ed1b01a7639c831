"""`Starting`: the stages through which a run of the node goes until it is up (`process.py` lists them)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...actors.contracts.membership import MembershipError, MembershipStage, StoppedWaiting
from ...actors.contracts.node import to_node
from ..links.admission import NO_MEMBER

if TYPE_CHECKING:
    from ...actors.context.lease import Lease
    from ...actors.contracts.node import ToNode
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from .member_table import MemberTable
    from .own_node import OwnNode
    from .peers import PeerLinks

log = logging.getLogger("warren.members")

#: Seconds between two looks at whether the cluster has declared this run up.
LOOK_SECONDS = 0.05

#: Seconds for which the other members must refuse a node until it counts as removed.
REMOVED_SECONDS = 5.0


class Starting:
    """A part of the process `process`, a `Members`."""

    def __init__(
        self, process: Process, node: Address[ToNode], lease: Lease, own: OwnNode, table: MemberTable, peers: PeerLinks
    ) -> None:
        self._process = process
        self._node = node
        self._lease = lease
        self._own = own
        self._table = table
        self._peers = peers
        self.stage: MembershipStage = "founding"
        #: What the node waits for, as a text for operators; empty if for nothing.
        self.waits_for = ""
        #: Whether an operator wants the app of this run to serve clients.
        self.wants_up = False
        self.has_been_up = False
        #: Whether the node is a voter, or a data node that stays without a vote because the cluster has as many voters
        #: as it may have (CL-40). A node that is still to become a voter does not count in a majority yet, though its
        #: clients would rely on that.
        self.has_vote = False
        self._is_given_up = False
        #: Since when most other members refuse this node, because they do not list it.
        self._refused_since: float | None = None

    async def until_wanted(self) -> None:
        """Return when the app of the node is not stopped. Raises StoppedWaiting if the run is to end instead."""
        before, self.stage = self.stage, "stopped"
        await self._process.ask(self._node, to_node.await_app())
        self.stage = before
        self.wants_up = True

    async def until_up(self, beat: Callable[[], Awaitable[None]]) -> None:
        """Return when this run of the node is up. Raises MembershipError when it has waited long enough (CL-41).

        `beat` sends a heartbeat before the next one is due, because clients wait for the start.
        """
        process, own, settings = self._process, self._own, self._own.settings
        self._check_role()
        self.stage = "waiting"
        retries = settings.mnesia_table_loading_retry_limit
        next_line = process.now() + settings.mnesia_table_loading_retry_timeout / 1000
        is_up = False
        while not (is_up and self.has_vote and self._lease.holds(process.now())):
            if not is_up and self._table.is_declared_up():
                is_up = True
                await beat()  # The heartbeat asks for the first lease.
            elif is_up and not self.has_vote:
                await beat()
            self.waits_for = self.missing()
            self.check_wanted()
            removed = self.removed()
            if removed:
                raise MembershipError(removed)
            if process.now() >= next_line:
                retries -= 1
                if not retries:
                    raise MembershipError(
                        f"{own.name} has waited for its cluster as often as mnesia_table_loading_retry_limit allows:"
                        f" {self.waits_for}. Start the missing nodes, and this one again"
                    )
                log.info("%s, %d retries left", self.waits_for, retries)
                next_line += settings.mnesia_table_loading_retry_timeout / 1000
            await process.sleep(LOOK_SECONDS)
        self.has_been_up = True
        self.waits_for = ""
        self.stage = "running"
        log.info("%s is a member of the cluster %s and up", own.name, own.identity.cluster)

    def give_up(self) -> None:
        """Note that an operator has stopped the node while it waits."""
        self._is_given_up = True

    def check_wanted(self) -> None:
        """Raise StoppedWaiting if an operator has stopped the node."""
        if self._is_given_up:
            raise StoppedWaiting(f"{self._own.name} was stopped while it waited for its cluster: {self.waits_for}")

    def missing(self) -> str:
        """What the node waits for, as a text for operators."""
        own, linked, refusals = self._own, self._peers.linked, self._peers.refusals
        nodes = sorted({*self._table.nodes, own.name})
        here = [name for name in nodes if name == own.name or name in linked]
        missing = [name for name in nodes if name not in here]
        if not missing:
            return "waiting for a leader of the cluster"
        refusing = {refusals[name] for name in missing if NO_MEMBER in refusals.get(name, "")}
        text = (
            f"waiting for a majority of the cluster: {len(here)} of {len(nodes)} (have {', '.join(here)}; missing"
            f" {', '.join(missing)})"
        )
        return "; ".join([text, *sorted(refusing)])

    def _check_role(self) -> None:
        """Raise MembershipError if an operator wants a witness, and the cluster lists a node that may have queues."""
        known = self._table.own_row
        if known is not None and known.role != self._own.settings.cluster_role == "witness":
            raise MembershipError(
                f"{self._own.name} is a node with queues in its cluster, and is to start as a witness. Start it without"
                " --witness and without cluster_role, stop its app, and make it a witness with"
                " `warren change_cluster_node_type witness`"
            )

    def removed(self) -> str:
        """The sentence with which most other members refuse this node, because it was removed; empty if they do not.

        A member that has just started may have an earlier state of the cluster, so their refusal must last.
        """
        others, refusals, now = self._table.others, self._peers.refusals, self._process.now()
        refusing = [name for name in others if NO_MEMBER in refusals.get(name, "")]
        if 2 * len(refusing) <= len(others):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= REMOVED_SECONDS:
            return refusals[refusing[0]]
        return ""
