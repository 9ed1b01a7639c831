"""`Broker`: an AMQP node inside your own process.

    with Broker() as broker:
        print(broker.url)                      # amqp://guest:guest@127.0.0.1:40123/%2F, for any AMQP 0-9-1 client
        broker.declare_queue("orders")
        broker.publish(b"hello", "orders")     # True: the message reached a queue
        broker.get("orders").body              # b'hello'

`start` returns once the port accepts connections. `stop` closes every connection with 320 CONNECTION_FORCED and ends
the broker's thread. Brokers share nothing, so one process may run any number of them. A broker keeps everything in
memory, and loses it at `stop`, unless it has a `data_dir`: then durable queues, exchanges and bindings and persistent
messages are there again at the next start.

Any thread may call any method. A method waits for the broker's own thread, typically well under a millisecond, so
asyncio code may call it directly; only `wait_idle` can take long and belongs in `asyncio.to_thread`. A refusal by the
broker is raised as `BrokerError` with AMQP's reply code. A name that is not a `str` raises TypeError; a name longer
than the 255 bytes that AMQP can carry raises ValueError.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import quote

from .actors.channel.contract import to_direct_client
from .actors.node.contract import to_node
from .actors.node.extensions import Extensions
from .administration import Administration
from .amqp import methods
from .amqp.fields import Table, table_from
from .amqp.method import Method
from .amqp.properties import Properties, encode_properties
from .listings import (
    BindingInfo,
    BrokerStats,
    ChannelInfo,
    ConnectionInfo,
    ConsumerInfo,
    ExchangeInfo,
    LongTurn,
    Message,
    QueueInfo,
    info,
    message,
)
from .running_node import BrokerError, RunningNode, StartError
from .settings import NodeKeywords, Settings

__all__ = ["Broker", "BrokerError", "StartError"]


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


class Broker(Administration):
    """A broker on a port of its own, in a background thread of this process.

    Its settings come from keywords (`Broker(heartbeat=10)`), from a `Settings` value
    (`Broker(settings=Settings(...))`), or from both; a keyword replaces the value in `settings`. Without `settings`,
    `port` is 0: the operating system chooses a free port. `extensions` are objects of the classes in
    `warren.extensions`, which observe and may change what the broker does.

    Use the broker in a `with` or `async with` block, or call `start` and `stop`. A stopped broker may be started again;
    without a `data_dir` it is then empty.

    Raises `SettingsError` for a wrong setting and `warren.extensions.ExtensionError` for extensions that cannot be used
    together. `start` raises `StartError` if the broker cannot listen or cannot use its data directory.
    """

    def __init__(
        self,
        port: int | None = None,
        host: str | None = None,
        *,
        settings: Settings | None = None,
        extensions: Iterable[object] = (),
        **keywords: Unpack[NodeKeywords],
    ):
        self._extensions = Extensions.of(extensions)
        self.settings = _settings(settings, port, host, keywords)
        self._changing = threading.Lock()
        self._running: RunningNode | None = None

    # -- start and stop ---

    def start(self) -> Broker:
        """Start the broker; return once it accepts connections and has recovered its data directory.

        Does nothing if the broker is running.
        """
        with self._changing:
            if self._running is None:
                self._running = RunningNode(self.settings, extensions=self._extensions)
        return self

    def stop(self) -> None:
        """Close all connections (320 CONNECTION_FORCED), end the thread and free the port.

        Takes at most about `stop_timeout`; with a data directory it also takes as long as flushing to disk takes. Does
        nothing if the broker is not running.
        """
        with self._changing:
            node, self._running = self._running, None
            if node is not None:
                node.stop()

    def kill(self) -> None:
        """End as a process does that gets SIGKILL, for tests of what a crash leaves.

        Nothing more is written to disk, and connections break without a connection.close. A broker with a `data_dir`
        has at its next start whatever it had confirmed. Does nothing if the broker is not running.
        """
        with self._changing:
            node, self._running = self._running, None
            if node is not None:
                node.kill()

    def pause(self) -> None:
        """Stand still as a process that gets SIGSTOP, until `resume`, for tests of what clients do meanwhile.

        Connections stay open, nothing is read and nothing is answered; other methods of this object wait. `stop` and
        `kill` end the pause.
        """
        self._node.pause()

    def resume(self) -> None:
        """Go on after `pause`. Does nothing if the broker does not stand still."""
        self._node.resume()

    @property
    def is_running(self) -> bool:
        """True between `start` and `stop`."""
        return self._running is not None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        # A forked process that leaves the `with` block leaves the broker to the process that it was forked from.
        if self._running is None or self._running.is_of_this_process:
            self.stop()

    async def __aenter__(self) -> Broker:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        # In a thread: clients on this event loop must be able to answer connection.close meanwhile.
        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        return f"<Broker {self.url}>" if self.is_running else "<Broker, stopped>"

    # -- addresses ---

    @property
    def host(self) -> str:
        """The address the broker listens on."""
        return self._node.host

    @property
    def port(self) -> int:
        """The port the broker listens on, never 0."""
        return self._node.port

    @property
    def url(self) -> str:
        """An AMQP URL with user, password and virtual host, which every client library accepts.

        If the broker listens on all addresses (`0.0.0.0`, `::`), the URL has the loopback address.
        """
        return self.url_of(self.settings.default_vhost)

    def url_of(self, vhost: str) -> str:
        """The URL for a virtual host, whether it exists or not; reserved characters are percent-encoded."""
        return self._url("amqp", self._node.port, vhost)

    @property
    def tls_port(self) -> int | None:
        """The port for TLS, never 0; None if the setting `tls_port` is None."""
        return self._node.tls_port

    @property
    def tls_url(self) -> str:
        """Like `url`, with TLS (`amqps://`). Raises RuntimeError if the setting `tls_port` is None."""
        port = self._node.tls_port
        if port is None:
            raise RuntimeError("this broker does not listen for TLS; set tls_port and tls_cert_file")
        return self._url("amqps", port, self.settings.default_vhost)

    def _url(self, scheme: str, port: int, vhost: str) -> str:
        node, settings = self._node, self.settings
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(node.host, node.host)
        if ":" in host:
            host = f"[{host}]"
        # The default virtual host is written out as %2F: client libraries disagree about the meaning of an empty path.
        user, password, path = (
            quote(part, safe="") for part in (settings.default_user, settings.first_password(), vhost)
        )
        return f"{scheme}://{user}:{password}@{host}:{port}/{path}"

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
        content_type, delivery_mode (2: persistent), priority, correlation_id, reply_to, expiration (milliseconds as
        `str`), message_id, timestamp (seconds), type, user_id, app_id. Raises `BrokerError`: 404 if the exchange does
        not exist, 406 if a full queue refused the message; TypeError or ValueError for a property that AMQP cannot
        carry.
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

    # -- tracing ---

    def trace(self, on: bool, vhost: str | None = None) -> None:
        """Start or stop copying every published and delivered message of the virtual host to `amq.rabbitmq.trace`.

        The copies have the routing keys `publish.<exchange>` and `deliver.<queue>`; bind a queue to that exchange to
        collect them. Tracing is off after a start. Raises `BrokerError` 530 if the virtual host does not exist.
        """
        self._node.ask_node(to_node.trace(self._vhost(vhost), on))

    # -- faults on purpose ---

    def set_alarm(self, resource: Literal["memory", "disk"], on: bool) -> None:
        """Raise or clear a resource alarm. While an alarm is on, publishing connections get connection.blocked.

        This alarm is separate from the one that the broker raises itself when the resource runs low: clearing one
        leaves the other on. Raises ValueError for another resource.
        """
        if resource not in ("memory", "disk"):
            raise ValueError(f"resource is {resource!r}; it must be 'memory' or 'disk'")
        self._node.ask_node(to_node.set_alarm(resource, on))

    def close_connections(self, reason: str = "closed by the operator") -> int:
        """Close every connection; its client receives connection.close 320 with `reason`. Returns their number."""
        return self._node.ask_node(to_node.close_connections(str(reason)))

    # -- limits ---

    def set_memory_high_watermark(self, watermark: float | str) -> int:
        """Block publishers while this process uses more memory than `watermark`, from now until the broker stops.

        `watermark` is a share of the available memory (`0.4`) or a size (`"2GB"`, `"512MiB"`, bytes). Returns the limit
        in bytes, at most the available memory. If the process already uses more, the alarm is on when this returns. The
        setting `vm_memory_high_watermark` applies again at the next start. Raises ValueError, with a valid example, for
        a value that is neither.
        """
        return int(self._node.ask_node(to_node.set_watermark(watermark))["limit"])

    def set_disk_free_limit(self, limit: float | str) -> int:
        """Block publishers while less disk space than `limit` is free, from now until the broker stops.

        `limit` is a size (`"2GB"`, bytes) or a multiple of the available memory (`1.5`); 0 switches the check off.
        Returns the limit in bytes. The setting `disk_free_limit` applies again at the next start. Raises ValueError for
        a value that is neither, and `BrokerError` 530 for a broker without `data_dir`, which does not watch any disk.
        """
        return int(self._node.ask_node(to_node.set_disk_free_limit(limit))["limit"])

    # -- what the whole broker does ---

    def stats(self) -> BrokerStats:
        """What the broker has seen since its start: the longest turns of its processes, and dead letters."""
        turns, dead_letters = self._node.stats()
        return BrokerStats(
            [LongTurn(turn.process, turn.message, turn.seconds, turn.ended_at) for turn in turns], dead_letters
        )

    # -- waiting ---

    def wait_idle(self, timeout: float = 5.0) -> None:
        """Wait until the broker has nothing left to do.

        The broker is idle when all of this holds at the same moment: no process has a message in its mailbox; no socket
        that the broker reads has bytes or a new connection waiting; no output waits for a socket; no blocking call is
        in progress. Everything that clients sent before the call is then routed, queued, and delivered as far as
        prefetch allows. The broker does not wait for timers (a message TTL), for bytes that a client has not sent yet
        or has not read from its own socket, or for connections that an alarm has blocked. Raises TimeoutError after
        `timeout` seconds; its text names what the broker was busy with.
        """
        self._node.wait_idle(timeout)

    @property
    def _node(self) -> RunningNode:
        node = self._running
        if node is None:
            raise RuntimeError("the broker is not running; call start(), or use it in a `with` block")
        return node

    def _vhost(self, vhost: str | None) -> str:
        return self.settings.default_vhost if vhost is None else _text("vhost", vhost)


def _settings(given: Settings | None, port: int | None, host: str | None, keywords: NodeKeywords) -> Settings:
    """`given`, or the defaults with port 0, changed by the keywords. Raises SettingsError."""
    values: dict[str, Any] = {"port": 0}
    if given is not None:
        values = {item.name: getattr(given, item.name) for item in fields(given)}
    values |= {name: value for name, value in (("port", port), ("host", host)) if value is not None}
    return Settings.of(**{**values, **keywords})


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
