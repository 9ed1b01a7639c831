"""The messages `start`: what a process receives first, from the process that has created it.

A process keeps a contract of this module, such as `ToNewQueue`: the contract that others use (`ToQueue`) and `start`.
They are apart because most `start` messages carry the context of the node. The context has addresses, whose types are
contracts, so contracts that named the context in turn would be a ring of imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ...runtime.contract import Contract, message
from ...store.data_dir.file_limits import REAL_FILES
from ...store.disk.progress import NO_PROGRESS
from ...store.disk.real_disk import RealDisk
from ..contracts.channel import ToChannel, ToDirectClient
from ..contracts.connection import ToConnection, ToListener, ToSessionTracking
from ..contracts.control import ToRemoteSession
from ..contracts.disk import ToJournal, ToMessageStore
from ..contracts.events import ToEventHub
from ..contracts.group import ToGroup
from ..contracts.management import ToManagement
from ..contracts.membership import ToMembership
from ..contracts.message_index import ToIndexer
from ..contracts.metadata import ToMetadata
from ..contracts.node import ToFlowReporter, ToNode, ToQueueSupervisor, ToVhost
from ..contracts.pace import ToPacer
from ..contracts.queue import ToQueue
from ..contracts.resources import ToDiskMonitor, ToMemoryMonitor
from .extensions import NO_EXTENSIONS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ...routing.rows import QueueRow
    from ...routing.table import RoutingTable
    from ...runtime.contract import Address
    from ...settings import Settings
    from ...store.data_dir.file_limits import FileLimits
    from ...store.disk.disk import Disk
    from ...store.disk.progress import RecoveryProgress
    from ..contracts.channel import ChannelConfig
    from ..contracts.connection import SocketAddress
    from ..contracts.disk import FoundJournal
    from ..contracts.message_index import IndexerSettings
    from ..contracts.node import NodeFacts
    from ..contracts.queue import NeededBodies, QueueRecovery, VhostStorage
    from ..contracts.resources import DiskStatus, MemoryStatus, ToAlarms
    from .clustering import Clustering
    from .disk_settings import JournalSettings, StoreSettings
    from .events import Events
    from .extensions import Extensions
    from .node_context import NodeContext


class ToNewDirectClient(ToDirectClient):
    """What `DirectClient` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, user: str | None = None) -> None:
        """From the node or a control session: begin to serve requests, with the permissions of this user; None: all."""


class ToNewChannel(ToChannel):
    """What `Channel` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, config: ChannelConfig) -> None:
        """From the owner, which gets the channel's output."""


class ToNewListener(ToListener):
    """What `Listener` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, host: str, port: int, tls: bool = False) -> SocketAddress:
        """From the node: listen, and answer with the address in use. Port 0 lets the system choose one.

        With `tls` clients must connect with TLS. Raises ListenError, and TlsError if the certificate cannot be used.
        """


class ToNewConnection(ToConnection):
    """What `Connection` receives when it is created, and later."""

    @message
    def start(
        self,
        context: NodeContext,
        fd: int,
        peer: SocketAddress,
        local: SocketAddress,
        is_refused: bool = False,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        """From the listener: serve the accepted socket `fd`.

        `is_refused`: the node has too many connections; connection.open is answered with that error (AB-27). Only a
        `TlsConnection` has a `tls_context`. It and `fd` mean nothing in another process of the operating system.
        """


class ToNewControlListener(Contract):
    """What `ControlListener` receives when it is created. It receives nothing else."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], is_local: bool) -> str:
        """From the node: listen, and answer with the path or address. Raises ControlError.
        If `is_local`, it listens on the control socket in `control_dir`, for the user who runs the node; else on
        `control_port`, where clients need a secret.
        """


class ToNewControlSession(Contract):
    """What `ControlSession` receives when it is created. It receives nothing else."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], fd: int, secret: bytes | None) -> None:
        """From the listener: serve the accepted socket `fd`. With a `secret` the client must prove that it knows it."""


class ToNewRemoteSession(ToRemoteSession):
    """What `RemoteSession` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], client: Address[Contract]) -> None:
        """From the node: perform operations for the process `client`, and end with it."""


class ToNewJournal(ToJournal):
    """What `Journal` receives when it is created, and later."""

    @message
    def start(self, settings: JournalSettings) -> FoundJournal:
        """From the virtual host: recover. Raises StorageError."""


class ToNewMessageStore(ToMessageStore):
    """What `MessageStore` receives when it is created, and later."""

    @message
    def start(self, settings: StoreSettings) -> bool:
        """From the virtual host: recover. Answered True if the store was closed cleanly by just the clients named.

        Raises StorageError.
        """


class ToNewEventHub(ToEventHub):
    """What `EventHub` receives when it is created, and later."""

    @message
    def start(
        self,
        routing: RoutingTable,
        events: Events,
        node_name: str,
        alarms: Address[ToAlarms],
        event_vhost: str | None,
        log_vhost: str | None,
        log_level: str,
    ) -> None:
        """From the node: publish events in `event_vhost`, and lines of the log from `log_level` on in `log_vhost`.

        `events` is the one that all processes of the node emit with.
        """


class ToNewManagement(ToManagement):
    """What `Management` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext) -> None:
        """From the node: start the process that serves the HTTP API, and start it again whenever it ends."""


class ToNewMembership(ToMembership):
    """What `Members` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode], is_founder: bool) -> bool:
        """From the node, before Metadata starts: link to the other nodes. `is_founder`: see `Clustering`.

        Answered True when the node has a cluster port. Raises MembershipError if the port, the secret or the node's
        identity cannot be used.
        """


