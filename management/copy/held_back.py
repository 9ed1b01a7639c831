"""Why connections are blocked or slow, found in the copy of the node's statistics without asking the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...actors.node.operations.observing.bottlenecks import Verdict, chain, verdict
from .counted import Counted
from .node_state import NodeState

Row = dict[str, Any]

#: The states of connections that are closing or closed.
ENDING = ("closing", "closed")


def held_back(state: NodeState | Counted) -> list[Row]:
    """A row for each connection that is held back, in the form of the operation `diagnose`."""
    of_connection: dict[str, list[Row]] | None = None
    rows = []
    for key, connection in state.connections.items():
        is_slow = connection["state"] == "flow" or connection["alarms"] or connection["pauses"]
        if not is_slow or connection["state"] in ENDING:
            continue
        if of_connection is None:
            of_connection = {}
            for channel in state.channels.values():
                of_connection.setdefault(channel["connection"], []).append(channel)
        found = _verdict(state, connection, of_connection.get(key, []))
        if found is not None:
            rows.append(found.row(connection))
    return rows


def stages(state: NodeState | Counted, name: str) -> list[Row] | None:
    """The rows of the operation `flow_chain` for the connection with this name; None if there is none."""
    key = next((key for key, row in state.connections.items() if row["name"] == name), None)
    if key is None:
        return None
    connection = state.connections[key]
    channels = [row for row in state.channels.values() if row["connection"] == key]
    names = sorted({name for channel in channels for name in channel["blocked_by"]})
    found = [stats for name in names if (stats := state.queue_stats.get((connection["vhost"], name))) is not None]
    return chain(connection, channels, found, _verdict(state, connection, channels))


def _verdict(state: NodeState | Counted, connection: Row, channels: Sequence[Row]) -> Verdict | None:
    vhost = connection["vhost"]
    return verdict(connection, channels, lambda name: state.queue_stats.get((vhost, name)), connection["node"])
