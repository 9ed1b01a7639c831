"""Prometheus metrics: names and labels of RabbitMQ 3.10 (CM-340 to CM-370), and warren's own beside them.

    /metrics                           sums over all objects of this node
    /metrics/per-object                one series for each queue, channel and connection
    /metrics/detailed?family=…&vhost=  the chosen families for each object, with names that begin `rabbitmq_detailed_`

The text is made from the copy of the node, in pieces, so a scrape costs the broker nothing. Counters never fall: their
sums are counters of the node, which keep what an object has counted when it is gone (CM-376).
"""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from ...actors.contracts.pace import PACE_OUTCOMES
from ...actors.management.config import Config
from ...actors.node.operations.observing.bottlenecks import ADVICE
from ...actors.statistics.counts import MESSAGE_COUNTERS
from ...version import __version__
from ..copy.counted import Counted, paced_off
from ..copy.follower import StatisticsFollower
from ..copy.held_back import held_back
from ..copy.node_link import NodeUnreachable
from ..copy.node_state import NodeState
from .detailed import detailed
from .exposition import Family, Labels, counter, gauge, histogram, lines
from .families import (
    CHANNEL_COUNTERS,
    CHANNEL_FAMILIES,
    CONNECTION_COUNTERS,
    CONNECTION_FAMILIES,
    COPY_FAMILIES,
    HEAD_TIMESTAMP,
    HISTOGRAMS,
    INDEX_LAG,
    LINK_FAMILIES,
    LINK_IN_FLIGHT,
    LINK_REJECTED,
    MAILBOX_KINDS,
    MAILBOX_LENGTH,
    MAILBOX_LENGTH_MAX,
    NODE_FAMILIES,
    PACE_FAMILIES,
    PACE_HELD,
    PACE_REFUSED,
    QUEUE_FAMILIES,
    RING_FAMILIES,
    STATE_FAMILIES,
    TYPE_COUNTERS,
    by_queue_type,
    counted,
    dead_letters,
    item,
    total,
)
from .objects import RABBITMQ_VERSION
from .series import Row, channel_labels, connection_labels, labelled, queue_labels, series, sum_of

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

#: Lines after which other requests have their turn.
LINES = 2_000


