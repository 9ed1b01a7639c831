"""`Counted`: the statistics of one node, from the rows that its operation `statistics` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...actors.contracts.pace import PACE_OUTCOMES
from ...actors.statistics.counts import CHURN_COUNTERS, MESSAGE_COUNTERS
from .history import GLOBAL_RETENTION, History
from .pair_totals import PairTotals
from .shared_values import SharedValues

Row = dict[str, Any]
Name = tuple[str, str]

#: The columns of a queue's history: its lengths, its counters of messages, and the reads and writes of the disk.
QUEUE_LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
QUEUE_BYTES = ("message_bytes", "message_bytes_ready", "message_bytes_unacknowledged")
QUEUE_COLUMNS = (*QUEUE_LENGTHS, *MESSAGE_COUNTERS, "disk_reads", "disk_writes")
CHANNEL_COLUMNS = MESSAGE_COUNTERS
CONNECTION_COLUMNS = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")
EXCHANGE_COLUMNS = ("publish_in", "publish_out")
LINK_COLUMNS = ("recv_bytes", "send_bytes")
#: The measures of a node that have a history.
NODE_MEASURES = (
    *("mem_used", "disk_free", "fd_used", "sockets_used", "proc_used", "context_switches", "gc_num"),
    *("io_read_bytes", "io_write_bytes"),
    *("io_read_count", "io_write_count", "queue_index_read_count", "queue_index_write_count"),
    *("journal_commits", "journal_commit_seconds", "journal_commit_messages"),
)
NODE_COLUMNS = (
    *QUEUE_LENGTHS,
    *MESSAGE_COUNTERS,
    *CHURN_COUNTERS,
    *NODE_MEASURES,
    *("disk_reads", "disk_writes", "recv_oct", "send_oct"),
)


class Death(NamedTuple):
    """Why messages died, in queues of which type, and whether there was an exchange for their dead letters."""

    queue_type: str
    had_exchange: bool
    reason: str


class Counted:
    """See the module. `names_by_id` has the name of each declared queue by its id."""

    def __init__(self, node_name: str, names_by_id: Mapping[str, Name], shared: SharedValues) -> None:
        self.node_name = node_name
        self.node: Row = {}
        #: The latest rows: by queue name, by channel id, and by connection id.
        self.queue_stats: dict[Name, Row] = {}
        self.channels: dict[str, Row] = {}
        self.connections: dict[str, Row] = {}
        #: By exchange: messages published to it, and messages routed to queues.
        self.exchange_counts: dict[Name, tuple[int, int]] = {}
        #: When a queue, channel or connection last did something: seconds since the epoch.
        self.active_at: dict[Any, float] = {}
        #: Sums over the queues of all lengths, bytes and counters, maintained as rows arrive.
        self.totals = dict.fromkeys((*QUEUE_COLUMNS, *QUEUE_BYTES), 0)
        self.consumer_count = 0
        #: The counts of queues and connections that have ended, so that sums never fall (CM-376).
        self._gone = dict.fromkeys((*MESSAGE_COUNTERS, "disk_reads", "disk_writes", *CONNECTION_COLUMNS), 0)
        #: By kind: the seconds for which connections, channels and queues that have ended had no credit. By outcome:
        #: the messages that paced queues which have ended did not admit.
        self._blocked = dict.fromkeys(("connection", "channel", "queue"), 0.0)
        self._paced_off = dict.fromkeys(PACE_OUTCOMES, 0)
        #: By type of the queue, whether there was an exchange for them, and reason: the messages that died in queues,
        #: deleted ones included.
        self.dead: dict[Death, int] = {}
        self._names_by_id = names_by_id
        self._shared = shared
        self.pairs = PairTotals(names_by_id)
        #: The objects that have changed since the last tick, and those that have ended, as (kind, key).
        self._changed: set[tuple[str, Any]] = set()
        self._ended: set[tuple[str, Any]] = set()
        #: The nodes to which a link had samples at the last tick.
        self.linked: set[str] = set()

    # -- rows of statistics ---

    def apply(self, rows: Iterable[Row]) -> None:
        for row in rows:
            getattr(self, f"take_{row.pop('kind')}")(row)

    def take_node(self, row: Row) -> None:
        self.node = row
        for vhost, exchange, published, routed in row.pop("exchanges"):
            if self.exchange_counts.get((vhost, exchange)) != (published, routed):
                self.exchange_counts[vhost, exchange] = (published, routed)
                self._changed.add(("exchange", (vhost, exchange)))

    def take_queue_stats(self, row: Row) -> None:
        name = row["vhost"], row["name"]
        before = self.queue_stats.get(name)
        if before is not None:
            self._add(before, -1)
            # A queue that is not paced any more has no such counts.
            for outcome in PACE_OUTCOMES:
                self._paced_off[outcome] += max(0, paced_off(before, outcome) - paced_off(row, outcome))
        self._add(row, 1)
        self._shared.share(row)
        self.queue_stats[row["vhost"], row["name"]] = row
        if before is None or _activity(before) != _activity(row):
            self.active_at[name] = self.node.get("time", 0.0)
        self._changed.add(("queue", name))

    def _add(self, stats: Row, sign: int) -> None:
        totals = self.totals
        for column in (*QUEUE_LENGTHS, *QUEUE_BYTES):
            totals[column] += sign * (stats.get(column) or 0)
        for column, count in zip(MESSAGE_COUNTERS, stats["counts"]):
            totals[column] += sign * count
        for column, count in _disk(stats):
            totals[column] += sign * count
        self.consumer_count += sign * (stats.get("consumers") or 0)
        for death, count in _deaths(stats):
            self.dead[death] = self.dead.get(death, 0) + sign * count

    def take_channel_stats(self, row: Row) -> None:
        key = row["channel_id"]
        before = self.channels.get(key)
        if "publishes" in row:
            for exchange, queue in self.pairs.take(before, row):
                self._changed.add(("pair", exchange_queue(exchange, queue)))
        self.channels[key] = row
        if before is None or before["counts"] != row["counts"]:
            self.active_at[key] = self.node.get("time", 0.0)
        self._changed.add(("channel", key))

    def take_connection_stats(self, row: Row) -> None:
        self.connections[row["pid"]] = row
        self._changed.add(("connection", row["pid"]))

    def take_gone(self, row: Row) -> None:
        for kind, key in row["gone"]:
            if kind == "queue":
                name = self._names_by_id.get(key)
                if name is not None:
                    self.forget_queue_stats(name)
                continue
            found = (self.channels if kind == "channel" else self.connections).pop(key, None)
            if found is not None:
                self._blocked[kind] += found.get("blocked_seconds") or 0.0
                self._ended.update(("pair", track) for track in pair_tracks(key, found))
            if found is not None and kind == "connection":
                for column in CONNECTION_COLUMNS:
                    self._gone[column] += found[column]
            self.active_at.pop(key, None)
            self._ended.add((kind, key))

    def forget_queue(self, name: Name) -> None:
        """Forget a queue that was deleted."""
        self.forget_queue_stats(name)
        self.active_at.pop(name, None)
        self._ended.update(("pair", exchange_queue(exchange, name)) for exchange in self.pairs.forget_queue(name))

    def forget_queue_stats(self, name: Name) -> None:
        stats = self.queue_stats.pop(name, None)
        if stats is not None:
            self._add(stats, -1)
            self._blocked["queue"] += stats.get("blocked_seconds") or 0.0
            for outcome in PACE_OUTCOMES:
                self._paced_off[outcome] += paced_off(stats, outcome)
            for death, count in _deaths(stats):
                self.dead[death] = self.dead.get(death, 0) + count  # those of a queue that has ended still count
            for column, count in (*zip(MESSAGE_COUNTERS, stats["counts"]), *_disk(stats)):
                self._gone[column] += count

    # -- history ---

    def changes(self, history: History) -> set[tuple[str, Any]]:
        """The objects that have changed since the last tick. Removes the history of those that have ended."""
        ended, self._ended = self._ended, set()
        for key in ended:
            history.remove(key[1] if key[0] == "pair" else key)
        changed, self._changed = self._changed, set()
        return changed - ended

    def sample(self, history: History, key: str) -> None:
        """Put the node's own values and those of its links into the history."""
        history.put(key, [self.value(column) for column in NODE_COLUMNS], GLOBAL_RETENTION)
        links = {link["node"]: link for link in self.node["links"]}
        for peer in self.linked - links.keys():
            history.remove(link_track(self.node_name, peer))
        for peer, link in links.items():
            history.put(link_track(self.node_name, peer), link_values(link))
        self.linked = set(links)

    # -- reading ---

    def value(self, column: str) -> float:
        """One of `NODE_COLUMNS` or of `CONNECTION_COLUMNS`."""
        node = self.node
        if column in QUEUE_LENGTHS:
            return float(self.totals[column])
        if column in MESSAGE_COUNTERS:
            return float(node["messages"][MESSAGE_COUNTERS.index(column)])
        if column in CHURN_COUNTERS:
            return float(node["churn"][CHURN_COUNTERS.index(column)])
        if column in ("disk_reads", "disk_writes"):
            return float(self.totals[column] + self._gone[column])
        if column in CONNECTION_COLUMNS:
            return float(sum(each[column] for each in self.connections.values()) + self._gone[column])
        values: dict[str, float] = {
            "mem_used": node["memory"]["used"] or 0,
            "disk_free": (node["disk"] or {}).get("free") or 0,
            "fd_used": node["fd_used"],
            "sockets_used": node["sockets"],
            "proc_used": node["processes"],
            "context_switches": node["context_switches"],
            "gc_num": node["collections"],
            "io_read_bytes": node["read_bytes"],
            "io_write_bytes": node["written_bytes"],
            "io_read_count": self.files("reads"),
            "io_write_count": self.files("writes"),
            "queue_index_read_count": self.files("index_reads"),
            "queue_index_write_count": self.files("index_writes"),
            **_commits(node),
        }
        return values[column]

    def files(self, column: str) -> float:
        """One of `FileOperations.values`; 0 for a node of an earlier version."""
        return float(self.node.get("files", {}).get(column, 0))

    def blocked_seconds(self, kind: str) -> float:
        """Seconds without credit, summed over the connections, channels or queues, and those that have ended."""
        of_kind: dict[str, Iterable[Row]] = {
            "connection": self.connections.values(),
            "channel": self.channels.values(),
            "queue": self.queue_stats.values(),
        }
        return self._blocked[kind] + sum([row.get("blocked_seconds") or 0.0 for row in of_kind[kind]])

    def paced_off(self, outcome: str) -> int:
        """How many messages paced queues, deleted ones included, have not admitted with this outcome."""
        return self._paced_off[outcome] + sum([paced_off(row, outcome) for row in self.queue_stats.values()])

    def queue_sum(self, column: str) -> int:
        """The sum of a counter over all queues, deleted ones included."""
        return self.totals[column] + self._gone.get(column, 0)


