"""Commands: everything that changes the rows of virtual hosts, exchanges, queues and bindings.

A command is a value. Whoever proposes it puts into it what the state must not find out for itself: names that the
broker generates, ids of queues, the node where a queue will be. So a command does the same to every copy of the state
that applies it.

`by` is the user who asked, whom events name (`actors/events`); it is empty if the broker acts by itself. The state does
not read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....definitions.records import Node, Record, RecordKey
from ....routing.rows import Binding, ExchangeRow, Member, QueueRow, QueueState


class CreateVhost(NamedTuple):
    """Create a virtual host; an existing one is success (AB-169)."""

    name: str


class DeleteVhost(NamedTuple):
    """Delete a virtual host with everything in it; one that does not exist is success (AB-170)."""

    name: str
    #: Whether its processes could not be started, so that nobody has to end them.
    is_ended: bool = False


class DeclareExchange(NamedTuple):
    """exchange.declare (AB-65); `row` has no alternate exchange yet, because that is one of the arguments."""

    row: ExchangeRow
    by: str = ""
    #: Whether the broker declares it for itself, which may use reserved names.
    is_system: bool = False


class DeleteExchange(NamedTuple):
    """exchange.delete (AB-66); an exchange that does not exist is success."""

    vhost: str
    name: str
    if_unused: bool
    by: str = ""


class Bind(NamedTuple):
    """queue.bind and exchange.bind (AB-73), for the connection with this id."""

    vhost: str
    binding: Binding
    connection_id: str
    by: str = ""


class Unbind(NamedTuple):
    """queue.unbind and exchange.unbind; a binding that does not exist is success."""

    vhost: str
    binding: Binding
    connection_id: str
    by: str = ""


class TrimBindings(NamedTuple):
    """Remove bindings of an exchange or a queue that is about to be deleted, or of the auto-delete exchanges that go
    with it, and what goes with them.

    The command names them, because which ones a node finds first depends on when it was started.
    """

    vhost: str
    bindings: tuple[Binding, ...]


class TrimVhost(NamedTuple):
    """Remove some of the exchanges, queues and bindings of a virtual host that is about to be deleted."""

    vhost: str
    bindings: tuple[Binding, ...]
    queues: tuple[str, ...]
    exchanges: tuple[str, ...]


class DeclareQueue(NamedTuple):
    """queue.declare (AB-82 to AB-88). A queue that exists keeps its row, and only must be equivalent to `row`."""

    row: QueueRow
    #: Whether the broker generated the name.
    server_named: bool
    by: str = ""
    #: The rows of the queue's shards, if it is a sharded one.
    shards: tuple[QueueRow, ...] = ()


class DeleteQueue(NamedTuple):
    """Delete the queue with this id. Nothing is removed if there is no queue of that name, or if it has another id."""

    vhost: str
    name: str
    queue_id: str
    #: Whether the queue's process has ended by itself, or is about to, so that nobody has to end it.
    is_ended: bool
    by: str = ""


class SetQueueStates(NamedTuple):
    """Give queues another state, because their processes ended or run again (AB-63)."""

    vhost: str
    #: Name, id and new state of each queue. Queues that do not exist any more are left out.
    states: tuple[tuple[str, str, QueueState], ...]


class RestartQueue(NamedTuple):
    """Give the queue another process, whatever its state was before (AB-63). Nothing changes if the queue no longer
    exists.
    """

    vhost: str
    name: str
    queue_id: str
    #: The generation of the process. The command changes the row only if this is above the row's generation, so a
    #: command that is applied twice takes effect once.
    generation: int


class EndConnection(NamedTuple):
    """A connection has ended without deleting its exclusive queues: it can declare no more of them (AB-84)."""

    connection_id: str


class PutRecords(NamedTuple):
    """Add records, or replace records with the same keys: all of them or none."""

    records: tuple[Record, ...]
    #: Whether it is an error that a record of its key exists.
    is_new: bool = False
    by: str = ""


class ChangeUser(NamedTuple):
    """Give a user other values, and leave the rest as it is."""

    name: str
    #: Fields of `User` and their values.
    values: tuple[tuple[str, Any], ...]
    by: str = ""


class RemoveRecords(NamedTuple):
    """Remove the records with these tables and keys; a user's permissions go with him. Missing ones are no error."""

    keys: tuple[tuple[str, RecordKey], ...]
    by: str = ""


