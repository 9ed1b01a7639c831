"""The nodes of the cluster as the API shows them: what each one uses, its sockets, and its links to the others."""

from __future__ import annotations

from typing import Any

from ...actors.statistics.counts import CHURN_COUNTERS
from ..call import ApiCall, Range
from ..copy.counted import LINK_COLUMNS, NODE_COLUMNS, NODE_MEASURES, Counted, link_track, link_values
from ..copy.history import History
from .measures import measured

Row = dict[str, Any]

TYPES = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
}


def exchange_types(call: ApiCall) -> list[Row]:
    known = {name: TYPES.get(name, f"{name} exchange") for name in call.state.node["exchange_types"]}
    return [{"name": name, "description": text, "enabled": True} for name, text in known.items()]


def listeners(call: ApiCall) -> list[Row]:
    """The sockets of the node and of this process."""
    node, config = call.state.node_name, call.config
    found = _node_listeners(call.state.own)
    ports = call.request.app.state.ports
    for protocol in ("http", "https", "http/prometheus"):
        if protocol in ports:
            found.append({"node": node, "protocol": protocol, "ip_address": config.host, "port": ports[protocol]})
    return [{**each, "socket_opts": {}} for each in found]


def listeners_of_all(call: ApiCall) -> list[Row]:
    """The sockets of all nodes. Of other nodes, those for HTTP are missing: only their own management processes have
    these.
    """
    others = [row for counted in call.state.others.values() for row in _node_listeners(counted)]
    found = [*listeners(call), *[{**each, "socket_opts": {}} for each in others]]
    return sorted(found, key=lambda row: str(row["node"]))


def _node_listeners(counted: Counted) -> list[Row]:
    """The sockets for AMQP, and the one for other nodes, which nodes with a cluster port have."""
    found = [("amqp/ssl" if each["tls"] else "amqp", each) for each in counted.node["listening"]]
    clustering = counted.node.get("clustering")  # nodes of earlier versions do not send it
    if clustering is not None:
        found.append(("clustering", clustering))
    return [
        {"node": counted.node_name, "protocol": protocol, "ip_address": each["host"], "port": each["port"]}
        for protocol, each in found
    ]


def contexts(call: ApiCall) -> list[Row]:
    ports = call.request.app.state.ports
    names = {"http": "RabbitMQ Management", "https": "RabbitMQ Management", "http/prometheus": "RabbitMQ Prometheus"}
    return [
        {
            "node": call.state.node_name,
            "description": text,
            "path": call.config.path_prefix or "/",
            "ip": call.config.host,
            "port": ports[name],
            "protocol": name,
            "ssl": name == "https",
        }
        for name, text in names.items()
        if name in ports
    ]


def nodes(call: ApiCall) -> list[Row]:
    """All members of the cluster. Of one that does not answer there is only what the list of members has (CM-273)."""
    state = call.state
    found = []
    for each in sorted(state.node["members"], key=lambda each: str(each["name"])):
        counted = state.counted_by(each["name"])
        found.append(
            node(call, counted)
            if counted is not None
            else {
                "name": each["name"],
                "type": "disc",
                "running": each["is_running"],
                "being_drained": each["maintenance"],
                "cluster_links": [],
            }
        )
    return found


