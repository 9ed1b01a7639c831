"""The listing operations: queues, exchanges, bindings, connections, channels and consumers, with RabbitMQ's columns.

A listing goes in slices of `SLICE` things, with the turns of others in between, and each slice is sent to the operator
as soon as its rows are complete. A queue is asked only for columns that its row in the routing table does not have.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from .....amqp.fields import TYPE_NAMES, Table
from .....routing.rows import QueueRow
from .....routing.shards import shards_of
from .....runtime.contract import Address
from .....runtime.errors import ProcessDown, ProcessTimeout
from ....contracts.connection import ToConnection, to_connection
from ....contracts.info_items import InfoItems
from ....contracts.metadata import to_metadata
from ....contracts.node import to_node
from ....contracts.queue import to_queue
from ....metadata.info_items import ConsumerNames, logical_consumers, member_items, queue_items, with_shard_items
from ....statistics.queue_infos import queue_infos
from ....statistics.storage_items import storage_items
from ..columns import (
    BINDINGS,
    CHANNELS,
    CONNECTIONS,
    CONSUMERS,
    EXCHANGES,
    QUEUE_ROW_COLUMNS,
    QUEUE_STORAGE_COLUMNS,
    QUEUES,
    UNRESPONSIVE_QUEUES,
)
from ..registry import ANSWER_SECONDS, OperationError, Operator, Rows, check_vhost, operation
from . import diagnosing

log = logging.getLogger("warren.node")

#: Things in one slice. So many arguments of a queue, an exchange, a binding or a consumer count as one thing.
SLICE = 100
ARGUMENTS_AS_ONE = 32

#: Things that are sorted in one turn. To sort 20,000 queues takes 10 ms.
SORTED = 2_000

#: Levels of tables and arrays that a listing shows. A client may nest 512 levels, for which the recursion of Python's
#: functions and of JSON would be too deep, here and in the command.
LEVELS_SHOWN = 64

#: The states of a connection that is being closed already.
ENDING = ("closing", "closed")

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@operation()
async def list_queues(
    operator: Operator,
    *,
    vhost: str,
    columns: list[str] | None = None,
    online: bool = False,
    offline: bool = False,
    local: bool = False,
) -> AsyncIterator[Rows]:
    """The queues of a virtual host. `local` queues are at home on this node; `offline` queues are those that do not
    run.

    `online` and `offline` together are all queues, as in RabbitMQ.
    """
    chosen = QUEUES.chosen(columns or [])
    asks = not QUEUE_ROW_COLUMNS.issuperset(chosen)
    wanted = frozenset(chosen)
    for slice_ in _slices(await _queue_rows(operator, vhost)):
        rows = [
            row
            for row in slice_
            if (online == offline or (row.state == "running") == online)
            and (not local or row.node == operator.context.node_name)
        ]
        answers: list[InfoItems | None] = [None] * len(rows)
        if asks:
            answers = await _infos(operator, rows, not QUEUE_STORAGE_COLUMNS.isdisjoint(chosen))
        found = [
            answer if answer is not None and wanted <= answer.keys() else _queue_columns(operator, row, answer)
            for row, answer in zip(rows, answers)
            if answer is not None or _still_exists(operator, row)
        ]
        yield [_selected(items, chosen) for items in found]
        await operator.process.next_turn()


async def _infos(operator: Operator, rows: Sequence[QueueRow], with_storage: bool) -> list[InfoItems | None]:
    """The items of each queue, those of a logical queue with those of its shards."""
    shards = [shards_of(operator.context.routing, row) for row in rows]
    asked = [each for row, of_row in zip(rows, shards) for each in (row, *of_row)]
    answers = iter(await queue_infos(operator.process, operator.context, asked, ANSWER_SECONDS))
    found: list[InfoItems | None] = []
    for of_row in shards:
        own, of_shards = next(answers), [next(answers) for _ in of_row]
        items = own
        if items is not None and of_row:
            items = with_shard_items(items, [each for each in of_shards if each is not None])
        if items is not None and with_storage:
            stored = [storage_items(each["layers"]) for each in (own, *of_shards) if each and each.get("layers")]
            items = {**items, **{name: sum([each[name] for each in stored]) for each in stored for name in each}}
        found.append(items)
    return found


@operation()
async def list_unresponsive_queues(
    operator: Operator,
    *,
    vhost: str,
    columns: list[str] | None = None,
    queue_timeout: float = 15.0,
    local: bool = False,
) -> AsyncIterator[Rows]:
    """The queues that run and do not answer within `queue_timeout` seconds; `local` queues are at home on this node."""
    chosen = UNRESPONSIVE_QUEUES.chosen(columns or [])
    for slice_ in _slices(await _queue_rows(operator, vhost)):
        rows = [
            row for row in slice_ if row.state == "running" and (not local or row.node == operator.context.node_name)
        ]
        counts = [operator.process.ask(row.address, to_queue.counts(), timeout=queue_timeout) for row in rows]
        answers = await in_time(counts)
        silent = [
            _queue_columns(operator, row, None)
            for row, answer in zip(rows, answers)
            if answer is None and _still_exists(operator, row)
        ]
        yield [_selected(items, chosen) for items in silent]
        await operator.process.next_turn()


@operation()
async def list_exchanges(operator: Operator, *, vhost: str, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """The exchanges of a virtual host, the predefined ones included."""
    chosen = EXCHANGES.chosen(columns or [])
    check_vhost(operator, vhost)
    found = await operator.process.ask(operator.context.metadata, to_metadata.list("exchanges", vhost))
    in_order = await sorted_in_parts(operator, found, itemgetter("name"))
    async for rows in _selected_slices(operator, in_order, chosen):
        yield rows


@operation()
async def list_bindings(operator: Operator, *, vhost: str, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """The bindings of a virtual host, those of all queues to the default exchange included."""
    chosen = BINDINGS.chosen(columns or [])
    check_vhost(operator, vhost)
    found = await operator.process.ask(operator.context.metadata, to_metadata.list("bindings", vhost))
    async for rows in _selected_slices(operator, found, chosen):
        yield rows


@operation()
async def list_connections(operator: Operator, *, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """The connections of all virtual hosts in every state; with the column `bottleneck` not those that are ending."""
    chosen = CONNECTIONS.chosen(columns or [])
    if "bottleneck" in chosen:
        async for address, items in connections(operator):
            found = await diagnosing.bottleneck(operator, address, items)
            yield [_selected({**items, "bottleneck": found and found.bottleneck}, chosen)]
        return
    async for node, answers in _of_connections(operator, to_connection.info):
        yield [_selected({**answer, "pid": pid(node, answer["pid"])}, chosen) for answer in answers]


@operation()
async def diagnose(operator: Operator) -> AsyncIterator[Rows]:
    """A row for each connection that something holds back: what it is, how that shows, and what to do."""
    async for address, items in connections(operator):
        found = await diagnosing.bottleneck(operator, address, items)
        if found is not None:
            yield [found.row(items)]


@operation()
async def flow_chain(operator: Operator, *, connection: str | None = None) -> AsyncIterator[Rows]:
    """The stages between client and disk of each connection, or of the one with this name or pid."""
    is_found = False
    async for address, items in connections(operator):
        if connection is None or connection in (items["name"], pid(operator.context.node_name, items["pid"])):
            is_found = True
            yield await diagnosing.flow_chain(operator, address, items)
    if connection is not None and not is_found:
        raise OperationError("data", f"there is no connection '{connection}' on this node")


@operation()
async def list_node_auth_attempt_stats(operator: Operator, *, by_source: bool = False) -> Rows:
    """How many logins this node has accepted and refused since its start (CM-149)."""
    return operator.context.login_counts.rows(by_source)


@operation()
async def list_channels(operator: Operator, *, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """The channels of all connections."""
    chosen = CHANNELS.chosen(columns or [])
    async for node, answers in _of_connections(operator, to_connection.channels_info):
        for slice_ in _slices([items for answer in answers for items in answer]):
            yield [
                _selected(
                    {
                        **items,
                        "pid": pid(node, items["channel_id"]),
                        "connection": pid(node, items["connection"]),
                    },
                    chosen,
                )
                for items in slice_
            ]
            await operator.process.next_turn()


@operation()
async def list_consumers(operator: Operator, *, vhost: str, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """The consumers of a virtual host's queues."""
    chosen = CONSUMERS.chosen(columns or [])
    seen: ConsumerNames = set()
    for slice_ in _slices(await _queue_rows(operator, vhost)):
        rows = [row for row in slice_ if row.state == "running"]
        asked = [operator.process.ask(row.address, to_queue.consumers_info(), timeout=ANSWER_SECONDS) for row in rows]
        answers = await in_time(asked)
        found = [items for row, answer in zip(rows, answers) for items in logical_consumers(row, answer or (), seen)]
        del asked, answers
        for part in emptied(found):
            yield [_selected({**items, "channel_pid": pid(items["node"], items["channel"])}, chosen) for items in part]
            await operator.process.next_turn()
        await operator.process.next_turn()