def exchange_queue(exchange: str, queue: Name) -> tuple[str, str, Name]:
    """The key of the history of what goes from an exchange to a queue of its virtual host."""
    return "exchange_queue", exchange, queue


def channel_exchange(channel: str, exchange: str) -> tuple[str, str, str]:
    """The key of the history of what a channel publishes to an exchange."""
    return "channel_exchange", channel, exchange


def channel_queue(channel: str, queue: str) -> tuple[str, str, str]:
    """The key of the history of what a channel gets from a queue."""
    return "channel_queue", channel, queue


def pair_tracks(channel: str, row: Row) -> dict[tuple[str, str, str], Sequence[float]]:
    """The values of the histories of a channel with each exchange and queue, by their keys."""
    published = {
        channel_exchange(channel, exchange): [count]
        for (exchange, queue), count in row.get("publishes", {}).items()
        if queue is None
    }
    return {**published, **{channel_queue(channel, queue): each for queue, each in row.get("deliveries", {}).items()}}


def paced_off(stats: Row, outcome: str) -> int:
    """How many messages of a queue had this outcome, because they would have had to wait for longer than its pace
    allows.
    """
    return int(((stats.get("pace") or {}).get("outcomes") or {}).get(outcome, 0))


def _deaths(stats: Row) -> Iterator[tuple[Death, int]]:
    """How many messages of a queue have died, without zeros. A node of an earlier version does not report which of
    them had an exchange to go to; all of them count as dead letters then.
    """
    dropped = stats.get("dead_dropped") or {}
    for reason, count in (stats.get("dead_lettered") or {}).items():
        without_exchange = dropped.get(reason, 0)
        if count > without_exchange:
            yield Death(stats["type"], True, reason), count - without_exchange
        if without_exchange:
            yield Death(stats["type"], False, reason), without_exchange


