"""What `Broker` tells about its node: one small frozen value per queue, exchange, binding, consumer, connection, channel and message.

The names are rabbitmqctl's info items; arguments, headers and client properties are plain Python (long strings as `str`, tables as `dict`,
arrays as `list`). A value is a snapshot: it does not follow the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from .amqp.fields import Table, table_to_dict
from .amqp.properties import decode_properties


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue. `messages` = `messages_ready` + `messages_unacknowledged`; the three, and `message_bytes`, are counted in the queue's own mailbox order.

    `first_number` is the lowest sequence number in it (of a backlog whose head is on disk it may be less), `next_number` the next it will give; both are None of
    a queue with priorities. `queue_mode` is what it has now, None of a queue that does not run.
    """

    name: str
    vhost: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    messages: int
    messages_ready: int
    messages_unacknowledged: int
    message_bytes: int
    consumers: int
    state: str
    queue_mode: str | None
    first_number: int | None
    next_number: int | None


@dataclass(frozen=True, slots=True)
class ExchangeInfo:
    """An exchange; the default one has the empty name."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A binding from an exchange to a queue or an exchange; every queue has one from the default exchange under its own name."""

    vhost: str
    source_name: str
    destination_name: str
    destination_kind: str
    routing_key: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer. `active` is False for one that waits behind a single active consumer."""

    queue_name: str
    vhost: str
    consumer_tag: str
    ack_required: bool
    exclusive: bool
    prefetch_count: int
    active: bool
    activity_status: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A client's connection. `state` is the protocol's state, or `flow`, `blocking`, `blocked` (AB-36)."""

    name: str
    user: str
    vhost: str
    peer_host: str
    peer_port: int
    state: str
    channels: int
    client_properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """A channel of a client's connection; `number` is the client's own."""

    name: str
    number: int
    user: str
    vhost: str
    state: str
    confirm: bool
    transactional: bool
    prefetch_count: int
    consumer_count: int
    messages_unacknowledged: int
    messages_unconfirmed: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message taken by `Broker.get`. `properties` holds those that were set, headers apart; `headers` is empty when there were none."""

    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Mapping[str, Any]
    headers: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The body as UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode("utf-8")


Row = TypeVar("Row")


def rows(kind: type[Row], found: list[dict[str, Any]]) -> list[Row]:
    """Values of the class `kind` from the node's dicts, which hold more items than it has fields.

    A queue that does not run at the moment has no counts; they are given as 0.
    """
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return [kind(**{name: _plain(row.get(name, 0)) for name in names}) for row in found]


def message(props: bytes, body: bytes, exchange: str, routing_key: str, redelivered: bool) -> Message:
    """A `Message` from what is on the wire."""
    properties = decode_properties(props)
    values = {item.name: getattr(properties, item.name) for item in fields(properties)}
    headers = values.pop("headers")
    known = {name: value for name, value in values.items() if value is not None}
    return Message(body, exchange, routing_key, redelivered, known, table_to_dict(headers or Table()))


def _plain(value: Any) -> Any:
    return table_to_dict(value) if isinstance(value, Table) else value