# -- what the listings share -----------------------------------------------------------------------


def pid(node: str, process_id: str) -> str:
    """The identity of a connection, channel or queue as operators see it (CM-31)."""
    return f"<{node}.{process_id}>"


async def connections(operator: Operator) -> AsyncIterator[tuple[Address[ToConnection], InfoItems]]:
    """The connections of all nodes with their info items; those that are ending are left out."""
    async for node, addresses in _connections(operator):
        for slice_ in _slices(addresses):
            asked = [operator.process.ask(address, to_connection.info(), timeout=ANSWER_SECONDS) for address in slice_]
            for address, items in zip(slice_, await in_time(asked)):
                if items is not None and items["state"] not in ENDING:
                    yield address, {**items, "pid": pid(node, items["pid"])}
            await operator.process.next_turn()


async def _connections(operator: Operator) -> AsyncIterator[tuple[str, Sequence[Address[ToConnection]]]]:
    """The connections of each node that answers, by the name of the node, this one first."""
    here = operator.context.node_name
    yield here, await operator.process.ask(operator.node, to_node.connections())
    others = sorted(node.name for node in operator.context.definitions.nodes.values() if node.incarnation)
    asked = {
        name: operator.process.ask(operator.context.peers.node(name), to_node.connections(), timeout=ANSWER_SECONDS)
        for name in others
        if name != here
    }
    for name, addresses in zip(asked, await in_time(asked.values())):
        if addresses is None:
            log.warning("%s does not answer, so its connections and channels are not listed", name)
        else:
            yield name, addresses


