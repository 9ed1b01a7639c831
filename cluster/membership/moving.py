"""`Moving`: has a node whose app is stopped join a cluster or leave it (CL-40, CL-47).

A node that joins keeps its data until the cluster lists it as a member. Only then does it write the file that has its
new identity, and that makes its next start empty its data directory (`store/data_dir/reset.py`). So a crash at any
moment leaves one of two nodes: one that has its own data and may repeat the command, or a member that gets everything
from the others.

While it asks to join, the node sends greetings as one without a cluster, because links refuse members of other
clusters. Its own log still belongs to a cluster of this node alone, and ignores the other nodes
(`Replication.received`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actors.contracts.membership import MembershipError
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...store.data_dir import reset
from ..links.admission import NO_MEMBER
from .addresses import address_of
from .contract import to_members
from .founding import Report
from .identity import encoded

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ...runtime.process import Process
    from .contract import ToMembers
    from .majority.leadership import Leadership
    from .member_table import MemberTable
    from .own_node import OwnNode
    from .peers import PeerLinks

#: Seconds within which a link to another node must be up.
LINK_SECONDS = 10.0

#: Seconds between two checks of that link.
LOOK_SECONDS = 0.05

#: Seconds that the members may take to add or to remove a node.
CHANGE_SECONDS = 30.0

ALREADY_MEMBER = "The node is already a member of this cluster"


class Moving:
    """A part of the process `process`, a `Members`."""

    def __init__(
        self, process: Process, own: OwnNode, table: MemberTable, peers: PeerLinks, leadership: Leadership
    ) -> None:
        self._process = process
        self._own = own
        self._table = table
        self._peers = peers
        self._leadership = leadership

    # -- into a cluster ---

    async def join(self, node: str, role: str) -> str:
        """Become a member of the cluster of `node` from the next start on. Returns a text if it is one already.

        Raises MembershipError.
        """
        process, own, peers = self._process, self._own, self._peers
        others = self._others()
        if node in others:
            return ALREADY_MEMBER
        if others:
            raise MembershipError(
                f"{own.name} is a member of the cluster of {', '.join(others)}. Take it out of that cluster with"
                " `warren reset` before it joins another one"
            )
        path = own.settings.data_dir
        if path is None:
            raise MembershipError(
                f"{own.name} has no data directory, so it would not remember which cluster it has joined. Give it a"
                " data_dir, or name the members in its setting cluster_formation.nodes"
            )
        peers.is_stranger = True
        peers.show_membership()
        try:
            cluster = await self._admitted(await self._linked(node), node, role)
            joined = own.identity.changed(cluster=cluster, through=node, is_founder=False, promised="", is_forced=False)
            await process.run_blocking(reset.request, path, encoded(joined))
        except OSError as error:
            raise MembershipError(f"{own.name} cannot write to '{path}': {error.strerror}") from None
        finally:
            peers.is_stranger = False
            peers.show_membership()
            peers.follow_members()
        return ""

    async def _linked(self, node: str) -> Address[ToMembers]:
        """The process `Members` of the node whose cluster this node joins. Raises MembershipError."""
        process, own, peers = self._process, self._own, self._peers
        peers.refusals.pop(node, None)
        host, port = address_of(own.settings, node)
        peers.link_to({node: (host, port)})
        ends = process.now() + LINK_SECONDS
        while (peer := peers.members_on(node)) is None:
            if node in peers.refusals or process.now() > ends:
                why = peers.refusals.get(node, f"it has not answered for {LINK_SECONDS:.0f} s")
                raise MembershipError(
                    f"{node} cannot be reached at {host}:{port}: {why}. Check that it runs with a cluster_port, and set"
                    " cluster_peer_addresses if it has another address"
                )
            await process.sleep(LOOK_SECONDS)
        return peer

    async def _admitted(self, peer: Address[ToMembers], node: str, role: str) -> str:
        """Have the cluster add this node, and return the id of the cluster. Raises MembershipError."""
        process, own = self._process, self._own
        report = Report(own.name, own.identity.node_id, "", "", "")
        try:
            answer = Report(*await process.ask(peer, to_members.question(tuple(report)), LINK_SECONDS))  # type: ignore[arg-type]
            if not answer.cluster:
                raise MembershipError(f"{node} has no cluster that could be joined: start its app first")
            request = to_members.admit(own.name, own.identity.node_id, role, own.address, answer.cluster)
            await process.ask(peer, request, CHANGE_SECONDS)
        except (ProcessDown, ProcessTimeout):
            raise MembershipError(
                f"{node} has not answered in time, as when no majority of its cluster runs. Nothing was deleted here:"
                " repeat the command"
            ) from None
        except MembershipError:
            raise
        except ProcessError as error:
            raise MembershipError(str(error)) from None
        return answer.cluster

    async def change_role(self, role: str) -> None:
        """Have another member list this node with another role. Raises MembershipError."""
        process, own = self._process, self._own
        known = self._table.own_row
        if known is None or len(self._table.nodes) == 1:
            raise MembershipError("Non-clustered nodes can only be disc nodes.")
        if known.role == role:
            return
        members = await self._linked_members()
        if not members:
            raise MembershipError(f"no other member of the cluster can be reached from {own.name}. Start one")
        request = to_members.admit(own.name, known.node_id, role, known.address, own.identity.cluster)
        try:
            await process.ask(next(iter(members.values())), request, CHANGE_SECONDS)
        except (ProcessDown, ProcessTimeout):
            raise MembershipError("no majority of the members has agreed to it in time. Start more of them") from None
        except ProcessError as error:
            raise MembershipError(str(error)) from None

    # -- out of a cluster ---

    async def leave(self) -> None:
        """Have the other members remove this node. Raises MembershipError if they cannot."""
        process, own, peers = self._process, self._own, self._peers
        others = self._others()
        if not others or (self._table.nodes and self._table.own_row is None):
            return
        await self._leadership.hand_over()
        members = await self._linked_members()
        why = [f"{node}: {peers.refusals[node]}" for node in others if node in peers.refusals]
        for node, peer in members.items():
            try:
                await process.ask(peer, to_members.remove(own.name, own.identity.node_id), CHANGE_SECONDS)
                return
            except (ProcessDown, ProcessTimeout):
                if await self._is_removed(node):
                    return
                why.append(f"{node}: no majority of the members has agreed to it in time")
            except ProcessError as error:
                why.append(f"{node}: {error}")
        if all(NO_MEMBER in peers.refusals.get(node, "") for node in others):
            return  # they have removed it before
        raise MembershipError(
            f"{own.name} cannot leave its cluster, because the other members do not remove it"
            f" ({'; '.join(why) or 'none of them can be reached'}). Start them, or use `warren force_reset` here and"
            f" `warren forget_cluster_node {own.name}` on one of them"
        )

    def _others(self) -> list[str]:
        """The other members; as long as this node has no list of them, the member through which it has joined."""
        own = self._own
        return sorted((set(self._table.nodes) or {own.identity.through} - {""}) - {own.name})

    async def _linked_members(self) -> dict[str, Address[ToMembers]]:
        """The other members that are linked. Waits a while if none is, because this node may have just started."""
        process, peers = self._process, self._peers
        others = self._others()
        ends = process.now() + LINK_SECONDS
        while not (members := {node: peer for node in others if (peer := peers.members_on(node)) is not None}):
            if all(node in peers.refusals for node in others) or process.now() > ends:
                break
            await process.sleep(LOOK_SECONDS)
        return members

    async def _is_removed(self, node: str) -> bool:
        """Whether that member has removed this node: it ends the link and refuses the next one then."""
        process, peers = self._process, self._peers
        ends = process.now() + LINK_SECONDS
        while NO_MEMBER not in peers.refusals.get(node, ""):
            if peers.members_on(node) is not None or process.now() > ends:
                return False
            await process.sleep(LOOK_SECONDS)
        return True
