"""`NodeSupervisor`: the root of everything that runs in a node, and the place where it is wired together.

    NodeSupervisor
      Metadata                      the routing table's writer
      Alarms
      MemoryMonitor
      DiskMonitor                   with a data directory
      VhostSupervisor   per vhost   QueueSupervisor -> Queue ...
      Listener          per address Connection ... -> Channel ...        one without TLS, and one with it if `tls_port` is set
      DirectClient                  channels without a socket, for the program that embeds the broker

They start in this order, so that nobody meets a process that is not there yet. A virtual host that fails closes its own
connections (AB-171). If one of the others fails the node has lost something that nothing can give back, so it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from thespian.actors import ActorExitRequest

from ...amqp.constants import CONNECTION_FORCED
from ...amqp.errors import AmqpError
from ...limits import LimitError
from ...routing.phrases import no_queue
from ...routing.rows import QueueRow
from ...routing.table import RoutingTable
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.file_limits import REAL_FILES, FileLimits
from ...store.disk.disk import Disk
from ...store.disk.progress import NO_PROGRESS, Progress
from ...store.disk.real_disk import RealDisk
from ..channel.direct_client import DirectClient
from ..connection.listener import Listener, ListenError
from ..connection.tls_context import TlsError
from ..disk.disk_retry import Backoff
from ..disk.errors import StorageError
from ..metadata.info_items import queue_items
from ..metadata.process import Metadata
from ..resources.alarms import Alarms
from ..resources.disk_monitor import DiskMonitor
from ..resources.memory_monitor import MemoryMonitor
from .context import NodeContext
from .extensions import NO_EXTENSIONS, Extensions
from .vhost_supervisor import VhostSupervisor

log = logging.getLogger("warren.node")

SHORTSTR_MAX = 255  # octets

LIST_TIMEOUT = 5.0  # s that a listing waits for a process; one that does not answer is left out

QUEUE_MODES = ("default", "lazy")

LIST_KINDS = ("bindings", "channels", "connections", "consumers", "exchanges", "queues", "vhosts")


class NodeError(ProcessError):
    """A request to the node that cannot be met; the text is for a person."""


class NodeSupervisor(Process):
    """
    ('start', settings, extensions, open_disk, boot_id, progress, limits) -> {'node_name', 'host', 'port', 'tls_port' (None without TLS), 'direct': address of the DirectClient,
                                       'memory': the memory monitor's status, 'down': names of virtual hosts that could not be started}; ListenError, TlsError, StorageError.
                                       With a data directory, whoever asks holds its `claim` until this node has ended
    ('stop', reason)                -> True; closes every connection with X320, waits `stop_timeout`, ends (AB-31)
    ('list', kind, vhost)           -> list of dicts keyed by rabbitmqctl's info items; vhost None: all; NodeError
    ('queue_info', vhost, name)     -> the dict that 'list' has for this queue; AmqpError 404, NodeError
    ('set_alarm', source, on)       -> True; source 'memory' or 'disk'. What the monitors raise and clear is beside it
    ('set_watermark', value)        -> the memory monitor's status; LimitError
    ('set_disk_free_limit', value)  -> the disk monitor's status; LimitError, NodeError without a data directory
    ('close_connections', reason)   -> how many there were; each is closed with X320 as an operator would (AB-31)
    ('create_vhost', name)          -> None; an existing one is success (AB-169); NodeError for a name no client could open
    ('delete_vhost', name)          -> None; its connections are being closed with X320, everything else of it is gone (AB-170); NodeError
    ('set_queue_mode', vhost, queue, mode)     -> None; 'default' or 'lazy' until the queue's process ends, whatever it was declared as; AmqpError 404, NodeError
    ('trace', vhost, on)            -> None; copies of what is published and delivered go to amq.rabbitmq.trace from now on, or no more (AB-81); NodeError
    ('await_end',)                  never answered: the asker gets ProcessDown when the node ends

    From Metadata: ('start_vhost', name, rows) -> (the address of its queue supervisor, the rows of the durable queues it had, as they are now);
    ('stop_vhost', name) -> True, when nothing of it is left.
    """

    reply_errors = (AmqpError, LimitError, ProcessError)

    async def on_start(
        self,
        sender: Any,
        settings: Any,
        extensions: Extensions = NO_EXTENSIONS,
        open_disk: Callable[[str], Disk] = RealDisk,
        boot_id: str | None = None,
        progress: Progress = NO_PROGRESS,
        limits: FileLimits = REAL_FILES,
    ) -> dict[str, Any]:
        self.settings = settings
        self.listeners: list[Any] = []
        self.vhosts: dict[str, Any] = {}  # name -> address of its supervisor, if that runs
        self.revivals: dict[str, Backoff] = {}  # of virtual hosts that could not be started
        self.routing = RoutingTable(extensions.exchange_decorators)
        self.alarms = self._core(Alarms)
        self.metadata = self._core(Metadata)
        self.memory_monitor = self._core(MemoryMonitor)
        self.context = NodeContext(
            settings.node_name,
            settings,
            self.routing,
            self.metadata,
            self.alarms,
            extensions,
            self.memory_monitor,
            open_disk,
            boot_id,
            progress,
            limits,
        )
        memory = await self.ask(self.memory_monitor, ("start", self.context))
        self.disk_monitor = None
        if settings.data_dir is not None:
            self.disk_monitor = self._core(DiskMonitor)
            await self.ask(self.disk_monitor, ("start", self.context, memory["total"]))
        try:
            await self.ask(self.metadata, ("start", self.context, self.myAddress))
        except StorageError:
            self.stop("cannot use its data directory")
            raise
        await self.ask(self.metadata, ("create_vhost", settings.default_vhost))
        self.direct = self._core(DirectClient)
        self.send(self.direct, ("start", self.context))
        # TLS first: what is wrong with its files is found before anybody is let in.
        tls_port = None if settings.tls_port is None else (await self._listen(settings.tls_port, True))[1]
        host, port = await self._listen(settings.port, False)
        for listener, sibling in zip(self.listeners, reversed(self.listeners)):
            if listener is not sibling:
                self.send(listener, ("sibling", sibling))
        return {
            "node_name": settings.node_name,
            "host": host,
            "port": port,
            "tls_port": tls_port,
            "direct": self.direct,
            "memory": memory,
            "down": sorted(self.routing.down),
        }

    async def _listen(self, port: int, tls: bool) -> tuple[str, int]:
        listener = self.createActor(Listener)
        try:
            host, port = await self.ask(listener, ("start", self.context, self.settings.host, port, tls))
        except (ListenError, TlsError):
            self.stop("cannot listen")
            raise
        self.listeners.append(listener)
        self.monitor(listener, Listener.__name__)
        log.info("%s listens on %s:%s%s", self.settings.node_name, host, port, " for TLS" if tls else "")
        return host, port

    def _core(self, process: type[Process]) -> Any:
        address = self.createActor(process)
        self.monitor(address, process.__name__)
        return address

    async def on_stop(self, sender: Any, reason: str) -> bool:
        for listener in self.listeners:
            await self.ask(listener, ("stop_accepting",))
        closing = ("close_connections", CONNECTION_FORCED, f"broker forced connection closure with reason '{reason}'")
        closed = [self.ask(listener, closing, timeout=self.settings.stop_timeout / 1000) for listener in self.listeners]
        try:
            for answer in closed:
                await answer
        except ProcessTimeout:
            log.warning("some clients did not answer within %s ms; hanging up", self.settings.stop_timeout)
        # What went with the connections goes from the disk too: auto-delete queues, and what they took along.
        with suppress(AmqpError, ProcessTimeout):
            await self.ask(self.metadata, ("write", ()), timeout=self.settings.stop_timeout / 1000)
        for name, address in self.vhosts.items():
            self.demonitor(("vhost", name))
            with suppress(ProcessDown):
                await self.ask(address, ("terminate",))
        self.stop(reason)
        return True

    async def on_close_connections(self, sender: Any, reason: str) -> int:
        connections = await self._connections()
        for address in connections:
            self.send(address, ("force_close", CONNECTION_FORCED, reason))
        return len(connections)

    async def _connections(self) -> list[Any]:
        return [address for listener in self.listeners for address in await self.ask(listener, ("connections",))]

    def on_await_end(self, sender: Any) -> None:
        """See above."""

    def on_down(self, name: Any, reason: ExitReason) -> Any:
        if isinstance(name, tuple):
            return self._close_vhost(name[1], reason)
        log.error("%s ends because its %s did: %s", self.settings.node_name, name, reason)
        self.stop(f"{name} ended: {reason}")
        return None

    # --- virtual hosts ------------------------------------------------------------------------------------------------

    async def on_create_vhost(self, sender: Any, name: str) -> None:
        if not 0 < len(name.encode("utf-8", "surrogateescape")) <= SHORTSTR_MAX:
            raise NodeError(
                f"a virtual host's name has 1 to {SHORTSTR_MAX} octets of UTF-8, for that is what a client can open; this one has {len(name)} characters"
            )
        await self.ask(self.metadata, ("create_vhost", name))

    async def on_delete_vhost(self, sender: Any, name: str) -> None:
        if not await self.ask(self.metadata, ("delete_vhost", name)):
            raise NodeError(f"Virtual host '{name}' does not exist")
        log.info("vhost '%s' is deleted", name)

    async def on_trace(self, sender: Any, vhost: str, on: bool) -> None:
        self._check_vhost(vhost)
        await self.ask(self.metadata, ("trace", vhost, on))

    def on_set_queue_mode(self, sender: Any, vhost: str, name: str, mode: str) -> None:
        self._check_vhost(vhost)
        if mode not in QUEUE_MODES:
            raise NodeError(f"unknown queue mode '{mode}'; it is one of: {', '.join(QUEUE_MODES)}")
        row = self.routing.queue(vhost, name)
        if row is None:
            raise no_queue(vhost, name)
        if row.state == "running":
            self.send(row.address, ("set_queue_mode", mode))
        self.reply(sender, None)

    def _check_vhost(self, name: str) -> None:
        if not self.routing.has_vhost(name):
            raise NodeError(f"Virtual host '{name}' does not exist")

    async def on_start_vhost(self, sender: Any, name: str, rows: list[QueueRow]) -> tuple[Any, list[QueueRow]]:
        address = self.vhosts[name] = self.createActor(VhostSupervisor)
        self.monitor(address, ("vhost", name))
        try:
            started: tuple[Any, list[QueueRow]] = await self.ask(address, ("start", self.context, name, rows))
        except StorageError:
            # Its disk may have room later, or be there again.
            self.start_timer(self.revivals.setdefault(name, Backoff()).next(), name)
            raise
        self.revivals.pop(name, None)
        return started

    def on_timer(self, name: str) -> None:
        """Of a virtual host that could not be started."""
        self.send(self.metadata, ("revive_vhost", name))

    async def on_stop_vhost(self, sender: Any, name: str) -> bool:
        await self._close_connections_of(name, f"vhost '{name}' is deleted")
        self.send(self.direct, ("forget_vhost", name))
        address = self.vhosts.pop(name, None)
        if address is not None:
            self.demonitor(("vhost", name))
            self.send(address, ActorExitRequest())
            with suppress(ProcessDown):
                await self.ask(address, ("await_end",))
        if self.settings.data_dir is not None:
            await self._remove_vhost(name)
        return True

    async def _remove_vhost(self, name: str) -> None:
        """What it has on disk. A start finds what is left here, if that fails: nothing refers to it."""
        try:
            await self.run_blocking(DataDir(self.settings.data_dir).remove_vhost, name)
        except OSError as error:
            log.warning("the files of vhost '%s', which is deleted, could not be removed: %s", name, error)

    async def _close_vhost(self, name: str, reason: ExitReason) -> None:
        del self.vhosts[name]
        log.error("vhost '%s' is down: %s", name, reason)
        self.send(self.metadata, ("vhost_down", name))
        await self._close_connections_of(name, f"vhost '{name}' is down")

    async def _close_connections_of(self, vhost: str, text: str) -> None:
        """X320 for all that opened it (AB-31); each knows itself whether it did."""
        for address in await self._connections():
            self.send(address, ("close_if_on", vhost, CONNECTION_FORCED, text))

    # --- alarms -------------------------------------------------------------------------------------------------------

    async def on_set_alarm(self, sender: Any, source: str, on: bool) -> bool:
        await self.ask(self.alarms, ("set", source, on))
        return True

    async def on_set_watermark(self, sender: Any, value: Any) -> dict[str, Any]:
        status: dict[str, Any] = await self.ask(self.memory_monitor, ("set_watermark", value))
        return status

    async def on_set_disk_free_limit(self, sender: Any, value: Any) -> dict[str, Any]:
        if self.disk_monitor is None:
            raise NodeError("a node without a data_dir keeps nothing on disk, so it watches none")
        status: dict[str, Any] = await self.ask(self.disk_monitor, ("set_limit", value))
        return status

    # --- listings -----------------------------------------------------------------------------------------------------

    async def on_list(self, sender: Any, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        if kind not in LIST_KINDS:
            raise NodeError(f"unknown kind '{kind}'; it is one of: {', '.join(LIST_KINDS)}")
        if vhost is not None:
            self._check_vhost(vhost)
        if kind in ("queues", "consumers"):
            return await self._list_queues(kind, self._queue_rows(vhost))
        if kind in ("connections", "channels"):
            return await self._list_connections(kind, vhost)
        found: list[dict[str, Any]] = await self.ask(self.metadata, ("list", kind, vhost))
        return found

    async def on_queue_info(self, sender: Any, vhost: str, name: str) -> dict[str, Any]:
        self._check_vhost(vhost)
        row = self.routing.queue(vhost, name)
        found = [] if row is None else await self._list_queues("queues", [row])
        if not found:  # it never existed, or was deleted while it was asked
            raise no_queue(vhost, name)
        return found[0]

    def _queue_rows(self, vhost: str | None) -> list[QueueRow]:
        vhosts = self.routing.vhosts() if vhost is None else (vhost,)
        return [row for name in vhosts for row in self.routing.queues(name)]

    async def _list_queues(self, kind: str, rows: list[QueueRow]) -> list[dict[str, Any]]:
        question = ("info",) if kind == "queues" else ("consumers_info",)
        asked = [(row, self._ask_info(row.address, question) if row.state == "running" else None) for row in rows]
        found: list[dict[str, Any]] = []
        for row, pending in asked:
            answer = None if pending is None else await _answer(pending)
            if kind == "consumers":
                found += answer or ()
            elif answer is not None:
                found.append({**queue_items(row), **answer})
            elif self.routing.queue(row.vhost, row.name) is not None:
                found.append(queue_items(row))
        return found

    async def _list_connections(self, kind: str, vhost: str | None) -> list[dict[str, Any]]:
        connections = await self._connections()
        question = ("info",) if kind == "connections" else ("channels_info",)
        asked = [self._ask_info(address, question) for address in connections]
        found: list[dict[str, Any]] = []
        for pending in asked:
            answer = await _answer(pending)
            if answer is not None:
                found += [answer] if kind == "connections" else answer
        return list(_of_vhost(found, vhost))

    def _ask_info(self, address: Any, question: tuple[str]) -> Awaitable[Any]:
        return self.ask(address, question, timeout=LIST_TIMEOUT)


async def _answer(pending: Awaitable[Any]) -> Any:
    """The answer, or None from a process that is ending or does not answer in time."""
    try:
        return await pending
    except (ProcessDown, ProcessTimeout):
        return None


def _of_vhost(rows: Iterable[dict[str, Any]], vhost: str | None) -> Iterable[dict[str, Any]]:
    return (row for row in rows if vhost is None or row["vhost"] == vhost)
