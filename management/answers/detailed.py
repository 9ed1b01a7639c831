"""`/metrics/detailed`: the families that a request chooses by RabbitMQ's names of groups (CM-330).

Each object has series of its own. The names of metrics of a node and of its queues, channels and connections begin with
`rabbitmq_detailed_`; those of metrics that are the same at all nodes begin with `rabbitmq_cluster_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..copy.node_state import NodeState
from .exposition import Family, Labels, counter, gauge, lines
from .families import (
    CHANNEL_COUNTERS,
    CHANNEL_FAMILIES,
    CONNECTION_COUNTERS,
    CONNECTION_FAMILIES,
    HEAD_TIMESTAMP,
    NODE_FAMILIES,
    QUEUE_FAMILIES,
    counted,
    item,
)
from .series import Row, channel_labels, connection_labels, labelled, of_objects, queue_labels

_CHANNEL = {
    family.name: family
    for family in (*CHANNEL_FAMILIES, *[counter(name, text, counted(*each)) for name, text, each in CHANNEL_COUNTERS])
}
_CONNECTION = {
    family.name: family
    for family in (
        *CONNECTION_FAMILIES,
        *[counter(name, text, item(column)) for name, text, column in CONNECTION_COUNTERS],
    )
}
_QUEUE = {family.name: family for family in (*QUEUE_FAMILIES, HEAD_TIMESTAMP)}
_NODE = {family.name: family for family in NODE_FAMILIES}

#: The metrics of some groups of queues; the group `queue_metrics` has all others.
_COARSE = ("queue_messages_ready", "queue_messages_unacked", "queue_messages", "queue_process_reductions_total")
_PUBLISHED = ("queue_messages_published_total",)
#: Those of connections: bytes, without packets.
_BYTES = ("connection_incoming_bytes_total", "connection_outgoing_bytes_total")
#: Counters of channels that count messages of exchanges; the others count messages of queues.
_OF_EXCHANGES = (
    *("channel_messages_published_total", "channel_messages_confirmed_total"),
    *("channel_messages_unroutable_returned_total", "channel_messages_unroutable_dropped_total"),
)

#: How the names of metrics of the group `node_persister_metrics` begin.
PERSISTER = ("io_", "msg_store_", "queue_index_", "schema_db_")

#: By RabbitMQ's names of the groups: the metrics of each, by the kind of object.
QUEUE_GROUPS = {
    "queue_coarse_metrics": _COARSE,
    "queue_metrics": tuple(name for name in _QUEUE if name not in (*_COARSE, *_PUBLISHED)),
    "queue_consumer_count": ("queue_consumers",),
    "channel_queue_exchange_metrics": _PUBLISHED,
}
CHANNEL_GROUPS = {
    "channel_metrics": tuple(family.name for family in CHANNEL_FAMILIES),
    "channel_exchange_metrics": _OF_EXCHANGES,
    "channel_queue_metrics": tuple(name for name, _, _ in CHANNEL_COUNTERS if name not in _OF_EXCHANGES),
}
CONNECTION_GROUPS = {
    "connection_coarse_metrics": _BYTES,
    "connection_metrics": tuple(name for name in _CONNECTION if name not in _BYTES),
}
NODE_GROUPS = {
    "connection_churn_metrics": tuple(
        f"{thing}_total"
        for thing in (
            *("connections_opened", "connections_closed", "channels_opened", "channels_closed"),
            *("queues_declared", "queues_created", "queues_deleted"),
        )
    ),
    "node_coarse_metrics": (
        *("process_open_fds", "process_open_tcp_sockets", "process_resident_memory_bytes"),
        *("disk_space_available_bytes", "erlang_processes_used", "erlang_gc_runs_total"),
        "erlang_scheduler_context_switches_total",
    ),
    "node_metrics": (
        *("process_max_fds", "process_max_tcp_sockets", "resident_memory_limit_bytes"),
        *("disk_space_available_limit_bytes", "erlang_processes_limit", "erlang_scheduler_run_queue"),
        *("erlang_net_ticktime_seconds", "erlang_uptime_seconds"),
    ),
    "node_persister_metrics": tuple(name for name in _NODE if name.startswith(PERSISTER)),
    "auth_attempt_metrics": ("auth_attempts_total", "auth_attempts_succeeded_total", "auth_attempts_failed_total"),
}


def detailed(state: NodeState, groups: set[str], vhosts: set[str]) -> Iterator[str]:
    """The lines of the metrics in these groups; with `vhosts`, only those of the objects in these."""
    own = state.own
    for name in _chosen(NODE_GROUPS, groups):
        family = _NODE[name]
        yield from lines(f"rabbitmq_detailed_{name}", family, [(family.labels, family.value(own))])
    for known, of_kind, rows, labels in (
        (_QUEUE, QUEUE_GROUPS, own.queue_stats.values(), queue_labels),
        (_CHANNEL, CHANNEL_GROUPS, own.channels.values(), channel_labels),
        (_CONNECTION, CONNECTION_GROUPS, own.connections.values(), connection_labels),
    ):
        names = _chosen(of_kind, groups)
        objects = labelled([row for row in rows if not vhosts or row["vhost"] in vhosts], labels) if names else []
        for name in names:
            found = objects
            if name == HEAD_TIMESTAMP.name:
                found = [(text, row) for text, row in objects if row.get("head_message_timestamp")]
            yield from of_objects(f"rabbitmq_detailed_{name}", known[name], found)
    if "exchange_metrics" in groups:
        yield from _exchange_counts(own.exchange_counts, vhosts)
    if "vhost_status" in groups:
        family = gauge("vhost_status", "1 if the virtual host runs on the node that answers", float)
        samples = [
            ((("vhost", name),), 0.0 if row["is_down"] else 1.0)
            for name, row in state.vhosts.items()
            if not vhosts or name in vhosts
        ]
        yield from lines("rabbitmq_cluster_vhost_status", family, samples)
    # RabbitMQ leaves out the default exchange and internal ones here.
    exchanges = [
        row
        for row in state.exchanges.values()
        if row["name"] and not row["internal"] and (not vhosts or row["vhost"] in vhosts)
    ]
    if "exchange_names" in groups:
        yield from _of_exchanges(gauge("exchange_name", "The exchanges", lambda row: 1), exchanges)
    if "exchange_bindings" in groups:
        family = gauge("exchange_bindings", "Bindings from the exchange", item("bindings"))
        yield from _of_exchanges(family, exchanges)


def _chosen(of_kind: dict[str, tuple[str, ...]], groups: set[str]) -> list[str]:
    """The names of the metrics in these groups, each once, because groups overlap."""
    return list(dict.fromkeys(name for group, names in of_kind.items() if group in groups for name in names))


def _exchange_counts(counts: dict[tuple[str, str], tuple[int, int]], vhosts: set[str]) -> Iterator[str]:
    for at, column in enumerate(("published", "routed")):
        family = counter(f"exchange_messages_{column}_total", f"Messages {column}", float)
        samples: list[tuple[Labels, float]] = [
            ((("vhost", vhost), ("exchange", exchange)), found[at])
            for (vhost, exchange), found in counts.items()
            if not vhosts or vhost in vhosts
        ]
        yield from lines(f"rabbitmq_detailed_{family.name}", family, samples)


def _of_exchanges(family: Family, rows: Iterable[Row]) -> Iterator[str]:
    samples: list[tuple[Labels, float]] = [
        ((("vhost", row["vhost"]), ("exchange", row["name"]), ("type", row["type"])), family.value(row)) for row in rows
    ]
    yield from lines(f"rabbitmq_cluster_{family.name}", family, samples)
