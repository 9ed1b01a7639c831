"""The addresses at which the nodes of a cluster reach each other: host and cluster port."""

from __future__ import annotations

from ...settings import Settings

#: The cluster port of a node whose address is not known otherwise.
DEFAULT_PORT = 25_672


def own_address(settings: Settings, node: str, port: int) -> str:
    """The address of this node that the metadata lists for the other nodes."""
    return f"{settings.cluster_address or host_of(node)}:{port}"


def address_of(settings: Settings, node: str, listed: str = "") -> tuple[str, int]:
    """The address of another node: from the own settings, else the `listed` one of the metadata, else from its name."""
    chosen = settings.cluster_peer_addresses.get(node) or listed
    if not chosen:
        return host_of(node), DEFAULT_PORT
    host, _, port = chosen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_of(node: str) -> str:
    """The host in the name of a node."""
    return node.partition("@")[2]
