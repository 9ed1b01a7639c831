"""The settings by which a node finds its cluster and by which it acts in one, as people write them and in final form.

    cluster_formation.nodes = ["warren@a", "warren@b", "warren@c"]
    cluster_formation.timeout = 300000

A file may also write them as a table, `[cluster_formation]`. In Python it is a mapping with the same keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .limits import LimitError

#: A node's name: the part before the `@` as the commands check it (CM-12), and a host.
NODE_NAME = re.compile(r"[A-Za-z0-9_-]+@[A-Za-z0-9._:\[\]-]+")

#: The keys of `cluster_formation` and their defaults.
FORMATION: Mapping[str, Any] = {"nodes": (), "dns": "", "file": "", "timeout": 300_000, "replace_lost": False}

#: The cluster port of a node that finds its cluster by `cluster_formation` and chooses no other port.
DEFAULT_CLUSTER_PORT = 25_672

#: The keys for where the names of the other nodes come from.
SOURCES = ("nodes", "dns", "file")

_TIMEOUT = (1_000, 86_400_000)


def read_formation(value: Any) -> dict[str, Any]:
    """How a node without a cluster finds one (CL-39): every key of `FORMATION`. Raises LimitError."""
    if not isinstance(value, Mapping):
        raise LimitError(value, 'a table, such as {nodes = ["warren@a", "warren@b", "warren@c"]}')
    unknown = sorted(str(key) for key in value if key not in FORMATION)
    if unknown:
        raise LimitError(value, f"a table with the keys {', '.join(FORMATION)}; '{unknown[0]}' is none of them")
    formation = {**FORMATION, **value}
    if sum(bool(formation[source]) for source in SOURCES) > 1:
        raise LimitError(value, "a table with only one of nodes, dns and file")
    nodes = formation["nodes"]
    if isinstance(nodes, str) or not isinstance(nodes, (list, tuple)):
        raise LimitError(value, 'a table whose nodes are a list, such as ["warren@a", "warren@b", "warren@c"]')
    for node in nodes:
        if not isinstance(node, str) or not NODE_NAME.fullmatch(node):
            raise LimitError(value, f"a table whose nodes have names such as 'warren@a'; {node!r} is no such name")
    if len(set(nodes)) != len(nodes):
        twice = next(node for node in nodes if list(nodes).count(node) > 1)
        raise LimitError(value, f"a table that names each node once; {twice!r} is there twice")
    for source in ("dns", "file"):
        if not isinstance(formation[source], str):
            raise LimitError(value, f"a table whose {source} is a text")
    timeout, (least, most) = formation["timeout"], _TIMEOUT
    if type(timeout) is not int or not least <= timeout <= most:
        raise LimitError(value, f"a table whose timeout is a whole number of ms from {least} to {most}")
    if type(formation["replace_lost"]) is not bool:
        raise LimitError(value, "a table whose replace_lost is true or false")
    return {**formation, "nodes": tuple(nodes)}


def read_peer_addresses(value: Any) -> dict[str, str]:
    """Where this node reaches others: name of the node to `host:port` (CL-124). Raises LimitError."""
    wanted = 'a table of names and addresses, such as {"warren@b" = "10.0.0.2:25672"}'
    if not isinstance(value, Mapping):
        raise LimitError(value, wanted)
    for node, address in value.items():
        if not isinstance(node, str) or not NODE_NAME.fullmatch(node):
            raise LimitError(value, f"{wanted}; {node!r} is no name of a node")
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise LimitError(value, f"{wanted}; {address!r} is no host with a port")
    return dict(value)


def read_partition_handling(value: Any) -> str:
    """What a node does that cannot reach a majority. There is one answer only (CL-54). Raises LimitError."""
    if value in ("ignore", "autoheal", "pause_if_all_down"):
        raise LimitError(
            value,
            f"'pause_minority': {value} lets both sides of a partition change the same queues, which loses confirmed"
            " messages; warren decides by majority",
        )
    if value != "pause_minority":
        raise LimitError(value, "'pause_minority'")
    return str(value)
