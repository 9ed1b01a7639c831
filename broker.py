"""`Broker`: a node inside your own process.

    with Broker() as broker:
        print(broker.url)                      # amqp://guest:guest@127.0.0.1:40123/%2F, for any AMQP 0-9-1 client
        broker.declare_queue("orders")
        broker.publish(b"hello", "orders")     # True: it reached a queue
        broker.get("orders").body              # b'hello'

`start` returns when the port accepts connections; `stop` closes every connection with 320 CONNECTION_FORCED and ends the broker's thread.
Brokers share nothing: as many as you like in one process. Everything is kept in memory and gone after `stop`; with `data_dir="…"` what is durable is there again at the next start.

All methods may be called from any thread. They wait for the broker's own thread, typically well under a millisecond, so asyncio code may
call them directly; only `wait_idle` can take long, and belongs in `asyncio.to_thread`. What the broker refuses is raised as `BrokerError`
with AMQP's reply code; a name that is no `str`, or longer than the 255 octets that AMQP carries, as TypeError or ValueError.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote

from .actors.node.extensions import Extensions
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
    Row,
    message,
    rows,
)
from .running_node import BrokerError, RunningNode, StartError
from .settings import Settings

__all__ = ["Broker", "BrokerError", "StartError"]


class Broker:
    """A broker on a port of its own, in a background thread of this process.

    `port` 0 lets the operating system choose; further keywords are those of `Settings`. Use it with `with` or `async with`, or call `start` and `stop`.
    A stopped broker may be started again; without a `data_dir` it is then empty. `extensions` are objects of the classes in `warren.actors.node.extensions`, which see
    and may change what it does.

    Raises `SettingsError` when made with a wrong setting, `ExtensionError` for extensions that cannot be used together, and `StartError` from `start` when it cannot listen or use
    its data directory.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", *, extensions: Iterable[object] = (), **settings: Any):
        self._extensions = Extensions.of(extensions)
        self.settings = Settings.of(port=port, host=host, **settings)
        self._changing = threading.Lock()
        self._running: RunningNode | None = None

    # -- life -----------------------------------------------------------------------------------------------------------------

    def start(self) -> Broker:
        """Start listening; returns when connections are accepted, and what its data directory holds is there. Does nothing if it is running."""
        with self._changing:
            if self._running is None:
                self._running = RunningNode(self.settings, extensions=self._extensions)
        return self

    def stop(self) -> None:
        """Close all connections (320 CONNECTION_FORCED), end the thread and free the port. Does nothing if it is not running.

        Takes at most about `stop_timeout`, and with a data directory as long as it takes to put everything in its place there."""
        with self._changing:
            node, self._running = self._running, None
            if node is not None:
                node.stop()

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        # In a thread: clients on this very event loop must be able to answer the close meanwhile.
        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        return f"<Broker {self.url}>" if self.is_running else "<Broker, stopped>"

    # -- where it is -----------------------------------------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._node.host

    @property
    def port(self) -> int:
        """The port it listens on, never 0."""
        return self._node.port

    @property
    def url(self) -> str:
        """An AMQP URL with user, password and virtual host, as every client library takes it. Wildcard addresses are given as this machine."""
        return self.url_of(self.settings.default_vhost)

    def url_of(self, vhost: str) -> str:
        """The URL for another virtual host, whether it exists or not; characters that mean something in a URL are percent-encoded."""
        return self._url("amqp", self._node.port, vhost)

    @property
    def tls_port(self) -> int | None:
        """The port for TLS, never 0; None if the setting `tls_port` is None."""
        return self._node.tls_port

    @property
    def tls_url(self) -> str:
        """As `url`, with TLS (`amqps://`). Raises RuntimeError for a broker without."""
        port = self._node.tls_port
        if port is None:
            raise RuntimeError("the broker does not speak TLS; give it tls_port and tls_cert_file")
        return self._url("amqps", port, self.settings.default_vhost)

    def _url(self, scheme: str, port: int, vhost: str) -> str:
        node, settings = self._node, self.settings
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(node.host, node.host)
        if ":" in host:
            host = f"[{host}]"
        # The virtual host is written out as %2F: clients disagree about what an empty path means.
        user, password, path = (quote(part, safe="") for part in (settings.default_user, settings.default_pass, vhost))
        return f"{scheme}://{user}:{password}@{host}:{port}/{path}"

    # -- virtual hosts ---------------------------------------------------------------------------------------------------------

    def vhosts(self) -> list[str]:
        """The names of all virtual hosts."""
        return [row["name"] for row in self._node.ask_node(("list", "vhosts", None))]

    def create_vhost(self, name: str) -> None:
        """Create a virtual host, with the exchanges that every one has. One that exists stays as it is.

        Raises `BrokerError`: 530 for a name that is empty or longer than 255 octets, 541 if a broker with a data directory cannot write it.
        """
        self._node.ask_node(("create_vhost", _string("name", name)))

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its queues, exchanges and messages. Connections to it are closed with 320, `vhost '…' is deleted`; others notice nothing.

        Raises `BrokerError` 530 if there is none of that name. May be used on the default one, which `url` then leads to no more until it is created again.
        """
        self._node.ask_node(("delete_vhost", _string("name", name)))

    # -- looking ---------------------------------------------------------------------------------------------------------------

    def queues(self, vhost: str | None = None) -> list[QueueInfo]:
        """All queues of the virtual host (the default one if None)."""
        return self._list(QueueInfo, "queues", vhost)

    def queue(self, name: str, vhost: str | None = None) -> QueueInfo:
        """One queue. Raises `BrokerError` 404 if there is none of that name."""
        for info in self.queues(vhost):
            if info.name == name:
                return info
        raise BrokerError(404, "NOT_FOUND", f"no queue '{name}' in vhost '{self._vhost(vhost)}'")

    def exchanges(self, vhost: str | None = None) -> list[ExchangeInfo]:
        """All exchanges of the virtual host, the predefined ones included."""
        return self._list(ExchangeInfo, "exchanges", vhost)

    def bindings(self, vhost: str | None = None) -> list[BindingInfo]:
        """All bindings of the virtual host, those of the default exchange included."""
        return self._list(BindingInfo, "bindings", vhost)

    def consumers(self, vhost: str | None = None) -> list[ConsumerInfo]:
        """All consumers of the virtual host's queues."""
        return self._list(ConsumerInfo, "consumers", vhost)

    def connections(self) -> list[ConnectionInfo]:
        """All connections, of every virtual host, in whatever state."""
        return rows(ConnectionInfo, self._node.ask_node(("list", "connections", None)))

    def channels(self) -> list[ChannelInfo]:
        """All channels of all connections."""
        return rows(ChannelInfo, self._node.ask_node(("list", "channels", None)))

    def _list(self, kind: type[Row], items: str, vhost: str | None) -> list[Row]:
        return rows(kind, self._node.ask_node(("list", items, self._vhost(vhost))))

    # -- doing -----------------------------------------------------------------------------------------------------------------

    def publish(
        self,
        body: bytes | str,
        routing_key: str = "",
        exchange: str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        vhost: str | None = None,
        **properties: Any,
    ) -> bool:
        """Publish one message and wait until its queues have it. True if it reached a queue.

        `body` is sent as UTF-8 if it is a `str`. `properties` are AMQP's: content_type, delivery_mode, priority (0 to 255), correlation_id, reply_to, expiration
        (`str` of ms), message_id, timestamp (seconds), type, user_id, app_id …
        Raises `BrokerError`: 404 for an exchange that is not there, 406 if a full queue refused the message; TypeError or ValueError for a property that AMQP cannot carry.
        """
        known = Properties(headers=None if headers is None else _table("headers", headers), **properties)
        octets = body.encode("utf-8") if isinstance(body, str) else bytes(memoryview(body))
        names = _text("exchange", exchange), _text("routing_key", routing_key)
        reached: bool = self._node.ask_direct(
            ("publish", self._vhost(vhost), *names, encode_properties(known), octets, True)
        )
        return reached

    def get(self, queue: str, *, ack: bool = True, vhost: str | None = None) -> Message | None:
        """The oldest ready message, or None if there is none. It is taken out of the queue; with `ack=False` it stays, marked redelivered."""
        found = self._node.ask_direct(("get", self._vhost(vhost), _text("queue", queue), ack))
        return None if found is None else message(*found[:5])

    def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> str:
        """Declare a queue and return its name, which the broker chooses if none is given. Raises `BrokerError` 406 if it exists with other properties."""
        declare = methods.QueueDeclare(
            queue=_text("name", name),
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
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Declare an exchange of type direct, fanout, topic or headers. Raises `BrokerError` 406 if it exists with other properties, 503 for an unknown type."""
        self._call(
            methods.ExchangeDeclare(
                exchange=_text("name", name),
                type=_text("type", type),
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=_table("arguments", arguments),
            ),
            vhost,
        )

    def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        vhost: str | None = None,
    ) -> None:
        """Bind a queue to an exchange. Raises `BrokerError` 404 if either is missing."""
        bind = methods.QueueBind(
            queue=_text("queue", queue),
            exchange=_text("exchange", exchange),
            routing_key=_text("routing_key", routing_key),
            arguments=_table("arguments", arguments),
        )
        self._call(bind, vhost)

    def purge(self, queue: str, *, vhost: str | None = None) -> int:
        """Drop all ready messages; returns how many there were."""
        return int(self._call(methods.QueuePurge(queue=_text("queue", queue)), vhost).message_count)

    def delete_queue(self, name: str, *, vhost: str | None = None) -> int:
        """Delete a queue with all it holds; returns the number of ready messages. A queue that is not there counts 0."""
        return int(self._call(methods.QueueDelete(queue=_text("name", name)), vhost).message_count)

    def delete_exchange(self, name: str, *, vhost: str | None = None) -> None:
        """Delete an exchange and its bindings."""
        self._call(methods.ExchangeDelete(exchange=_text("name", name)), vhost)

    def set_queue_mode(self, name: str, mode: Literal["default", "lazy"], *, vhost: str | None = None) -> None:
        """Switch a queue that runs: `lazy` keeps its messages on disk rather than in memory, `default` does not. A backlog moves in steps, while the queue goes on.

        It holds until the queue's process ends, for instance with the broker; then the queue is as its argument `x-queue-mode` says. In memory both are the same.
        Raises `BrokerError`: 404 if there is no such queue, 530 for another mode.
        """
        self._node.ask_node(("set_queue_mode", self._vhost(vhost), _text("name", name), mode))

    def _call(self, method: Method, vhost: str | None) -> Any:
        return self._node.ask_direct(("call", self._vhost(vhost), method))

    # -- tracing ---------------------------------------------------------------------------------------------------------------

    def trace(self, on: bool, vhost: str | None = None) -> None:
        """Copy every message that is published or delivered in the virtual host to the exchange `amq.rabbitmq.trace` from now on, or no more.

        The copies' routing keys are `publish.<exchange>` and `deliver.<queue>`; bind a queue to see them. Off after a start.
        Raises `BrokerError` 530 for a virtual host that is not there.
        """
        self._node.ask_node(("trace", self._vhost(vhost), on))

    # -- making trouble --------------------------------------------------------------------------------------------------------

    def set_alarm(self, resource: Literal["memory", "disk"], on: bool) -> None:
        """Raise or clear a resource alarm: while one is on, connections that publish are blocked and told so (connection.blocked).

        What is raised here is cleared here alone; a resource that really runs low keeps its own alarm. Raises ValueError for another resource.
        """
        if resource not in ("memory", "disk"):
            raise ValueError(f"resource is {resource!r}; it must be 'memory' or 'disk'")
        self._node.ask_node(("set_alarm", resource, on))

    def close_connections(self, reason: str = "closed by the operator") -> int:
        """Close every connection as an operator would: clients see connection.close 320 with `reason`. Returns how many there were."""
        return int(self._node.ask_node(("close_connections", str(reason))))

    # -- limits ----------------------------------------------------------------------------------------------------------------

    def set_memory_high_watermark(self, watermark: float | str) -> int:
        """Block publishers from now on while this process uses more memory: a share of what there is (`0.4`), or a size (`"2GB"`, `"512MiB"`, bytes).

        Returns the limit in bytes, never more than there is. It holds until the broker stops; the setting is `vm_memory_high_watermark`.
        If memory is above it the alarm is on when this returns. Raises ValueError, saying what would be right.
        """
        return int(self._node.ask_node(("set_watermark", watermark))["limit"])

    def set_disk_free_limit(self, limit: float | str) -> int:
        """Block publishers from now on while less disk is free: a size (`"2GB"`, bytes), or a multiple of memory (`1.5`); 0 is off.

        Returns the limit in bytes. It holds until the broker stops; the setting is `disk_free_limit`. Raises ValueError for a limit that cannot be read,
        and `BrokerError` 530 for a broker without `data_dir`, which watches no disk.
        """
        return int(self._node.ask_node(("set_disk_free_limit", limit))["limit"])

    # -- waiting ---------------------------------------------------------------------------------------------------------------

    def wait_idle(self, timeout: float = 5.0) -> None:
        """Wait until the broker has done all it can do; raises TimeoutError after `timeout` seconds, saying what it was busy with.

        Idle means, all at one moment: no process has a message in its mailbox; no socket the broker reads has octets or a new connection waiting; nothing is
        left to write that the operating system would not take; no blocking call is under way. What clients sent before is therefore
        routed, queued, and delivered as far as consumers' prefetch allows. Not counted: timers (a TTL still to come), octets that a client holds back or has
        not read from its own socket, and connections whose input the broker has paused (blocked by an alarm).
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


def _text(what: str, value: str) -> str:
    """`value`, which a frame can carry. Here, for in the broker it would be taken for a fault of its own."""
    size = len(_string(what, value).encode("utf-8", "surrogateescape"))
    if size > 255:
        raise ValueError(f"{what} has {size} octets; 255 is the most that AMQP carries")
    return value


def _string(what: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _table(what: str, values: Mapping[str, Any] | None) -> Table:
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(values).__name__}")
    return table_from(values or {})
