"""The handlers of requests that declare, delete, bind, publish and get with the permissions of their user."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from typing import Any
from urllib.parse import quote

from ...amqp.fields import FieldError, table_from
from ...routing.properties_key import properties_key
from ..call import Answer, ApiCall, boolean, integer, required, text
from ..copy.node_link import OperationRefused
from ..errors import HttpError, bad_request, not_found, of_refusal
from .reading import binding_key, connection_key, ends, exchange_name, node_in_path, queue_name

Row = dict[str, Any]

CREATED, CHANGED = Answer(201), Answer(204)

#: The reason that a client gets whose connection an operator closes without giving one (CM-240).
CLOSED = "Closed via management plugin"

#: Seconds that a request waits until the connections that it closes have left the list. It waits no longer, because a
#: client that hangs may never answer the broker's close. It does not wait for connections of other nodes, whose lists
#: are fetched only once in an interval.
CLOSE_TIMEOUT = 2.0

#: AMQP's reply code of a publish that a queue does not take, or that is wrong.
REFUSED = 406

#: How a fetched message can be settled (CM-301).
ACK_MODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")

#: Messages that one request moves unless it says otherwise.
MOVED = 1_000

#: What browsing shows unless the request has other numbers: messages, and bytes of each body.
BROWSED, BROWSED_BODY = 20, 50_000

#: The properties of a message by the type of their values.
TEXT_PROPERTIES = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type"),
    *("user_id", "app_id", "cluster_id"),
)
NUMBER_PROPERTIES = ("delivery_mode", "priority", "timestamp")


# -- queues ---


async def put_queue(call: ApiCall) -> Any:
    vhost, name = call.own_vhost(), call.names["queue"]
    fields = await call.fields()
    is_new = (vhost, name) not in call.state.queues
    # A client-local queue is at home on the node that declares it, which the request may choose.
    node = fields.get("node") or call.state.node_name
    if not isinstance(node, str):
        raise bad_request(["not_string", "node"])
    if node not in {counted.node_name for counted in call.state.counted}:
        raise bad_request(f"node '{node}' is not a running node of the cluster")
    await call.change_on(
        node,
        "declare_queue_as",
        user=call.user.name,
        vhost=vhost,
        name=name,
        durable=boolean(fields.get("durable")),
        auto_delete=boolean(fields.get("auto_delete")),
        arguments=arguments(fields),
    )
    return CREATED if is_new else CHANGED


async def delete_queue(call: ApiCall) -> Any:
    vhost, name = await queue_name(call)
    call.own_vhost()
    await call.change(
        "delete_queue_as",
        user=call.user.name,
        vhost=vhost,
        name=name,
        if_unused=call.flag("if-unused"),
        if_empty=call.flag("if-empty"),
    )
    return CHANGED


async def purge_queue(call: ApiCall) -> Any:
    vhost, name = await queue_name(call)
    call.own_vhost()
    await call.change("purge_queue_as", user=call.user.name, vhost=vhost, name=name)
    return CHANGED


async def queue_action(call: ApiCall) -> Any:
    vhost, name = await queue_name(call)
    (action,) = required(await call.fields(), "action")
    if action not in ("sync", "cancel_sync"):
        raise bad_request(["unknown", action])
    await call.change("queue_action", vhost=vhost, name=name, action=action)
    return CHANGED


async def get_messages(call: ApiCall) -> Any:
    vhost, name = call.own_vhost(), call.names["queue"]
    fields = await call.fields()
    mode, count, encoding = required(fields, "ackmode", "count", "encoding")
    if mode not in ACK_MODES:
        raise bad_request(["unknown_ackmode", mode])
    count = integer(count)
    encoding = _checked_encoding(encoding)
    truncate = None if fields.get("truncate") is None else integer(fields["truncate"])
    rows: list[Row] = []
    if count > 0:
        names = {"user": call.user.name, "vhost": vhost, "queue": name}
        rows = await call.change("get_messages_as", **names, count=min(count, 100_000), ackmode=mode) or []
    else:
        await queue_name(call)
    return [_message(row, encoding, truncate) for row in rows]


async def move_messages(call: ApiCall) -> Any:
    """Move messages to another queue, as `{"destination": "q", "count": 1000}` asks for.

    RabbitMQ's page does this by a shovel. Here a request moves a bounded number of messages, and the next one goes on.
    """
    vhost, name = await queue_name(call)
    call.own_vhost()
    fields = await call.fields()
    (destination,) = required(fields, "destination")
    count = integer(fields.get("count", MOVED))
    names = {"user": call.user.name, "vhost": vhost, "source": name, "destination": text(destination, "destination")}
    found: Row = await call.change("move_messages_as", **names, count=count)
    if found["failure"]:
        raise bad_request(f"{found['failure']}; moved: {found['moved']}, left: {found['left']}")
    return {"moved": found["moved"], "left": found["left"]}


async def browse_messages(call: ApiCall) -> Any:
    """Messages of a queue by number, which all stay where they are: `?first=1000&count=20&truncate=50000`."""
    vhost, name = await queue_name(call)
    call.own_vhost()
    encoding = _checked_encoding(call.query("encoding") or "auto")
    first, count, truncate = (
        default if call.query(key) in (None, "") else integer(call.query(key))
        for key, default in (("first", None), ("count", BROWSED), ("truncate", BROWSED_BODY))
    )
    names = {"user": call.user.name, "vhost": vhost, "queue": name}
    home = call.state.queues[vhost, name]["node"]
    rows = await call.operate_on(home, "browse_messages_as", **names, first=first, count=count, truncate=truncate)
    return {**rows[0], "messages": [_browsed(row, encoding) for row in rows[1:]]}


def _browsed(row: Row, encoding: str) -> Row:
    body, size = row.pop("body"), row.pop("bytes")
    return {**row, "payload_bytes": size, **_payload(body, len(body) < size, encoding)}


def _message(row: Row, encoding: str, truncate: int | None) -> Row:
    body: bytes = row["body"]
    shown = body if truncate is None else body[: max(0, truncate)]
    return {
        "payload_bytes": len(body),
        "redelivered": row["redelivered"],
        "exchange": row["exchange"],
        "routing_key": row["routing_key"],
        "message_count": row["message_count"],
        "properties": row["properties"],
        **_payload(shown, len(shown) < len(body), encoding),
    }


def _checked_encoding(encoding: Any) -> str:
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    return str(encoding)


def _payload(shown: bytes, is_cut: bool, encoding: str) -> Row:
    """What is shown of a body: text if it is UTF-8 and the encoding allows it, else Base64."""
    if encoding == "auto":
        found = _text(shown, is_cut)
        if found is not None:
            return {"payload": found, "payload_encoding": "string"}
    return {"payload": base64.b64encode(shown).decode("ascii"), "payload_encoding": "base64"}


def _text(body: bytes, is_cut: bool) -> str | None:
    """The body as text, None if it is none. One that is cut ends before the character that is incomplete."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(body) - 3 and error.reason == "unexpected end of data":
            return body[: error.start].decode("utf-8")
        return None


