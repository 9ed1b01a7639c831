"""What every process of a node is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .extensions import NO_EXTENSIONS, Extensions
from .routing import RoutingTable


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node as its processes see it. `metadata` and `alarms` are the addresses of those processes."""

    node_name: str
    settings: Any  # the node's `Settings`
    routing: RoutingTable
    metadata: Any
    alarms: Any
    extensions: Extensions = NO_EXTENSIONS
