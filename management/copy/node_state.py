"""`NodeState`: the copy of the node that management answers from, and how the rows of `statistics` change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...actors.statistics.counts import CHURN_COUNTERS, MESSAGE_COUNTERS
from ...definitions.policies import NOTHING, Effective, VhostPolicies, queue_kind
from ...definitions.records import Policy
from .history import GLOBAL_RETENTION, History

Row = dict[str, Any]
Name = tuple[str, str]

#: What the track of a queue has: its lengths, then its counters of messages, and the reads and writes of the disk.
QUEUE_LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
QUEUE_COLUMNS = (*QUEUE_LENGTHS, *MESSAGE_COUNTERS, "disk_reads", "disk_writes")
CHANNEL_COLUMNS = MESSAGE_COUNTERS
CONNECTION_COLUMNS = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")
EXCHANGE_COLUMNS = ("publish_in", "publish_out")
#: The measures of a node that have a history.
NODE_MEASURES = ("mem_used", "disk_free", "fd_used", "sockets_used", "proc_used", "context_switches")
NODE_COLUMNS = (
    *QUEUE_LENGTHS,
    *MESSAGE_COUNTERS,
    *CHURN_COUNTERS,
    *NODE_MEASURES,
    *("disk_reads", "disk_writes", "recv_oct", "send_oct"),
)
NODE = "node"


class NodeState:
    """See the module. Everything is that of one node; `queues` and `exchanges` are those of the whole cluster."""

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self.history = History()
        self.node: Row = {}
        self.vhosts: dict[str, Row] = {}
        self.exchanges: dict[Name, Row] = {}
        self.queues: dict[Name, Row] = {}
        #: What is counted, by queue; by the id of a channel and of a connection.
        self.queue_stats: dict[Name, Row] = {}
        self.channels: dict[str, Row] = {}
        self.connections: dict[str, Row] = {}
        #: By exchange: published in, routed out.
        self.exchange_counts: dict[Name, tuple[int, int]] = {}
        self.definitions: dict[str, list[Row]] = {}
        self.users: dict[str, Row] = {}
        self.permissions: dict[Name, Row] = {}
        self.features: list[Row] = []
        #: When a queue, channel or connection last did something: seconds since the epoch.
        self.active_at: dict[Any, float] = {}
        #: Sums over the queues of all lengths, maintained as rows arrive.
        self.totals = dict.fromkeys(QUEUE_COLUMNS, 0)
        #: What queues that are gone had counted, so that sums never fall (CM-376).
        self._gone = dict.fromkeys((*MESSAGE_COUNTERS, "disk_reads", "disk_writes", "recv_oct", "send_oct"), 0)
        self._policies: dict[str, VhostPolicies] = {}
        self._changed: set[tuple[str, Any]] = set()
        self._names_by_id: dict[str, Name] = {}
        #: Changes with the declared objects, so that what follows from them may be kept.
        self.version = 0
        self._sorted_queues: tuple[int, list[Name]] = (-1, [])
        self.consumer_count = 0

    # -- what arrives ---

    def clear(self) -> None:
        """The node begins to send everything again."""
        history = self.history
        self.__init__(self.node_name)  # type: ignore[misc]
        self.history = history

    def apply(self, rows: Iterable[Row]) -> None:
        for row in rows:
            getattr(self, f"_take_{row.pop('kind')}")(row)

    def _take_node(self, row: Row) -> None:
        self.node = row
        for vhost, exchange, published, routed in row.pop("exchanges"):
            if self.exchange_counts.get((vhost, exchange)) != (published, routed):
                self.exchange_counts[vhost, exchange] = (published, routed)
                self._changed.add(("exchange", (vhost, exchange)))

    def _take_vhosts(self, row: Row) -> None:
        self.version += 1
        self.vhosts = {each["name"]: each for each in row["vhosts"]}

    def _take_definitions(self, row: Row) -> None:
        self.version += 1
        self.features = row["features"]
        self.definitions = {name.removeprefix("of_"): value for name, value in row.items() if name.startswith("of_")}
        self.users = {each["name"]: each for each in self.definitions["users"]}
        self.permissions = {(each["user"], each["vhost"]): each for each in self.definitions["permissions"]}
        self._policies.clear()

    def _take_exchange(self, row: Row) -> None:
        self.version += 1
        name = row["vhost"], row["name"]
        if row.get("is_gone"):
            self.exchanges.pop(name, None)
            self.exchange_counts.pop(name, None)
            self.history.remove(("exchange", name))
        else:
            self.exchanges[name] = row

    def _take_queue(self, row: Row) -> None:
        self.version += 1
        name = row["vhost"], row["name"]
        known = self.queues.get(name)
        if row.get("is_gone") or known is not None and known["id"] != row["id"]:
            self._forget_queue(name)
        if not row.get("is_gone"):
            self.queues[name] = row
            self._names_by_id[row["id"]] = name

    def _forget_queue(self, name: Name) -> None:
        found = self.queues.pop(name, None)
        if found is not None:
            self._names_by_id.pop(found["id"], None)
        self._forget_queue_stats(name)
        self.active_at.pop(name, None)
        self.history.remove(("queue", name))

    def _forget_queue_stats(self, name: Name) -> None:
        stats = self.queue_stats.pop(name, None)
        if stats is not None:
            self._add(stats, -1)
            self.consumer_count -= stats.get("consumers") or 0
            for column, count in (*zip(MESSAGE_COUNTERS, stats["counts"]), *_disk(stats)):
                self._gone[column] += count

    def _take_queue_stats(self, row: Row) -> None:
        name = row["vhost"], row["name"]
        before = self.queue_stats.get(name)
        if before is not None:
            self._add(before, -1)
            self.consumer_count -= before.get("consumers") or 0
        self._add(row, 1)
        self.consumer_count += row.get("consumers") or 0
        self.queue_stats[name] = row
        if before is None or _activity(before) != _activity(row):
            self.active_at[name] = self.node.get("time", 0.0)
        self._changed.add(("queue", name))

    def _add(self, stats: Row, sign: int) -> None:
        totals = self.totals
        for column in QUEUE_LENGTHS:
            totals[column] += sign * (stats.get(column) or 0)
        for column, count in zip(MESSAGE_COUNTERS, stats["counts"]):
            totals[column] += sign * count
        for column, count in _disk(stats):
            totals[column] += sign * count

    def _take_channel_stats(self, row: Row) -> None:
        key = row["channel_id"]
        before = self.channels.get(key)
        self.channels[key] = row
        if before is None or before["counts"] != row["counts"]:
            self.active_at[key] = self.node.get("time", 0.0)
        self._changed.add(("channel", key))

    def _take_connection_stats(self, row: Row) -> None:
        self.connections[row["pid"]] = row
        self._changed.add(("connection", row["pid"]))

    def _take_gone(self, row: Row) -> None:
        for kind, key in row["gone"]:
            if kind == "queue":
                name = self._names_by_id.get(key)
                if name is not None:
                    self._forget_queue_stats(name)
                continue
            found = (self.channels if kind == "channel" else self.connections).pop(key, None)
            if found is not None and kind == "connection":
                self._gone["recv_oct"] += found["recv_oct"]
                self._gone["send_oct"] += found["send_oct"]
            self.active_at.pop(key, None)
            self.history.remove((kind, key))

    def tick(self, time: float) -> None:
        """A statistics interval has passed: what has changed in it gets a sample."""
        history = self.history
        history.begin_tick(time)
        changed, self._changed = self._changed, set()
        for kind, key in changed:
            values = self._values(kind, key)
            if values is not None:
                history.put((kind, key), values)
        history.put(NODE, [self.node_value(column) for column in NODE_COLUMNS], GLOBAL_RETENTION)

    def _values(self, kind: str, key: Any) -> list[float] | None:
        if kind == "queue":
            stats = self.queue_stats.get(key)
            if stats is None:
                return None
            lengths = [stats.get(column) or 0 for column in QUEUE_LENGTHS]
            return [*lengths, *stats["counts"], *(count for _, count in _disk(stats))]
        if kind == "channel":
            found = self.channels.get(key)
            return None if found is None else found["counts"]
        if kind == "connection":
            found = self.connections.get(key)
            return None if found is None else [found[column] for column in CONNECTION_COLUMNS]
        counts = self.exchange_counts.get(key)
        return None if counts is None else list(counts)

    # -- reading ---

    def node_value(self, column: str) -> float:
        """One value of the node as a whole."""
        node = self.node
        if column in QUEUE_LENGTHS:
            return float(self.totals[column])
        if column in MESSAGE_COUNTERS:
            return float(node["messages"][MESSAGE_COUNTERS.index(column)])
        if column in CHURN_COUNTERS:
            return float(node["churn"][CHURN_COUNTERS.index(column)])
        if column in ("disk_reads", "disk_writes"):
            return float(self.totals[column] + self._gone[column])
        if column in ("recv_oct", "send_oct"):
            return float(sum(each[column] for each in self.connections.values()) + self._gone[column])
        values: dict[str, float] = {
            "mem_used": node["memory"]["used"] or 0,
            "disk_free": (node["disk"] or {}).get("free") or 0,
            "fd_used": node["fd_used"],
            "sockets_used": node["sockets"],
            "proc_used": node["processes"],
            "context_switches": node["context_switches"],
        }
        return values[column]

    def queue_sum(self, column: str) -> int:
        """What all queues have counted, those that are gone included."""
        return self.totals[column] + self._gone.get(column, 0)

    def sorted_queues(self) -> list[Name]:
        """The names of all queues by virtual host and name; shards are parts of their logical queue."""
        if self._sorted_queues[0] != self.version:
            self._sorted_queues = (self.version, sorted(self.queues))
        return self._sorted_queues[1]

    def policy_of(self, vhost: str, name: str, queue_type: str | None = None) -> Effective:
        """What applies to a queue of this type, or to an exchange."""
        if not any(each["vhost"] == vhost for each in self.definitions.get("policies", ())):
            return NOTHING
        found = self._policies.get(vhost)
        if found is None:
            policies = [Policy(**each) for each in self.definitions["policies"] if each["vhost"] == vhost]
            found = self._policies[vhost] = VhostPolicies(policies)
        return found.effective("exchanges" if queue_type is None else queue_kind(queue_type), name)

    def global_parameter(self, name: str) -> str | None:
        """The JSON text of a global parameter."""
        return next((each["value"] for each in self.definitions["global_parameters"] if each["name"] == name), None)


def _disk(stats: Row) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("disk_reads", stats.get("disk_reads") or 0), ("disk_writes", stats.get("disk_writes") or 0)


def _activity(stats: Row) -> tuple[Any, ...]:
    return stats["counts"], stats.get("messages"), stats.get("consumers")
