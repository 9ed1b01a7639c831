"""The values that `Broker` returns: frozen snapshots of queues, exchanges, connections, messages and so on.

The field names are rabbitmqctl's info items. Arguments, headers and client properties are plain Python values: long
strings as `str`, tables as `dict`, arrays as `list`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from .amqp.fields import Table, table_to_dict
from .amqp.properties import decode_properties


@dataclass(frozen=True, slots=True)
class LongTurn:
    """A turn of one of the broker's processes, during which all others waited.

    `process` names a queue, or the kind of process and its number. `message` is the last message that the process
    handled. `seconds` is processor time, and `ended_at` is in seconds since the epoch.
    """

    process: str
    message: str
    seconds: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """What a whole broker has seen since its start.

    `longest_turns` are the ten longest turns of a millisecond and more, the longest one first. `dead_letters` counts
    messages between processes whose receiver had ended, which is no fault; AMQP's dead letters are something else.
    """

    longest_turns: list[LongTurn]
    dead_letters: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue.

    `state` is `running`, `flow` while the queue slows its publishers down, `short` while it refuses publishes that
    await a confirm because too few replicas are in sync, `crashed` or `stopped` if its process could not be restarted,
    or `down` if its virtual host is. A queue that does not run, or does not answer within 5 s, has no counts:
    `messages` to `consumers`, `queue_mode`, `first_number` and `next_number` are None.

    `messages` is `messages_ready` + `messages_unacknowledged`, all counted at the same moment. `first_number` is the
    lowest sequence number in the queue (it may be lower than that if the head of the backlog is on disk) and
    `next_number` the one that the next message gets; a queue with priorities has neither. `queue_id` is made anew when
    the queue is declared again. `life` counts how often the queue skipped numbers after a crash. Each of `gaps` has the
    first number that was skipped, the first one after them, and the life that began there.

    `node` is the name of the node at which the queue is at home: the only one that there is, or one of a cluster. Of a
    mirrored queue that is the node of its master. `mirrors` are the nodes of its other replicas, `in_sync` the nodes
    whose replica has all messages, the master's first, and `wanted_nodes` the running nodes that should have a replica
    according to the policy. A queue without mirrors has no `mirrors` and no `wanted_nodes`.
    """

    name: str
    vhost: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, Any]
    messages: int | None
    messages_ready: int | None
    messages_unacknowledged: int | None
    message_bytes: int | None
    consumers: int | None
    state: str
    queue_mode: str | None
    first_number: int | None
    next_number: int | None
    queue_id: str
    node: str
    mirrors: tuple[str, ...]
    in_sync: tuple[str, ...]
    wanted_nodes: tuple[str, ...]
    life: int | None
    gaps: list[list[int]] | None


@dataclass(frozen=True, slots=True)
class ExchangeInfo:
    """An exchange; the default exchange has the empty name."""

    name: str
    vhost: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A binding. `destination_kind` is `queue` or `exchange`.

    Every queue is bound to the default exchange, whose name is empty, with its own name as routing key.
    """

    vhost: str
    source_name: str
    destination_name: str
    destination_kind: str
    routing_key: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer. `active` is False while it waits behind a single active consumer."""

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
    """A client's connection. `state` is the protocol's state, such as `running`, or `flow`, `blocking` or `blocked`."""

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
    """A channel of a client's connection; `number` is the channel number that the client uses."""

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
    """A message returned by `Broker.get`.

    `properties` has the AMQP properties that the publisher set, except headers. `headers` is empty if there were none.
    """

    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Mapping[str, Any]
    headers: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The body decoded as UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode("utf-8")


Info = TypeVar("Info", QueueInfo, ExchangeInfo, BindingInfo, ConsumerInfo, ConnectionInfo, ChannelInfo)


def info(kind: type[Info], items: Mapping[str, Any]) -> Info:
    """A value of the class `kind` from the node's info items. Items for which the class has no field are left out.

    A queue that does not run has no counts; its fields for them are None.
    """
    return kind(**{item.name: _plain(items.get(item.name)) for item in fields(kind)})


def message(props: bytes, body: bytes, exchange: str, routing_key: str, redelivered: bool) -> Message:
    """A `Message` from encoded properties and a body."""
    properties = decode_properties(props)
    values = {item.name: getattr(properties, item.name) for item in fields(properties)}
    headers = values.pop("headers")
    known = {name: value for name, value in values.items() if value is not None}
    return Message(body, exchange, routing_key, redelivered, known, table_to_dict(headers or Table()))


def _plain(value: Any) -> Any:
    return table_to_dict(value) if isinstance(value, Table) else value
