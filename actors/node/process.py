"""`NodeSupervisor`: the root of everything that runs in a node, and the place where it is wired together.

    NodeSupervisor
      Metadata                      the routing table's writer
      Alarms
      MemoryMonitor
      DiskMonitor                   with a data directory
      VhostSupervisor   per vhost   QueueSupervisor -> Queue ...
      DirectClient                  channels without a socket, for the program that embeds the broker
      Listener          per port    Connection ... -> Channel ...

There is a port without TLS, and one with TLS if `tls_port` is set. The processes start in this order, so that no
process sends to one that has not started. A virtual host that fails closes its own connections (AB-171). If one of the
others fails, the node has lost something that cannot be restored while it runs, so it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from thespian.actors import ActorAddress

from ...amqp.constants import CONNECTION_FORCED
from ...amqp.errors import AmqpError
from ...definitions.features import FEATURES
from ...definitions.json_text import json_text
from ...definitions.passwords import SALT_BYTES
from ...definitions.records import GlobalParameter, Permission, Record, User
from ...routing.arguments.arguments import QUEUE_MODES
from ...routing.phrases import no_queue
from ...routing.rows import QueueRow
from ...routing.shards import shards_of
from ...routing.table import WIDE, RoutingTable
from ...runtime.contract import Address, Contract, Message, Sender
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...runtime.signal import Signal
from ...settings import Settings, SettingsError
from ...settings.limits import LimitError
from ...store.data_dir.data_dir import DataDir
from ...store.data_dir.file_limits import REAL_FILES, FileLimits
from ...store.disk.disk import Disk
from ...store.disk.progress import NO_PROGRESS, Progress
from ...store.disk.real_disk import RealDisk
from ..channel.direct_client import DirectClient
from ..connection.listener import Listener
from ..context.clustering import Clustering
from ..context.events import watching_exchanges
from ..context.extensions import NO_EXTENSIONS, Extensions
from ..context.node_context import NodeContext
from ..context.peers import ALARMS_NAME, NODE_NAME
from ..context.starting import (
    ToNewControlListener,
    ToNewDirectClient,
    ToNewDiskMonitor,
    ToNewEventHub,
    ToNewListener,
    ToNewManagement,
    ToNewMembership,
    ToNewMemoryMonitor,
    ToNewMetadata,
    ToNewNode,
    ToNewRemoteSession,
    ToNewVhost,
    to_new_control_listener,
    to_new_direct_client,
    to_new_disk_monitor,
    to_new_event_hub,
    to_new_flow_reporter,
    to_new_flow_sampler,
    to_new_listener,
    to_new_management,
    to_new_membership,
    to_new_memory_monitor,
    to_new_metadata,
    to_new_remote_session,
    to_new_vhost,
)
from ..contracts.channel import to_direct_client
from ..contracts.connection import to_connection, to_listener
from ..contracts.control import ToRemoteSession
from ..contracts.events import ToEventHub
from ..contracts.info_items import InfoItems
from ..contracts.management import to_management
from ..contracts.membership import StoppedWaiting, to_membership
from ..contracts.metadata import to_metadata
from ..contracts.node import (
    AppState,
    Hold,
    Listening,
    NodeFacts,
    NodeStatus,
    ToQueueSupervisor,
    ToVhost,
    to_vhost,
)
from ..contracts.queue import to_queue
from ..contracts.resources import (
    DiskStatus,
    MemoryStatus,
    ToAlarms,
    to_alarms,
    to_disk_monitor,
    to_memory_monitor,
)
from ..control.listener import ControlError, ControlListener
from ..control.remote_session import RemoteSession
from ..disk.disk_retry import Backoff
from ..disk.errors import StorageError
from ..events.hub import EventHub
from ..management.process import Management
from ..metadata.info_items import ConsumerNames, logical_consumers, queue_items, with_shard_items
from ..metadata.log.log import OutcomeUnknown
from ..metadata.process import Metadata
from ..metadata.state.commands import EnableFeatures, PutRecords
from ..resources.alarms import Alarms
from ..resources.disk_monitor import DiskMonitor
from ..resources.memory_monitor import MemoryMonitor
from .app import BEGIN_ANEW, BEGIN_STOPPED, App
from .first_user import first_user
from .flow_reporter import FlowReporter
from .flow_sampler import FlowSampler
from .gate import Gate
from .operations.catalogue import perform
from .operations.definitions.export_and_import import load_definitions
from .operations.operating.maintenance import prepare_to_stop
from .operations.registry import OperationError, Operator
from .vhost_supervisor import VhostSupervisor

if TYPE_CHECKING:
    from ..contracts.connection import ToConnection
    from ..contracts.queue import ToQueue

log = logging.getLogger("warren.node")

#: Seconds that a listing waits for a process; one that does not answer is left out.
LIST_TIMEOUT = 5.0

#: How often a start tries to create what a new node has, and the seconds between two attempts.
DEFAULTS_ATTEMPTS = 4
DEFAULTS_WAIT = 0.5

LIST_KINDS = ("bindings", "channels", "connections", "consumers", "exchanges", "queues", "vhosts")

T = TypeVar("T")


class NodeError(ProcessError):
    """A request to the node that cannot be met; the text is for a person."""


class NodeSupervisor(Process):
    """See the module."""

    contract = ToNewNode
    reply_errors = (AmqpError, LimitError, ProcessError)

    async def on_start(
        self,
        sender: Sender,
        settings: Settings,
        extensions: Extensions = NO_EXTENSIONS,
        open_disk: Callable[[str], Disk] = RealDisk,
        boot_id: str | None = None,
        progress: Progress = NO_PROGRESS,
        limits: FileLimits = REAL_FILES,
        clustering: Clustering | None = None,
        app_stopped: bool = False,
    ) -> NodeFacts:
        self.settings = settings
        self.app = App(self, app_stopped)
        self.started_at = self.wall_clock()
        self.listening: list[Listening] = []
        #: The program's unanswered `await_end`.
        self.awaiting_end: list[Sender] = []
        #: Whether the node was asked to begin anew, and the program's unanswered `await_anew`.
        self.begins_anew = False
        self.awaiting_anew: list[Sender] = []
        #: Why an operator has asked the node to stop before the program waited for that; empty if none has.
        self.stop_reason = ""
        self.gate = Gate(self, settings.node_name)
        #: The supervisors of the virtual hosts that run.
        self.vhosts: dict[str, Address[ToVhost]] = {}
        #: Virtual hosts that have processes, even if they are down, by the address of the supervisor.
        self.vhosts_alive: dict[str, str] = {}
        self._vhost_gone = Signal(self)
        #: By virtual host that could not be started: how long to wait before the next attempt.
        self.revivals: dict[str, Backoff] = {}
        self.routing = RoutingTable(extensions.exchange_decorators, min(WIDE, settings.turn_messages))
        self.alarms: Address[ToAlarms] = self._create(Alarms)
        self.metadata: Address[ToNewMetadata] = self._create(Metadata if clustering is None else clustering.metadata)
        #: The process that makes the node part of a cluster; None on a node that is alone.
        self.members: Address[ToNewMembership] | None = None if clustering is None else self._create(clustering.members)
        self.memory_monitor: Address[ToNewMemoryMonitor] = self._create(MemoryMonitor)
        reporter = self._create(FlowReporter) if settings.flow_report_interval else None
        self.context = NodeContext(
            settings.node_name,
            settings,
            self.routing,
            self.metadata,
            self.alarms,
            self.memory_monitor,
            extensions,
            open_disk,
            boot_id,
            progress,
            limits,
            flow_reporter=reporter,
            members=self.members,
            mirroring=None if clustering is None else clustering.mirroring,
        )
        if reporter is not None:
            self.send(reporter, to_new_flow_reporter.start(self.context, self.myAddress))
        self.register(NODE_NAME)
        self.register(ALARMS_NAME, self.alarms)
        self.operator = Operator(self, self.context, self.myAddress)
        #: Starts the process that serves the HTTP API; None if the settings ask for none.
        self.management: Address[ToNewManagement] | None = self.createActor(Management) if settings.management else None
        if settings.event_exchange_vhost is not None or settings.log_exchange_vhost is not None:
            self._start_event_hub()
        memory = await self.ask(self.memory_monitor, to_new_memory_monitor.start(self.context))
        self.disk_monitor: Address[ToNewDiskMonitor] | None = None
        if settings.data_dir is not None:
            self.disk_monitor = self._create(DiskMonitor)
            await self.ask(self.disk_monitor, to_new_disk_monitor.start(self.context, memory["total"]))
        await self._listen_for_commands()
        try:
            facts = await self._start_app(clustering, memory)
        except ProcessError as error:
            self.app.failed(error)
            self.stop("cannot start")
            if self.app.is_ending and isinstance(error, StoppedWaiting):
                raise self.app.end_of_run() from None
            raise
        self.app.started()
        if self.members is not None:
            self.send(self.members, to_membership.serving())
        if self.management is not None:
            self.send(self.management, to_new_management.start(self.context))
        return facts

    async def _start_app(self, clustering: Clustering | None, memory: MemoryStatus) -> NodeFacts:
        """Start everything that clients need, when the app is wanted."""
        settings = self.settings
        if clustering is not None and self.members is not None:
            await self.ask(self.members, to_new_membership.start(self.context, self.myAddress, clustering.is_founder))
        else:
            await self.app.until_wanted()
        await self.ask(self.metadata, to_new_metadata.start(self.context, self.myAddress))
        await self._ensure_defaults()
        if settings.load_definitions is not None:
            try:
                await load_definitions(self.operator, settings.load_definitions)
            except OperationError as error:
                raise NodeError(str(error)) from None
        self.direct: Address[ToNewDirectClient] = self._create(DirectClient)
        self.send(self.direct, to_new_direct_client.start(self.context))
        own = self.context.definitions.node(settings.node_name)
        host, port, tls_port = "", 0, None
        if own is None or own.role != "witness":
            # TLS first: an error in its files is found before any client can connect.
            tls_port = None if settings.tls_port is None else (await self._listen(settings.tls_port, True))[1]
            host, port = await self._listen(settings.port, False)
        for listener, sibling in zip(self.gate.listeners, reversed(self.gate.listeners)):
            if listener is not sibling:
                self.send(listener, to_listener.sibling(sibling))
        return {
            "node_name": settings.node_name,
            "host": host,
            "port": port,
            "tls_port": tls_port,
            "direct": self.direct,
            "memory": memory,
            "down": sorted(self.routing.down),
        }

    async def _listen_for_commands(self) -> None:
        """Open the control sockets, before anything that takes long, so that commands can ask how the start goes on."""
        settings = self.settings
        for wanted, is_local in ((settings.control_dir, True), (settings.control_port, False)):
            if wanted is None:
                continue
            listener: Address[ToNewControlListener] = self.createActor(ControlListener)
            try:
                await self.ask(listener, to_new_control_listener.start(self.context, self.myAddress, is_local))
            except ControlError:
                self.stop("cannot listen for commands")
                raise

    async def _ensure_defaults(self) -> None:
        """Create what a new node lacks, and repeat this when the outcome of a change is unknown.

        A node of a cluster may receive a snapshot instead of the log entry of its change, and then cannot tell whether
        the change was applied. Repeating is safe: `_create_defaults` creates only what does not exist.
        """
        for attempts_left in reversed(range(DEFAULTS_ATTEMPTS)):
            try:
                return await self._create_defaults()
            except OutcomeUnknown as error:
                if not attempts_left:
                    raise
                log.warning("%s; trying again to create what a new node has", error)
                await self.sleep(DEFAULTS_WAIT)
        return None

    async def _create_defaults(self) -> None:
        """Create what a new node has, and the virtual hosts that settings name if they are missing.

        A node is new until it has an id for its cluster. Later the default user is a user as any other: an operator may
        have changed or deleted him, and the settings must not bring him back.
        """
        settings, definitions = self.settings, self.context.definitions
        named = dict.fromkeys((settings.default_vhost, *(vhost for vhost, _ in watching_exchanges(settings))))
        vhosts = [vhost for vhost in named if not self.routing.has_vhost(vhost)]
        for vhost in named:
            await self.ask(self.metadata, to_metadata.create_vhost(vhost))
        records: list[Record] = []
        if definitions.record("global_parameters", ("internal_cluster_id",)) is None:
            cluster_id = f"warren-cluster-id-{self.random_bytes(16).hex()}"
            records.append(GlobalParameter("internal_cluster_id", json_text(cluster_id)))
            # As in RabbitMQ, a node that loads definitions has the users that these define, and no others.
            if definitions.user(settings.default_user) is None and settings.load_definitions is None:
                try:
                    records.append(first_user(settings, self.random_bytes(SALT_BYTES)))
                except SettingsError as error:
                    raise NodeError(str(error)) from None
            vhosts = list(self.routing.vhosts())
            features = EnableFeatures(tuple(FEATURES))
            await self.ask(self.metadata, to_metadata.change_definitions(features))
        if any(isinstance(each, User) for each in records) or definitions.user(settings.default_user) is not None:
            records += [Permission(settings.default_user, vhost, ".*", ".*", ".*") for vhost in vhosts]
        if records:
            await self.ask(self.metadata, to_metadata.change_definitions(PutRecords(tuple(records))))

    async def _listen(self, port: int, tls: bool) -> tuple[str, int]:
        listener: Address[ToNewListener] = self.createActor(Listener)
        host, port = await self.ask(listener, to_new_listener.start(self.context, self.settings.host, port, tls))
        self.gate.listeners.append(listener)
        self.listening.append({"host": host, "port": port, "tls": tls})
        self.monitor(listener, Listener.__name__)
        log.info("%s listens on %s:%s%s", self.settings.node_name, host, port, " for TLS" if tls else "")
        return host, port

    def _create(self, process: type[Process]) -> Address[Any]:
        """Start a process without which the node cannot go on."""
        address = self.createActor(process)
        self.monitor(address, process.__name__)
        return address

    async def on_stop(self, sender: Sender, reason: str, moves_masters: bool = True) -> bool:
        if self.management is not None:
            with suppress(ProcessDown):
                await self.ask(self.management, to_management.end())
        for listener in self.gate.listeners:
            await self.ask(listener, to_listener.stop_accepting())
        if moves_masters and self.members is not None and self.app.is_running:
            await prepare_to_stop(self.operator)
        stop_timeout = self.settings.stop_timeout / 1000
        closing = to_listener.close_connections(
            CONNECTION_FORCED, f"broker forced connection closure with reason '{reason}'"
        )
        closed = [self.ask(listener, closing, timeout=stop_timeout) for listener in self.gate.listeners]
        try:
            for answer in closed:
                await answer
        except ProcessTimeout:
            log.warning(
                "some clients did not answer within %s ms; their connections are cut", self.settings.stop_timeout
            )
        # The connections' end has deleted auto-delete queues with their bindings: wait until the disk has these
        # deletions too.
        with suppress(AmqpError, ProcessTimeout):
            await self.ask(self.metadata, to_metadata.write(), timeout=stop_timeout)
        for name, address in self.vhosts.items():
            self.demonitor(("vhost", name))
            with suppress(ProcessDown):
                await self.ask(address, to_vhost.terminate())
        if self.members is not None:
            with suppress(ProcessDown):
                await self.ask(self.members, to_membership.hand_over())
        self.stop(reason)
        return True

    # --- the cluster ---

    async def on_suspend(self, sender: Sender, hold: Hold, text: str) -> bool:
        await self.gate.close(hold, text)
        return True

    async def on_resume(self, sender: Sender, hold: Hold) -> bool:
        await self.gate.release(hold)
        return True

    def on_begin_anew(self, sender: Sender, reason: str) -> None:
        log.warning("%s ends this run of its app and begins another one: %s", self.settings.node_name, reason)
        self.begins_anew = True
        for waiting in self.awaiting_anew:
            self.reply(waiting, True)
        self.awaiting_anew.clear()
        self.on_request_stop(sender, BEGIN_ANEW)

    def on_begin_stopped(self, sender: Sender) -> bool:
        log.info("%s stops its app on an operator's command; `warren start_app` starts it", self.settings.node_name)
        return self.on_request_stop(sender, BEGIN_STOPPED)

    def on_start_app(self, sender: Sender) -> None:
        self.app.start(sender)

    async def on_await_app(self, sender: Sender) -> bool:
        await self.app.until_wanted()
        return True

    def on_app_state(self, sender: Sender) -> AppState:
        return self.app.state

    def on_await_anew(self, sender: Sender) -> None:
        if self.begins_anew:
            self.reply(sender, True)
        else:
            self.awaiting_anew.append(sender)

    def on_event_hub(self, sender: Sender) -> Address[ToEventHub]:
        return self.context.events.hub or self._start_event_hub()

    def _start_event_hub(self) -> Address[ToEventHub]:
        settings = self.settings
        hub: Address[ToNewEventHub] = self._create(EventHub)
        start = to_new_event_hub.start(
            self.routing,
            self.context.events,
            settings.node_name,
            self.alarms,
            settings.event_exchange_vhost,
            settings.log_exchange_vhost,
            settings.log_exchange_level,
        )
        self.send(hub, start)
        self.context.events.open(hub, self.routing, settings.event_exchange_vhost)
        if settings.event_exchange_vhost is not None:
            self.send(self._create(FlowSampler), to_new_flow_sampler.start(self.context))
        return hub

    async def on_status(self, sender: Sender) -> NodeStatus:
        disk = None if self.disk_monitor is None else await self.ask(self.disk_monitor, to_disk_monitor.status())
        listening = [] if self.gate.holds else self.listening
        holds = sorted(self.gate.holds)
        ports: dict[str, int] = {}
        if self.management is not None:
            with suppress(ProcessDown):
                ports = await self.ask(self.management, to_management.ports())
        return {
            "started_at": self.started_at,
            "listening": listening,
            "disk": disk,
            "holds": holds,
            "management": ports,
        }

    def on_open_session(self, sender: Sender, client: Address[Contract]) -> Address[ToRemoteSession]:
        session: Address[ToNewRemoteSession] = self.createActor(RemoteSession)
        self.send(session, to_new_remote_session.start(self.context, self.myAddress, client))
        return session

    async def on_connections(self, sender: Sender) -> list[Address[ToConnection]]:
        return await self.gate.connections()

    async def on_close_connections(self, sender: Sender, reason: str) -> int:
        connections = await self.gate.connections()
        for address in connections:
            self.send(address, to_connection.force_close(CONNECTION_FORCED, reason))
        return len(connections)

    async def on_operate(self, sender: Sender, name: str, arguments: dict[str, object]) -> Any:
        return await perform(self.operator, name, arguments)

    def on_await_end(self, sender: Sender) -> None:
        if self.stop_reason:
            self.reply(sender, self.stop_reason)
        else:
            self.awaiting_end.append(sender)

    def on_request_stop(self, sender: Sender, reason: str) -> bool:
        if self.app.is_running and not self.awaiting_end:
            return False
        self.stop_reason = reason
        if not self.app.is_running:
            self.app.end(reason)
            if self.members is not None:
                self.send(self.members, to_membership.give_up())
        for waiting in self.awaiting_end:
            self.reply(waiting, reason)
        self.awaiting_end.clear()
        return True

    def on_down(self, name: str | tuple[str, str], reason: ExitReason) -> None:
        if isinstance(name, tuple):
            self.spawn(self._close_vhost(name[1], reason))
            return
        log.error("%s ends because its %s ended: %s", self.settings.node_name, name, reason)
        self.stop(f"{name} ended: {reason}")

    # --- virtual hosts ---

    async def on_trace(self, sender: Sender, vhost: str, on: bool) -> None:
        self._check_vhost(vhost)
        await self.ask(self.metadata, to_metadata.trace(vhost, on))

    def on_set_queue_mode(self, sender: Sender, vhost: str, name: str, mode: str) -> None:
        self._check_vhost(vhost)
        if mode not in QUEUE_MODES:
            raise NodeError(f"unknown queue mode '{mode}'; it is one of: {', '.join(QUEUE_MODES)}")
        row = self.routing.queue(vhost, name)
        if row is None:
            raise no_queue(vhost, name)
        if row.state == "running":
            self.send(row.address, to_queue.set_queue_mode(mode))
        self.reply(sender, None)

    def _check_vhost(self, name: str) -> None:
        if not self.routing.has_vhost(name):
            raise NodeError(f"Virtual host '{name}' does not exist")

    async def on_start_vhost(
        self, sender: Sender, name: str, rows: list[QueueRow], kept: frozenset[int]
    ) -> tuple[Address[ToQueueSupervisor], list[QueueRow]]:
        address: Address[ToNewVhost] = self.createActor(VhostSupervisor)
        self.vhosts[name] = address
        self.vhosts_alive[address.actorAddressString] = name
        self.monitor(address, ("vhost", name))
        try:
            started = await self.ask(address, to_new_vhost.start(self.context, name, rows, kept))
        except StorageError:
            # Its disk may have room later, or be mounted again.
            self.start_timer(self.revivals.setdefault(name, Backoff()).next(), name)
            raise
        self.revivals.pop(name, None)
        return started

    def on_timer(self, payload: str | None) -> Any:
        """Try again to start the virtual host named `payload`, or, if it is None, to open the listeners."""
        if payload is None:
            return self.gate.open()
        self.send(self.metadata, to_metadata.revive_vhost(payload))
        return None

    async def on_stop_vhost(self, sender: Sender, name: str) -> bool:
        await self._close_connections_of(name, f"vhost '{name}' is deleted")
        self.send(self.direct, to_direct_client.forget_vhost(name))
        address = self.vhosts.pop(name, None)
        if address is not None:
            self.demonitor(("vhost", name))
            # The queues end first, in many turns. If the exit ended them all at once, one turn of the supervisors would
            # grow with the number of queues, and one of a queue with the number of its messages.
            with suppress(ProcessDown):
                await self.ask(address, to_vhost.end_queues())
            self.request_exit(address)
        # A store that still runs when its directory is gone could not close its index, whose memory would never be
        # freed.
        await self._vhost_gone.wait_for(lambda: name not in self.vhosts_alive.values())
        if self.settings.data_dir is not None:
            await self._remove_files(DataDir(self.settings.data_dir), name)
        return True

    def on_child_exited(self, address: ActorAddress) -> None:
        if self.vhosts_alive.pop(address.actorAddressString, None) is not None:
            self._vhost_gone.wake_all()

    async def _remove_files(self, data_dir: DataDir, name: str) -> None:
        """Remove the files of a virtual host.

        If that fails, the next start removes them, because no metadata names them.
        """
        try:
            await self.run_blocking(data_dir.remove_vhost, name)
        except OSError as error:
            log.warning("the files of vhost '%s', which is deleted, could not be removed: %s", name, error)

    async def _close_vhost(self, name: str, reason: ExitReason) -> None:
        del self.vhosts[name]
        log.error("vhost '%s' is down: %s", name, reason)
        self.send(self.metadata, to_metadata.vhost_down(name))
        await self._close_connections_of(name, f"vhost '{name}' is down")

    async def _close_connections_of(self, vhost: str, text: str) -> None:
        """Close the connections that opened this virtual host with 320 (AB-31).

        The node keeps no list of them: every connection gets the message and compares the virtual host with its own.
        """
        for address in await self.gate.connections():
            self.send(address, to_connection.close_if_on(vhost, CONNECTION_FORCED, text))

    # --- alarms ---

    async def on_set_alarm(self, sender: Sender, source: str, on: bool) -> bool:
        await self.ask(self.alarms, to_alarms.set(source, on))
        return True

    async def on_set_watermark(self, sender: Sender, value: object) -> MemoryStatus:
        return await self.ask(self.memory_monitor, to_memory_monitor.set_watermark(value))

    async def on_reload_certificates(self, sender: Sender) -> str:
        answers = [await self.ask(listener, to_listener.reload_certificate()) for listener in self.gate.listeners]
        return "\n".join(filter(None, answers))

    async def on_set_disk_free_limit(self, sender: Sender, value: object) -> DiskStatus:
        if self.disk_monitor is None:
            raise NodeError("a node without a data_dir keeps nothing on a disk, so it has no disk_free_limit")
        return await self.ask(self.disk_monitor, to_disk_monitor.set_limit(value))

    # --- listings ---

    async def on_list(self, sender: Sender, kind: str, vhost: str | None) -> list[InfoItems]:
        if kind not in LIST_KINDS:
            raise NodeError(f"unknown kind '{kind}'; it is one of: {', '.join(LIST_KINDS)}")
        if vhost is not None:
            self._check_vhost(vhost)
        if kind == "queues":
            return await self._list_queues(self._queue_rows(vhost))
        if kind == "consumers":
            return await self._list_consumers(self._queue_rows(vhost))
        if kind in ("connections", "channels"):
            connections = await self.gate.connections()
            rows = await (self._list_connections if kind == "connections" else self._list_channels)(connections)
            return [row for row in rows if vhost is None or row["vhost"] == vhost]
        return await self.ask(self.metadata, to_metadata.list(kind, vhost))

    async def on_queue_info(self, sender: Sender, vhost: str, name: str) -> InfoItems:
        self._check_vhost(vhost)
        row = self.routing.queue(vhost, name)
        found = [] if row is None else await self._list_queues([row])
        if not found:  # It never existed, or was deleted while it was asked.
            raise no_queue(vhost, name)
        return found[0]

    def _queue_rows(self, vhost: str | None) -> list[QueueRow]:
        vhosts = self.routing.vhosts() if vhost is None else (vhost,)
        return [row for name in vhosts for row in self.routing.queues(name)]

    async def _list_queues(self, rows: list[QueueRow]) -> list[InfoItems]:
        answers = await self._ask_running(rows, to_queue.info())
        for at, row in enumerate(rows):
            items = answers[at]
            if row.shards and items is not None:
                of_shards = await self._ask_running(list(shards_of(self.routing, row)), to_queue.info())
                answers[at] = with_shard_items(items, [each for each in of_shards if each is not None])
        return [items for items in await self.in_steps(self._items, zip(rows, answers)) if items is not None]

    def _items(self, asked: tuple[QueueRow, InfoItems | None]) -> InfoItems | None:
        """The row of a queue in a listing, with the answer of its process if there is one; None if it is gone."""
        row, items = asked
        if items is not None:
            return {**queue_items(row, self.context.definitions), **items}
        return None if self.routing.queue(row.vhost, row.name) is None else queue_items(row, self.context.definitions)

    async def _list_consumers(self, rows: list[QueueRow]) -> list[InfoItems]:
        rows = sorted(rows, key=lambda row: row.shard_of is not None)
        answers = await self._ask_running(rows, to_queue.consumers_info())
        seen: ConsumerNames = set()
        return [items for row, answer in zip(rows, answers) for items in logical_consumers(row, answer or (), seen)]

    async def _list_connections(self, connections: list[Address[ToConnection]]) -> list[InfoItems]:
        asks = ((address, to_connection.info()) for address in connections)
        answers = await self.ask_each(asks, LIST_TIMEOUT)
        return [items for items in map(_if_answered, answers) if items is not None]

    async def _list_channels(self, connections: list[Address[ToConnection]]) -> list[InfoItems]:
        asks = ((address, to_connection.channels_info()) for address in connections)
        answers = await self.ask_each(asks, LIST_TIMEOUT)
        return [items for answer in map(_if_answered, answers) for items in answer or ()]

    async def _ask_running(self, rows: list[QueueRow], question: Message[ToQueue, T]) -> list[T | None]:
        """The answer of each queue; None for one that does not run or does not answer."""
        running = [row for row in rows if row.state == "running"]
        answers = iter(await self.ask_each([(row.address, question) for row in running], LIST_TIMEOUT))
        return [_if_answered(next(answers)) if row.state == "running" else None for row in rows]


def _if_answered(answer: T | Exception) -> T | None:
    """The answer, or None if there is none: the process is ending, or did not answer in `LIST_TIMEOUT`.

    Raises any other error that the process answered with.
    """
    if not isinstance(answer, Exception):
        return answer
    if isinstance(answer, (ProcessDown, ProcessTimeout)):
        return None
    raise answer
