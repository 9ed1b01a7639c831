"""Operations that do what an AMQP client of a user might do: declare, bind, delete, purge, publish and get.

Each opens a channel with the permissions of the user and sends it one method, so that everything is checked as it is
for a client, and a refusal has AMQP's reply code. The HTTP API performs the requests of its users by these operations.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

from .....amqp import methods
from .....amqp.constants import NOT_FOUND
from .....amqp.errors import AmqpError
from .....amqp.fields import FieldError, Table, table_from
from .....amqp.method import Method
from .....amqp.properties import Properties, decode_properties, encode_properties
from .....routing.phrases import no_queue
from .....routing.properties_key import properties_key as key_of
from .....runtime.contract import Address
from ....channel.direct_client import DirectClient
from ....context.node_context import NodeContext
from ....context.starting import ToNewDirectClient, to_new_direct_client
from ....contracts.channel import FetchedMessage, Moved, Outcome, ToDirectClient, to_direct_client
from ....contracts.metadata import to_metadata
from ....statistics.counts import NodeCounts
from ..observing.listings import SLICE
from ..plain_values import plain, plain_table
from ..registry import OperationError, Operator, Rows, operation

#: Seconds that a method may take.
CALL_SECONDS = 60.0

#: Messages that one `get_messages` may fetch.
FETCHED_MAX = 100_000

#: Messages that one `move_messages_as` may move, and that it moves before it asks again, so that each question is
#: answered in time.
MOVED_MAX, MOVED_STEP = 100_000, 1_000

#: The queue of aliveness tests, and the expiration of their messages in ms. It removes a message that was published and
#: could not be fetched (CM-311).
ALIVENESS_QUEUE, ALIVENESS_EXPIRATION = "aliveness-test", "10000"

#: How the modes of `get_messages` settle what they fetch (CM-301).
OUTCOMES: dict[str, Outcome] = {
    "ack_requeue_true": "requeue",
    "reject_requeue_true": "requeue",
    "ack_requeue_false": "ack",
    "reject_requeue_false": "reject",
}


@asynccontextmanager
async def _client(
    operator: Operator, user: str, context: NodeContext | None = None
) -> AsyncIterator[Address[ToDirectClient]]:
    address: Address[ToNewDirectClient] = operator.process.createActor(DirectClient)
    operator.process.send(address, to_new_direct_client.start(context or operator.context, user))
    try:
        yield address
    finally:
        operator.process.request_exit(address)


async def _call(operator: Operator, user: str, vhost: str, method: Method) -> Method:
    async with _client(operator, user) as client:
        return await operator.process.ask(client, to_direct_client.call(vhost, method), CALL_SECONDS)


def _table(arguments: dict[str, Any]) -> Table:
    try:
        return table_from(arguments)
    except FieldError as error:
        raise OperationError("data", f"Bad argument: the arguments are no field table: {error}") from None


@operation()
async def declare_queue_as(
    operator: Operator,
    *,
    user: str,
    vhost: str,
    name: str,
    durable: bool,
    auto_delete: bool,
    arguments: dict[str, Any],
) -> None:
    """Declare a queue, or check that one with these properties exists."""
    method = methods.QueueDeclare(0, name, False, durable, False, auto_delete, False, _table(arguments))
    await _call(operator, user, vhost, method)


@operation()
async def delete_queue_as(
    operator: Operator, *, user: str, vhost: str, name: str, if_unused: bool, if_empty: bool
) -> None:
    """Delete a queue. RabbitMQ lets an operator delete an exclusive one as well."""
    await _call(operator, user, vhost, methods.QueueDelete(0, name, if_unused, if_empty, False))


@operation()
async def purge_queue_as(operator: Operator, *, user: str, vhost: str, name: str) -> None:
    """Remove the ready messages of a queue."""
    await _call(operator, user, vhost, methods.QueuePurge(0, name, False))


@operation()
async def declare_exchange_as(
    operator: Operator,
    *,
    user: str,
    vhost: str,
    name: str,
    type: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, Any],
) -> None:
    """Declare an exchange, or check that one with these properties exists."""
    method = methods.ExchangeDeclare(0, name, type, False, durable, auto_delete, internal, False, _table(arguments))
    await _call(operator, user, vhost, method)


@operation()
async def delete_exchange_as(operator: Operator, *, user: str, vhost: str, name: str, if_unused: bool) -> None:
    """Delete an exchange."""
    await _call(operator, user, vhost, methods.ExchangeDelete(0, name, if_unused, False))


@operation()
async def bind_as(
    operator: Operator,
    *,
    user: str,
    vhost: str,
    source: str,
    kind: Literal["queue", "exchange"],
    destination: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> None:
    """Bind a queue or an exchange to the exchange `source`."""
    table = _table(arguments)
    method: Method = methods.ExchangeBind(0, destination, source, routing_key, False, table)
    if kind == "queue":
        method = methods.QueueBind(0, destination, source, routing_key, False, table)
    await _call(operator, user, vhost, method)


@operation()
async def unbind_as(
    operator: Operator,
    *,
    user: str,
    vhost: str,
    source: str,
    kind: Literal["queue", "exchange"],
    destination: str,
    properties_key: str,
) -> None:
    """Remove the binding with this properties key (CM-294)."""
    found = await operator.process.ask(operator.context.metadata, to_metadata.list("bindings", vhost))
    wanted = source, kind, destination, properties_key
    for start in range(0, len(found), SLICE):
        for items in found[start : start + SLICE]:
            key = key_of(items["routing_key"], items["arguments"])
            if (items["source_name"], items["destination_kind"], items["destination_name"], key) == wanted:
                arguments = items["arguments"]
                method: Method = methods.ExchangeUnbind(0, destination, source, items["routing_key"], False, arguments)
                if kind == "queue":
                    method = methods.QueueUnbind(0, destination, source, items["routing_key"], arguments)
                await _call(operator, user, vhost, method)
                return
        await operator.process.next_turn()
    raise AmqpError(NOT_FOUND, f"no binding {properties_key} between '{source}' and '{destination}' in vhost '{vhost}'")


@operation()
async def publish_as(
    operator: Operator,
    *,
    user: str,
    vhost: str,
    exchange: str,
    routing_key: str,
    properties: dict[str, Any],
    payload: bytes,
) -> bool:
    """Publish a message, and return whether it reached a queue (CM-300)."""
    known = {key: value for key, value in properties.items() if key in Properties.__slots__}
    headers = known.pop("headers", None)
    try:
        props = encode_properties(Properties(**known, headers=None if headers is None else _table(headers)))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise OperationError("data", f"Bad argument: the properties cannot be sent: {error}") from None
    async with _client(operator, user) as client:
        request = to_direct_client.publish(vhost, exchange, routing_key, props, payload)
        return await operator.process.ask(client, request, CALL_SECONDS)


@operation()
async def get_messages_as(
    operator: Operator, *, user: str, vhost: str, queue: str, count: int, ackmode: str
) -> AsyncIterator[Rows]:
    """Up to `count` messages of a queue, which are all settled in the end as `ackmode` asks for (CM-301)."""
    outcome = OUTCOMES.get(ackmode)
    if outcome is None or not 0 < count <= FETCHED_MAX:
        raise OperationError("data", f"Bad argument: the mode '{ackmode}' or the count {count} cannot be used")
    async with _client(operator, user) as client:
        request = to_direct_client.fetch(vhost, queue, count, outcome)
        messages = await operator.process.ask(client, request, CALL_SECONDS)
    for found in messages:
        yield [_message(found)]


@operation()
async def test_aliveness_as(operator: Operator, *, user: str, vhost: str) -> bool:
    """Publish a message to the queue of aliveness tests, which stays, and get it back. Return whether it was there.

    A load balancer does this once a second. So these messages are not in the counts of the node (CM-311).
    """
    declare = methods.QueueDeclare(0, ALIVENESS_QUEUE, False, False, False, False, False, _table({}))
    props = encode_properties(Properties(expiration=ALIVENESS_EXPIRATION))
    async with _client(operator, user, replace(operator.context, counts=NodeCounts())) as client:
        publish = to_direct_client.publish(vhost, "", ALIVENESS_QUEUE, props, b"aliveness_test")
        fetch = to_direct_client.fetch(vhost, ALIVENESS_QUEUE, 1, "ack")
        await operator.process.ask(client, to_direct_client.call(vhost, declare), CALL_SECONDS)
        await operator.process.ask(client, publish, CALL_SECONDS)
        return bool(await operator.process.ask(client, fetch, CALL_SECONDS))


@operation()
async def move_messages_as(
    operator: Operator, *, user: str, vhost: str, source: str, destination: str, count: int
) -> dict[str, object]:
    """Move up to `count` messages of a queue to another one of the virtual host, in their order.

    A message leaves its queue only when the other one has confirmed it. So if this ends before its time, each message
    is in one of the queues or in both, and a later call goes on with those that are left.
    """
    if not 0 < count <= MOVED_MAX:
        raise OperationError("data", f"Bad argument: the count {count} is not from 1 to {MOVED_MAX}")
    if source == destination:
        raise OperationError("data", f"Bad argument: the messages are in queue '{source}' already")
    routing = operator.context.routing
    for name in (source, destination):
        if routing.queue(vhost, name) is None:
            raise no_queue(vhost, name)
    moved, found = 0, Moved(0, 0, "")
    async with _client(operator, user) as client:
        while moved < count:
            step = min(count - moved, MOVED_STEP)
            found = await operator.process.ask(
                client, to_direct_client.move(vhost, source, destination, step), CALL_SECONDS
            )
            moved += found.moved
            if found.moved < step:
                break
    return {"moved": moved, "left": found.left, "failure": found.failure}


def _message(found: FetchedMessage) -> dict[str, Any]:
    properties = decode_properties(found.props)
    values = {name: getattr(properties, name) for name in Properties.__slots__}
    if properties.headers is not None:
        values["headers"] = plain_table(properties.headers)
    return {
        "body": found.body,
        "exchange": found.exchange,
        "routing_key": found.routing_key,
        "redelivered": found.redelivered,
        "message_count": found.messages_left,
        "properties": {name: plain(value) for name, value in values.items() if value is not None},
    }