def _disk(stats: Row) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("disk_reads", stats.get("disk_reads") or 0), ("disk_writes", stats.get("disk_writes") or 0)


def _commits(node: Row) -> dict[str, float]:
    """What the journals of a node have committed since its start; nothing if the node is of an earlier version."""
    if "histograms" not in node:
        return dict.fromkeys(("journal_commits", "journal_commit_seconds", "journal_commit_messages"), 0.0)
    seconds, messages = (node["histograms"][f"journal_sync_{unit}"] for unit in ("seconds", "messages"))
    return {
        "journal_commits": sum(seconds["counts"]),
        "journal_commit_seconds": seconds["sum"],
        "journal_commit_messages": messages["sum"],
    }


def link_track(node: str, peer: str) -> tuple[str, str, str]:
    """The key of the history of a link."""
    return "link", node, peer


def link_values(link: Row) -> list[float]:
    """The values of `LINK_COLUMNS`."""
    return [link["received_bytes"], link["sent_bytes"]]


def queue_values(stats: Row) -> list[float]:
    """The values of `QUEUE_COLUMNS`."""
    lengths = [stats.get(column) or 0 for column in QUEUE_LENGTHS]
    return [*lengths, *stats["counts"], *(count for _, count in _disk(stats))]


def _activity(stats: Row) -> tuple[Any, ...]:
    return stats["counts"], stats.get("messages"), stats.get("consumers")