# -- exchanges ---


async def put_exchange(call: ApiCall) -> Any:
    vhost, name = call.own_vhost(), call.exchange()
    fields = await call.fields()
    is_new = (vhost, name) not in call.state.exchanges
    await call.change(
        "declare_exchange_as",
        user=call.user.name,
        vhost=vhost,
        name=name,
        type=fields.get("type") or "direct",
        durable=boolean(fields.get("durable")),
        auto_delete=boolean(fields.get("auto_delete")),
        internal=boolean(fields.get("internal")),
        arguments=arguments(fields),
    )
    return CREATED if is_new else CHANGED


async def delete_exchange(call: ApiCall) -> Any:
    vhost, name = await exchange_name(call)
    call.own_vhost()
    await call.change(
        "delete_exchange_as", user=call.user.name, vhost=vhost, name=name, if_unused=call.flag("if-unused")
    )
    return CHANGED


async def publish(call: ApiCall) -> Any:
    vhost, exchange = call.own_vhost(), call.exchange()
    fields = await call.fields()
    key, properties, payload, encoding = required(fields, "routing_key", "properties", "payload", "payload_encoding")
    if not isinstance(payload, str):
        raise bad_request("payload_not_string")
    if encoding == "string":
        body = payload.encode("utf-8", "surrogatepass")
    elif encoding == "base64":
        try:
            body = base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(["not_base64", payload]) from None
    else:
        raise bad_request(["unsupported_encoding", encoding])
    names = {"user": call.user.name, "vhost": vhost, "exchange": exchange, "routing_key": text(key, "routing_key")}
    found = _properties(properties)
    try:
        return {"routed": await call.perform("publish_as", **names, properties=found, payload=body)}
    except OperationRefused as refusal:
        if refusal.code == REFUSED and refusal.text == "the message was refused by a queue":
            raise bad_request("Unable to publish message. Check queue limits.") from None
        if refusal.code == REFUSED:
            raise bad_request(f"{REFUSED} PRECONDITION_FAILED - {refusal.text}") from None
        raise of_refusal(refusal) from None