async def _queue_rows(operator: Operator, vhost: str) -> Iterator[QueueRow]:
    check_vhost(operator, vhost)
    return await sorted_in_parts(operator, operator.context.routing.queues(vhost), attrgetter("name"))


async def sorted_in_parts(
    operator: Operator, things: Sequence[Item], key: Callable[[Item], str], part: int = SORTED
) -> Iterator[Item]:
    """The things in the order of their keys. They are sorted in parts, with the turns of others in between, and the
    parts are merged while the caller goes through them.
    """
    parts = []
    for start in range(0, len(things), part):
        parts.append(sorted(things[start : start + part], key=key))
        await operator.process.next_turn()
    return heapq.merge(*parts, key=key)


def _still_exists(operator: Operator, row: QueueRow) -> bool:
    return operator.context.routing.queue(row.vhost, row.name) is not None


def _queue_columns(operator: Operator, row: QueueRow, answer: InfoItems | None) -> InfoItems:
    items = {**queue_items(row, operator.context.definitions), **(answer or {}), "pid": pid(row.node, row.queue_id)}
    members = member_items(row, operator.context.definitions)
    items |= members
    if row.group is not None and not members:
        mirrors = {member: pid(member.node, row.queue_id) for member in row.group.everyone[1:]}
        items["slave_pids"] = list(mirrors.values())
        items["synchronised_slave_pids"] = [mirrors[member] for member in row.group.ring[1:]]
    if row.exclusive_owner is not None:
        items["owner_pid"] = pid(row.node, row.exclusive_owner)
    if items.get("exclusive_consumer"):
        items["exclusive_consumer_pid"] = pid(row.node, items["exclusive_consumer"])
    return items


