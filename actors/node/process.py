"""`NodeSupervisor`: the root of everything that runs in a node, and the place where it is wired together.

    NodeSupervisor
      Alarms
      SessionTracking                what limits of connections and channels count on all nodes
      FlowReporter                   unless `flow_report_interval` is 0
      Pacer                          the clocks that several queues share
      EventHub                       with an exchange for events or the log, else when a command watches the node
      FlowSampler                    with an exchange for events
      MemoryMonitor
      DiskMonitor                    with a data directory
      ControlListener   per socket   ControlSession ...
      Members                        on a node with a cluster port
      Metadata                       the routing table's writer
      VhostSupervisor   per vhost    QueueSupervisor -> Queue ...
      DirectClient                   channels without a socket, for the program that embeds the broker
      Listener          per port     Connection ... -> Channel ...
      Management                     with the HTTP API

There is a port without TLS, and one with TLS if `tls_port` is set. The processes begin to work in this order, so that
each finds the ones that it needs at work. A virtual host that fails closes its own connections (AB-171). If another of
these processes fails, except a `ControlListener` or `Management`, the node has lost something that cannot be restored
while it runs, so it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress

from ...amqp.constants import CONNECTION_FORCED
from ...amqp.errors import AmqpError
from ...routing.arguments.queue_settings import QUEUE_MODES
from ...routing.phrases import no_queue
from ...routing.rows import QueueRow
from ...routing.table import WIDE, RoutingTable
from ...runtime.contract import Address, Contract, Sender
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...runtime.exit_reason import ExitReason
from ...runtime.process import Process
from ...settings import Settings
from ...settings.limits import LimitError
from ...store.data_dir.file_limits import REAL_FILES, FileLimits
from ...store.disk.disk import Disk
from ...store.disk.progress import NO_PROGRESS, RecoveryProgress
from ...store.disk.real_disk import RealDisk
from ..channel.direct_client import DirectClient
from ..connection.listener import Listener
from ..connection.session_tracking import SessionTracking
from ..context.clustering import Clustering
from ..context.extensions import NO_EXTENSIONS, Extensions
from ..context.node_context import NodeContext
from ..context.peers import ALARMS_NAME, NODE_NAME, PACER_NAME, TRACKING_NAME
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
    ToNewPacer,
    ToNewRemoteSession,
    ToNewSessionTracking,
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
    to_new_pacer,
    to_new_remote_session,
    to_new_session_tracking,
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
    ClientAddress,
    Hold,
    Listening,
    NodeError,
    NodeFacts,
    NodeStatus,
    ToQueueSupervisor,
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
from ..events.hub import EventHub
from ..management.process import Management
from ..metadata.process import Metadata
from ..pace.pacer import Pacer
from ..resources.alarms import Alarms
from ..resources.disk_monitor import DiskMonitor
from ..resources.memory_monitor import MemoryMonitor
from .app import App
from .defaults import ensure_defaults
from .ending import Ending
from .flow_reporter import FlowReporter
from .flow_sampler import FlowSampler
from .gate import Gate
from .listings import Listings
from .operations.catalogue import perform_once, perform_unawaited
from .operations.definitions.export_and_import import load_definitions
from .operations.operating.maintenance import prepare_to_stop
from .operations.registry import OperationError, Operator
from .vhosts import Vhosts

if TYPE_CHECKING:
    from ..contracts.connection import ToConnection

log = logging.getLogger("warren.node")


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
        progress: RecoveryProgress = NO_PROGRESS,
        limits: FileLimits = REAL_FILES,
        clustering: Clustering | None = None,
        app_stopped: bool = False,
    ) -> NodeFacts:
        self.settings = settings
        self.app = App(self, app_stopped)
        self.started_at = self.wall_clock()
        self.listening: list[Listening] = []
        self.gate = Gate(self, settings.node_name)
        self.routing = RoutingTable(extensions.exchange_decorators, min(WIDE, settings.turn_messages))
        self.alarms: Address[ToAlarms] = self._create(Alarms)
        self.metadata: Address[ToNewMetadata] = self._create(Metadata if clustering is None else clustering.metadata)
        #: The process that makes the node part of a cluster; None on a node that is alone.
        self.members: Address[ToNewMembership] | None = None if clustering is None else self._create(clustering.members)
        self.memory_monitor: Address[ToNewMemoryMonitor] = self._create(MemoryMonitor)
        pacer: Address[ToNewPacer] = self._create(Pacer)
        tracking: Address[ToNewSessionTracking] = self._create(SessionTracking)
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
            pacer=pacer,
        )
        if reporter is not None:
            self.send(reporter, to_new_flow_reporter.start(self.context, self.myAddress))
        self.send(pacer, to_new_pacer.start(self.context))
        self.send(tracking, to_new_session_tracking.start(self.context))
        self.register(NODE_NAME)
        self.register(ALARMS_NAME, self.alarms)
        self.register(PACER_NAME, pacer)
        self.register(TRACKING_NAME, tracking)
        self.ending = Ending(self, settings.node_name, self.app, self.members)
        self.vhosts = Vhosts(self, self.context, self.gate)
        self.listings = Listings(self, self.context, self.gate, self.vhosts)
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
        """Start everything that clients need, as soon as the app is to run."""
        settings = self.settings
        if clustering is not None and self.members is not None:
            await self.ask(self.members, to_new_membership.start(self.context, self.myAddress, clustering.is_founder))
        else:
            await self.app.until_wanted()
        await self.ask(self.metadata, to_new_metadata.start(self.context, self.myAddress))
        await ensure_defaults(self, self.context)
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
        await self.vhosts.terminate()
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
        self.ending.begin_anew(reason)

    def on_begin_stopped(self, sender: Sender) -> bool:
        return self.ending.begin_stopped()

    def on_start_app(self, sender: Sender) -> None:
        self.app.start(sender)

    async def on_await_app(self, sender: Sender) -> bool:
        await self.app.until_wanted()
        return True

    def on_app_state(self, sender: Sender) -> AppState:
        return self.app.state

    def on_await_anew(self, sender: Sender) -> None:
        self.ending.await_anew(sender)

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

    def on_client_addresses(self, sender: Sender) -> list[ClientAddress]:
        # A listener on all addresses is reached at the host by which other nodes reach this one.
        own = self.settings.cluster_address or self.context.node_name.partition("@")[2]
        listening = [] if self.gate.holds else self.listening
        return [
            ClientAddress(own if each["host"] in ("0.0.0.0", "::") else each["host"], each["port"], each["tls"])
            for each in listening
        ]

    async def on_close_connections(self, sender: Sender, reason: str) -> int:
        connections = await self.gate.connections()
        for address in connections:
            self.send(address, to_connection.force_close(CONNECTION_FORCED, reason))
        return len(connections)

    async def on_operate(self, sender: Sender, name: str, arguments: dict[str, object]) -> Any:
        return await perform_once(self.operator, name, arguments)

    async def on_go_on_with(self, sender: Sender, name: str, arguments: dict[str, object]) -> None:
        await perform_unawaited(self.operator, name, arguments)

    def on_await_end(self, sender: Sender) -> None:
        self.ending.await_end(sender)

    def on_request_stop(self, sender: Sender, reason: str) -> bool:
        return self.ending.request(reason)

    def on_down(self, name: str | tuple[str, str], reason: ExitReason) -> None:
        if isinstance(name, tuple):
            self.spawn(self.vhosts.went_down(name[1], reason))
            return
        log.error("%s ends because its %s ended: %s", self.settings.node_name, name, reason)
        self.stop(f"{name} ended: {reason}")

    # --- virtual hosts ---

    async def on_trace(self, sender: Sender, vhost: str, on: bool) -> None:
        self.vhosts.check(vhost)
        await self.ask(self.metadata, to_metadata.trace(vhost, on))

    def on_set_queue_mode(self, sender: Sender, vhost: str, name: str, mode: str) -> None:
        self.vhosts.check(vhost)
        if mode not in QUEUE_MODES:
            raise NodeError(f"unknown queue mode '{mode}'; it is one of: {', '.join(QUEUE_MODES)}")
        row = self.routing.queue(vhost, name)
        if row is None:
            raise no_queue(vhost, name)
        if row.state == "running":
            self.send(row.address, to_queue.set_queue_mode(mode))
        self.reply(sender, None)

    async def on_start_vhost(
        self, sender: Sender, name: str, rows: list[QueueRow], kept: frozenset[int]
    ) -> tuple[Address[ToQueueSupervisor], list[QueueRow]]:
        return await self.vhosts.start(name, rows, kept)

    def on_timer(self, payload: str | None) -> Any:
        """Try again to start the virtual host named `payload`, or, if it is None, to open the listeners."""
        if payload is None:
            return self.gate.open()
        self.vhosts.revive(payload)
        return None

    async def on_stop_vhost(self, sender: Sender, name: str) -> bool:
        await self.vhosts.close_connections(name, f"vhost '{name}' is deleted")
        if self.app.is_running:
            self.send(self.direct, to_direct_client.forget_vhost(name))
        await self.vhosts.stop(name)
        return True

    def on_child_exited(self, address: ActorAddress) -> None:
        self.vhosts.child_exited(address)

    # --- alarms ---

    async def on_set_alarm(self, sender: Sender, source: str, on: bool) -> bool:
        await self.ask(self.alarms, to_alarms.set(source, on))
        return True

    async def on_set_watermark(self, sender: Sender, value: object) -> MemoryStatus:
        return await self.ask(self.memory_monitor, to_memory_monitor.set_watermark(value))

    async def on_reload_certificates(self, sender: Sender) -> str:
        answers = [await self.ask(listener, to_listener.reload_certificate()) for listener in self.gate.listeners]
        if self.members is not None:
            answers.append(await self.ask(self.members, to_membership.reload_certificates()))
        return "\n".join(filter(None, answers))

    async def on_set_disk_free_limit(self, sender: Sender, value: object) -> DiskStatus:
        if self.disk_monitor is None:
            raise NodeError("a node without a data_dir keeps nothing on a disk, so it has no disk_free_limit")
        return await self.ask(self.disk_monitor, to_disk_monitor.set_limit(value))

    # --- listings ---

    async def on_list(self, sender: Sender, kind: str, vhost: str | None) -> list[InfoItems]:
        return await self.listings.of_kind(kind, vhost)

    async def on_queue_info(self, sender: Sender, vhost: str, name: str) -> InfoItems:
        return await self.listings.of_queue(vhost, name)