def node(call: ApiCall, counted: Counted) -> Row:
    """A node that answers (CM-272)."""
    state, wanted = call.state, call.ranges().get("node_stats")
    row, history = counted.node, state.history
    is_own = counted is state.own
    track = history.get(counted.node_name)
    column = {name: at for at, name in enumerate(NODE_COLUMNS)}
    values = [counted.value(name) for name in NODE_MEASURES]
    found = {
        "name": row["name"],
        "type": "disc",
        "running": True,
        "being_drained": "maintenance" in row["holds"],
        "os_pid": str(row["pid"]),
        "partitions": partitions(row),
        "uptime": int((row["time"] - row["started_at"]) * 1000),
        "mem_limit": row["memory"]["limit"],
        "mem_alarm": "memory" in row["alarms"],
        "mem_calculation_strategy": "rss",
        "disk_free_limit": (row["disk"] or {}).get("limit", 0),
        "disk_free_alarm": "disk" in row["alarms"],
        "fd_total": row["fd_total"],
        "sockets_total": row["fd_total"],
        "proc_total": 1_048_576,
        "run_queue": row["run_queue"],
        "processors": 1,
        "rates_mode": row.get("rates_mode", "basic"),
        "net_ticktime": int(row["net_ticktime"]),
        "log_files": row["log_files"],
        "db_dir": row["data_dir"],
        "config_files": [],
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "exchange_types": exchange_types(call),
        "auth_mechanisms": [{"name": name, "description": name, "enabled": True} for name in row["auth_mechanisms"]],
        "applications": [
            {"name": "warren", "description": "warren", "version": row["version"]},
            {"name": "python", "description": "Python", "version": row["python"]},
        ],
        "contexts": contexts(call) if is_own else [],
        "cluster_links": cluster_links(history, counted, wanted),
        # RabbitMQ has no such keys: which resources are short, and which processes have had the longest turns.
        "alarms": row["alarms"],
        "longest_turns": row["longest_turns"],
        "ra_open_file_metrics": {"ra_log_wal": 0, "ra_log_segment_writer": 0},
        "metrics_gc_queue_length": {},
        **measured(history, track, NODE_MEASURES, values, wanted, column[NODE_MEASURES[0]]),
        **measured(history, track, CHURN_COUNTERS, row["churn"], wanted, column[CHURN_COUNTERS[0]]),
    }
    for name in (*_ZERO, *_WITHOUT_HISTORY):
        found[name] = 0
        found[f"{name}_details"] = {"rate": 0.0}
    for name, source in (("msg_store_read_count", "disk_reads"), ("msg_store_write_count", "disk_writes")):
        found |= measured(history, track, (name,), [counted.queue_sum(source)], wanted, column[source])
    commits = counted.value("journal_commits")
    found |= measured(history, track, ("io_sync_count",), [commits], wanted, column["journal_commits"])
    for name, operations in (("io_read_avg_time", "read"), ("io_write_avg_time", "write")):
        count = counted.files(f"{operations}s")
        found[name] = 1000 * counted.files(f"{operations}_seconds") / count if count else 0
    found["io_sync_avg_time"] = 1000 * counted.value("journal_commit_seconds") / commits if commits else 0
    found["mnesia_disk_tx_count"] = changes_of_metadata(counted)
    return found


def changes_of_metadata(counted: Counted) -> int:
    """The changes of metadata that the node has answered since its start."""
    return sum(counted.node["histograms"]["raft_commit_seconds"]["counts"]) if "histograms" in counted.node else 0


def partitions(row: Row) -> list[str]:
    """The running members to which this node has no link, as `warren cluster_status` shows them."""
    linked = {link["node"] for link in row["links"] if link["state"] == "up"} | {row["name"]}
    return [each["name"] for each in row["members"] if each["is_running"] and each["name"] not in linked]


def cluster_links(history: History, counted: Counted, wanted: Range | None) -> list[Row]:
    """The links of a node to the others, with the bytes that went over each.

    RabbitMQ has no `state`, `unsent`, `round_trip` and `last_error`.
    """
    found = []
    for link in counted.node["links"]:
        host, _, port = link["address"].rpartition(":")
        track = history.get(link_track(counted.node_name, link["node"]))
        stats = measured(history, track, LINK_COLUMNS, link_values(link), wanted)
        found.append(
            {
                "name": link["node"],
                "peer_addr": host,
                "peer_port": int(port) if port.isdigit() else 0,
                "recv_bytes": stats["recv_bytes"],
                "send_bytes": stats["send_bytes"],
                "stats": stats,
                "state": link["state"],
                "unsent": link["unsent"],
                "round_trip": link["round_trip"],
                "last_error": link["last_error"],
            }
        )
    return found


#: Measures of a RabbitMQ node that are 0 here. Reads and writes have their offsets with them, so nothing seeks; files
#: stay open; all metadata are on the disk; and Python does not count the bytes that its collector frees.
_ZERO = ("gc_bytes_reclaimed", "io_seek_count", "io_seek_avg_time", "io_reopen_count", "mnesia_ram_tx_count")
#: Measures of a node that have no history.
_WITHOUT_HISTORY = ("io_read_avg_time", "io_write_avg_time", "io_sync_avg_time", "mnesia_disk_tx_count")