class ToNewIndexer(ToIndexer):
    """What `Indexer` receives when it is created, and later."""

    @message
    def start(self, settings: IndexerSettings) -> None:
        """From the virtual host, before all other messages: open the index, or make a new one."""


class ToNewMetadata(ToMetadata):
    """What `Metadata` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode]) -> None:
        """From the node: recover what the data directory has.

        Answered when the routing table is complete. Raises StorageError.
        """


class ToNewNode(ToNode):
    """What `NodeSupervisor` receives when it is created, and later."""

    @message
    def start(
        self,
        settings: Settings,
        extensions: Extensions = NO_EXTENSIONS,
        open_disk: Callable[[str], Disk] = RealDisk,
        boot_id: str | None = None,
        progress: RecoveryProgress = NO_PROGRESS,
        limits: FileLimits = REAL_FILES,
        clustering: Clustering | None = None,
        app_stopped: bool = False,
    ) -> NodeFacts:
        """From the program that runs the node: start everything. Raises ListenError, TlsError and StorageError, and
        with a `clustering` MembershipError.

        With `app_stopped` the node answers commands at once, and starts the rest when `start_app` comes. If an operator
        ends the run before that, StoppedWaiting is raised, or AppStopped if a run with `app_stopped` is to follow.

        With a data directory, that program holds its `claim` until the node has ended.
        """


class ToNewVhost(ToVhost):
    """What `VhostSupervisor` receives when it is created, and later."""

    @message
    def start(
        self, context: NodeContext, name: str, rows: list[QueueRow], kept: frozenset[int]
    ) -> tuple[Address[ToQueueSupervisor], list[QueueRow]]:
        """From the node: start, and recover the queues of `rows`. Raises StorageError, and then the process ends.
        What the disk has of queues with the numbers `kept`, which get no process now, stays there.

        Answered with its queue supervisor and the rows as they are now.
        """


class ToNewQueueSupervisor(ToQueueSupervisor):
    """What `QueueSupervisor` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, storage: VhostStorage | None) -> bool:
        """From the virtual host: `storage` is where its queues keep messages, None if in memory alone.

        Answered, because Thespian's own systems may let a later message overtake the first one to a new process.
        """


class ToNewFlowReporter(ToFlowReporter):
    """What `FlowReporter` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, node: Address[ToNode]) -> None:
        """From the node: begin to report what holds connections back."""


class ToNewFlowSampler(Contract):
    """What `FlowSampler` receives."""

    @message
    def start(self, context: NodeContext) -> None:
        """From the node: sample flow control whenever somebody is bound to the samples."""


class ToNewQueue(ToQueue):
    """What `Queue` receives when it is created, and later."""

    @message
    def start(
        self,
        context: NodeContext,
        row: QueueRow,
        storage: VhostStorage | None = None,
        recovery: QueueRecovery | None = None,
    ) -> Literal[True] | NeededBodies:
        """From the supervisor, before all other messages: open the queue, or begin to recover it.

        Answered True when the queue is open. With a `recovery` that has no `numberings` the answer is what the queue
        needs from the persistent store, and the supervisor sends `open` before anything else.
        """


class ToNewGroup(ToGroup, ToNewQueue):
    """What `GroupQueue` receives when it is created, and later."""


class ToNewDiskMonitor(ToDiskMonitor):
    """What `DiskMonitor` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext, total_memory: int) -> DiskStatus:
        """From the node: begin, measure, and answer with the status.

        `total_memory` in bytes is what a relative limit refers to.
        """


class ToNewSessionTracking(ToSessionTracking):
    """What `SessionTracking` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext) -> None:
        """From the node: begin to report to other nodes how many connections and channels count against a limit here,
        and to take their reports.
        """


class ToNewPacer(ToPacer):
    """What `Pacer` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext) -> None:
        """From the node: begin to hold clocks."""


class ToNewMemoryMonitor(ToMemoryMonitor):
    """What `MemoryMonitor` receives when it is created, and later."""

    @message
    def start(self, context: NodeContext) -> MemoryStatus:
        """From the node: begin, measure, and answer with the status."""


to_new_direct_client = ToNewDirectClient()
to_new_channel = ToNewChannel()
to_new_listener = ToNewListener()
to_new_connection = ToNewConnection()
to_new_control_listener = ToNewControlListener()
to_new_control_session = ToNewControlSession()
to_new_remote_session = ToNewRemoteSession()
to_new_journal = ToNewJournal()
to_new_message_store = ToNewMessageStore()
to_new_event_hub = ToNewEventHub()
to_new_management = ToNewManagement()
to_new_membership = ToNewMembership()
to_new_indexer = ToNewIndexer()
to_new_metadata = ToNewMetadata()
to_new_node = ToNewNode()
to_new_vhost = ToNewVhost()
to_new_queue_supervisor = ToNewQueueSupervisor()
to_new_flow_reporter = ToNewFlowReporter()
to_new_flow_sampler = ToNewFlowSampler()
to_new_queue = ToNewQueue()
to_new_disk_monitor = ToNewDiskMonitor()
to_new_memory_monitor = ToNewMemoryMonitor()
to_new_pacer = ToNewPacer()
to_new_session_tracking = ToNewSessionTracking()
