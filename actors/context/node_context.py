"""`NodeContext`: what every process of a node is given when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...definitions.definitions import Definitions
from ...routing.table import RoutingTable
from ...runtime.contract import Address
from ...settings import Settings
from ...store.data_dir.file_limits import REAL_FILES, FileLimits
from ...store.disk.disk import Disk
from ...store.disk.progress import NO_PROGRESS, RecoveryProgress
from ...store.disk.real_disk import RealDisk
from ..statistics.activity import Activity
from ..statistics.counts import NodeCounts
from ..statistics.histograms import NodeHistograms
from .events import Events
from .extensions import NO_EXTENSIONS, Extensions
from .index_places import IndexPlaces
from .lease import Lease
from .login_counts import LoginCounts
from .peers import Peers
from .received_bytes import ReceivedBytes
from .recent_log import RecentLog
from .replica_limits import ReplicaLimits
from .retained_bytes import RetainedBytes
from .sessions import Sessions

if TYPE_CHECKING:
    from ..contracts.membership import ToMembership
    from ..contracts.metadata import ToMetadata
    from ..contracts.node import ToFlowReporter
    from ..contracts.pace import ToPacer
    from ..contracts.resources import ToAlarms, ToMemoryMonitor
    from ..queue.mirroring import Mirroring


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node as its processes see it."""

    node_name: str
    settings: Settings
    routing: RoutingTable
    metadata: Address[ToMetadata]
    alarms: Address[ToAlarms]
    memory_monitor: Address[ToMemoryMonitor]
    extensions: Extensions = NO_EXTENSIONS
    #: Returns the files of a directory of the operating system.
    open_disk: Callable[[str], Disk] = RealDisk
    #: Names this run of the machine, which a store uses to notice a power failure; None means that the system is asked.
    boot_id: str | None = None
    #: Is notified how far the recovery of a data directory is.
    progress: RecoveryProgress = NO_PROGRESS
    #: The sizes at which files of the store are full, so that the store begins new ones.
    limits: FileLimits = REAL_FILES
    #: What operators have set: users, permissions, policies. Metadata alone changes it.
    definitions: Definitions = field(default_factory=Definitions)
    #: The open connections. Each enters and leaves by itself.
    sessions: Sessions = field(default_factory=Sessions)
    #: How many logins were accepted and refused.
    login_counts: LoginCounts = field(default_factory=LoginCounts)
    #: How processes report what happens, for consumers of `amq.rabbitmq.event` and for commands that watch.
    events: Events = field(default_factory=Events)
    #: The newest lines of the log. Management opens it.
    recent_log: RecentLog = field(default_factory=RecentLog)
    #: Where the message index of each virtual host is. The virtual hosts enter it.
    index_places: IndexPlaces = field(default_factory=IndexPlaces)
    #: The other nodes of the cluster. Metadata alone changes it.
    peers: Peers = field(default_factory=Peers)
    #: Until when the node may act as a part of the majority of its cluster.
    lease: Lease = field(default_factory=Lease)
    #: Makes replicas of mirrored queues; None on a node that can have none.
    mirroring: Mirroring | None = None
    #: Bytes that clients have sent since memory was measured. Connections add to them; MemoryMonitor sets how many make
    #: the next measurement due.
    received_bytes: ReceivedBytes = field(default_factory=ReceivedBytes)
    #: How many bytes of unanswered publishes to mirrored queues the channels keep. Channels add to it.
    retained_bytes: RetainedBytes = field(default_factory=RetainedBytes)
    #: The limits and counts that the replicas of mirrored queues on this node share, and update themselves.
    replica_limits: ReplicaLimits = field(default_factory=ReplicaLimits)
    #: How many messages the node has received and sent. Channels add to it.
    counts: NodeCounts = field(default_factory=NodeCounts)
    #: How long group commits, confirms and deliveries take. The processes that take part in them add to it.
    histograms: NodeHistograms = field(default_factory=NodeHistograms)
    #: Which processes have had a turn since statistics were read.
    activity: Activity = field(default_factory=Activity)
    #: The process that reports what holds connections back; None if the settings ask for no reports.
    flow_reporter: Address[ToFlowReporter] | None = None
    #: The process that makes the node part of a cluster; None on a node that is alone.
    members: Address[ToMembership] | None = None
    #: The process that holds the clocks of pace groups; None on a node without queues.
    pacer: Address[ToPacer] | None = None
