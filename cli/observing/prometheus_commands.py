"""`warren dashboard` and `warren alerts`: what Grafana and Prometheus need to watch warren (CM-378).

Both are made from the tables below, whose expressions name the metrics of `/metrics`. Those about single queues need a
second job of Prometheus, which the head of the alerts shows.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import click


class Alert(NamedTuple):
    """An alert: its expression, for how long that must be true, and what it means for an operator."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str


ALERTS = (
    Alert(
        "WarrenDown",
        'up{job="warren"} == 0',
        "1m",
        "critical",
        "The node does not answer, or its management process does not run",
    ),
    Alert(
        "WarrenMemoryAlarm",
        "rabbitmq_alarms_memory_used_watermark == 1",
        "0m",
        "critical",
        "Publishers are blocked: the memory in use is above the limit",
    ),
    Alert(
        "WarrenDiskAlarm",
        "rabbitmq_alarms_free_disk_space_watermark == 1",
        "0m",
        "critical",
        "Publishers are blocked: the free disk space is below the limit",
    ),
    Alert(
        "WarrenDiskFullSoon",
        "predict_linear(rabbitmq_disk_space_available_bytes[1h], 4 * 3600)"
        " < rabbitmq_disk_space_available_limit_bytes and rabbitmq_disk_space_available_limit_bytes > 0",
        "10m",
        "warning",
        "At the trend of the last hour publishers will be blocked within four hours, because the disk is full",
    ),
    Alert(
        "WarrenMemberDown",
        "warren_members_down > 0",
        "1m",
        "warning",
        "A member of the cluster does not run, or this node is cut off from it: 'warren cluster_status' has the name",
    ),
    Alert(
        "WarrenMirrorNotInSync",
        "warren_ring_unsynchronised > 0",
        "5m",
        "warning",
        "Mirrored queues have replicas that are not in sync: 'warren rings' lists them",
    ),
    Alert(
        "WarrenPublishersHeldBack",
        "max by (instance, kind) (rate(warren_credit_blocked_seconds_total[1m])) > 0.5",
        "2m",
        "warning",
        "Senders have no credit for more than half of the time: 'warren diagnose' names the cause",
    ),
    Alert(
        "WarrenSlowConfirms",
        "histogram_quantile(0.99, sum by (instance, le) (rate(warren_publish_to_confirm_seconds_bucket[5m]))) > 1",
        "5m",
        "warning",
        "One in a hundred publishes waits longer than a second for its confirm",
    ),
    Alert(
        "WarrenSlowDisk",
        "histogram_quantile(0.99, sum by (instance, le) (rate(warren_journal_sync_seconds_bucket[5m]))) > 0.5",
        "5m",
        "warning",
        "The disk takes longer than half a second for one in a hundred group commits",
    ),
    Alert(
        "WarrenPaceRefuses",
        "rate(warren_pace_refused_total[5m]) > 0",
        "5m",
        "warning",
        "Paced queues do not admit messages that would have to wait too long: 'warren list_queues name pace' has them",
    ),
    Alert(
        "WarrenQueueWithoutConsumer",
        "rabbitmq_detailed_queue_messages_ready > 0"
        " and on (instance, vhost, queue) rabbitmq_detailed_queue_consumers == 0",
        "15m",
        "warning",
        "Queue {{ $labels.queue }} in vhost {{ $labels.vhost }} has messages and no consumer",
    ),
)

HEAD = """\
# Alerts for warren. Prometheus needs these two jobs; the second one has a series for each queue:
#
#   scrape_configs:
#     - job_name: warren
#       static_configs: [{targets: ["localhost:15692"]}]
#     - job_name: warren-queues
#       metrics_path: /metrics/detailed
#       params: {family: [queue_coarse_metrics, queue_consumer_count]}
#       static_configs: [{targets: ["localhost:15692"]}]
"""


class Panel(NamedTuple):
    """A chart: its unit in Grafana's words, and expressions with the legend of each."""

    title: str
    unit: str
    targets: tuple[tuple[str, str], ...]


def _quantiles(name: str) -> tuple[tuple[str, str], ...]:
    """The middle, the 99th percentile and the slowest of a histogram."""
    rate = f"sum by (instance, le) (rate({name}_bucket[$__rate_interval]))"
    return tuple(
        (f"histogram_quantile({share}, {rate})", f"{{{{instance}}}} {text}")
        for share, text in ((0.5, "p50"), (0.99, "p99"), (1, "max"))
    )


