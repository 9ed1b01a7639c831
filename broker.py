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
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, Unpack
from urllib.parse import quote

from .actors.context.extensions import Extensions
from .actors.contracts.node import to_node
from .listings import BrokerStats, LongTurn
from .messaging import Messaging
from .running_node import BrokerError, RunningNode, StartError, StartInterrupted, begin
from .settings import NodeKeywords, Settings

log = logging.getLogger("warren.node")

__all__ = ["Broker", "BrokerError", "StartError"]


class Broker(Messaging):
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
        #: The run of the node that is starting because the cluster has declared the previous one down.
        self._beginning: RunningNode | None = None
        self._is_wanted = False

    # -- start and stop ---

    def start(self) -> Broker:
        """Start the broker; return once it accepts connections and has recovered its data directory.

        Does nothing if the broker is running.
        """
        with self._changing:
            if self._running is None:
                self._running = begin(partial(RunningNode, self.settings, extensions=self._extensions))
                self._is_wanted = True
                if self.settings.cluster_port is not None:
                    name = f"{self.settings.node_name} begins anew"
                    threading.Thread(target=self._begin_anew, args=(self._running,), name=name, daemon=True).start()
        return self

    def _begin_anew(self, node: RunningNode) -> None:
        """Start the node again each time the cluster has declared it down (CL-55), until the broker is stopped."""
        while node.await_anew():
            with self._changing:
                if self._running is not node:
                    return
                # Keep the ports, because clients know them.
                settings = replace(self.settings, port=node.port, tls_port=node.tls_port)
                node.stop("the cluster has declared this node down")
                self._running = None
                try:
                    node = begin(partial(RunningNode, settings, extensions=self._extensions, on_begin=self._begins))
                except (StartError, StartInterrupted, RuntimeError) as error:
                    # A system that is abandoned while it is being made raises RuntimeError.
                    if self._is_wanted:
                        log.error("%s cannot begin anew: %s", settings.node_name, error)
                    return
                finally:
                    self._beginning = None
                self._running = node

    def _begins(self, node: RunningNode) -> None:
        self._beginning = node
        if not self._is_wanted:
            raise StartInterrupted

    def _end_beginning(self) -> None:
        """Abandon a run that is starting and prevent further ones: a start may wait long for the other members."""
        self._is_wanted = False
        node = self._beginning
        if node is not None:
            node.abandon()

    def stop(self) -> None:
        """Close all connections (320 CONNECTION_FORCED), end the thread and free the port.

        Takes at most about `stop_timeout`; with a data directory it also takes as long as flushing to disk takes. Does
        nothing if the broker is not running.
        """
        self._end_beginning()
        with self._changing:
            node, self._running = self._running, None
            if node is not None:
                node.stop()

    def kill(self) -> None:
        """End as a process does that gets SIGKILL, for tests of what a crash leaves.

        Nothing more is written to disk, and connections break without a connection.close. A broker with a `data_dir`
        has at its next start whatever it had confirmed. Does nothing if the broker is not running.
        """
        self._end_beginning()
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
        await start_in_thread(self.start, self.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        # Stop in a thread, because clients on this event loop must be able to answer connection.close meanwhile.
        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        if not self.is_running:
            return "<Broker, stopped>"
        settings = self.settings
        # The default password is publicly known. Any other must not get into a log or a traceback.
        is_known = settings.default_pass == "guest" and settings.default_pass_file is None
        url = self._url("amqp", self._node.port, settings.default_vhost, has_password=is_known)
        return f"<Broker {url}>"

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

    def _url(self, scheme: str, port: int, vhost: str, has_password: bool = True) -> str:
        node, settings = self._node, self.settings
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(node.host, node.host)
        if ":" in host:
            host = f"[{host}]"
        # The default virtual host is written out as %2F: client libraries disagree about the meaning of an empty path.
        login = quote(settings.default_user, safe="")
        if has_password:
            login += f":{quote(settings.first_password(), safe='')}"
        return f"{scheme}://{login}@{host}:{port}/{quote(vhost, safe='')}"

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


def _settings(given: Settings | None, port: int | None, host: str | None, keywords: NodeKeywords) -> Settings:
    """`given`, or the defaults with port 0, changed by the keywords. Raises SettingsError."""
    values: dict[str, Any] = {"port": 0}
    if given is not None:
        values = {item.name: getattr(given, item.name) for item in fields(given)}
    values |= {name: value for name, value in (("port", port), ("host", host)) if value is not None}
    return Settings.of(**{**values, **keywords})


async def start_in_thread(start: Callable[[], object], stop: Callable[[], object]) -> None:
    """Call `start` in another thread. If the task that waits is cancelled, call `stop` as soon as `start` has returned:
    the thread goes on in any case, and nobody else would end what it starts.
    """
    starting = asyncio.create_task(asyncio.to_thread(start))

    async def end() -> None:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await asyncio.to_thread(stop)

    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.create_task(end()))
        raise


def running_node(broker: Broker) -> RunningNode | None:
    """The node that the object controls, for `Cluster`; None if the broker does not run."""
    return broker._running
