"""The families of the Prometheus metrics: the name of each, what it means, and how its value is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...actors.statistics.counts import CHURN_COUNTERS, MESSAGE_COUNTERS
from ...routing.queue_types import CLASSIC, QUORUM, STREAM
from ..copy.counted import Counted, Death
from .exposition import Labels, counter, gauge
from .storage import STORED

Row = dict[str, Any]

_COUNT = {name: at for at, name in enumerate(MESSAGE_COUNTERS)}
_CHURN = {name: at for at, name in enumerate(CHURN_COUNTERS)}

PROTOCOL: Labels = (("protocol", "amqp091"),)


def counted(*names: str) -> Callable[[Row], float]:
    """The sum of these counters of a queue or channel."""
    columns = [_COUNT[name] for name in names]
    return lambda row: sum([row["counts"][column] for column in columns])


def item(name: str) -> Callable[[Row], float]:
    return lambda row: row.get(name) or 0


def total(*names: str) -> Callable[[Counted], float]:
    """The sum of these counters of messages of the node."""
    columns = [_COUNT[name] for name in names]
    return lambda state: sum([state.node["messages"][column] for column in columns])


def by_queue_type(state: Counted, *names: str) -> Iterator[tuple[Labels, float]]:
    """The sum of these counters of messages of the node, by the type of the queue that had the messages."""
    of_type = {
        queue_type: sum(counts[_COUNT[name]] for name in names)
        for queue_type, counts in state.node["messages_of_type"].items()
    }
    of_type[CLASSIC.name] = total(*names)(state) - sum(of_type.values())
    for queue_type in (CLASSIC, QUORUM, STREAM):
        yield (*PROTOCOL, ("queue_type", queue_type.module)), of_type.get(queue_type.name, 0)


def _churned(name: str) -> Callable[[Counted], float]:
    return lambda state: float(state.node["churn"][_CHURN[name]])


def _alarm(source: str) -> Callable[[Counted], float]:
    return lambda state: float(source in state.node["alarms"])


def dead_letters(state: Counted, reason: str) -> Iterator[tuple[Labels, float]]:
    """The messages that died for this reason, by the type of their queue, and by RabbitMQ's words for whether there
    was an exchange for dead letters. A series that has counted nothing is there too, as in RabbitMQ (CM-358).
    """
    for queue_type in (CLASSIC, QUORUM):
        if reason == "delivery_limit" and queue_type is CLASSIC:
            continue  # classic queues have no delivery limit
        for had_exchange, strategy in ((False, "disabled"), (True, "at_most_once")):
            labels = (("queue_type", queue_type.module), ("dead_letter_strategy", strategy))
            yield labels, state.dead.get(Death(queue_type.name, had_exchange, reason), 0)


#: Metrics of each queue. `/metrics` has their sums over all queues, and the means of those that are shares.
QUEUE_FAMILIES = (
    gauge("queue_messages_ready", "Messages ready to be delivered to consumers", item("messages_ready")),
    gauge("queue_messages_unacked", "Messages delivered and not acknowledged", item("messages_unacknowledged")),
    gauge("queue_messages", "Sum of ready and unacknowledged messages", item("messages")),
    gauge("queue_messages_bytes", "Bytes of the bodies of all messages", item("message_bytes")),
    gauge("queue_messages_ready_bytes", "Bytes of the bodies of ready messages", item("message_bytes_ready")),
    gauge(
        "queue_messages_unacked_bytes",
        "Bytes of the bodies of unacknowledged messages",
        item("message_bytes_unacknowledged"),
    ),
    gauge("queue_messages_ram", "Messages whose bodies are in memory", STORED["messages_ram"]),
    gauge("queue_messages_ready_ram", "Ready messages whose bodies are in memory", STORED["messages_ready_ram"]),
    gauge(
        "queue_messages_unacked_ram",
        "Unacknowledged messages whose bodies are in memory",
        STORED["messages_unacknowledged_ram"],
    ),
    gauge("queue_messages_ram_bytes", "Bytes of the bodies in memory", STORED["message_bytes_ram"]),
    gauge("queue_messages_persistent", "Persistent messages", STORED["messages_persistent"]),
    gauge(
        "queue_messages_persistent_bytes",
        "Bytes of the bodies of persistent messages",
        STORED["message_bytes_persistent"],
    ),
    gauge("queue_messages_paged_out", "Transient messages on the disk alone", STORED["messages_paged_out"]),
    gauge(
        "queue_messages_paged_out_bytes",
        "Bytes of the bodies of transient messages on the disk alone",
        STORED["message_bytes_paged_out"],
    ),
    gauge("queue_process_memory_bytes", "Estimate of the memory that the queue takes", STORED["memory"]),
    gauge("queue_consumers", "Consumers of the queue", item("consumers")),
    gauge("queue_consumer_utilisation", "Share of time that consumers can take messages", item("consumer_capacity")),
    gauge("queue_consumer_capacity", "Share of time that consumers can take messages", item("consumer_capacity")),
    counter("queue_process_reductions_total", "Messages that the queue has handled", lambda row: sum(row["counts"])),
    counter("queue_disk_reads_total", "Messages that the queue has read from the disk", item("disk_reads")),
    counter("queue_disk_writes_total", "Messages that the queue has written to the disk", item("disk_writes")),
    counter("queue_messages_published_total", "Messages published to the queue", counted("publish")),
)

#: Of single queues alone, as in RabbitMQ: its sum over queues would mean nothing.
HEAD_TIMESTAMP = gauge("queue_head_message_timestamp", "Timestamp of the head message", item("head_message_timestamp"))

CHANNEL_FAMILIES = (
    gauge("channel_consumers", "Consumers of the channel", item("consumer_count")),
    gauge("channel_messages_unacked", "Messages delivered and not acknowledged", item("messages_unacknowledged")),
    gauge("channel_messages_unconfirmed", "Messages published and not confirmed", item("messages_unconfirmed")),
    gauge("channel_messages_uncommitted", "Messages of a transaction", item("messages_uncommitted")),
    gauge("channel_acks_uncommitted", "Acknowledgements of a transaction", item("acks_uncommitted")),
    gauge("consumer_prefetch", "Prefetch of new consumers", item("prefetch_count")),
    gauge("channel_prefetch", "Prefetch of the whole channel", item("global_prefetch_count")),
)

#: Counters of each channel. `/metrics` has the node's counters instead of their sums, which would fall when channels
#: close.
CHANNEL_COUNTERS = (
    ("channel_messages_published_total", "Messages published", ("publish",)),
    ("channel_messages_confirmed_total", "Messages confirmed to publishers", ("confirm",)),
    ("channel_messages_unroutable_returned_total", "Messages returned as unroutable", ("return_unroutable",)),
    ("channel_messages_unroutable_dropped_total", "Messages dropped as unroutable", ("drop_unroutable",)),
    ("channel_messages_delivered_total", "Messages delivered with automatic acknowledgement", ("deliver_no_ack",)),
    ("channel_messages_delivered_ack_total", "Messages delivered with manual acknowledgement", ("deliver",)),
    ("channel_messages_redelivered_total", "Messages delivered again", ("redeliver",)),
    ("channel_messages_acked_total", "Messages acknowledged by consumers", ("ack",)),
    (
        "channel_get_total",
        "Messages fetched with automatic acknowledgement",
        ("get_no_ack",),
    ),
    ("channel_get_ack_total", "Messages fetched with manual acknowledgement", ("get",)),
    ("channel_get_empty_total", "Fetches from empty queues", ("get_empty",)),
)

CONNECTION_FAMILIES = (
    gauge("connection_channels", "Channels of the connection", item("channels")),
    gauge("connection_pending_packets", "Bytes that wait to be sent", item("send_pend")),
)

CONNECTION_COUNTERS = (
    ("connection_incoming_bytes_total", "Bytes received", "recv_oct"),
    ("connection_outgoing_bytes_total", "Bytes sent", "send_oct"),
    ("connection_incoming_packets_total", "Packets received: reads of the socket", "recv_cnt"),
    ("connection_outgoing_packets_total", "Packets sent: writes to the socket", "send_cnt"),
)

#: Metrics of the node.
NODE_FAMILIES = (
    gauge("connections", "Connections that are open", lambda state: len(state.connections)),
    gauge("channels", "Channels that are open", lambda state: len(state.channels)),
    gauge("consumers", "Consumers", lambda state: state.consumer_count),
    gauge("queues", "Queues", lambda state: len(state.queue_stats)),
    counter("connections_opened_total", "Connections opened", _churned("connection_created")),
    counter("connections_closed_total", "Connections closed", _churned("connection_closed")),
    counter("channels_opened_total", "Channels opened", _churned("channel_created")),
    counter("channels_closed_total", "Channels closed", _churned("channel_closed")),
    counter("queues_declared_total", "Declarations of queues", _churned("queue_declared")),
    counter("queues_created_total", "Queues created", _churned("queue_created")),
    counter("queues_deleted_total", "Queues deleted", _churned("queue_deleted")),
    gauge("alarms_memory_used_watermark", "1 while the alarm of the memory is on", _alarm("memory")),
    gauge("alarms_free_disk_space_watermark", "1 while the alarm of the disk is on", _alarm("disk")),
    gauge("alarms_file_descriptor_limit", "1 while file descriptors run out", lambda state: 0),
    gauge("process_resident_memory_bytes", "Memory in use", lambda state: state.node["memory"]["used"] or 0),
    gauge(
        "resident_memory_limit_bytes", "Memory above which publishers wait", lambda state: state.node["memory"]["limit"]
    ),
    gauge(
        "disk_space_available_bytes",
        "Free space on the disk",
        lambda state: (state.node["disk"] or {}).get("free") or 0,
    ),
    gauge(
        "disk_space_available_limit_bytes",
        "Free space below which publishers wait",
        lambda state: (state.node["disk"] or {}).get("limit") or 0,
    ),
    gauge("process_open_fds", "Open file descriptors", lambda state: state.node["fd_used"]),
    gauge("process_max_fds", "Limit of file descriptors", lambda state: state.node["fd_total"]),
    gauge("process_open_tcp_sockets", "Open sockets of clients", lambda state: state.node["sockets"]),
    gauge("process_max_tcp_sockets", "Limit of sockets", lambda state: state.node["fd_total"]),
    counter("global_messages_received_total", "Messages received from publishers", total("publish"), PROTOCOL),
    counter("global_messages_routed_total", "Messages routed to queues", lambda state: state.node["routed"], PROTOCOL),
    counter("global_messages_confirmed_total", "Messages confirmed to publishers", total("confirm"), PROTOCOL),
    counter(
        "global_messages_received_confirm_total",
        "Messages received that are confirmed",
        total("confirm"),
        PROTOCOL,
    ),
    counter(
        "global_messages_unroutable_dropped_total",
        "Messages dropped as unroutable",
        total("drop_unroutable"),
        PROTOCOL,
    ),
    counter(
        "global_messages_unroutable_returned_total",
        "Messages returned as unroutable",
        total("return_unroutable"),
        PROTOCOL,
    ),
    gauge(
        "global_publishers",
        "Channels that have published",
        lambda state: sum(row["counts"][0] > 0 for row in state.channels.values()),
        PROTOCOL,
    ),
    gauge("global_consumers", "Consumers", lambda state: state.consumer_count, PROTOCOL),
    gauge("erlang_processes_used", "Processes of the broker", lambda state: state.node["processes"]),
    gauge("erlang_scheduler_run_queue", "Processes that wait for their turns", lambda state: state.node["run_queue"]),
    gauge("erlang_processes_limit", "Limit of processes", lambda state: 1_048_576),
    gauge(
        "erlang_uptime_seconds", "Seconds since the start", lambda state: state.node["time"] - state.node["started_at"]
    ),
    gauge("erlang_net_ticktime_seconds", "Ticks between nodes", lambda state: state.node["net_ticktime"]),
    counter(
        "erlang_scheduler_context_switches_total", "Context switches", lambda state: state.node["context_switches"]
    ),
    counter("erlang_gc_runs_total", "Runs of the garbage collector", lambda state: state.node["collections"]),
    counter("io_read_bytes_total", "Bytes read from disks", lambda state: state.node["read_bytes"]),
    counter("io_write_bytes_total", "Bytes written to disks", lambda state: state.node["written_bytes"]),
    counter("io_read_ops_total", "Reads of files", lambda state: state.files("reads")),
    counter("io_read_time_seconds_total", "Seconds of reads of files", lambda state: state.files("read_seconds")),
    counter("io_write_ops_total", "Writes of files", lambda state: state.files("writes")),
    counter("io_write_time_seconds_total", "Seconds of writes of files", lambda state: state.files("write_seconds")),
    counter("io_seek_ops_total", "Seeks: reads and writes have their offsets with them", lambda state: 0),
    counter("io_seek_time_seconds_total", "Seconds of seeks", lambda state: 0),
    counter("io_reopen_ops_total", "Files opened again: they stay open", lambda state: 0),
    counter("queue_index_read_ops_total", "Reads of segment files", lambda state: state.files("index_reads")),
    counter("queue_index_write_ops_total", "Writes of segment files", lambda state: state.files("index_writes")),
    counter("io_sync_ops_total", "Group commits of the journals", lambda state: state.value("journal_commits")),
    counter(
        "io_sync_time_seconds_total", "Seconds of group commits", lambda state: state.value("journal_commit_seconds")
    ),
    counter("msg_store_read_total", "Messages read from the store", lambda state: state.queue_sum("disk_reads")),
    counter("msg_store_write_total", "Messages written to the store", lambda state: state.queue_sum("disk_writes")),
    counter("auth_attempts_total", "Logins", lambda state: sum(state.node["logins"]), PROTOCOL),
    counter("auth_attempts_succeeded_total", "Logins that succeeded", lambda state: state.node["logins"][0], PROTOCOL),
    counter("auth_attempts_failed_total", "Logins that failed", lambda state: state.node["logins"][1], PROTOCOL),
    counter("schema_db_ram_tx_total", "Changes of metadata in memory alone", lambda state: 0),
    counter(
        "schema_db_disk_tx_total",
        "Changes of the metadata: declarations, policies and others",
        lambda state: sum(state.node["histograms"]["raft_commit_seconds"]["counts"]),
    ),
)

#: Metrics of the node by type of queue: the counters that make up each of them.
TYPE_COUNTERS = (
    (
        "global_messages_delivered_total",
        "Messages delivered to consumers",
        ("deliver", "deliver_no_ack", "get", "get_no_ack"),
    ),
    (
        "global_messages_delivered_consume_manual_ack_total",
        "Messages delivered with manual acknowledgement",
        ("deliver",),
    ),
    (
        "global_messages_delivered_consume_auto_ack_total",
        "Messages delivered with automatic acknowledgement",
        ("deliver_no_ack",),
    ),
    ("global_messages_delivered_get_manual_ack_total", "Messages fetched with manual acknowledgement", ("get",)),
    (
        "global_messages_delivered_get_auto_ack_total",
        "Messages fetched with automatic acknowledgement",
        ("get_no_ack",),
    ),
    ("global_messages_redelivered_total", "Messages delivered again", ("redeliver",)),
    ("global_messages_acknowledged_total", "Messages acknowledged by consumers", ("ack",)),
    ("global_messages_get_empty_total", "Fetches from empty queues", ("get_empty",)),
)

#: Metrics of the node beside RabbitMQ's.
STATE_FAMILIES = (
    gauge("warren_raft_term", "Term of the log of the cluster", lambda state: state.node["raft"]["term"]),
    gauge(
        "warren_raft_leader", "1 if the node leads its cluster", lambda state: float(state.node["raft"]["is_leader"])
    ),
    gauge(
        "warren_members_down",
        "Members of the cluster that do not run, as this node knows them",
        lambda state: sum(not each["is_running"] for each in state.node["members"]),
    ),
    counter("warren_index_queries_total", "Searches of message indexes", lambda state: state.node["index_queries"]),
)

#: Metrics of each paced queue.
PACE_FAMILIES = (
    gauge("warren_pace_waiting", "Messages that wait in paced queues", lambda row: row["pace"]["waiting"]),
)

#: Metrics of each paced queue and outcome: messages that would have had to wait too long, by what happened to them.
PACE_REFUSED = counter("warren_pace_refused_total", "Messages that paced queues have not admitted, by outcome", float)
PACE_HELD = counter("warren_pace_held_total", "Messages that paced queues keep although they wait too long", float)

#: Metrics of each mirrored queue that this node leads.
RING_FAMILIES = (
    gauge("warren_ring_members", "Replicas of mirrored queues that are in sync", lambda row: 1 + len(row["in_sync"])),
    gauge(
        "warren_ring_unsynchronised",
        "Replicas of mirrored queues that are not in sync",
        lambda row: len(row["mirrors"]) - len(row["in_sync"]),
    ),
)


def _of_copies(column: str) -> Callable[[Row], float]:
    """The sum of what the replicas that copy a mirrored queue have reported."""
    return lambda row: sum([copy[column] or 0 for copy in row["synchronisation"]])


#: Metrics of each mirrored queue with replicas that are not in sync.
COPY_FAMILIES = (
    gauge(
        "warren_ring_copying",
        "Replicas that copy mirrored queues now",
        lambda row: sum([copy["stage"] in ("comparing", "copying") for copy in row["synchronisation"]]),
    ),
    gauge("warren_ring_copy_left_messages", "Messages that these replicas lack", _of_copies("left")),
    gauge("warren_ring_copy_bytes_per_second", "Bytes that they copy in a second", _of_copies("bytes_per_second")),
)

#: Metrics of each link to another node, with names of RabbitMQ's and of warren's own (CM-369, CM-375).
LINK_FAMILIES = (
    gauge(
        "erlang_vm_dist_node_state",
        "State of the link: 1 connecting, 3 up",
        lambda row: 3 if row["state"] == "up" else 1,
    ),
    counter(
        "erlang_vm_dist_recv_bytes", "Bytes received from the node over the link that is up", item("received_bytes")
    ),
    counter("erlang_vm_dist_send_bytes", "Bytes sent to the node over the link that is up", item("sent_bytes")),
    counter(
        "erlang_vm_dist_recv_cnt", "Frames received from the node over the link that is up", item("received_frames")
    ),
    counter("erlang_vm_dist_send_cnt", "Frames sent to the node over the link that is up", item("sent_frames")),
    gauge("erlang_vm_dist_node_queue_size_bytes", "Bytes that wait to be sent to the node", item("unsent")),
    gauge("warren_link_rtt_seconds", "Round trip to the node", lambda row: (row["round_trip"] or 0.0) / 1000),
)

LINK_IN_FLIGHT = gauge("warren_link_inflight", "Bytes that wait to be sent to the node, by lane of the link", float)
LINK_REJECTED = counter("warren_link_rejected_total", "Attempts to link that a node has refused, by reason", float)

#: Metrics of the processes that wait for their turns, by kind.
MAILBOX_LENGTH = gauge("warren_mailbox_length", "Messages that wait for processes of this kind", float)
MAILBOX_LENGTH_MAX = gauge("warren_mailbox_length_max", "Most messages that wait for one process of the kind", float)
#: The kinds that have a series even if no process of them waits.
MAILBOX_KINDS = ("connection", "channel", "queue")

INDEX_LAG = gauge("warren_index_lag_messages", "Messages of indexed queues that the message index lacks", float)

#: The histograms of the node. The key is the name in the node's row; `warren_` before it makes the name of the metric.
HISTOGRAMS = {
    "journal_sync_seconds": "Seconds of a group commit of a journal, until its records are on the disk",
    "journal_sync_messages": "Messages of a group commit of a journal",
    "publish_to_confirm_seconds": "Seconds from the receipt of a publish until its confirm is sent",
    "publish_to_deliver_seconds": "Seconds from the receipt of a message until a consumer gets it, of 1 in 1,024",
    "raft_commit_seconds": "Seconds from a change of metadata until it is answered",
    "ring_broadcast_seconds": "Seconds until all replicas of a mirrored queue have what its master sends",
}
