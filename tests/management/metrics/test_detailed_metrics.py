"""`/metrics/detailed`: the groups of metrics that a request chooses."""

import pika

from warren.routing.vhost_rows import DEFAULT_EXCHANGES

from ..conftest import until
from .test_prometheus import ABSENT

#: The metrics of RabbitMQ's groups without their prefix (`metrics-detailed.md` of its version 3.10), of those that it
#: has for a broker with a queue, and a channel on a connection.
GROUPS = {
    "connection_churn_metrics": (
        *("connections_opened_total", "connections_closed_total", "channels_opened_total", "channels_closed_total"),
        *("queues_declared_total", "queues_created_total", "queues_deleted_total"),
    ),
    "node_coarse_metrics": (
        *("process_open_fds", "process_open_tcp_sockets", "process_resident_memory_bytes"),
        *("disk_space_available_bytes", "erlang_processes_used", "erlang_gc_runs_total"),
        *("erlang_gc_reclaimed_bytes_total", "erlang_scheduler_context_switches_total"),
    ),
    "node_metrics": (
        *("process_max_fds", "process_max_tcp_sockets", "resident_memory_limit_bytes"),
        *("disk_space_available_limit_bytes", "erlang_processes_limit", "erlang_scheduler_run_queue"),
        *("erlang_net_ticktime_seconds", "erlang_uptime_seconds"),
    ),
    "auth_attempt_metrics": ("auth_attempts_total", "auth_attempts_succeeded_total", "auth_attempts_failed_total"),
    "queue_coarse_metrics": (
        *("queue_messages_ready", "queue_messages_unacked", "queue_messages", "queue_process_reductions_total"),
    ),
    "queue_metrics": (
        *("queue_consumers", "queue_consumer_capacity", "queue_consumer_utilisation", "queue_process_memory_bytes"),
        *("queue_messages_ram", "queue_messages_ram_bytes", "queue_messages_ready_ram", "queue_messages_unacked_ram"),
        *("queue_messages_persistent", "queue_messages_persistent_bytes", "queue_messages_bytes"),
        *("queue_messages_ready_bytes", "queue_messages_unacked_bytes", "queue_messages_paged_out"),
        *("queue_messages_paged_out_bytes", "queue_disk_reads_total", "queue_disk_writes_total"),
    ),
    "channel_metrics": (
        *("channel_consumers", "channel_messages_unacked", "channel_messages_unconfirmed"),
        *("channel_messages_uncommitted", "channel_acks_uncommitted", "consumer_prefetch", "channel_prefetch"),
    ),
    "channel_exchange_metrics": (
        *("channel_messages_published_total", "channel_messages_confirmed_total"),
        *("channel_messages_unroutable_returned_total", "channel_messages_unroutable_dropped_total"),
    ),
    "channel_queue_metrics": (
        *("channel_get_ack_total", "channel_get_total", "channel_messages_delivered_ack_total"),
        *("channel_messages_delivered_total", "channel_messages_redelivered_total", "channel_messages_acked_total"),
        "channel_get_empty_total",
    ),
    "connection_coarse_metrics": ("connection_incoming_bytes_total", "connection_outgoing_bytes_total"),
    "connection_metrics": (
        *("connection_incoming_packets_total", "connection_outgoing_packets_total", "connection_pending_packets"),
        "connection_channels",
    ),
}


def test_families_are_chosen(scrape, broker):
    """`/metrics/detailed` has only the families that the request chooses, and of one virtual host if it names one
    (CM-330).
    """
    broker.declare_queue("chosen")
    name = "rabbitmq_detailed_queue_messages_ready"
    key = name, (("vhost", "/"), ("queue", "chosen"))
    until(lambda: key in scrape("/metrics/detailed?family=queue_coarse_metrics&vhost=/"))
    assert key not in scrape("/metrics/detailed?family=queue_coarse_metrics&vhost=other")
    always = {"rabbitmq_identity_info", "rabbitmq_build_info", "warren_build_info"}
    assert {each for each, _ in scrape("/metrics/detailed")} == always
    assert {each for each, _ in scrape("/metrics/detailed?family=queue_consumer_count")} == {
        "rabbitmq_detailed_queue_consumers",
        *always,
    }
    broker.delete_queue("chosen")


def test_groups_of_metrics_are_those_of_rabbitmq(scrape, broker):
    """Each group of `/metrics/detailed` has RabbitMQ's metrics, but for those that warren lacks (CM-330)."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("grouped", exclusive=True)
        until(lambda: ("rabbitmq_channels", ()) in (found := scrape()) and found["rabbitmq_channels", ()] >= 1)
        for group, names in GROUPS.items():
            wanted = {f"rabbitmq_detailed_{name}" for name in names if f"rabbitmq_{name}" not in ABSENT}
            found = until(
                lambda group=group: {name for name, _ in scrape(f"/metrics/detailed?family={group}")},
                lambda found, wanted=wanted: wanted <= found,
            )
            assert {name for name in found if name.startswith("rabbitmq_detailed_")} == wanted, group


def test_groups_of_the_cluster(scrape, broker):
    """The groups that are the same at all nodes have names of their own: the state of virtual hosts, and exchanges
    (CM-330).
    """
    found = scrape("/metrics/detailed?family=vhost_status&family=exchange_names&vhost=/")
    assert found["rabbitmq_cluster_vhost_status", (("vhost", "/"),)] == 1
    labels = ("vhost", "/"), ("exchange", "amq.topic"), ("type", "topic")
    assert found["rabbitmq_cluster_exchange_name", labels] == 1


def test_bindings_of_exchanges(scrape, api):
    """The number of bindings from each exchange; the default one and internal ones are left out, as in RabbitMQ."""

    def bindings():
        found = scrape("/metrics/detailed?family=exchange_bindings&vhost=bound")
        series = [(dict(labels), count) for (name, labels), count in found.items() if name.endswith("_bindings")]
        return {labels["exchange"]: count for labels, count in series}

    api("PUT", "/api/vhosts/bound")
    api("PUT", "/api/exchanges/bound/in", {"type": "topic"})
    api("PUT", "/api/exchanges/bound/hidden", {"internal": True})
    api("PUT", "/api/queues/bound/q")
    for key in ("a", "b"):
        api("POST", "/api/bindings/bound/e/in/q/q", {"routing_key": key})
    api("POST", "/api/bindings/bound/e/in/e/hidden", {"routing_key": "c"})
    until(bindings, lambda found: found.get("in") == 3)
    standard = [name for name, _, is_internal in DEFAULT_EXCHANGES if name and not is_internal]
    assert bindings() == {**dict.fromkeys(standard, 0), "in": 3}
    api("DELETE", "/api/queues/bound/q")
    until(bindings, lambda found: found["in"] == 1)
    api("DELETE", "/api/vhosts/bound")
