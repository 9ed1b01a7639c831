"""Rows: immutable values for exchanges, queues and bindings. A change replaces the row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from ..amqp.fields import Table, table_of
from .destinations import Destination

NO_ARGUMENTS = Table()

QueueState = Literal["running", "crashed", "stopped", "down"]


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One exchange. `alternate` is the name of its alternate exchange, or None. `creator` is the user who declared it,
    empty for an exchange of the broker and for one that was declared by an earlier version.
    """

    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = NO_ARGUMENTS
    alternate: str | None = None
    creator: str = ""


class Member(NamedTuple):
    """One life of one replica of a mirrored queue. A replica or a node that starts again is another member."""

    node: str
    #: The run of the node in which the replica was made, as the node's record has it.
    incarnation: str
    #: Unique in the group for ever: the command that makes a member gives it the next one.
    generation: int


@dataclass(frozen=True, slots=True)
class MirrorGroup:
    """Who has the messages of a mirrored queue (CL-28). Only commands change it, so all nodes agree on it."""

    #: The members that must have a message before it is confirmed, in order of admission, the master first; never
    #: empty.
    ring: tuple[Member, ...]
    #: The members that do not have all messages yet, in order of arrival.
    learners: tuple[Member, ...] = ()
    #: Rises by one with every change of the ring.
    epoch: int = 1
    #: The epoch at which the present master became it.
    reign: int = 1
    #: The running nodes that shall have a member, by the policy of the queue; the one that shall have the master first.
    wanted: tuple[str, ...] = ()
    #: How many members there have been, which is the generation of the latest one.
    members: int = 1
    #: Nodes that left the ring while they had everything, and the epoch at which they left, the latest last.
    was: tuple[tuple[str, int], ...] = ()
    #: Nodes that were evicted and why, until they are in the ring again.
    evicted: tuple[tuple[str, str], ...] = ()
    #: Who has made a member the only one by force, and the epoch at which that was, the latest last.
    forced: tuple[tuple[str, int], ...] = ()

    @property
    def master(self) -> Member:
        return self.ring[0]

    @property
    def everyone(self) -> tuple[Member, ...]:
        """All members, the master first and the learners last."""
        return self.ring + self.learners

    def member_on(self, node: str) -> Member | None:
        """The member on this node; None if there is none."""
        return next((member for member in self.everyone if member.node == node), None)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue. A `state` other than `running` means that the queue exists but cannot be used (AB-63)."""

    vhost: str
    name: str
    #: The address of the queue's process. Rows of Metadata's state have None; the routing table has rows with the
    #: address. That of a queue on another node follows from `node`, `queue_id` and `generation`.
    address: Any
    #: Unique for ever: a queue that is declared again under the same name gets another id.
    queue_id: str
    durable: bool = False
    auto_delete: bool = False
    #: The id of the connection that owns an exclusive queue.
    exclusive_owner: str | None = None
    arguments: Table = NO_ARGUMENTS
    type: str = "classic"
    state: QueueState = "running"
    #: The name of a queue that gets a copy of each message routed to this one (AB-79).
    extra_queue: str | None = None
    #: The queue's home: the node whose process decides about the queue's messages.
    node: str = ""
    #: The nodes that keep the queue's messages, `node` first.
    replicas: tuple[str, ...] = ()
    #: How many shards a logical queue has; 0 for a queue that has its messages itself (`shards.py`).
    shards: int = 0
    #: The name of the logical queue that this queue is a shard of.
    shard_of: str | None = None
    #: Counts the processes that the queue has had since its home started, so that nothing that was meant for an earlier
    #: one reaches a later one.
    generation: int = 0
    #: The replicas of a mirrored queue; None for a queue without mirrors.
    group: MirrorGroup | None = None

    def at(self, address: Any) -> QueueRow:
        """The same row with this address. Each declare needs one, and `dataclasses.replace` takes twice as long."""
        return QueueRow(
            self.vhost,
            self.name,
            address,
            self.queue_id,
            self.durable,
            self.auto_delete,
            self.exclusive_owner,
            self.arguments,
            self.type,
            self.state,
            self.extra_queue,
            self.node,
            self.replicas,
            self.shards,
            self.shard_of,
            self.generation,
            self.group,
        )

    def is_lost_with(self, nodes: Collection[str]) -> bool:
        """Whether no other node than these has all messages of the queue."""
        if self.group is None:
            return self.node in nodes
        return all(member.node in nodes for member in self.group.ring)


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding. Equal values are the same binding (AB-73), so `Binding.of` sorts the arguments by name."""

    source: str
    #: The kind of the destination: `queue` or `exchange`.
    kind: str
    destination: str
    routing_key: str
    arguments: Table

    @classmethod
    def of(cls, source: str, kind: str, destination: str, routing_key: str, arguments: Table) -> Binding:
        """A binding with its arguments sorted by name."""
        return cls(source, kind, destination, routing_key, table_of(sorted(arguments, key=itemgetter(0))))

    @property
    def target(self) -> Destination:
        """Kind and name of the destination."""
        return self.kind, self.destination
