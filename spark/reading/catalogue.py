"""Asking a broker about its queues: in one answer where it has a catalogue, else queue by queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...amqp import methods
from ...amqp.fields import table_from
from ...amqp.frames import content_body, content_properties
from ...amqp.properties import decode_properties
from ...store.messages.lives import Gap
from ..endpoints import Endpoint, endpoint_of
from ..errors import refused, wrong_options
from ..options import QueueOptions
from ..wire import Away, BrokerConnection, Refused
from .offsets import QueueState

#: The reserved queue that answers with the catalogue.
CATALOGUE = "amq.warren.catalogue"


def states(
    connection: BrokerConnection, names: Sequence[str], pattern: str | None, unreadable: dict[str, str] | None = None
) -> dict[str, QueueState]:
    """The queues of these names, or those that fit the pattern, as they are now. A queue that does not exist is absent.

    The shards of a sharded queue are there under their own names. A queue that cannot be read by number is an error,
    unless `unreadable` is a dict: then its name and the reason are put there, and it is absent. Raises SparkSourceError
    E4 and E5, Refused, and Away, also while one of the queues starts.
    """
    if "catalogue" in connection.features:
        return _from_catalogue(connection, names, pattern, unreadable)
    if pattern is not None:
        raise wrong_options(
            f"option 'pattern' of format 'warren': {connection.where} has no catalogue of its queues. Name them in "
            "'queues', or use a newer warren"
        )
    found = {}
    for name in names:
        state = _one(connection, name)
        if state is not None:
            found[name] = state
    return found


def _from_catalogue(
    connection: BrokerConnection, names: Sequence[str], pattern: str | None, unreadable: dict[str, str] | None
) -> dict[str, QueueState]:
    wanted: dict[str, Any] = {"x-warren-queues": list(names)} if pattern is None else {"x-warren-pattern": pattern}
    rows: list[dict[str, Any]] = []
    for delivery in connection.consume(CATALOGUE, wanted):
        rows += json.loads(content_body(delivery.content))
    readable = []
    for row in rows:
        if row.get("readable", True):
            readable.append(row)
        elif unreadable is None:
            raise refused(row["name"], f"it cannot be read by number: {row['reason']}")
        else:
            unreadable[row["name"]] = row["reason"]
    found = {row["name"]: _state(connection, row) for row in readable}
    _require_running(connection, found, names)
    return found


def subscribe(connection: BrokerConnection, options: QueueOptions) -> None:
    """Declare the queue of the options' subscription, and bind it. A queue of that name is used as it is. Does nothing
    for options without a subscription. Raises Refused and Away.
    """
    if options.exchange is None:
        return
    (name,) = options.given_names
    if not connection.declare_passively(name):
        # What waits for the query stays on the disk until the query reads it.
        arguments = table_from({"x-queue-mode": "lazy"})
        connection.call(methods.QueueDeclare(queue=name, durable=True, arguments=arguments), methods.QueueDeclareOk)
    for key in options.binding_keys:
        bind = methods.QueueBind(queue=name, exchange=options.exchange, routing_key=key)
        connection.call(bind, methods.QueueBindOk)


def _require_running(connection: BrokerConnection, found: Mapping[str, QueueState], names: Iterable[str]) -> None:
    """Raise Away if a queue, or a shard of it, exists and was not found: the catalogue leaves out queues that do not
    run.
    """
    sharded = {state.shard_of for state in found.values()}
    for name in names:
        if not covers(found, name) and connection.declare_passively(name):
            raise Away(f"{connection.where} is starting queue '{name}'")
        if name in sharded:
            connection.declare_passively(name)  # raises Away if one of its shards does not run


def covers(found: Mapping[str, QueueState], name: str) -> bool:
    """Whether a queue is among those that were found, itself or by its shards."""
    return name in found or any(state.shard_of == name for state in found.values())


def _state(connection: BrokerConnection, row: dict[str, Any]) -> QueueState:
    return QueueState(
        row["name"],
        row["first"],
        row["next"],
        row.get("id") or "",
        row.get("life") or 0,
        tuple(Gap(*gap) for gap in row["gaps"]),
        row.get("messages") or 0,
        row.get("message_bytes") or 0,
        _endpoints(connection, row),
        row.get("arguments") or {},
        row.get("consumers") or 0,
        row.get("shard_of"),
    )


def _endpoints(connection: BrokerConnection, row: dict[str, Any]) -> tuple[Endpoint, ...]:
    """The endpoints of a row of the catalogue as this machine reaches them.

    The broker cannot see by which address the client has reached it, if that was mapped on the way. So the endpoint of
    the connection stands for the node of the connection.
    """
    endpoints = [connection.options.mapped(*endpoint_of(each)) for each in row.get("endpoints") or ()]
    if row.get("here"):
        endpoints[:1] = [connection.endpoint]
    return tuple(endpoints)


def _one(connection: BrokerConnection, name: str) -> QueueState | None:
    try:
        declared = connection.call(methods.QueueDeclare(queue=name, passive=True), methods.QueueDeclareOk)
        first, after = bounds(connection, name)
    except Refused as refusal:
        connection.open_channel()
        if refusal.has_no_queue:
            return None
        if refusal.has_idle_queue:
            raise Away(f"{connection.where} answers: {refusal.text}") from refusal
        raise refused(name, str(refusal)) from refusal
    return QueueState(name, first, after, messages=declared.message_count, consumers=declared.consumer_count)


def bounds(connection: BrokerConnection, name: str) -> tuple[int, int]:
    """The lowest number in a queue, and the number of its next message. Raises Refused."""
    found = list(connection.consume(name, {"x-warren-bounds": True}))
    return bounds_in(found[0].content)


def bounds_in(content: bytes) -> tuple[int, int]:
    """The bounds that the first delivery of a reader has in its headers."""
    table = decode_properties(content_properties(content)).headers
    assert table is not None
    values = {name: value for name, _, value in table}
    return values["x-warren-first"], values["x-warren-next"]
