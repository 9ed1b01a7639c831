"""What holds connections back, found in the copy of the node's statistics: the node itself is asked nothing."""

from __future__ import annotations

from typing import Any

from ...actors.node.operations.observing.bottlenecks import verdict
from .node_state import NodeState

#: States of connections that are being closed already.
ENDING = ("closing", "closed")


def held_back(state: NodeState) -> list[dict[str, Any]]:
    """A row for each connection that something holds back, as the operation `diagnose` has them."""
    of_connection: dict[str, list[dict[str, Any]]] | None = None
    rows = []
    for key, connection in state.connections.items():
        is_slow = connection["state"] == "flow" or connection["alarms"] or connection["pauses"]
        if not is_slow or connection["state"] in ENDING:
            continue
        if of_connection is None:
            of_connection = {}
            for channel in state.channels.values():
                of_connection.setdefault(channel["connection"], []).append(channel)
        vhost = connection["vhost"]
        found = verdict(
            connection,
            of_connection.get(key, []),
            lambda name, vhost=vhost: state.queue_stats.get((vhost, name)),  # type: ignore[misc]
            connection["node"],
        )
        if found is not None:
            rows.append(found.row(connection))
    return rows
