"""The operation by which the management process follows the node: what has changed since its last request.

A session's first answer has everything; later ones have the queues, channels and connections that had a turn, the
declared objects if any of them has changed, and a row about the node. So a node with ten thousand quiet queues answers
in well under a millisecond. What is read grows with what was busy, and goes in slices.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Literal

from .....amqp.fields import Table, table_from
from .....definitions.policies import queue_kind
from .....parted_table import PartedTable
from .....routing.exchanges.exchange_types import EXCHANGE_TYPES
from .....routing.properties_key import properties_key
from .....routing.rows import ExchangeRow, QueueRow
from .....runtime.errors import ProcessDown, ProcessTimeout
from .....runtime.machine.descriptors import descriptor_limit, open_descriptors
from .....runtime.machine.usage import DiskBytes, program
from .....runtime.process import Process
from .....store.disk.operations import file_operations
from .....version import __version__
from ....context.node_context import NodeContext
from ....contracts.info_items import InfoItems
from ....contracts.membership import MembershipStatus, to_membership
from ....contracts.metadata import to_metadata
from ....contracts.node import to_node
from ....contracts.queue import to_queue
from ....contracts.resources import to_alarms, to_memory_monitor
from ....control.frames import pack
from ....metadata.info_items import ConsumerNames, logical_consumers, member_items
from ....statistics.activity import ActivityFeed, Kind
from ..operating.features import feature_rows
from ..plain_values import plain_table
from ..registry import ANSWER_SECONDS, Operator, Rows, check_vhost, operation
from .listings import SLICE, emptied, in_time
from .watching import log_files

#: Rows of the routing table that are compared with the known ones in one turn.
COMPARED = 2_000

#: What a link has as a whole, and what its lanes have each: the columns of `warren links` of these names.
LINK_ITEMS: tuple[Literal["node", "state", "address", "round_trip", "last_error", "rejected"], ...] = (
    *("node", "state", "address", "round_trip", "last_error", "rejected"),
)
LANE_SUMS: tuple[Literal["sent_bytes", "received_bytes", "sent_frames", "received_frames", "unsent"], ...] = (
    *("sent_bytes", "received_bytes", "sent_frames", "received_frames", "unsent"),
)

#: Info items of queues that management does not show, or knows from what the queue was declared with. The copy of ten
#: thousand queues is smaller without them.
LEFT_OUT = frozenset(
    (
        *("arguments", "durable", "auto_delete", "exclusive", "owner", "exclusive_consumer", "consumer_utilisation"),
        *("unsent", "blocks", "blocked_seconds_by", "readers", "first_number", "life", "gaps", "deduplicated"),
    )
)

#: Rows that are made in one turn. Making and encoding the row of a queue takes 50 µs.
MADE = 25

#: Processes whose mailboxes are looked at, which takes 1 ms. That many wait only on a node that is far behind.
WAITING = 2_000

#: Things that have ended that are named in one turn.
NAMED = 1_000


class Reading:
    """What one session has been sent, so that the next answer has the differences."""

    def __init__(self, context: NodeContext) -> None:
        self.feed: ActivityFeed = context.activity.open()
        if context.counts.exchanges is None:
            context.counts.exchanges = {}
        self._context = context
        #: By virtual host and name: the row that was sent; of an exchange, with the number of bindings from it.
        self.queues: dict[str, dict[str, QueueRow]] = {}
        self.exchanges: dict[str, dict[str, tuple[ExchangeRow, int]]] = {}
        #: By queue id: a digest of the row that was sent, so that an equal row is not sent again. For some time after
        #: its last message a queue has a turn in each second (`Durability.report`), which changes nothing in its row.
        self.digests: PartedTable[str, int] = PartedTable()
        self.routing_version = self.definitions_version = -1

    def note_ended(self, ended: list[tuple[Kind, str]]) -> None:
        for kind, process_id in ended:
            if kind == "queue":
                self.digests.pop(process_id, None)

    def read(self, process_id: str) -> InfoItems | None:
        """The row of one process; None if it has ended, follows a queue of another node, or counts what it counted
        before.
        """
        found = self.feed.read(process_id)
        if found is None or _is_mirror(self._context, *found):
            return None
        row = _stats(self._context, *found)
        if found[0] == "queue":
            digest = hash(pack(row))
            if self.digests.get(process_id) == digest:
                return None
            self.digests[process_id] = digest
        return row

    def close(self) -> None:
        self.feed.close()
        if not self._context.activity.round:
            self._context.counts.exchanges = None


@operation()
async def statistics(operator: Operator, *, declared: bool = True) -> AsyncIterator[Rows]:
    """Rows with `kind`: `node`, `definitions`, `vhosts`, `exchange`, `queue` for declared objects, and `queue_stats`,
    `channel_stats`, `connection_stats` for what is counted. One with `gone` names things that have ended. The declared
    objects are left out if they are not asked for: all nodes of a cluster have the same.
    """
    process, context = operator.process, operator.context
    reading = operator.kept.get("statistics")
    if not isinstance(reading, Reading):
        reading = operator.kept["statistics"] = Reading(context)
    if declared and reading.definitions_version != context.definitions.version:
        reading.definitions_version = context.definitions.version
        yield [await _definitions(operator)]
    if declared and reading.routing_version != context.routing.version:
        reading.routing_version = context.routing.version
        yield [{"kind": "vhosts", "vhosts": _vhosts(context)}]
        made: Rows = []
        for compared, row in enumerate(_differences(context, reading), 1):
            if row is not None:
                made.append(row)
            if len(made) == MADE or compared % COMPARED == 0:
                yield made
                made = []
                await process.next_turn()
        yield made
    changed, ended = reading.feed.take(MADE)
    while ended:
        part = ended[-NAMED:]
        del ended[-NAMED:]
        reading.note_ended(part)
        yield [{"kind": "gone", "gone": part}]
        await process.next_turn()
    for ids in changed:
        read = [row for each in ids if (row := reading.read(each)) is not None]
        if read:
            yield read
        await process.next_turn()
    yield [await _node(operator)]


def _vhosts(context: NodeContext) -> list[InfoItems]:
    routing = context.routing
    return [
        {"name": name, "is_down": name in routing.down, "tracing": name in routing.traced} for name in routing.vhosts()
    ]


def _differences(context: NodeContext, reading: Reading) -> Iterator[InfoItems | None]:
    """Yield a row for each exchange and queue that is new, has changed or is gone, and None for each unchanged one.

    The caller counts the values and ends its turn after some. So nothing here is built from all names at once.
    """
    routing = context.routing
    for vhost in {*reading.queues, *reading.exchanges, *routing.vhosts()}:
        known = reading.exchanges.setdefault(vhost, {})
        exchanges = routing.exchanges(vhost)
        for exchange in exchanges:
            sent, bindings = known.get(exchange.name), routing.count_bindings(vhost, exchange.name)
            if sent is not None and sent[0] is exchange and sent[1] == bindings:
                yield None
            else:
                known[exchange.name] = exchange, bindings
                yield _exchange(exchange, bindings)
        if len(known) > len(exchanges):
            for name in list(known):
                if routing.exchange(vhost, name) is not None:
                    yield None
                    continue
                del known[name]
                if context.counts.exchanges is not None:
                    context.counts.exchanges.pop((vhost, name), None)
                yield {"kind": "exchange", "vhost": vhost, "name": name, "is_gone": True}
        known_queues = reading.queues.setdefault(vhost, {})
        queues = routing.queues(vhost)
        for queue in queues:
            if known_queues.get(queue.name) is queue:
                yield None
            else:
                known_queues[queue.name] = queue
                yield _queue(context, queue)
        if len(known_queues) > len(queues):
            for name in list(known_queues):
                if routing.queue(vhost, name) is not None:
                    yield None
                    continue
                del known_queues[name]
                yield {"kind": "queue", "vhost": vhost, "name": name, "is_gone": True}
        if not routing.has_vhost(vhost):
            reading.exchanges.pop(vhost, None)
            reading.queues.pop(vhost, None)


def _exchange(row: ExchangeRow, bindings: int) -> InfoItems:
    return {
        "kind": "exchange",
        "vhost": row.vhost,
        "name": row.name,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "internal": row.internal,
        "arguments": plain_table(row.arguments),
        "creator": row.creator,
        "bindings": bindings,
    }


def _queue(context: NodeContext, row: QueueRow) -> InfoItems:
    return {
        "kind": "queue",
        "id": row.queue_id,
        "vhost": row.vhost,
        "name": row.name,
        "type": row.type,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "owner": row.exclusive_owner,
        "arguments": plain_table(row.arguments),
        "node": row.node or context.node_name,
        "is_mirrored": row.group is not None and queue_kind(row.type) == "classic",
        "mirrors": [] if row.group is None else [member.node for member in row.group.everyone[1:]],
        "epoch": 0 if row.group is None else row.group.epoch,
        "in_sync": [] if row.group is None else [member.node for member in row.group.ring[1:]],
        "replicas": member_items(row, context.definitions),
        "state": row.state,
        "shards": row.shards,
        "shard_of": row.shard_of,
    }


def _stats(context: NodeContext, kind: str, items: InfoItems) -> InfoItems:
    left_out = LEFT_OUT if kind == "queue" else ()
    found = {
        name: plain_table(value) if isinstance(value, Table) else value
        for name, value in items.items()
        if name not in left_out
    }
    return {**found, "kind": f"{kind}_stats", "node": context.node_name}


def _is_mirror(context: NodeContext, kind: str, items: InfoItems) -> bool:
    """Whether the process follows the one that serves the queue, on another node: that one counts for the queue."""
    row = context.routing.queue(items["vhost"], items["name"]) if kind == "queue" else None
    return row is not None and row.node not in ("", context.node_name)


async def _definitions(operator: Operator) -> InfoItems:
    context, tables = operator.context, {}
    for name, table in context.definitions.tables.items():
        tables[name] = await operator.process.in_steps(asdict, list(table.values()))
    return {"kind": "definitions", "features": feature_rows(context), **{f"of_{name}": tables[name] for name in tables}}


async def _node(operator: Operator) -> InfoItems:
    """What the node counts and measures as a whole."""
    process, context = operator.process, operator.context
    status = await process.ask(operator.node, to_node.status())
    memory = await process.ask(context.memory_monitor, to_memory_monitor.status())
    alarms = await process.ask(context.alarms, to_alarms.active())
    members = [
        {"name": node.name, "is_running": bool(node.incarnation), "role": node.role, "maintenance": node.in_maintenance}
        for node in context.definitions.nodes.values()
    ]
    cluster = await _membership(operator)
    disk = program.disk_bytes() or DiskBytes(0, 0)
    run_queue, mailboxes = _waiting(process)
    return {
        "kind": "node",
        "name": context.node_name,
        "version": __version__,
        "time": process.wall_clock(),
        "started_at": status["started_at"],
        "pid": os.getpid(),
        "memory": dict(memory),
        "disk": None if status["disk"] is None else dict(status["disk"]),
        "alarms": list(alarms),
        "listening": [dict(each) for each in status["listening"]],
        "clustering": None if cluster is None else {"host": cluster["host"], "port": cluster["port"]},
        "holds": list(status["holds"]),
        "processes": len(context.activity.members),
        "fd_used": open_descriptors(),
        "fd_total": descriptor_limit(),
        "context_switches": program.context_switches(),
        "sockets": context.sessions.count(),
        "collections": sum(each["collections"] for each in gc.get_stats()),
        "read_bytes": disk.read,
        "written_bytes": disk.written,
        "files": file_operations.values(),
        "links": await _links(operator),
        "raft": _raft(context, cluster),
        "messages": context.counts.values(),
        "messages_of_type": {name: counts.values() for name, counts in context.counts.of_type.items()},
        "routed": context.counts.routed,
        "churn": context.counts.churn(),
        "histograms": context.histograms.rows(),
        "logins": [context.login_counts.succeeded, context.login_counts.failed],
        "exchanges": [[*key, *counts] for key, counts in (context.counts.exchanges or {}).items()],
        "exchange_types": sorted(EXCHANGE_TYPES),
        "data_dir": context.settings.data_dir or "",
        "log_files": log_files(),
        "auth_mechanisms": list(context.settings.auth_mechanisms),
        "net_ticktime": context.settings.net_ticktime,
        "cluster_name": context.definitions.cluster_name(context.settings.cluster_name),
        "members": members or [{"name": context.node_name, "is_running": True, "role": "data", "maintenance": False}],
        "python": sys.version.split()[0],
        "rates_mode": context.settings.management_rates_mode,
        "run_queue": run_queue,
        "mailboxes": mailboxes,
        "index_queries": context.counts.index_queries,
        "longest_turns": [turn._asdict() for turn in process.longest_turns()],
    }


def _waiting(process: Process) -> tuple[int, dict[str, list[int]]]:
    """How many processes wait for their turns now; and by their kind, how many messages wait for them, and the length
    of the longest mailbox. The processes behind the first `WAITING` are left out.
    """
    count = 0
    found: dict[str, list[int]] = {}
    for kind, length in islice(process.mailboxes(), WAITING):
        count += 1
        lengths = found.setdefault(kind, [0, 0])
        lengths[0] += length
        lengths[1] = max(lengths[1], length)
    return count, found


async def _links(operator: Operator) -> Rows:
    """A row for each other node, with what went over all lanes of the link to it; none while links do not answer."""
    if operator.context.members is None:
        return []
    try:
        lanes = await operator.process.ask(operator.context.members, to_membership.links(), ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return []
    found: dict[str, InfoItems] = {}
    for lane in lanes:
        link = found.get(lane["node"])
        if link is None:
            link = {name: lane[name] for name in LINK_ITEMS} | dict.fromkeys(LANE_SUMS, 0)
            found[lane["node"]] = {**link, "in_flight": {}}
        link = found[lane["node"]]
        for name in LANE_SUMS:
            link[name] += lane[name]
        if lane["lane"]:
            link["in_flight"][lane["lane"]] = lane["unsent"]
    return list(found.values())


async def _membership(operator: Operator) -> MembershipStatus | None:
    """The cluster as this node sees it; None on a node without a cluster port, and while membership does not answer."""
    if operator.context.members is None:
        return None
    try:
        return await operator.process.ask(operator.context.members, to_membership.membership(), ANSWER_SECONDS)
    except (ProcessDown, ProcessTimeout):
        return None


def _raft(context: NodeContext, cluster: MembershipStatus | None) -> dict[str, int]:
    """The latest term of the cluster's log on this node, and whether this node leads. A node that is alone leads."""
    if cluster is None:
        return {"term": 0, "is_leader": context.members is None}
    return {"term": cluster["term"], "is_leader": cluster["leader"] == context.node_name}


