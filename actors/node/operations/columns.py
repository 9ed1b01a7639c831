"""The columns of listings, with RabbitMQ's names (CM-141 to CM-159): what a command may ask for, and what it shows by
default.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from .registry import OperationError


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one listing."""

    default: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        return (*self.default, *self.others)

    def chosen(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The columns that a command asked for, in that order; the default ones if it named none.

        Raises OperationError, with the known columns as details, if one is unknown.
        """
        unknown = [name for name in wanted if name not in self.known]
        if unknown:
            near = difflib.get_close_matches(unknown[0], self.known, 1)
            raise OperationError(
                "usage",
                f"Info key(s) {','.join(unknown)} are not supported",
                (*[f"Did you mean '{name}'?" for name in near], f"Supported are: {', '.join(self.known)}"),
            )
        return tuple(dict.fromkeys(wanted)) or self.default


#: How often and for how long peers without credit have blocked a process, for which share of the last seconds, and
#: which peers.
FLOW = ("blocks", "blocked_seconds", "blocked_share", "blocked_by")

QUEUES = Columns(
    ("name", "messages"),
    (
        *("vhost", "durable", "auto_delete", "arguments", "type", "policy", "pid", "owner_pid", "exclusive"),
        *("exclusive_consumer_pid", "exclusive_consumer_tag", "messages_ready", "messages_unacknowledged"),
        *("messages_ready_ram", "messages_unacknowledged_ram", "messages_ram", "messages_persistent"),
        *("message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram"),
        *("message_bytes_persistent", "head_message_timestamp", "disk_reads", "disk_writes", "consumers"),
        *("consumer_utilisation", "consumer_capacity", "memory", "slave_pids", "synchronised_slave_pids", "state"),
        *("leader", "members", "online"),
        # warren's own (CM-153)
        *("operator_policy", "effective_policy_definition", "queue_mode", "single_active_consumer_tag", "pace"),
        *("lanes", "group_members", "shards", "shard_of", "queue_id", "first_number", "next_number", "life", "gaps"),
        *("deduplicated", "synchronisation"),
        *("readers", "unsent", *FLOW),
        "blocked_seconds_by",
    ),
)
#: What a queue's row answers without its process.
QUEUE_ROW_COLUMNS = frozenset(
    ("name", "vhost", "durable", "auto_delete", "arguments", "type", "policy", "pid", "owner_pid", "exclusive")
    + ("slave_pids", "synchronised_slave_pids", "leader", "members", "online")
    + ("operator_policy", "effective_policy_definition", "shards", "shard_of", "queue_id")
)
#: The columns that are made of the `layers` of a queue, and only when a listing asks for them.
QUEUE_STORAGE_COLUMNS = frozenset(
    ("messages_ready_ram", "messages_unacknowledged_ram", "messages_ram", "messages_persistent")
    + ("message_bytes_ram", "message_bytes_persistent", "memory")
)
UNRESPONSIVE_QUEUES = Columns(("name",), ("durable", "auto_delete", "arguments", "pid", "recoverable_slaves"))
EXCHANGES = Columns(("name", "type"), ("durable", "auto_delete", "internal", "arguments", "policy", "vhost"))
BINDINGS = Columns(
    ("source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"), ("vhost",)
)
CONNECTIONS = Columns(
    ("user", "peer_host", "peer_port", "state"),
    (
        *("pid", "name", "port", "host", "ssl", "ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash"),
        *("peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "channels", "protocol", "auth_mechanism"),
        *("vhost", "timeout", "frame_max", "channel_max", "client_properties", "recv_oct", "recv_cnt", "send_oct"),
        *("send_cnt", "send_pend", "connected_at"),
        # warren's own
        *("user_provided_name", "bottleneck", "pauses", "alarms", *FLOW),
    ),
)
#: warren's own, as RabbitMQ has no such command.
LINKS = Columns(
    ("node", "lane", "state", "since", "sent_bytes", "received_bytes", "unsent", "last_error"),
    (
        *("round_trip", "address", "incarnation", "open", "sessions", "version", "sent_frames", "received_frames"),
        *("sent_messages", "received_messages", "held"),
    ),
)
SCHEMA = Columns(("name", "size", "storage_type", "active_replicas"))
FEATURE_FLAGS = Columns(("name", "state"), ("stability", "provided_by", "desc", "doc_url"))
VHOSTS = Columns(("name",), ("description", "tags", "default_queue_type", "tracing", "cluster_state"))
CHANNELS = Columns(
    ("pid", "user", "consumer_count", "messages_unacknowledged"),
    (
        *("connection", "name", "number", "vhost", "transactional", "confirm", "messages_uncommitted"),
        *("acks_uncommitted", "messages_unconfirmed", "prefetch_count", "global_prefetch_count"),
        # warren's own
        *("state", *FLOW),
    ),
)
CONSUMERS = Columns(
    ("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments"),
    ("activity_status", "exclusive", "priority", "user", "vhost", "blocked_by"),
)