class Metrics:
    """The ASGI application of the metrics, on a port of its own and without a login (CM-330)."""

    def __init__(self, config: Config, state: NodeState, follower: StatisticsFollower) -> None:
        self._config = config
        self._follower = follower
        self._state = state
        self._scrape_seconds = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, query = scope["path"], parse_qs(scope["query_string"].decode("latin-1"))
        if scope["method"] not in ("GET", "HEAD"):
            await _send(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        if path not in ("/metrics", "/metrics/", "/metrics/per-object", "/metrics/detailed"):
            await _send(send, 404, b"", [])
            return
        try:
            if not self._state.node:
                await self._follower.fresh()
            self._follower.check_answers()
        except NodeUnreachable as error:
            await _send(send, 503, f"the node does not answer: {error}\n".encode(), [])
            return
        began = time.monotonic()
        if path == "/metrics/detailed":
            made = self._detailed(query)
        else:
            made = self._all(path.endswith("per-object") or self._config.per_object_metrics)
        pieces: list[str] = []
        gathered: list[str] = []
        for line in made:
            gathered.append(line)
            if len(gathered) >= LINES:
                pieces.append("\n".join(gathered))
                gathered = []
                await asyncio.sleep(0)
        gathered.append("")
        pieces.append("\n".join(gathered))
        body = "\n".join(pieces).encode("utf-8", "replace")
        self._scrape_seconds = time.monotonic() - began
        headers = [(b"content-type", CONTENT_TYPE)]
        accepted = dict(scope["headers"]).get(b"accept-encoding", b"")
        if b"gzip" in accepted:
            body = await asyncio.to_thread(gzip.compress, body, 3)
            headers.append((b"content-encoding", b"gzip"))
        await _send(send, 200, b"" if scope["method"] == "HEAD" else body, headers)

    # -- the text ---

    def _detailed(self, query: dict[str, list[str]]) -> Iterator[str]:
        yield from self._identity("detailed")
        yield from detailed(self._state, set(query.get("family", ())), set(query.get("vhost", ())))

    def _all(self, per_object: bool) -> Iterator[str]:
        state = self._state.own
        yield from self._identity("per-object" if per_object else "aggregated")
        for family in NODE_FAMILIES:
            yield from lines(f"rabbitmq_{family.name}", family, [(family.labels, family.value(state))])
        for name, text, counters in TYPE_COUNTERS:
            yield from lines(f"rabbitmq_{name}", counter(name, text, float), by_queue_type(state, *counters))
        for reason in ("expired", "rejected", "maxlen", "delivery_limit"):
            name = f"rabbitmq_global_messages_dead_lettered_{reason}_total"
            family = counter(name, f"Messages dead-lettered: {reason}", float)
            yield from lines(name, family, dead_letters(state, reason))
        queues = state.queue_stats.values()
        objects = labelled(queues, queue_labels) if per_object else None
        alike = [] if per_object else _alike(queues)
        for family in QUEUE_FAMILIES:
            yield from series(family, objects, partial(self._queue_sum, family, alike))
        if per_object:
            found = [
                (queue_labels(row), HEAD_TIMESTAMP.value(row)) for row in queues if row.get("head_message_timestamp")
            ]
            yield from lines(f"rabbitmq_{HEAD_TIMESTAMP.name}", HEAD_TIMESTAMP, found)
        yield from self._channels(per_object)
        yield from self._connections(per_object)
        started = gauge("process_start_time_seconds", "Start of the node", lambda state: state.node["started_at"])
        yield from lines(started.name, started, [((), started.value(state))])
        scrape = gauge("telemetry_scrape_duration_seconds", "Seconds of the last scrape", lambda state: 0)
        yield from lines(scrape.name, scrape, [((), self._scrape_seconds)])
        yield from self._own(per_object)

    def _queue_sum(self, family: Family, alike: list[tuple[Row, int]]) -> float:
        state = self._state.own
        sums: dict[str, str] = {
            "queue_messages_published_total": "publish",
            "queue_disk_reads_total": "disk_reads",
            "queue_disk_writes_total": "disk_writes",
            "queue_messages": "messages",
            "queue_messages_ready": "messages_ready",
            "queue_messages_unacked": "messages_unacknowledged",
            "queue_messages_bytes": "message_bytes",
            "queue_messages_ready_bytes": "message_bytes_ready",
            "queue_messages_unacked_bytes": "message_bytes_unacknowledged",
        }
        if family.name in sums:
            return state.queue_sum(sums[family.name])
        if family.name == "queue_process_reductions_total":
            return sum(state.queue_sum(name) for name in MESSAGE_COUNTERS)
        if family.name == "queue_consumers":
            return state.consumer_count
        rows = state.queue_stats.values()
        if family.name in ("queue_consumer_utilisation", "queue_consumer_capacity"):
            shares = [family.value(row) for row in rows if row.get("consumers")]
            return sum(shares) / len(shares) if shares else 0
        return sum(family.value(row) * count for row, count in alike)

    def _channels(self, per_object: bool) -> Iterator[str]:
        rows = self._state.own.channels.values()
        objects = labelled(rows, channel_labels) if per_object else None
        for family in CHANNEL_FAMILIES:
            yield from series(family, objects, partial(sum_of, family, rows))
        for name, text, counters in CHANNEL_COUNTERS:
            family = counter(name, text, counted(*counters))
            yield from series(family, objects, partial(total(*counters), self._state.own))

    def _connections(self, per_object: bool) -> Iterator[str]:
        state = self._state.own
        rows = state.connections.values()
        objects = labelled(rows, connection_labels) if per_object else None
        for family in CONNECTION_FAMILIES:
            yield from series(family, objects, partial(sum_of, family, rows))
        for name, text, column in CONNECTION_COUNTERS:
            family = counter(name, text, item(column))
            yield from series(family, objects, partial(state.value, column))

    def _identity(self, endpoint: str) -> Iterator[str]:
        """Node, cluster and versions. Later dashboards of RabbitMQ's choose an endpoint by its name (CM-334)."""
        state = self._state
        permanent = (state.global_parameter("internal_cluster_id") or "").strip('"')
        identity = (
            ("rabbitmq_node", state.node_name),
            ("rabbitmq_cluster", state.node["cluster_name"]),
            ("rabbitmq_cluster_permanent_id", permanent),
            ("rabbitmq_endpoint", endpoint),
        )
        build = (
            ("rabbitmq_version", RABBITMQ_VERSION),
            ("prometheus_plugin_version", RABBITMQ_VERSION),
            ("prometheus_client_version", "4.8.2"),
            ("erlang_version", f"Python {state.node['python']}"),
        )
        for name, text, labels in (
            ("rabbitmq_identity_info", "Node and cluster, which dashboards join with", identity),
            ("rabbitmq_build_info", "The version of RabbitMQ whose metrics these are", build),
            ("warren_build_info", "The version of warren", (("version", __version__),)),
        ):
            yield from lines(name, Family(name, "untyped", text, float), [(labels, 1)])

    def _own(self, per_object: bool) -> Iterator[str]:
        """Metrics that RabbitMQ does not have."""
        state = self._state.own
        family = counter("warren_credit_blocked_seconds_total", "Seconds without credit, over all of this kind", float)
        kinds = ("connection", "channel", "queue")
        yield from lines(family.name, family, [((("kind", kind),), state.blocked_seconds(kind)) for kind in kinds])
        verdicts = dict.fromkeys(ADVICE, 0)
        for row in held_back(state):
            verdicts[row["bottleneck"]] += 1
        family = gauge("warren_bottleneck_connections", "Connections that this bottleneck holds back now", float)
        yield from lines(family.name, family, [((("bottleneck", each),), count) for each, count in verdicts.items()])
        longest = max((turn["seconds"] for turn in state.node["longest_turns"]), default=0.0)
        family = gauge("warren_longest_turn_seconds", "Longest turn of a process since the start", float)
        yield from lines(family.name, family, [((), longest)])

        for family in STATE_FAMILIES:
            yield from lines(family.name, family, [(family.labels, family.value(state))])
        yield from self._of_queues(per_object)
        yield from _links(state.node["links"])
        yield from _mailboxes(state.node["mailboxes"])
        yield from lines(INDEX_LAG.name, INDEX_LAG, _index_lags(state))
        for name, text in HISTOGRAMS.items():
            yield from histogram(f"warren_{name}", text, state.node["histograms"][name])

    def _of_queues(self, per_object: bool) -> Iterator[str]:
        """Metrics of paced and of mirrored queues: their sums, or one series for each of these queues."""
        state = self._state
        paced = [row for row in state.own.queue_stats.values() if row.get("pace")]
        mirrored = [row for row in state.queues.values() if row["mirrors"] and row["node"] == state.node_name]
        copied = [row for row in state.own.queue_stats.values() if row.get("synchronisation")]
        for families, rows in ((PACE_FAMILIES, paced), (RING_FAMILIES, mirrored), (COPY_FAMILIES, copied)):
            for family in families:
                samples: list[tuple[Labels, float]] = [((), sum_of(family, rows))]
                if per_object:
                    samples = [(queue_labels(row), family.value(row)) for row in rows]
                yield from lines(family.name, family, samples)
        changes = counter("warren_ring_view_changes_total", "Changes of the rings of mirrored queues", float)
        yield from lines(changes.name, changes, [((), state.ring_view_changes)])
        counts: list[tuple[Labels, Callable[[str], int]]] = [((), state.own.paced_off)]
        if per_object:
            counts = [(queue_labels(row), partial(paced_off, row)) for row in paced]
        refused = [
            ((*labels, ("outcome", outcome)), float(count(outcome)))
            for labels, count in counts
            for outcome in PACE_OUTCOMES
            if outcome != "hold"
        ]
        yield from lines(PACE_REFUSED.name, PACE_REFUSED, refused)
        held = [(labels, float(count("hold"))) for labels, count in counts]
        yield from lines(PACE_HELD.name, PACE_HELD, held)


def _links(rows: list[Row]) -> Iterator[str]:
    links: list[tuple[Labels, Row]] = [((("peer", row["node"]),), row) for row in rows]
    for family in LINK_FAMILIES:
        yield from lines(family.name, family, [(labels, family.value(row)) for labels, row in links])
    for family, label, column in ((LINK_IN_FLIGHT, "kind", "in_flight"), (LINK_REJECTED, "reason", "rejected")):
        samples = [((*labels, (label, name)), value) for labels, row in links for name, value in row[column].items()]
        yield from lines(family.name, family, samples)


def _mailboxes(lengths: dict[str, list[int]]) -> Iterator[str]:
    """The lengths of mailboxes by the class of their processes, which is written as RabbitMQ writes kinds."""
    by_kind = {**dict.fromkeys(MAILBOX_KINDS, [0, 0])}
    by_kind |= {re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): found for name, found in lengths.items()}
    for at, family in enumerate((MAILBOX_LENGTH, MAILBOX_LENGTH_MAX)):
        yield from lines(family.name, family, [((("kind", kind),), found[at]) for kind, found in by_kind.items()])


def _index_lags(state: Counted) -> list[tuple[Labels, float]]:
    """By virtual host: the messages that its indexed queues have not reported to its message index."""
    found: dict[str, int] = {}
    for (vhost, _), row in state.queue_stats.items():
        if "index_lag" in row:
            found[vhost] = found.get(vhost, 0) + row["index_lag"]
    return [((("vhost", vhost),), lag) for vhost, lag in found.items()]


def _alike(rows: Iterable[Row]) -> list[tuple[Row, int]]:
    """One row of all that have the same `layers`, and how many these are. What a queue has in memory and on the disk
    follows from its layers, and quiet queues share them (`SharedValues`). A row without layers stands for itself.
    """
    found: dict[int, tuple[Row, int]] = {}
    for row in rows:
        key = id(row.get("layers") or row)
        known = found.get(key)
        found[key] = (row, 1) if known is None else (known[0], known[1] + 1)
    return list(found.values())


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})