@operation()
async def bindings(operator: Operator, *, vhost: str) -> AsyncIterator[Rows]:
    """The bindings of a virtual host with plain values, those of all queues to the default exchange included."""
    check_vhost(operator, vhost)
    found = await operator.process.ask(operator.context.metadata, to_metadata.list("bindings", vhost))
    for start in range(0, len(found), SLICE):
        yield [
            {
                "source": items["source_name"],
                "vhost": items["vhost"],
                "destination": items["destination_name"],
                "destination_type": items["destination_kind"],
                "routing_key": items["routing_key"],
                "properties_key": properties_key(items["routing_key"], items["arguments"]),
                "arguments": plain_table(items["arguments"]),
            }
            for items in found[start : start + SLICE]
        ]
        await operator.process.next_turn()


@operation()
async def consumers(operator: Operator, *, vhost: str | None = None, queue: str | None = None) -> AsyncIterator[Rows]:
    """The consumers of one queue, of a virtual host, or of all. No queue without consumers is asked."""
    context = operator.context
    rows = []
    for at, (kind, process) in enumerate(list(context.activity.members.values())):
        items = process.statistics() if kind == "queue" else {}
        if items.get("consumers") and vhost in (None, items["vhost"]) and queue in (None, items["name"]):
            row = context.routing.queue(items["vhost"], items["name"])
            if row is not None and row.state == "running":
                rows.append(row)
        if at % SLICE == SLICE - 1:
            await operator.process.next_turn()
    seen: ConsumerNames = set()
    # The consumers of a sharded queue are known by its logical queue, which so comes before its shards.
    rows.sort(key=lambda row: row.shard_of is not None)
    for start in range(0, len(rows), SLICE):
        asked = [
            operator.process.ask(row.address, to_queue.consumers_info(), timeout=ANSWER_SECONDS)
            for row in rows[start : start + SLICE]
        ]
        answers = await in_time(asked)
        asked.clear()
        for row in rows[start : start + SLICE]:
            for part in emptied(logical_consumers(row, answers.pop(0) or (), seen)):
                yield [
                    {**items, "queue_name": row.shard_of or row.name, "arguments": plain_table(items["arguments"])}
                    for items in part
                ]
                await operator.process.next_turn()


@operation()
async def would_route(
    operator: Operator, *, vhost: str, exchange: str, routing_key: str, headers: dict[str, str]
) -> list[str]:
    """The names of the queues that a message with this routing key and these headers would reach (AB-64)."""
    check_vhost(operator, vhost)
    table = table_from(headers)
    rows = operator.context.routing.route(vhost, exchange, (routing_key,), table)
    return sorted({row.shard_of or row.name for row in rows})
