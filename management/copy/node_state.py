"""`NodeState`: the copy of the cluster that management answers from.

What is declared is the same on all nodes, so it comes from this one. What is counted comes from each node (`Counted`):
of this one with each request, of the others once in an interval (`OtherNodes`).
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Any

from ...actors.statistics.counts import CHURN_COUNTERS, MESSAGE_COUNTERS
from ...definitions.policies import NOTHING, Effective, VhostPolicies, queue_kind
from ...definitions.records import Policy
from .counted import CONNECTION_COLUMNS, NODE_COLUMNS, Counted, Name, Row, link_track, pair_tracks, queue_values
from .group_rates import GroupRates
from .history import GLOBAL_RETENTION, History
from .recent_events import RecentEvents
from .shared_values import SharedValues

#: The track of all nodes together. That of a node is under its name.
CLUSTER = ("cluster",)
#: The counters whose sums over all nodes must never fall, so the sums include what a node had counted before it ended.
_COUNTERS = (*MESSAGE_COUNTERS, *CHURN_COUNTERS)


class NodeState:
    """See the module.

    own      what this node has counted
    others   the same of the other nodes that answer, by name
    """

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self.history = History()
        self.shared = SharedValues()
        self.group_rates = GroupRates()
        self.recent_events = RecentEvents()
        #: How often the ring of a queue that this node leads has changed, since this process has started.
        self.ring_view_changes = 0
        self._names_by_id: dict[str, Name] = {}
        self.others: dict[str, Counted] = {}
        #: The counters of each run of a node that does not answer now, by the node's name and the start of the run.
        self._silent: dict[tuple[str, float], list[float]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything, because the node begins to send all of it again."""
        self._names_by_id.clear()
        self.own = Counted(self.node_name, self._names_by_id, self.shared)
        self.vhosts: dict[str, Row] = {}
        self.exchanges: dict[Name, Row] = {}
        self.queues: dict[Name, Row] = {}
        self.definitions: dict[str, list[Row]] = {}
        self.users: dict[str, Row] = {}
        self.permissions: dict[Name, Row] = {}
        self.features: list[Row] = []
        self._policies: dict[str, VhostPolicies] = {}
        #: Changes whenever a declared object does. What is computed from these objects is kept until then, with this
        #: number.
        self.version = 0
        self._sorted_queues: tuple[int, list[Name]] = (-1, [])

    # -- what arrives ---

    def apply(self, rows: Iterable[Row]) -> None:
        for row in rows:
            kind = row.pop("kind")
            take = getattr(self, f"_take_{kind}", None) or getattr(self.own, f"take_{kind}")
            take(row)

    def _take_node(self, row: Row) -> None:
        self.own.take_node(row)
        self.recent_events.note_members(row)
        self.recent_events.note_alarms(row)

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
        self.recent_events.note_policies(self._time, self.definitions["policies"])

    def _take_exchange(self, row: Row) -> None:
        self.version += 1
        name = row["vhost"], row["name"]
        if row.get("is_gone"):
            self.exchanges.pop(name, None)
            for counted in self.counted:
                counted.exchange_counts.pop(name, None)
            self.history.remove(("exchange", name))
        else:
            self.exchanges[name] = row

    def _take_queue(self, row: Row) -> None:
        self.version += 1
        name = row["vhost"], row["name"]
        known = self.queues.get(name)
        if row.get("is_gone") or known is not None and known["id"] != row["id"]:
            self._forget_queue(name)
        elif known is not None:
            if known["node"] != row["node"]:
                self.recent_events.note_master(self._time, row, known["node"])
            if row["node"] == self.node_name:
                self.ring_view_changes += max(0, row["epoch"] - known["epoch"])
        if not row.get("is_gone"):
            self.shared.share(row)
            self.queues[name] = row
            self._names_by_id[row["id"]] = name

    def _forget_queue(self, name: Name) -> None:
        found = self.queues.pop(name, None)
        if found is not None:
            self._names_by_id.pop(found["id"], None)
        for counted in self.counted:
            counted.forget_queue(name)
        self.history.remove(("queue", name))

    @property
    def _time(self) -> float:
        """When the rows that arrive now were made, about: their node sends its time behind them."""
        return float(self.own.node.get("time") or time.time())

    # -- the other nodes ---

    def begin_counting(self, node: str) -> Counted:
        """A new `Counted` for another node, whose first answer has all rows."""
        return Counted(node, self._names_by_id, self.shared)

    def lose(self, node: str) -> None:
        """Note that another node does not answer any more: keep its counters, and drop its channels and connections."""
        counted = self.others.pop(node, None)
        if counted is not None and counted.node:
            self._silent[node, counted.node["started_at"]] = [counted.value(column) for column in _COUNTERS]
            for kind, rows in (("channel", counted.channels), ("connection", counted.connections)):
                for key, row in rows.items():
                    self.history.remove((kind, key))
                    for track in pair_tracks(key, row):
                        self.history.remove(track)
            for peer in counted.linked:
                self.history.remove(link_track(node, peer))

    @property
    def counted(self) -> list[Counted]:
        """What each node has counted that answers, this one first."""
        return [self.own, *self.others.values()]

    def counted_by(self, node: str) -> Counted | None:
        """What this node has counted; None if it does not answer."""
        return self.own if node == self.node_name else self.others.get(node)

    def tick(self, now: float) -> None:
        """Add a sample of everything that has changed in the statistics interval that has just passed."""
        history = self.history
        history.begin_tick(now)
        for kind, key in set().union(*[counted.changes(history) for counted in self.counted]):
            if kind == "pair":
                _, exchange, queue = key
                published = [counted.pairs.of_queue(queue).get(exchange, 0) for counted in self.counted]
                history.put(key, [sum(published)])
                continue
            values = self._values(kind, key)
            if values is not None:
                history.put((kind, key), values)
            if kind == "channel":
                for track, of_pair in pair_tracks(key, self.channels.get(key, {})).items():
                    history.put(track, of_pair)
        for other in self.others.values():
            self.recent_events.note_alarms(other.node)
        for counted in self.counted:
            counted.sample(history, counted.node_name)
        history.put(CLUSTER, [self.value(column) for column in NODE_COLUMNS], GLOBAL_RETENTION)

    def _values(self, kind: str, key: Any) -> list[float] | None:
        if kind == "queue":
            stats = self.queue_stats.get(key)
            return None if stats is None else queue_values(stats)
        if kind == "channel":
            found = self.channels.get(key)
            return None if found is None else found["counts"]
        if kind == "connection":
            found = self.connections.get(key)
            return None if found is None else [found[column] for column in CONNECTION_COLUMNS]
        counts = self.exchange_count(key)
        return None if counts is None else list(counts)

    # -- reading: the sums and the objects of all nodes ---

    @property
    def node(self) -> Row:
        """What this node has sent about itself."""
        return self.own.node

    @property
    def queue_stats(self) -> Mapping[Name, Row]:
        return self._merged([counted.queue_stats for counted in self.counted])

    @property
    def channels(self) -> Mapping[str, Row]:
        return self._merged([counted.channels for counted in self.counted])

    @property
    def connections(self) -> Mapping[str, Row]:
        return self._merged([counted.connections for counted in self.counted])

    @property
    def active_at(self) -> Mapping[Any, float]:
        return self._merged([counted.active_at for counted in self.counted])

    @staticmethod
    def _merged(maps: list[dict[Any, Any]]) -> Mapping[Any, Any]:
        return maps[0] if len(maps) == 1 else ChainMap(*maps)

    @property
    def consumer_count(self) -> int:
        return sum([counted.consumer_count for counted in self.counted])

    def exchange_count(self, name: Name) -> tuple[int, int] | None:
        """How many messages came into an exchange and how many went out; None if no node has counted any."""
        found = [counts for counted in self.counted if (counts := counted.exchange_counts.get(name)) is not None]
        return (sum([came for came, _ in found]), sum([went for _, went in found])) if found else None

    def value(self, column: str) -> float:
        """The sum of one of `NODE_COLUMNS` over the nodes. A counter includes what nodes that do not answer now had
        counted.
        """
        total = sum([counted.value(column) for counted in self.counted])
        if column in _COUNTERS:
            answering = {(counted.node_name, counted.node["started_at"]) for counted in self.counted}
            at = _COUNTERS.index(column)
            total += sum([counts[at] for run, counts in self._silent.items() if run not in answering])
        return total

    def values(self, columns: Iterable[str]) -> list[float]:
        return [self.value(column) for column in columns]

    def queue_sum(self, column: str) -> int:
        """What all queues have counted, those that are gone included."""
        return sum([counted.queue_sum(column) for counted in self.counted])

    def sorted_queues(self) -> list[Name]:
        """The names of all queues, shards included, by virtual host and name."""
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
