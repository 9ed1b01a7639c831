"""Where the nodes of a cluster are: the host and port of each one's cluster port."""

from __future__ import annotations

from ...settings import Settings

#: The cluster port of a node whose address is not known otherwise.
DEFAULT_PORT = 25_672


def own_address(settings: Settings, node: str, port: int) -> str:
    """The address that this node tells the others, which the metadata lists."""
    return f"{settings.cluster_address or host_of(node)}:{port}"


def address_of(settings: Settings, node: str, listed: str = "") -> tuple[str, int]:
    """Where this node reaches another one: by its own settings, by what the metadata lists, or by the node's name."""
    chosen = settings.cluster_peer_addresses.get(node) or listed
    if not chosen:
        return host_of(node), DEFAULT_PORT
    host, _, port = chosen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_of(node: str) -> str:
    """The host in the name of a node."""
    return node.partition("@")[2]