def _rate(name: str) -> str:
    return f"rate({name}[$__rate_interval])"


PANELS = (
    Panel(
        "Messages",
        "short",
        (
            ("rabbitmq_queue_messages_ready", "{{instance}} ready"),
            ("rabbitmq_queue_messages_unacked", "{{instance}} unacknowledged"),
        ),
    ),
    Panel(
        "Message rates",
        "ops",
        (
            (_rate("rabbitmq_global_messages_received_total"), "{{instance}} published"),
            (_rate("rabbitmq_global_messages_delivered_total"), "{{instance}} delivered"),
            (_rate("rabbitmq_global_messages_acknowledged_total"), "{{instance}} acknowledged"),
        ),
    ),
    Panel("From publish to confirm", "s", _quantiles("warren_publish_to_confirm_seconds")),
    Panel("From publish to delivery", "s", _quantiles("warren_publish_to_deliver_seconds")),
    Panel("Group commit of a journal", "s", _quantiles("warren_journal_sync_seconds")),
    Panel(
        "Group commits",
        "ops",
        (
            (_rate("warren_journal_sync_seconds_count"), "{{instance}} commits"),
            (_rate("warren_journal_sync_messages_sum"), "{{instance}} messages in them"),
        ),
    ),
    Panel("Change of metadata", "s", _quantiles("warren_raft_commit_seconds")),
    Panel(
        "Connections held back, by bottleneck",
        "short",
        (("warren_bottleneck_connections", "{{instance}} {{bottleneck}}"),),
    ),
    Panel(
        "Time without credit",
        "s",
        ((_rate("warren_credit_blocked_seconds_total"), "{{instance}} {{kind}}s, seconds in a second"),),
    ),
    Panel(
        "Memory",
        "bytes",
        (
            ("rabbitmq_process_resident_memory_bytes", "{{instance}} in use"),
            ("rabbitmq_resident_memory_limit_bytes", "{{instance}} limit"),
        ),
    ),
    Panel(
        "Free disk space",
        "bytes",
        (
            ("rabbitmq_disk_space_available_bytes", "{{instance}} free"),
            ("rabbitmq_disk_space_available_limit_bytes", "{{instance}} limit"),
        ),
    ),
    Panel(
        "Connections, channels, queues, consumers",
        "short",
        tuple(
            (f"rabbitmq_{name}", f"{{{{instance}}}} {name}")
            for name in ("connections", "channels", "queues", "consumers")
        ),
    ),
    Panel("Round trip between nodes", "s", (("warren_link_rtt_seconds", "{{instance}} to {{peer}}"),)),
    Panel(
        "Replicas of mirrored queues",
        "short",
        (
            ("warren_ring_members", "{{instance}} in sync"),
            ("warren_ring_unsynchronised", "{{instance}} not in sync"),
        ),
    ),
    Panel("Longest turn of a process", "s", (("warren_longest_turn_seconds", "{{instance}}"),)),
    Panel("Paced queues", "short", (("warren_pace_waiting", "{{instance}} waiting"),)),
)

#: Size of a panel in Grafana's grid, which is 24 wide.
WIDTH, HEIGHT = 12, 8


def rules() -> str:
    """The alerts as a file of rules for Prometheus."""
    lines = [HEAD, "groups:", "  - name: warren", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            # A JSON string is one of YAML as well.
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasting}",
            f"        labels: {{severity: {alert.severity}}}",
            f"        annotations: {{summary: {json.dumps(alert.summary)}}}",
        ]
    return "\n".join(lines)


def board() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": source,
            "gridPos": {"x": WIDTH * (number % 2), "y": HEIGHT * (number // 2), "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + at), "datasource": source, "expr": expression, "legendFormat": legend}
                for at, (expression, legend) in enumerate(panel.targets)
            ],
        }
        for number, panel in enumerate(PANELS)
    ]
    return {
        "title": "warren",
        "uid": "warren",
        "tags": ["warren", "amqp"],
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


@click.command()
def alerts() -> None:
    """Print rules by which Prometheus raises alerts about warren: `warren alerts > warren-alerts.yml`."""
    click.echo(rules())


@click.command()
def dashboard() -> None:
    """Print a dashboard for Grafana, which imports it: `warren dashboard > warren.json`."""
    click.echo(json.dumps(board(), indent=2))


COMMANDS = (alerts, dashboard)
