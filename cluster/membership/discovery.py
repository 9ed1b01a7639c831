"""Where a node gets the names of the nodes among which it looks for a cluster (CL-39).

A name server knows hosts and no nodes. So each address that it gives is looked up in the other direction, and the host
that it belongs to gets the first part of this node's own name, as in RabbitMQ: `warren@a` finds `warren@b`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from ...settings.cluster_settings import NODE_NAME


class DiscoveryError(Exception):
    """The names cannot be found out now. The text has the reason."""


def listed_nodes(formation: Mapping[str, Any], node: str) -> tuple[str, ...]:
    """The names that the setting `cluster_formation` of this node gives now, in ascending order, its own among them
    only if it is listed. Waits for a name server or a disk. Raises DiscoveryError.
    """
    if formation["dns"]:
        return _of_name_server(formation["dns"], node.partition("@")[0])
    if formation["file"]:
        return _of_file(formation["file"])
    return tuple(sorted(formation["nodes"]))


def _of_file(path: str) -> tuple[str, ...]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise DiscoveryError(f"cluster_formation.file '{path}' cannot be read: {error}") from None
    names = {line for line in lines if line}
    wrong = sorted(name for name in names if not NODE_NAME.fullmatch(name))
    if wrong:
        raise DiscoveryError(
            f"cluster_formation.file '{path}' has the line '{wrong[0]}', which is no name such as 'warren@a'"
        )
    return tuple(sorted(names))


def _of_name_server(name: str, prefix: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DiscoveryError(f"cluster_formation.dns '{name}' cannot be looked up: {error}") from None
    names = set()
    for *_, address in found:
        try:
            host = socket.getnameinfo(address, socket.NI_NAMEREQD)[0]
        except OSError as error:
            raise DiscoveryError(f"the address {address[0]} of '{name}' has no host name: {error}") from None
        names.add(f"{prefix}@{host}")
    return tuple(sorted(names))
