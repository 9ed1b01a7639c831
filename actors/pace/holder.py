"""Which node holds the clock of a pace group. It follows from the name of the group and from the nodes that run."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from ...definitions.features import PACE_GROUPS

if TYPE_CHECKING:
    from ...runtime.contract import Address
    from ..context.node_context import NodeContext
    from ..contracts.pace import ClockName, ToPacer


def holder(context: NodeContext, name: ClockName) -> str:
    """The node that holds the clock with this name."""
    nodes = [
        node.name
        for node in context.definitions.nodes.values()
        if node.incarnation and node.role != "witness" and PACE_GROUPS in node.features
    ]
    if not nodes:
        return context.node_name
    return max(nodes, key=lambda node: blake2b("\0".join((*name, node)).encode("utf-8", "surrogateescape")).digest())


def pacer(context: NodeContext, name: ClockName) -> Address[ToPacer]:
    """Where requests for this clock go."""
    node = holder(context, name)
    if node == context.node_name:
        assert context.pacer is not None
        return context.pacer
    return context.peers.pacer(node)