def _slices(things: Iterable[Item]) -> Iterator[list[Item]]:
    """The things in slices of `SLICE`; fewer if they have very many arguments."""
    slice_: list[Item] = []
    work = 0
    for thing in things:
        slice_.append(thing)
        work += _work(thing)
        if work >= SLICE:
            yield slice_
            slice_, work = [], 0
    if slice_:
        yield slice_


def emptied(things: list[Item]) -> Iterator[list[Item]]:
    """As `_slices`, but the list loses each slice, so that it is freed after its use. To free 50,000 rows at once takes
    8 ms.
    """
    things.reverse()
    while things:
        slice_: list[Item] = []
        work = 0
        while things and work < SLICE:
            slice_.append(things.pop())
            work += _work(slice_[-1])
        yield slice_


def _work(thing: object) -> int:
    """How many things without arguments take as long as this one."""
    arguments = thing.get("arguments") if isinstance(thing, dict) else getattr(thing, "arguments", None)
    return 1 + len(arguments or ()) // ARGUMENTS_AS_ONE


async def _selected_slices(
    operator: Operator, rows: Iterable[InfoItems], chosen: tuple[str, ...]
) -> AsyncIterator[Rows]:
    for slice_ in _slices(rows):
        yield [_selected(items, chosen) for items in slice_]
        await operator.process.next_turn()


async def _of_connections(operator: Operator, question: Callable[[], Any]) -> AsyncIterator[tuple[str, list[Any]]]:
    """The answers of all connections with the names of their nodes, in slices."""
    async for node, addresses in _connections(operator):
        for slice_ in _slices(addresses):
            asked = [operator.process.ask(address, question(), timeout=ANSWER_SECONDS) for address in slice_]
            yield node, [answer for answer in await in_time(asked) if answer is not None]
            await operator.process.next_turn()


async def in_time(asked: Iterable[Awaitable[Answer] | None]) -> list[Answer | None]:
    """The answers, None for each process that is ending or does not answer in time."""
    answers: list[Answer | None] = []
    for answer in asked:
        try:
            answers.append(None if answer is None else await answer)
        except (ProcessDown, ProcessTimeout):
            answers.append(None)
    return answers


def _selected(items: InfoItems, chosen: tuple[str, ...]) -> dict[str, object]:
    """The chosen columns as plain values; a column that the thing does not have is empty (CM-29)."""
    return {name: _plain(items.get(name)) for name in chosen}


def _plain(value: object) -> object:
    if value is None:
        return ""
    return {"table": _entries(value)} if isinstance(value, Table) else value


def _entries(table: Iterable[tuple[str, str, Any]], level: int = 0) -> list[list[Any]]:
    """A table as triples of name, type and value (CM-30)."""
    return [[name, *_typed(letter, value, level + 1)] for name, letter, value in table]


def _typed(letter: str, value: Any, level: int) -> list[Any]:
    if (letter == "F" or letter == "A") and level == LEVELS_SHOWN:
        return ["longstr", "..."]
    if letter == "F":
        return ["table", _entries(value, level)]
    if letter == "A":
        return ["array", [_typed(inner, element, level + 1) for inner, element in value]]
    if letter in "Sx":
        return [TYPE_NAMES[letter], value.decode("utf-8", "surrogateescape")]
    return [TYPE_NAMES[letter], value]
