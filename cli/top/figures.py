"""The pages of `warren top` and their columns. A column has the value to sort by and the text to show.

A page lists keys of the copy of the node (`NodeState`). Sorting computes one value for each key; texts are made for the
lines on the screen only, so that ten thousand queues cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...management.copy.counted import CHANNEL_COLUMNS, CONNECTION_COLUMNS, NODE_COLUMNS, QUEUE_COLUMNS
from ...management.copy.node_state import CLUSTER, NodeState
from ..formatters import cell

#: The least width of a name, in characters. On a narrower terminal columns are left out until the name has this much.
NAME_MIN = 16

#: The colours of states that an operator should see.
STATE_STYLES = {
    "flow": "yellow",
    "short": "red",
    "blocking": "yellow",
    "blocked": "bold red",
    "down": "bold red",
    "crashed": "bold red",
}

#: The counters of what leaves a queue or a channel towards consumers.
DELIVERED = ("deliver", "deliver_no_ack", "get", "get_no_ack")


class TopColumn(NamedTuple):
    """A column of width 0 gets the width that the others leave. If the columns do not fit into the terminal, the one
    with the highest rank is left out first.
    """

    title: str
    width: int
    rank: int
    value: Callable[[NodeState, Any], Any]
    text: Callable[[Any], str]
    style: Callable[[Any], str] = lambda value: ""


class TopPage(NamedTuple):
    """A list. `sorted_by` is the index of the column that sorts it at first; `what` is the plural of its things."""

    title: str
    what: str
    keys: Callable[[NodeState], Iterable[Any]]
    name: Callable[[NodeState, Any], str]
    columns: tuple[TopColumn, ...]
    sorted_by: int


def fitting(columns: tuple[TopColumn, ...], width: int) -> list[tuple[TopColumn, int]]:
    """The columns that fit beside one another, in order, each with its width; a space stands between two."""
    chosen = list(columns)
    while len(chosen) > 1 and NAME_MIN + sum(column.width + 1 for column in chosen) - 1 > width:
        chosen.remove(max(chosen, key=lambda column: column.rank))
    rest = width - sum(column.width + 1 for column in chosen) + 1
    return [(column, column.width or max(rest, 1)) for column in chosen]


# -- texts ---


def count(value: float) -> str:
    """A number in at most eight characters, the width of most columns. From a million on it has a unit."""
    whole = round(value)
    for unit, size in (("G", 10**9), ("M", 10**6)):
        if whole >= size:
            return f"{whole / size:,.1f}{unit}"
    return f"{whole:,}"


def rate(value: float) -> str:
    """A number for each second."""
    return f"{value:.1f}" if 0 < value < 10 else count(value)


def rate_or_point(value: float) -> str:
    """A number for each second, as `rate` writes it, but a point for 0, so that rates above 0 stand out."""
    return rate(value) if value > 0 else "·"


def size(value: float) -> str:
    """Bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def flow_of_bytes(value: float) -> str:
    """Bytes for each second."""
    return f"{size(value)}/s" if value > 0 else "·"


def share(value: float) -> str:
    return f"{value:.0%}" if value else "·"


