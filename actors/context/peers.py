"""`Peers`: the other nodes of the cluster, and the addresses of the processes on them that have names.

A process that others reach from another node has a name there: `q/<queue id>/<generation>` is that of a queue's
process, `gm/<queue id>/<generation>` that of one replica of a mirrored queue, `c/<channel id>` that of a channel that
receives direct replies, Metadata is `meta`, the node's supervisor `node`, `Alarms` is `alarms`, `Pacer` is `pacer`, and
`SessionTracking` is `sessions`.
Its address is

    <node>-<incarnation>/<name>

so it follows from the row of the queue, and no process has to ask for it (CL-10). While the nodes are not connected,
and for good once the node has started again or the queue has another process, it is like the address of a process that
has ended (`runtime/system/remote_systems.py`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ...runtime.contract import Address
from ...runtime.system.address import LoopAddress

if TYPE_CHECKING:
    from ...routing.rows import Member, QueueRow
    from ..contracts.channel import ToChannel
    from ..contracts.connection import ToSessionTracking
    from ..contracts.metadata import ToMetadata
    from ..contracts.node import ToNode
    from ..contracts.pace import ToPacer
    from ..contracts.queue import ToQueue
    from ..contracts.resources import ToAlarms

#: The names under which Metadata, the node's supervisor, its alarms, its pacer and its `SessionTracking` are reached
#: from other nodes.
METADATA_NAME, NODE_NAME, ALARMS_NAME, PACER_NAME, TRACKING_NAME = "meta", "node", "alarms", "pacer", "sessions"

#: The families of names of queues and of channels that receive direct replies.
QUEUES, CHANNELS = "q", "c"

#: What the names of replicas begin with. Each replica registers its own name, because other replicas may send to it
#: before its first turn has ended.
REPLICAS = "gm"


def short_name(system: str) -> str:
    """A short name of a system of actors, for the reply-to of requests: it has no dot and reveals no host."""
    return blake2b(system.encode(), digest_size=8).hexdigest()


class Peers:
    """What one node has found out about the others. Metadata alone changes it."""

    def __init__(self) -> None:
        #: By node: the system of actors that it had when this node was connected to it last.
        self._systems: dict[str, str] = {}
        #: The same systems, by their short names.
        self._short_names: dict[str, str] = {}
        #: The short name of this node's own system.
        self.own = ""

    def __bool__(self) -> bool:
        """Whether this node has ever been connected to another one."""
        return bool(self._systems)

    def met(self, node: str, system: str) -> bool:
        """Note that this node is connected to `node`, whose processes live in `system`. Return whether that is another
        system than before.
        """
        is_new = self._systems.get(node) != system
        self._systems[node] = system
        if is_new:
            self._short_names = {short_name(known): known for known in self._systems.values()}
        return is_new

    def nodes(self) -> list[str]:
        """The nodes that this one has been connected to."""
        return list(self._systems)

    def queue(self, row: QueueRow) -> Address[ToQueue]:
        """The address of a queue on another node."""
        return self._named(row.node, f"{QUEUES}/{row.queue_id}/{row.generation}")

    def replica(self, queue_id: str, member: Member) -> Address[ToQueue]:
        """The address of the process of this member of a mirrored queue."""
        found: Any = LoopAddress(f"{member.node}-{member.incarnation}/{REPLICAS}/{queue_id}/{member.generation}")
        return found

    def metadata(self, node: str) -> Address[ToMetadata]:
        """The address of the Metadata of another node."""
        return self._named(node, METADATA_NAME)

    def node(self, node: str) -> Address[ToNode]:
        """The address of the supervisor of another node."""
        return self._named(node, NODE_NAME)

    def alarms(self, node: str) -> Address[ToAlarms]:
        """The address of the alarms of another node."""
        return self._named(node, ALARMS_NAME)

    def pacer(self, node: str) -> Address[ToPacer]:
        """The address of the pacer of another node."""
        return self._named(node, PACER_NAME)

    def session_tracking(self, node: str) -> Address[ToSessionTracking]:
        """The address of the `SessionTracking` of another node."""
        return self._named(node, TRACKING_NAME)

    def channel(self, system: str, channel_id: str) -> Address[ToChannel] | None:
        """The address of a channel that receives direct replies, in the system of another node with this short name.

        None if no node has that system now.
        """
        found: Any = self._short_names.get(system)
        return None if found is None else LoopAddress(f"{found}/{CHANNELS}/{channel_id}")

    def _named(self, node: str, name: str) -> Any:
        # A node that this one was never connected to has no system yet. An address without an incarnation is that of no
        # process, and messages to it fail as those to any node that is not connected.
        return LoopAddress(f"{self._systems.get(node, node + '-')}/{name}")
