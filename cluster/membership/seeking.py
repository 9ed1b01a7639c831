"""`Seeking`: has a node without a cluster found one or join one, as `Founding` decides (CL-38)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ...actors.contracts.membership import MembershipError
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ..links.admission import ANOTHER_DIRECTORY
from ..metadata.contract import to_cluster_metadata
from .addresses import address_of
from .contract import to_members
from .discovery import DiscoveryError, listed_nodes
from .founding import AskAgain, Found, Founding, Join, Report, Stop
from .identity import ID_BYTES

if TYPE_CHECKING:
    from ...runtime.process import Process
    from .member_table import MemberTable
    from .own_node import OwnNode
    from .peers import PeerLinks
    from .starting import Starting

log = logging.getLogger("warren.members")

#: Seconds between two rounds of questions.
ROUND_SECONDS = 0.5

#: Seconds between two log lines about the reason why a node still has no cluster.
LINE_SECONDS = 10.0

#: Seconds that a member may take to admit a node. A cluster without a leader elects one within this time.
ADMIT_SECONDS = 30.0


class Seeking:
    """Belongs to `process`. `is_founder`: an operator has decided that the node founds a cluster (`--found`)."""

    def __init__(
        self,
        process: Process,
        own: OwnNode,
        table: MemberTable,
        peers: PeerLinks,
        starting: Starting,
        is_founder: bool,
    ) -> None:
        self._process = process
        self._own = own
        self._table = table
        self._peers = peers
        self._starting = starting
        self._is_founder = is_founder
        self._formation = own.settings.cluster_formation

    async def until_member(self) -> None:
        """Return when the node belongs to a cluster and its log has begun. Raises MembershipError."""
        process, own, peers = self._process, self._own, self._peers
        identity = own.identity
        status = await process.ask(self._table.metadata, to_cluster_metadata.consensus_status())
        if status["role"] != "alone":
            peers.follow_members()
            return
        if identity.cluster and identity.is_founder:
            # The node had decided to found a cluster, and was stopped before its log began.
            await self._begin()
            return
        if identity.cluster and identity.through:
            # The cluster lists the node already: it was stopped after it had joined, or has joined by command.
            peers.link_to({identity.through: address_of(own.settings, identity.through)})
            await process.ask(self._table.metadata, to_cluster_metadata.follow())
            return
        await self._starting.until_wanted()
        peers.founding = Founding(own.name, identity.node_id, await self._names(), identity.promised, self._is_founder)
        await self._rounds(peers.founding)

    async def _names(self) -> tuple[str, ...]:
        return await self._process.run_blocking(listed_nodes, self._formation, self._own.name)

    async def _rounds(self, founding: Founding) -> None:
        process, own, peers = self._process, self._own, self._peers
        began = process.now()
        next_line = began + LINE_SECONDS
        while True:
            promised = founding.promised
            decision = founding.decide()
            if founding.promised != promised:
                await own.write_identity(promised=founding.promised)
                founding.stored()
            match decision:
                case Found():
                    await self._found(founding)
                    return
                case Join(through, cluster):
                    if await self._join(through, cluster):
                        return
                    founding.not_admitted(through)
                case Stop(text):
                    # One more round of questions reports to the others why this node stops.
                    await self._round(founding)
                    raise MembershipError(text)
                case AskAgain(text):
                    self._starting.waits_for = text
            refused = [text for text in peers.refusals.values() if ANOTHER_DIRECTORY in text]
            if refused:
                raise MembershipError(refused[0])
            self._starting.check_wanted()
            now = process.now()
            if now - began >= self._formation["timeout"] / 1000:
                raise MembershipError(
                    f"{own.name} has found no cluster within cluster_formation.timeout"
                    f" ({self._formation['timeout']} ms): {self._reasons()}. Start the other nodes of the list, or let"
                    f" {own.name} found a cluster alone with --found"
                )
            if now >= next_line:
                next_line += LINE_SECONDS
                log.info("%s has no cluster yet: %s", own.name, self._reasons())
            await self._round(founding)

    def _reasons(self) -> str:
        refusals = self._peers.refusals
        return "; ".join([self._starting.waits_for, *(f"{node}: {why}" for node, why in sorted(refusals.items()))])

    async def _round(self, founding: Founding) -> None:
        """Ask every linked node of the list for its report."""
        process, peers = self._process, self._peers
        ends = process.now() + ROUND_SECONDS
        try:
            founding.listed(await self._names())
        except DiscoveryError as error:
            peers.refusals["cluster_formation"] = str(error)
        else:
            peers.refusals.pop("cluster_formation", None)
        peers.link_to({node: address_of(self._own.settings, node) for node in founding.others})
        question = to_members.question(tuple(founding.report()))  # type: ignore[arg-type]
        linked = [peer for node in founding.others if (peer := peers.members_on(node)) is not None]
        for answer in await process.ask_each([(peer, question) for peer in linked], ROUND_SECONDS):
            if not isinstance(answer, Exception):
                founding.heard(Report(*answer))
        wait = ends - process.now()
        if wait > 0 and not isinstance(founding.decide(), (Found, Join)):
            # A node that is linked meanwhile may have a cluster, or complete a majority of the list: ask it at once.
            with suppress(ProcessTimeout):
                await peers.met.wait(wait)

    async def _found(self, founding: Founding) -> None:
        process, own = self._process, self._own
        cluster = process.random_bytes(ID_BYTES).hex()
        await own.write_identity(cluster=cluster, is_founder=True, promised=own.identity.node_id)
        await self._begin()
        log.info("%s has founded the cluster %s", own.name, cluster)
        # Report the cluster to the other nodes now, because they would ask only in their next round.
        question = to_members.question(tuple(founding.report()._replace(cluster=cluster)))  # type: ignore[arg-type]
        for node in founding.others:
            peer = self._peers.members_on(node)
            if peer is not None:
                process.send(peer, question)

    async def _begin(self) -> None:
        request = to_cluster_metadata.found(self._own.record(self._own.incarnation))
        await self._process.ask(self._table.metadata, request)

    async def _join(self, through: str, cluster: str) -> bool:
        """Try to join; False if the node must ask again. Raises MembershipError if the cluster refuses the node."""
        process, own, peers = self._process, self._own, self._peers
        if self._table.has_own_data():
            raise MembershipError(
                f"{own.name} has metadata of its own and cannot join the cluster of {through}, because joining"
                " drops them. Start it with an empty data directory"
            )
        peer = peers.members_on(through)
        if peer is None:
            return False
        role = own.settings.cluster_role
        request = to_members.admit(own.name, own.identity.node_id, role, own.address, cluster)
        self._starting.waits_for = f"{through} to have the cluster admit {own.name}"
        try:
            await process.ask(peer, request, ADMIT_SECONDS)
        except (ProcessDown, ProcessTimeout):
            return False
        except ProcessError as error:
            raise MembershipError(str(error)) from None
        await own.write_identity(cluster=cluster, is_founder=False, through=through)
        peers.show_membership()
        await process.ask(self._table.metadata, to_cluster_metadata.follow())
        log.info("%s has joined the cluster %s through %s", own.name, cluster, through)
        return True