class EnableFeatures(NamedTuple):
    """Enable features in the whole cluster, for ever (CL-26); one that is enabled is success.

    It is refused as long as any member, whether it runs or not, has a version without them.
    """

    names: tuple[str, ...]
    by: str = ""


class AddNode(NamedTuple):
    """Make this node a member of the cluster, or give a member another role and address (cluster section 2)."""

    node: Node


class RemoveNode(NamedTuple):
    """Remove a member with the queues whose home it is; one that does not exist is success."""

    name: str


class SetMaintenance(NamedTuple):
    """An operator has drained this member, or revived it: no new queue is placed on a node in maintenance (CL-60)."""

    name: str
    is_on: bool


class ChangeNodes(NamedTuple):
    """Runs of nodes have ended, and others have begun (CL-42): both in one command, so that nobody acts in between.

    A transient queue goes with the run of its home, and nobody can use a durable one until its home runs again. When no
    node is left, transient exchanges and bindings go as well.
    """

    #: Name and incarnation of the runs that have ended; without effect if the node has begun another run since.
    down: tuple[tuple[str, str], ...] = ()
    #: The nodes that run, with incarnation, address, build and features. An earlier run of theirs has ended.
    up: tuple[Node, ...] = ()
    #: The term of the leader that has decided this; 0 if no leader did. The log refuses the command in another term: a
    #: leader that was replaced cannot tell which nodes run, and its command may arrive long afterwards, when all links
    #: are back.
    term: int = 0
    #: The nodes in `down` that were stopped in order. Set if the cluster has the feature `promote_on_shutdown`.
    stopped: tuple[str, ...] = ()


class AddLearner(NamedTuple):
    """A node that shall have a replica of a mirrored queue makes one, which does not have its messages yet (CL-28).

    This command and the others on a group change nothing if the group is not as their proposer believed: if it has
    another epoch than the one that they name, or not the member. The proposer then finds the group as it is.
    """

    vhost: str
    name: str
    queue_id: str
    node: str
    #: The run of the node.
    incarnation: str


class RemoveLearner(NamedTuple):
    """A learner leaves the group."""

    vhost: str
    name: str
    queue_id: str
    member: Member


class AdmitToRing(NamedTuple):
    """A learner that has everything becomes the last of the ring (CL-28)."""

    vhost: str
    name: str
    queue_id: str
    epoch: int
    member: Member


class EvictFromRings(NamedTuple):
    """A node that holds up rings leaves them (CL-28). If it had the master, the next member is the master; the last
    member of a ring stays.
    """

    #: Virtual host, name, id and epoch of each queue.
    groups: tuple[tuple[str, str, str, int], ...]
    node: str
    #: What its replicas failed to do, for operators.
    reason: str


class TransferRing(NamedTuple):
    """Another member of the ring becomes the master (CL-28)."""

    vhost: str
    name: str
    queue_id: str
    epoch: int
    to: Member


class LoseMember(NamedTuple):
    """The process of a replica has ended, though its node runs.

    It leaves the group. The only member of a ring is followed by another one on its node, which starts from the disk.
    """

    vhost: str
    name: str
    queue_id: str
    member: Member


class ForceRing(NamedTuple):
    """An operator makes a member, or a node that left the ring, the only member, whatever is lost by that (CL-100)."""

    vhost: str
    name: str
    queue_id: str
    node: str
    by: str = ""


class ReplaceMembers(NamedTuple):
    """Choose nodes for the replicas of a queue among all that run, because one of its nodes has not come back
    (CL-92).
    """

    vhost: str
    name: str
    queue_id: str


#: The commands on the groups of mirrored queues. They are never refused.
GroupCommand = (
    AddLearner | RemoveLearner | AdmitToRing | EvictFromRings | TransferRing | LoseMember | ForceRing | ReplaceMembers
)

#: The commands of operators on definitions. They are refused with DefinitionErrors.
DefinitionCommand = PutRecords | ChangeUser | RemoveRecords | EnableFeatures

#: The commands about members of the cluster. They are refused with DefinitionErrors too; every other command that can
#: be refused, with AmqpErrors.
NodeCommand = AddNode | RemoveNode | SetMaintenance | ChangeNodes

Command = (
    CreateVhost
    | DeleteVhost
    | DeclareExchange
    | DeleteExchange
    | Bind
    | Unbind
    | TrimBindings
    | TrimVhost
    | DeclareQueue
    | DeleteQueue
    | SetQueueStates
    | RestartQueue
    | EndConnection
    | DefinitionCommand
    | NodeCommand
    | GroupCommand
)
