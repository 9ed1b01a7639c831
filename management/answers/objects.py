"""The objects of the API (CM-270 to CM-286), built from the copy of the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...actors.statistics.counts import CHURN_COUNTERS, MESSAGE_COUNTERS
from ...definitions.records import DEFAULT_DESCRIPTION, DEFAULT_VHOST
from ...routing.queue_types import GROUP
from ...version import __version__
from ..call import ApiCall, Range
from ..copy.counted import (
    CONNECTION_COLUMNS,
    EXCHANGE_COLUMNS,
    NODE_COLUMNS,
    QUEUE_COLUMNS,
    QUEUE_LENGTHS,
    Name,
)
from ..copy.node_state import CLUSTER
from .measures import measured, message_stats
from .nodes import contexts, exchange_types, listeners_of_all
from .storage import STORED

Row = dict[str, Any]
Ranges = dict[str, Range]

#: The version of RabbitMQ whose API this is; tools branch on it.
RABBITMQ_VERSION = "3.10.8"

#: What RabbitMQ reports of the memory of an Erlang process. Processes here have no such figures, so all are 0.
GARBAGE = {"max_heap_size": 0, "min_bin_vheap_size": 0, "min_heap_size": 0, "fullsweep_after": 0, "minor_gcs": 0}

#: Counters that channels have and queues have not.
NOT_OF_QUEUES = ("confirm", "return_unroutable", "drop_unroutable")

#: Keys of a connection and of a channel with what it waits for: `blocked_by` are the names of channels or queues, and
#: `blocked_share` is the part of the last seconds for which it had no credit.
BLOCKED = ("blocked_by", "blocked_seconds", "blocked_share")

#: Keys of queues that RabbitMQ does not have: the pace of a paced queue, the longest lanes of one with fair lanes, the
#: members of a group, and how far the copies of a mirrored queue are.
OWN_OF_QUEUES = ("pace", "lanes", "group_members", "synchronisation")

#: Seconds without activity after which a queue or a channel is idle.
IDLE_AFTER = 10.0


def queue(call: ApiCall, name: Name, ranges: Ranges) -> Row:
    """A queue as lists show it (CM-274)."""
    state = call.state
    row = state.queues[name]
    stats = state.queue_stats.get(name, {})
    if row["type"] == GROUP.name:
        stats = _with_members(call, row, stats)
    found = declared_queue(call, name)
    effective = state.policy_of(row["vhost"], row["shard_of"] or row["name"], row["type"])
    found |= {
        "policy": effective.policy,
        "operator_policy": effective.operator_policy,
        "effective_policy_definition": dict(effective.definition),
        "state": (stats.get("state") or row["state"]) if row["state"] == "running" else row["state"],
    }
    found |= row["replicas"]
    if row["mirrors"] and not row["replicas"]:
        found |= {
            "slave_nodes": row["mirrors"],
            "synchronised_slave_nodes": row["in_sync"],
            "recoverable_slaves": row["mirrors"],
        }
    if row["state"] != "running" or (row["node"] != state.node_name and not stats):
        return found
    track = state.history.get(("queue", name))
    lengths: list[int] = [stats.get(column) or 0 for column in QUEUE_LENGTHS]
    found |= measured(state.history, track, QUEUE_LENGTHS, lengths, ranges.get("lengths"))
    ready_bytes, unacked_bytes = stats.get("message_bytes_ready") or 0, stats.get("message_bytes_unacknowledged") or 0
    capacity = stats.get("consumer_capacity") or 0
    layers = stats.get("layers") or {}
    found |= {name: value(stats) for name, value in STORED.items()}
    found |= {
        "message_bytes": ready_bytes + unacked_bytes,
        "message_bytes_ready": ready_bytes,
        "message_bytes_unacknowledged": unacked_bytes,
        "consumers": stats.get("consumers") or 0,
        "consumer_utilisation": capacity,
        "consumer_capacity": capacity,
        "exclusive_consumer_tag": stats.get("exclusive_consumer_tag") or None,
        "single_active_consumer_tag": stats.get("single_active_consumer_tag") or None,
        "head_message_timestamp": stats.get("head_message_timestamp") or None,
        "reductions": sum(stats.get("counts", ())),
        "reductions_details": {"rate": 0.0},
        "garbage_collection": GARBAGE,
        "backing_queue_status": {
            "mode": stats.get("queue_mode") or "default",
            **_sub_queues(layers),
            "len": lengths[1],
            "next_seq_id": stats.get("next_number") or 0,
        },
        **{name: stats[name] for name in OWN_OF_QUEUES if stats.get(name) is not None},
    }
    active = float(state.active_at.get(name) or state.node["started_at"])
    if state.node["time"] - active > IDLE_AFTER:
        found["idle_since"] = datetime.fromtimestamp(active, UTC).isoformat(timespec="milliseconds")
    counts = stats.get("counts", ())
    shown = message_stats(state.history, track, counts, ranges.get("msg_rates"), len(QUEUE_LENGTHS))
    if shown:
        reads = [stats.get("disk_reads") or 0, stats.get("disk_writes") or 0]
        first = len(QUEUE_COLUMNS) - 2
        for counter in NOT_OF_QUEUES:
            del shown[counter], shown[f"{counter}_details"]
        shown |= measured(state.history, track, ("disk_reads", "disk_writes"), reads, ranges.get("msg_rates"), first)
        found["message_stats"] = shown
    return found


def _with_members(call: ApiCall, row: Row, stats: Row) -> Row:
    """The statistics of a group with the messages of its members, because a group stores none (QP-76)."""
    names = [(row["vhost"], member) for member in stats.get("group_members") or ()]
    members = [call.state.queue_stats.get(name, {}) for name in names]
    columns = (*QUEUE_LENGTHS, "message_bytes_ready", "message_bytes_unacknowledged")
    return {**stats, **{column: sum(each.get(column) or 0 for each in members) for column in columns}}


def _sub_queues(layers: Row) -> Row:
    """The lengths of a queue's sub-queues in RabbitMQ's form, without the number at which delta starts."""
    if not layers:
        return {}
    delta = ["delta", "undefined", layers["delta"]]
    return {"q1": layers["q1"], "q2": layers["q2"], "delta": delta, "q3": layers["q3"], "q4": layers["q4"]}


def declared_queue(call: ApiCall, name: Name) -> Row:
    """What a queue was declared with."""
    row = call.state.queues[name]
    found: Row = {
        "name": row["name"],
        "vhost": row["vhost"],
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "exclusive": row["owner"] is not None,
        "arguments": row["arguments"],
        "type": row["type"],
        "node": row["node"],
    }
    if row["owner"] is not None:
        owner = call.state.connections.get(row["owner"])
        if owner is not None:
            found["owner_pid_details"] = {
                "name": owner["name"],
                "peer_host": owner["peer_host"],
                "peer_port": owner["peer_port"],
            }
    return found


def exchange(call: ApiCall, name: Name, ranges: Ranges) -> Row:
    """An exchange (CM-279)."""
    state = call.state
    row = state.exchanges[name]
    found = {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": row["type"],
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "internal": row["internal"],
        "arguments": row["arguments"],
        "policy": state.policy_of(*name).policy,
        "user_who_performed_action": "rmq-internal" if not name[1] or name[1].startswith("amq.") else row["creator"],
    }
    counts = state.exchange_count(name)
    if counts is not None:
        track = state.history.get(("exchange", name))
        found["message_stats"] = measured(state.history, track, EXCHANGE_COLUMNS, counts, ranges.get("msg_rates"))
    return found


def connection(call: ApiCall, key: str, ranges: Ranges) -> Row:
    """A connection (CM-277). Fields without a value are null."""
    state = call.state
    row = state.connections[key]
    track = state.history.get(("connection", key))
    numbers = [row[column] for column in CONNECTION_COLUMNS]
    tls = ("ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash")
    certificate = ("peer_cert_subject", "peer_cert_issuer", "peer_cert_validity")
    return {
        "name": row["name"],
        "node": row["node"],
        "vhost": row["vhost"],
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "user_provided_name": row["user_provided_name"] or None,
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "state": row["state"],
        "auth_mechanism": row["auth_mechanism"],
        "host": row["host"],
        "port": row["port"],
        "peer_host": row["peer_host"],
        "peer_port": row["peer_port"],
        "ssl": bool(row["ssl"]),
        **{name: row.get(name) or None for name in (*tls, *certificate)},
        # RabbitMQ has no such keys: which channels and alarms stop the connection from being read, and for how long.
        **{name: row[name] for name in BLOCKED},
        "alarms": row["alarms"],
        "channels": row["channels"],
        "channel_max": row["channel_max"],
        "frame_max": row["frame_max"],
        "timeout": row["timeout"],
        "client_properties": row["client_properties"],
        "connected_at": row["connected_at"],
        "send_pend": row["send_pend"],
        "reductions": row["recv_cnt"] + row["send_cnt"],
        "reductions_details": {"rate": 0.0},
        "garbage_collection": GARBAGE,
        **measured(state.history, track, CONNECTION_COLUMNS, numbers, ranges.get("data_rates")),
    }


def channel(call: ApiCall, key: str, ranges: Ranges) -> Row:
    """A channel (CM-278)."""
    state = call.state
    row = state.channels[key]
    track = state.history.get(("channel", key))
    found = {
        "name": row["name"],
        "number": row["number"],
        "node": row["node"],
        "vhost": row["vhost"],
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "connection_details": connection_details(call, row),
        "state": row["state"],
        "confirm": row["confirm"],
        "transactional": row["transactional"],
        "consumer_count": row["consumer_count"],
        "messages_unacknowledged": row["messages_unacknowledged"],
        "messages_unconfirmed": row["messages_unconfirmed"],
        "messages_uncommitted": row["messages_uncommitted"],
        "acks_uncommitted": row["acks_uncommitted"],
        "prefetch_count": row["prefetch_count"],
        "global_prefetch_count": row["global_prefetch_count"],
        "pending_raft_commands": 0,
        # RabbitMQ has no such keys: which queues the channel waits for, and for how long it has.
        **{name: row[name] for name in BLOCKED},
        "reductions": sum(row["counts"]),
        "reductions_details": {"rate": 0.0},
        "garbage_collection": GARBAGE,
    }
    active = float(state.active_at.get(key) or state.node["started_at"])
    if state.node["time"] - active > IDLE_AFTER:
        found["idle_since"] = datetime.fromtimestamp(active, UTC).isoformat(timespec="milliseconds")
    shown = message_stats(state.history, track, row["counts"], ranges.get("msg_rates"))
    if shown:
        found["message_stats"] = shown
    return found


def connection_details(call: ApiCall, channel_row: Row) -> Row:
    """What a channel and its consumers show of their connection."""
    owner = call.state.connections.get(channel_row["connection"], {})
    return {
        "name": owner.get("name") or channel_row["name"].rpartition(" (")[0],
        "peer_host": owner.get("peer_host"),
        "peer_port": owner.get("peer_port"),
    }


def vhost(call: ApiCall, name: str) -> Row:
    """A virtual host (CM-281), with the sums over its queues unless the request asks for other columns alone."""
    state = call.state
    row = state.vhosts[name]
    record = next((each for each in state.definitions["vhosts"] if each["name"] == name), None)
    tags = list(record["tags"]) if record else []
    description = record["description"] if record else ""
    if name == DEFAULT_VHOST and not description:
        description = DEFAULT_DESCRIPTION
    metadata: Row = {"description": description, "tags": tags}
    found: Row = {
        "name": name,
        "description": description,
        "tags": tags,
        "default_queue_type": (record["default_queue_type"] if record else "") or "undefined",
        "metadata": metadata,
        "tracing": row["tracing"],
        "cluster_state": {state.node_name: "stopped" if row["is_down"] else "running"},
    }
    wanted = call.query("columns")
    # The sums take 5 µs for each queue of the node, and the page asks for the states of all virtual hosts all the time.
    if wanted is None or any(column.partition(".")[0] not in found for column in wanted.split(",")):
        found |= vhost_sums(call, name)
    return found


def vhost_sums(call: ApiCall, name: str) -> Row:
    """The sums over the queues of a virtual host of their lengths and counters, and the bytes of its connections."""
    state = call.state
    sums = [0.0] * len(QUEUE_COLUMNS)
    rates = [0.0] * len(QUEUE_COLUMNS)
    for key, stats in state.queue_stats.items():
        if key[0] == name:
            values = [*(stats.get(column) or 0 for column in QUEUE_LENGTHS), *stats["counts"]]
            track = state.history.get(("queue", key))
            for at, value in enumerate(values):
                sums[at] += value
                if track is not None:
                    rates[at] += track.rate(at, state.history.tick)
    found: Row = {}
    for at, column in enumerate(QUEUE_LENGTHS):
        found[column] = int(sums[at])
        found[f"{column}_details"] = {"rate": round(rates[at], 6)}
    first = len(QUEUE_LENGTHS)
    counts = dict(zip(MESSAGE_COUNTERS, zip(sums[first:], rates[first:])))
    counts["deliver_get"] = (
        sum(counts[each][0] for each in ("deliver", "deliver_no_ack", "get", "get_no_ack")),
        sum(counts[each][1] for each in ("deliver", "deliver_no_ack", "get", "get_no_ack")),
    )
    if any(value for value, _ in counts.values()):
        stats_shown: Row = {}
        for column, (value, rate) in counts.items():
            stats_shown[column] = int(value)
            stats_shown[f"{column}_details"] = {"rate": round(rate, 6)}
        found["message_stats"] = stats_shown
    for at, column in enumerate(("recv_oct", "send_oct")):
        found[column], rate = 0, 0.0
        for connection_id, row in state.connections.items():
            if row["vhost"] == name:
                found[column] += row[column]
                track = state.history.get(("connection", connection_id))
                rate += 0.0 if track is None else track.rate(at, state.history.tick)
        found[f"{column}_details"] = {"rate": round(rate, 6)}
    return found


def overview(call: ApiCall) -> Row:
    """The cluster as a whole (CM-270)."""
    state, ranges = call.state, call.ranges()
    node, history = state.node, state.history
    track = history.get(CLUSTER)
    visible = set(call.visible_vhosts())
    is_all = len(visible) == len(state.vhosts)
    column = {name: at for at, name in enumerate(NODE_COLUMNS)}
    first = column[MESSAGE_COUNTERS[0]]
    if is_all:
        lengths = state.values(QUEUE_LENGTHS)
        totals = measured(history, track, QUEUE_LENGTHS, lengths, ranges.get("lengths"))
        stats = message_stats(history, track, state.values(MESSAGE_COUNTERS), ranges.get("msg_rates"), first)
        if stats:
            names = ("disk_reads", "disk_writes")
            disk = [state.queue_sum(name) for name in names]
            stats |= measured(history, track, names, disk, ranges.get("msg_rates"), column["disk_reads"])
    else:
        totals, stats = _sums_of(call, visible)
    counts = state.values(CHURN_COUNTERS)
    churn = measured(history, track, CHURN_COUNTERS, counts, ranges.get("msg_rates"), column[CHURN_COUNTERS[0]])
    return {
        "management_version": RABBITMQ_VERSION,
        "rates_mode": node.get("rates_mode", "basic"),
        "sample_retention_policies": {"global": [600, 3600, 28800, 86400], "basic": [600, 3600], "detailed": [600]},
        "exchange_types": exchange_types(call),
        "product_version": __version__,
        "product_name": "warren",
        "warren_version": __version__,
        "rabbitmq_version": RABBITMQ_VERSION,
        "cluster_name": node["cluster_name"],
        "erlang_version": f"Python {node['python']}",
        "erlang_full_version": f"Python {node['python']}",
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": stats,
        "churn_rates": churn,
        "queue_totals": totals,
        "object_totals": {
            "channels": _count(call, state.channels, visible, is_all),
            "connections": _count(call, state.connections, visible, is_all),
            "consumers": state.consumer_count
            if is_all
            else sum(row.get("consumers") or 0 for key, row in state.queue_stats.items() if key[0] in visible),
            "exchanges": sum(key[0] in visible for key in state.exchanges),
            "queues": len(state.queues) if is_all else sum(key[0] in visible for key in state.queues),
        },
        "statistics_db_event_queue": 0,
        "node": state.node_name,
        "listeners": listeners_of_all(call) if call.user.has("monitoring") else [],
        "contexts": contexts(call) if call.user.has("monitoring") else [],
    }


def _count(call: ApiCall, rows: Mapping[str, Row], visible: set[str], is_all: bool) -> int:
    if call.user.has("monitoring"):
        return len(rows) if is_all else sum(row["vhost"] in visible for row in rows.values())
    return sum(row["user"] == call.user.name and row["vhost"] in visible for row in rows.values())


def _sums_of(call: ApiCall, visible: set[str]) -> tuple[Row, Row]:
    """Lengths and counters of the queues in these virtual hosts, for a user who sees no others."""
    totals: Row = {}
    stats: Row = {}
    for name in visible:
        sums = vhost_sums(call, name)
        for target, found in (
            (totals, {key: value for key, value in sums.items() if key.startswith("messages")}),
            (stats, sums.get("message_stats", {})),
        ):
            for key, value in found.items():
                if isinstance(value, dict):
                    rate = target.get(key, {}).get("rate", 0.0) + value["rate"]
                    target[key] = {"rate": rate}
                else:
                    target[key] = target.get(key, 0) + value
    for key in QUEUE_LENGTHS:
        totals.setdefault(key, 0)
        totals.setdefault(f"{key}_details", {"rate": 0.0})
    return totals, stats


def user(row: Row) -> Row:
    """A user (CM-282)."""
    return {
        "name": row["name"],
        "password_hash": row["password_hash"],
        "hashing_algorithm": row["hashing_algorithm"],
        "tags": list(row["tags"]),
        "limits": dict(row["limits"]),
    }


def policy(row: Row) -> Row:
    """A policy (CM-284)."""
    return {
        "vhost": row["vhost"],
        "name": row["name"],
        "pattern": row["pattern"],
        "apply-to": row["apply_to"],
        "definition": json.loads(row["definition"]),
        "priority": row["priority"],
    }
