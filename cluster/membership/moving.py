"""`Moving`: has a node whose app is stopped join a cluster or leave it (CL-40, CL-47).

A node that joins keeps its data until the cluster lists it as a member. Only then it writes the file that requests that
the next start empties its data directory, and that file has its new identity as well (`store/data_dir/reset.py`). So a
crash at any moment leaves a node that either has its own data and may repeat the command, or is a member that gets
everything from the others.

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
from .addresses import address_of, own_address
from .contract import to_members
from .founding import Report
from .identity import encoded

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from .contract import ToMembers
    from .process import Members

#: Seconds within which a link to another node must be up.
LINK_SECONDS = 10.0

#: Seconds between two checks of that link.
LOOK_SECONDS = 0.05

#: Seconds that the members may take to add or to remove a node.
CHANGE_SECONDS = 30.0

ALREADY_MEMBER = "The node is already a member of this cluster"


class Moving:
    """Belongs to `process`."""

    def __init__(self, process: Members) -> None:
        self._process = process
        #: Whether the node is asking to join, and sends greetings as one without a cluster.
        self.is_stranger = False

    # -- into a cluster ---

    async def join(self, node: str, role: str) -> str:
        """Become a member of the cluster of `node` from the next start on. Returns a text if it is one already.

        Raises MembershipError.
        """
        process = self._process
        others = self._others()
        if node in others:
            return ALREADY_MEMBER
        if others:
            raise MembershipError(
                f"{process.name} is a member of the cluster of {', '.join(others)}. Take it out of that cluster with"
                " `warren reset` before it joins another one"
            )
        path = process.settings.data_dir
        if path is None:
            raise MembershipError(
                f"{process.name} has no data directory, so it would not remember which cluster it has joined. Give it a"
                " data_dir, or name the members in its setting cluster_formation.nodes"
            )
        self.is_stranger = True
        process.show_membership()
        try:
            cluster = await self._admitted(await self._linked(node), node, role)
            joined = process.identity.changed(
                cluster=cluster, through=node, is_founder=False, promised="", is_forced=False
            )
            await process.run_blocking(reset.request, path, encoded(joined))
        except OSError as error:
            raise MembershipError(f"{process.name} cannot write to '{path}': {error.strerror}") from None
        finally:
            self.is_stranger = False
            process.show_membership()
            process.follow_members()
        return ""

    async def _linked(self, node: str) -> Address[ToMembers]:
        """The process `Members` of the node whose cluster this node joins. Raises MembershipError."""
        process = self._process
        process.refusals.pop(node, None)
        host, port = address_of(process.settings, node)
        process.set_peers({node: (host, port)})
        ends = process.now() + LINK_SECONDS
        while (peer := process.peer(node)) is None:
            if node in process.refusals or process.now() > ends:
                why = process.refusals.get(node, f"it has not answered for {LINK_SECONDS:.0f} s")
                raise MembershipError(
                    f"{node} cannot be reached at {host}:{port}: {why}. Check that it runs with a cluster_port, and set"
                    " cluster_peer_addresses if it has another address"
                )
            await process.sleep(LOOK_SECONDS)
        return peer

    async def _admitted(self, peer: Address[ToMembers], node: str, role: str) -> str:
        """Have the cluster add this node, and return the id of the cluster. Raises MembershipError."""
        process = self._process
        own = Report(process.name, process.identity.node_id, "", "", "")
        try:
            answer = Report(*await process.ask(peer, to_members.question(tuple(own)), LINK_SECONDS))  # type: ignore[arg-type]
            if not answer.cluster:
                raise MembershipError(f"{node} has no cluster that could be joined: start its app first")
            address = own_address(process.settings, process.name, process.port)
            request = to_members.admit(process.name, process.identity.node_id, role, address, answer.cluster)
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
        process = self._process
        known = process.nodes.get(process.name)
        if known is None or len(process.nodes) == 1:
            raise MembershipError("Non-clustered nodes can only be disc nodes.")
        if known.role == role:
            return
        peers = await self._peers()
        if not peers:
            raise MembershipError(f"no other member of the cluster can be reached from {process.name}. Start one")
        request = to_members.admit(process.name, known.node_id, role, known.address, process.identity.cluster)
        try:
            await process.ask(next(iter(peers.values())), request, CHANGE_SECONDS)
        except (ProcessDown, ProcessTimeout):
            raise MembershipError("no majority of the members has agreed to it in time. Start more of them") from None
        except ProcessError as error:
            raise MembershipError(str(error)) from None

    # -- out of a cluster ---

    async def leave(self) -> None:
        """Have the other members remove this node. Raises MembershipError if they cannot."""
        process = self._process
        others = self._others()
        if not others or (process.nodes and process.name not in process.nodes):
            return
        if process.leader == process.name:
            await process.hand_over_leadership()
        peers = await self._peers()
        why = [f"{node}: {process.refusals[node]}" for node in others if node in process.refusals]
        for node, peer in peers.items():
            try:
                await process.ask(peer, to_members.remove(process.name, process.identity.node_id), CHANGE_SECONDS)
                return
            except (ProcessDown, ProcessTimeout):
                if await self._is_removed(node):
                    return
                why.append(f"{node}: no majority of the members has agreed to it in time")
            except ProcessError as error:
                why.append(f"{node}: {error}")
        if all(NO_MEMBER in process.refusals.get(node, "") for node in others):
            return  # they have removed it before
        raise MembershipError(
            f"{process.name} cannot leave its cluster, because the other members do not remove it"
            f" ({'; '.join(why) or 'none of them can be reached'}). Start them, or use `warren force_reset` here and"
            f" `warren forget_cluster_node {process.name}` on one of them"
        )

    def _others(self) -> list[str]:
        """The other members; the one through which this node has joined, until it has received who they are."""
        process = self._process
        return sorted((set(process.nodes) or {process.identity.through} - {""}) - {process.name})

    async def _peers(self) -> dict[str, Address[ToMembers]]:
        """The other members that are linked. Waits a while if none is, because this node may have just started."""
        process = self._process
        others = self._others()
        ends = process.now() + LINK_SECONDS
        while not (peers := {node: peer for node in others if (peer := process.peer(node)) is not None}):
            if all(node in process.refusals for node in others) or process.now() > ends:
                break
            await process.sleep(LOOK_SECONDS)
        return peers

    async def _is_removed(self, node: str) -> bool:
        """Whether that member has removed this node: it ends the link and refuses the next one then."""
        process = self._process
        ends = process.now() + LINK_SECONDS
        while NO_MEMBER not in process.refusals.get(node, ""):
            if process.peer(node) is not None or process.now() > ends:
                return False
            await process.sleep(LOOK_SECONDS)
        return True