def _properties(given: Any) -> Row:
    """The properties of a message with values of the right types. RabbitMQ writes an empty object as a list."""
    if given == []:
        return {}
    if not isinstance(given, dict):
        raise bad_request(["not_object", "properties"])
    found: Row = {}
    for name, value in given.items():
        if name in NUMBER_PROPERTIES:
            try:
                found[name] = integer(value)
            except HttpError:
                raise bad_request(["not_int", name]) from None
        elif name in TEXT_PROPERTIES:
            if not isinstance(value, str):
                raise bad_request(["not_string", name])
            found[name] = value
        elif name == "headers":
            found[name] = arguments({"arguments": value})
    return found


# -- bindings ---


async def put_binding(call: ApiCall) -> Any:
    vhost = call.own_vhost()
    fields = await call.fields()
    given, key, between = arguments(fields), fields.get("routing_key") or "", ends(call)
    key = text(key, "routing_key")
    await call.change(
        "bind_as",
        user=call.user.name,
        vhost=vhost,
        source=between["source"],
        kind=between["destination_type"],
        destination=between["destination"],
        routing_key=key,
        arguments=given,
    )
    location = quote(properties_key(key, table_from(given)), safe="")
    return Answer(201, None, {"location": f"{quote(between['destination'], safe='')}/{location}"})


async def delete_binding(call: ApiCall) -> Any:
    vhost, between = call.own_vhost(), ends(call)
    try:
        await call.change(
            "unbind_as",
            user=call.user.name,
            vhost=vhost,
            source=between["source"],
            kind=between["destination_type"],
            destination=between["destination"],
            properties_key=binding_key(call),
        )
    except HttpError as error:
        raise not_found() if error.status == 404 else error from None
    return CHANGED


def arguments(fields: Row) -> Row:
    """The arguments of a declaration, which are an AMQP table (CM-295). Raises HttpError."""
    given = fields.get("arguments")
    if given is None or given == []:
        return {}
    if not isinstance(given, dict):
        raise bad_request(["not_object", "arguments"])
    try:
        table_from(given)
    except FieldError as error:
        raise bad_request(f"the arguments are no table of AMQP: {error}") from None
    return given


# -- connections ---


async def delete_connection(call: ApiCall) -> Any:
    key = await connection_key(call)
    if call.state.connections[key]["user"] != call.user.name:
        call.user.check("administrator")
    await _close(call, [call.state.connections[key]])
    return CHANGED


async def delete_user_connections(call: ApiCall) -> Any:
    user = call.names["user"]
    if user != call.user.name:
        call.user.check("administrator")
    await _close(call, [row for row in call.state.connections.values() if row["user"] == user])
    return CHANGED


async def _close(call: ApiCall, rows: list[Row]) -> None:
    reason = call.request.headers.get("x-reason") or CLOSED
    for row in rows:
        await call.operate_on(row["node"], "close_connection", connection=row["name"], reason=reason)
    await call.refresh()
    # Wait until the list lacks the closed connections. A client that lists them after this answer would otherwise
    # conclude that a client has connected again.
    closed = {row["name"] for row in rows if row["node"] == call.state.node_name}
    deadline = time.monotonic() + CLOSE_TIMEOUT
    while time.monotonic() < deadline and any(row["name"] in closed for row in call.state.connections.values()):
        await asyncio.sleep(0.01)
        await call.refresh()


async def rebalance(call: ApiCall) -> Any:
    await call.change("rebalance", is_waiting=False)
    return CHANGED


async def reset(call: ApiCall) -> Any:
    """Forget rates and samples."""
    if "node" in call.names:
        node_in_path(call)
    call.state.history.clear()
    return CHANGED