def span(seconds: float) -> str:
    """A time in its two largest units."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def state_style(value: str) -> str:
    return STATE_STYLES.get(value, "")


# -- values ---


def _rate(kind: str, columns: tuple[str, ...], names: tuple[str, ...]) -> Callable[[NodeState, Any], float]:
    """The rate of the sum of these columns of a track."""
    numbers = [columns.index(name) for name in names]

    def value(state: NodeState, key: Any) -> float:
        track, tick = state.history.get((kind, key)), state.history.tick
        if track is None or track.tick != tick:
            return 0.0
        return sum(track.rate(number, tick) for number in numbers)

    return value


def node_rate(state: NodeState, *names: str) -> float:
    """The rate of the sum of these counters of the node."""
    track = state.history.get(CLUSTER)
    return 0.0 if track is None else sum(track.rate(NODE_COLUMNS.index(name), state.history.tick) for name in names)


def _stat(name: str) -> Callable[[NodeState, Any], Any]:
    """A number of a queue; 0 for one that does not run here."""
    return lambda state, key: state.queue_stats.get(key, {}).get(name) or 0


def _queue_state(state: NodeState, key: Any) -> str:
    row = state.queues[key]
    return (
        str(state.queue_stats.get(key, {}).get("state") or row["state"]) if row["state"] == "running" else row["state"]
    )


def _blocked_by(row: dict[str, Any]) -> str:
    return ", ".join(str(each) for each in row.get("blocked_by") or ())


def _of_connection(name: str, otherwise: Any = "") -> Callable[[NodeState, Any], Any]:
    return lambda state, key: state.connections[key].get(name) or otherwise


def _of_channel(name: str, otherwise: Any = "") -> Callable[[NodeState, Any], Any]:
    return lambda state, key: state.channels[key].get(name) or otherwise


def _queue_name(state: NodeState, key: Any) -> str:
    vhost, name = key
    return str(name) if vhost == "/" else f"{vhost}: {name}"


def _channel_user(state: NodeState, key: Any) -> str:
    return str(state.channels[key]["user"])


def _queue_rate(*names: str) -> Callable[[NodeState, Any], float]:
    return _rate("queue", QUEUE_COLUMNS, names)


def _channel_rate(*names: str) -> Callable[[NodeState, Any], float]:
    return _rate("channel", CHANNEL_COLUMNS, names)


def _connection_rate(name: str) -> Callable[[NodeState, Any], float]:
    return _rate("connection", CONNECTION_COLUMNS, (name,))


QUEUES = TopPage(
    "Queues",
    "queues",
    lambda state: state.queues,
    _queue_name,
    (
        TopColumn("NAME", 0, 0, _queue_name, cell),
        TopColumn("STATE", 8, 2, _queue_state, cell, state_style),
        TopColumn("READY", 8, 1, _stat("messages_ready"), count),
        TopColumn("UNACKED", 8, 4, _stat("messages_unacknowledged"), count),
        TopColumn("TOTAL", 8, 3, _stat("messages"), count),
        TopColumn("IN/s", 8, 5, _queue_rate("publish"), rate_or_point),
        TopColumn("OUT/s", 8, 6, _queue_rate(*DELIVERED), rate_or_point),
        TopColumn("ACK/s", 8, 9, _queue_rate("ack"), rate_or_point),
        TopColumn("CONS", 5, 7, _stat("consumers"), count),
        TopColumn("BLOCKED", 7, 8, _stat("blocked_share"), share),
        TopColumn("TYPE", 8, 10, lambda state, key: state.queues[key]["type"], cell),
        TopColumn("NODE", 20, 11, lambda state, key: state.queues[key]["node"], cell),
    ),
    4,
)
CONNECTIONS = TopPage(
    "Connections",
    "connections",
    lambda state: state.connections,
    lambda state, key: str(state.connections[key]["name"]),
    (
        TopColumn("NAME", 0, 0, _of_connection("name"), cell),
        TopColumn("STATE", 8, 1, _of_connection("state"), cell, state_style),
        TopColumn("USER", 12, 4, _of_connection("user"), cell),
        TopColumn("VHOST", 10, 7, _of_connection("vhost"), cell),
        TopColumn("CHAN", 5, 5, _of_connection("channels", 0), count),
        TopColumn("FROM CLIENT", 12, 2, _connection_rate("recv_oct"), flow_of_bytes),
        TopColumn("TO CLIENT", 11, 3, _connection_rate("send_oct"), flow_of_bytes),
        TopColumn("BLOCKED", 7, 6, _of_connection("blocked_share", 0.0), share),
        TopColumn("BLOCKED BY", 16, 8, lambda state, key: _blocked_by(state.connections[key]), cell),
        TopColumn("NODE", 20, 9, _of_connection("node"), cell),
    ),
    5,
)
CHANNELS = TopPage(
    "Channels",
    "channels",
    lambda state: state.channels,
    lambda state, key: str(state.channels[key]["name"]),
    (
        TopColumn("NAME", 0, 0, _of_channel("name"), cell),
        TopColumn("STATE", 8, 1, _of_channel("state"), cell, state_style),
        TopColumn("USER", 12, 7, _channel_user, cell),
        TopColumn("IN/s", 8, 2, _channel_rate("publish"), rate_or_point),
        TopColumn("OUT/s", 8, 3, _channel_rate(*DELIVERED), rate_or_point),
        TopColumn("ACK/s", 8, 5, _channel_rate("ack"), rate_or_point),
        TopColumn("UNACKED", 8, 4, _of_channel("messages_unacknowledged", 0), count),
        TopColumn("UNCONF", 8, 6, _of_channel("messages_unconfirmed", 0), count),
        TopColumn("CONS", 5, 8, _of_channel("consumer_count", 0), count),
        TopColumn("PREF", 6, 9, _of_channel("prefetch_count", 0), count),
        TopColumn("BLOCKED BY", 16, 10, lambda state, key: _blocked_by(state.channels[key]), cell),
    ),
    3,
)
PAGES = (QUEUES, CONNECTIONS, CHANNELS)
