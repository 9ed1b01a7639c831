"""`Messaging`: the methods of `Broker` that list, declare, bind, publish and get.

They send AMQP methods over a channel without a socket.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Unpack

from .actors.contracts.channel import to_direct_client
from .actors.contracts.node import to_node
from .administration import Administration
from .amqp import methods
from .amqp.fields import Table, table_from
from .amqp.method import Method
from .amqp.properties import Properties, encode_properties
from .listings import (
    BindingInfo,
    ChannelInfo,
    ConnectionInfo,
    ConsumerInfo,
    ExchangeInfo,
    Message,
    QueueInfo,
    info,
    message,
)


class MessageProperties(TypedDict, total=False):
    """AMQP's properties of a message, except `headers`, as keywords of `Broker.publish`."""

    content_type: str
    content_encoding: str
    #: 1 transient, 2 persistent
    delivery_mode: int
    #: 0 to 255
    priority: int
    correlation_id: str
    reply_to: str
    #: milliseconds, written as a string
    expiration: str
    message_id: str
    #: seconds since 1970
    timestamp: int
    type: str
    user_id: str
    app_id: str
    cluster_id: str


class Messaging(Administration):
    """See the module. `vhost=None` is the default virtual host. A refusal by the broker is a `BrokerError`."""

    # -- virtual hosts ---

    def vhosts(self) -> list[str]:
        """The names of all virtual hosts."""
        return [row["name"] for row in self._node.ask_node(to_node.list("vhosts", None))]

    def create_vhost(self, name: str) -> None:
        """Create a virtual host with its predefined exchanges; the default user gets all permissions in it.

        Does nothing if it exists.

        Raises `BrokerError`: 530 for a name that is empty or longer than 255 bytes, 541 if a broker with a data
        directory cannot write to it.
        """
        self._node.operate("add_vhost", name=_string("name", name), granted_to=self.settings.default_user)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its queues, exchanges and messages.

        Its connections are closed with 320, `vhost '…' is deleted`; other connections are not affected. The default
        virtual host may be deleted as well; clients then cannot connect to `url` until it is created again.
        Raises `BrokerError` 530 if there is no virtual host of that name.
        """
        self._node.operate("delete_vhost", name=_string("name", name))

    # -- listings ---

    def queues(self, vhost: str | None = None) -> list[QueueInfo]:
        """All queues of the virtual host (None: the default one)."""
        return [info(QueueInfo, row) for row in self._list("queues", vhost)]

    def queue(self, name: str, vhost: str | None = None) -> QueueInfo:
        """One queue. Raises `BrokerError` 404 if there is no queue of that name."""
        return info(QueueInfo, self._node.ask_node(to_node.queue_info(self._vhost(vhost), _text("name", name))))

    def exchanges(self, vhost: str | None = None) -> list[ExchangeInfo]:
        """All exchanges of the virtual host, including the predefined ones."""
        return [info(ExchangeInfo, row) for row in self._list("exchanges", vhost)]

    def bindings(self, vhost: str | None = None) -> list[BindingInfo]:
        """All bindings of the virtual host, including those of the default exchange."""
        return [info(BindingInfo, row) for row in self._list("bindings", vhost)]

    def consumers(self, vhost: str | None = None) -> list[ConsumerInfo]:
        """All consumers of the virtual host's queues."""
        return [info(ConsumerInfo, row) for row in self._list("consumers", vhost)]

    def connections(self) -> list[ConnectionInfo]:
        """All connections to all virtual hosts, in every state."""
        return [info(ConnectionInfo, row) for row in self._node.ask_node(to_node.list("connections", None))]

    def channels(self) -> list[ChannelInfo]:
        """All channels of all connections."""
        return [info(ChannelInfo, row) for row in self._node.ask_node(to_node.list("channels", None))]

    def _list(self, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        return self._node.ask_node(to_node.list(kind, self._vhost(vhost)))

    # -- messages ---

    def publish(
        self,
        body: bytes | str,
        routing_key: str = "",
        exchange: str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        vhost: str | None = None,
        **properties: Unpack[MessageProperties],
    ) -> bool:
        """Publish one message and wait until its queues have it (persistent messages: on disk).

        Returns True if the message reached a queue. A `str` body is encoded as UTF-8. `properties` are AMQP's:
        content_type, content_encoding, delivery_mode (2: persistent), priority, correlation_id, reply_to, expiration
        (milliseconds as `str`), message_id, timestamp (seconds), type, user_id, app_id, cluster_id. Raises
        `BrokerError`: 404 if the exchange does not exist, 406 if a full queue refused the message; TypeError or
        ValueError for a property that AMQP cannot carry.
        """
        known = Properties(headers=None if headers is None else _table("headers", headers), **properties)
        data = body.encode("utf-8") if isinstance(body, str) else bytes(memoryview(body))
        names = _text("exchange", exchange), _text("routing_key", routing_key)
        request = to_direct_client.publish(self._vhost(vhost), *names, encode_properties(known), data)
        return self._node.ask_direct(request)

    def get(
        self, queue: str, *, requeue: bool = False, vhost: str | None = None, ack: bool | None = None
    ) -> Message | None:
        """Remove the oldest ready message from the queue and return it; None if there is none.

        With `requeue=True` the message goes back to its place in the queue, marked as redelivered. `ack` is deprecated:
        `ack=False` is the old spelling of `requeue=True`.
        """
        if ack is not None:
            warnings.warn(
                "Broker.get(ack=...) is deprecated: write requeue=True instead of ack=False, and leave out ack=True",
                DeprecationWarning,
                stacklevel=2,
            )
            requeue = not ack
        found = self._node.ask_direct(to_direct_client.get(self._vhost(vhost), _text("queue", queue), not requeue))
        return None if found is None else message(*found[:5])

    # -- queues, exchanges and bindings ---

    def declare_queue(
        self,
        name: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> str:
        """Declare a queue and return its name; the broker generates a name if `name` is empty.

        With `passive=True` nothing is created: the call checks that the queue exists and ignores the other properties.
        Raises `BrokerError`: 406 if the queue exists with other properties, 404 if a passive declaration finds no
        queue.
        """
        declare = methods.QueueDeclare(
            queue=_text("name", name),
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            arguments=_table("arguments", arguments),
        )
        return str(self._call(declare, vhost).queue)

    def declare_exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Declare an exchange of type direct, fanout, topic or headers.

        With `passive=True` nothing is created: the call checks that the exchange exists and ignores the other
        properties. Raises `BrokerError`: 406 if the exchange exists with other properties, 404 if a passive declaration
        finds no exchange, 503 for an unknown type.
        """
        declare = methods.ExchangeDeclare(
            exchange=_text("name", name),
            type=_text("type", type),
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=_table("arguments", arguments),
        )
        self._call(declare, vhost)

    def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Bind a queue to an exchange. Raises `BrokerError` 404 if either does not exist."""
        bind = methods.QueueBind(
            queue=_text("queue", queue),
            exchange=_text("exchange", exchange),
            routing_key=_text("routing_key", routing_key),
            arguments=_table("arguments", arguments),
        )
        self._call(bind, vhost)

    def unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Remove the binding with this queue, exchange, routing key and arguments. Does nothing if there is none."""
        unbind = methods.QueueUnbind(
            queue=_text("queue", queue),
            exchange=_text("exchange", exchange),
            routing_key=_text("routing_key", routing_key),
            arguments=_table("arguments", arguments),
        )
        self._call(unbind, vhost)

    def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Bind the exchange `destination` to the exchange `source`, which then passes matching messages on to it.

        Raises `BrokerError` 404 if either does not exist.
        """
        bind = methods.ExchangeBind(
            destination=_text("destination", destination),
            source=_text("source", source),
            routing_key=_text("routing_key", routing_key),
            arguments=_table("arguments", arguments),
        )
        self._call(bind, vhost)

    def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Remove a binding made by `bind_exchange` with the same arguments. Does nothing if there is none."""
        unbind = methods.ExchangeUnbind(
            destination=_text("destination", destination),
            source=_text("source", source),
            routing_key=_text("routing_key", routing_key),
            arguments=_table("arguments", arguments),
        )
        self._call(unbind, vhost)

    def purge(self, queue: str, *, vhost: str | None = None) -> int:
        """Drop all ready messages of the queue and return their number."""
        return int(self._call(methods.QueuePurge(queue=_text("queue", queue)), vhost).message_count)

    def delete_queue(self, name: str, *, vhost: str | None = None) -> int:
        """Delete a queue and its messages. Returns the number of ready messages; 0 if the queue does not exist."""
        return int(self._call(methods.QueueDelete(queue=_text("name", name)), vhost).message_count)

    def delete_exchange(self, name: str, *, vhost: str | None = None) -> None:
        """Delete an exchange and its bindings. Does nothing if it does not exist."""
        self._call(methods.ExchangeDelete(exchange=_text("name", name)), vhost)

    def set_queue_mode(self, name: str, mode: Literal["default", "lazy"], *, vhost: str | None = None) -> None:
        """Switch a running queue: a `lazy` queue keeps its messages on disk, a `default` queue in memory while there is
        room.

        The queue moves a backlog in steps and keeps working meanwhile. The mode lasts until the queue's process ends,
        for instance at `stop`; the next process uses the queue's argument `x-queue-mode`. Without a `data_dir` the mode
        has no effect. Raises `BrokerError`: 404 if the queue does not exist, 530 for another mode.
        """
        self._node.ask_node(to_node.set_queue_mode(self._vhost(vhost), _text("name", name), mode))

    def _call(self, method: Method, vhost: str | None) -> Any:
        """The broker's reply to the method: an object of the matching `-Ok` class."""
        return self._node.ask_direct(to_direct_client.call(self._vhost(vhost), method))

    def _vhost(self, vhost: str | None) -> str:
        return self.settings.default_vhost if vhost is None else _text("vhost", vhost)


def _text(what: str, value: str) -> str:
    """`value`, checked to fit an AMQP short string.

    The check is here because encoding it inside the broker would raise there and end one of the broker's processes.
    """
    size = len(_string(what, value).encode("utf-8", "surrogateescape"))
    if size > 255:
        raise ValueError(f"{what} has {size} bytes; AMQP allows at most 255")
    return value


def _string(what: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _table(what: str, values: Mapping[str, Any] | None) -> Table:
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(values).__name__}")
    return table_from(values or {})
