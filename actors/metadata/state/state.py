"""`State`: the rows of all virtual hosts, and `apply`, the only function that changes them.

`apply(state, command)` returns what changed and what has to happen because of that, or raises the AmqpError that
refuses the command; then it has changed nothing. `apply_in_slices` does the same in several steps. Both read the state
and the command and nothing else: no clock, no random numbers, no disk, no process. Two states that were equal before a
command are equal after it. A handler may check a command before it proposes it, on any node and any number of times,
but only the check in `apply` counts: it sees the state that all earlier commands of the log have made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ....amqp.constants import CONNECTION_FORCED
from ....amqp.errors import AmqpError
from ....definitions.changes import RecordPut, RecordRemoved
from ....definitions.definitions import Definitions
from ....definitions.errors import DefinitionError
from ....definitions.limits import MAX_QUEUES
from ....definitions.records import Policy
from ....routing.changes import BindingAdded, ExchangePut, QueuePut, VhostAdded, VhostRemoved
from ....routing.changes import Change as RowChange
from ....routing.phrases import queue_phrase
from ....routing.rows import QueueRow
from ....routing.vhost_rows import VhostRows
from .bindings import new_binding, unbind
from .commands import (
    AddLearner,
    AddNode,
    AdmitToRing,
    Bind,
    ChangeNodes,
    ChangeUser,
    Command,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteVhost,
    EnableFeatures,
    EndConnection,
    EvictFromRings,
    ForceRing,
    GroupCommand,
    LoseMember,
    PutRecords,
    RemoveLearner,
    RemoveNode,
    RemoveRecords,
    RestartQueue,
    SetMaintenance,
    SetQueueStates,
    TransferRing,
    TrimBindings,
    TrimVhost,
    Unbind,
)
from .definitions import change_user, put_records, remove_all, remove_records
from .effects import Applied, Change, Effect, StartQueue, StartVhost, StopVhost
from .exchanges import delete_exchange, new_exchange
from .groups import (
    add_learner,
    admit_to_ring,
    evict_from_rings,
    force_ring,
    lose_member,
    policies_changed,
    remove_learner,
    replace_members,
    transfer,
)
from .nodes import add_node, change_nodes, enable_features, remove_node, set_maintenance
from .queues import delete_queue, new_queues, restart_queue, set_queue_states

#: Why a command is refused: a DefinitionError for a command of operators on definitions, else an AmqpError.
Refusal = AmqpError | DefinitionError

#: The commands that only put rows and records.
_ADDING = (DeclareQueue, Bind, DeclareExchange, CreateVhost, PutRecords, ChangeUser, AddNode, EnableFeatures)

#: How many connections that ended are remembered, because a declare of theirs may still be on its way.
ENDED_REMEMBERED = 1_000


class State:
    """At first it is empty. Everyone may read it; `apply` alone changes it."""

    __slots__ = ("definitions", "vhosts", "ended_connections")

    def __init__(self) -> None:
        #: What operators have set.
        self.definitions = Definitions()
        self.vhosts: dict[str, VhostRows] = {}
        #: The last connections that ended without deleting their exclusive queues, the oldest first.
        self.ended_connections: dict[str, None] = {}

    def rows(self, vhost: str) -> VhostRows:
        """The rows of this virtual host. Raises AmqpError 320 if there is none.

        The client that asks had opened it, so it was deleted; its connection is closed with the same text.
        """
        found = self.vhosts.get(vhost)
        if found is None:
            raise AmqpError(CONNECTION_FORCED, f"vhost '{vhost}' is deleted")
        return found

    def queue(self, vhost: str, name: str) -> QueueRow | None:
        found = self.vhosts.get(vhost)
        return None if found is None else found.queues.get(name)

    def queues_of(self, connection_id: str) -> Iterator[tuple[str, str]]:
        """Virtual host and name of each exclusive queue that this connection has now.

        The state may change while they are read.
        """
        owned = [(rows.vhost, list(rows.by_owner.get(connection_id, ()))) for rows in self.vhosts.values()]
        return ((vhost, name) for vhost, names in owned for name in names)


def apply(state: State, command: Command) -> Applied:
    """Change the state as the command says. Raises a `Refusal` if the state forbids that; then nothing has changed."""
    return joined(apply_in_slices(state, command))


def joined(slices: Iterable[Applied]) -> Applied:
    """What all slices of a command did."""
    changes: list[Change] = []
    effects: list[Effect] = []
    for applied in slices:
        changes += applied.changes
        effects += applied.effects
    return Applied(changes, effects)


def apply_in_slices(state: State, command: Command) -> Iterator[Applied]:
    """Change the state as the command says, and yield what has changed, in slices of bounded work. The state must not
    be changed by anything else before the last slice.

    Raises a `Refusal` before the first slice if the state forbids the change; then nothing has changed.
    """
    definitions, vhosts = state.definitions, state.vhosts
    slices: Iterable[Sequence[Change]]
    if isinstance(command, ChangeNodes):
        slices = change_nodes(definitions, vhosts.values(), command)
    elif isinstance(command, RemoveNode):
        slices = remove_node(definitions, vhosts.values(), command)
    elif isinstance(command, EvictFromRings):
        slices = evict_from_rings(definitions, vhosts, command)
    else:
        applied = _apply_whole(state, command)
        yield applied
        slices = _regrouped(state, applied.changes)
    for changes in slices:
        yield Applied(changes, [])


def _apply_whole(state: State, command: Command) -> Applied:
    if isinstance(command, DeleteQueue):
        rows = state.vhosts.get(command.vhost)
        return Applied([], []) if rows is None else delete_queue(rows, command)
    if isinstance(command, _ADDING):
        return _add(state, command)
    if isinstance(command, Unbind):
        return Applied(unbind(state.rows(command.vhost), command), [])
    if isinstance(command, DeleteExchange):
        return Applied(delete_exchange(state.rows(command.vhost), command), [])
    if isinstance(command, TrimBindings):
        rows = state.vhosts.get(command.vhost)
        return Applied([] if rows is None else rows.trim(command.bindings), [])
    if isinstance(command, TrimVhost):
        rows = state.vhosts.get(command.vhost)
        found = () if rows is None else rows.trim(command.bindings, command.queues, command.exchanges)
        return Applied(found, [])
    if isinstance(command, SetQueueStates):
        rows = state.vhosts.get(command.vhost)
        return Applied([] if rows is None else set_queue_states(rows, command), [])
    if isinstance(command, RestartQueue):
        rows = state.vhosts.get(command.vhost)
        return Applied([] if rows is None else restart_queue(rows, command), [])
    if isinstance(command, RemoveRecords):
        return Applied(remove_records(state.definitions, command), [])
    if isinstance(command, SetMaintenance):
        return Applied(set_maintenance(state.definitions, command), [])
    if isinstance(command, EndConnection):
        return _end_connection(state, command)
    assert not isinstance(command, (ChangeNodes, RemoveNode)), "they are applied in slices"
    if isinstance(command, DeleteVhost):
        return _delete_vhost(state, command)
    return Applied(_change_group(state, command), [])


def _change_group(state: State, command: GroupCommand) -> list[RowChange]:
    assert not isinstance(command, EvictFromRings), "it is applied in slices"
    definitions = state.definitions
    rows = state.vhosts.get(command.vhost)
    if rows is None:
        return []
    if isinstance(command, AddLearner):
        return add_learner(definitions, rows, command)
    if isinstance(command, RemoveLearner):
        return remove_learner(rows, command)
    if isinstance(command, AdmitToRing):
        return admit_to_ring(definitions, rows, command)
    if isinstance(command, TransferRing):
        return transfer(definitions, rows, command)
    if isinstance(command, LoseMember):
        return lose_member(definitions, rows, command)
    if isinstance(command, ForceRing):
        return force_ring(definitions, rows, command)
    return replace_members(definitions, rows, command)


def _regrouped(state: State, changes: Sequence[Change]) -> Iterator[list[RowChange]]:
    """Apply changed policies to the mirroring of queues, in each virtual host with a policy among these changes."""
    records = [change.record for change in changes if isinstance(change, (RecordPut, RecordRemoved))]
    vhosts = dict.fromkeys(record.vhost for record in records if isinstance(record, Policy))
    found = [state.vhosts[vhost] for vhost in vhosts if vhost in state.vhosts]
    return (slice_ for rows in found for slice_ in policies_changed(state.definitions, rows))


def additions(state: State, command: Command) -> list[Change]:
    """The rows and records that the command would put now, none for most commands. Raises a `Refusal`.

    The log of a node that is alone asks this before it commits the command, because a durable row is on the disk before
    it is in the state. Such a node has no groups, so what a policy does to them is not here.
    """
    if isinstance(command, DeclareQueue):
        rows = _rows_for_queue(state, command)
        definitions = state.definitions
        queues = new_queues(rows, command, definitions.vhost_limit(rows.vhost, MAX_QUEUES), definitions)
        return [QueuePut(queue) for queue in queues]
    if isinstance(command, Bind):
        durable = new_binding(state.rows(command.vhost), command)
        return [] if durable is None else [BindingAdded(command.vhost, command.binding, durable)]
    if isinstance(command, DeclareExchange):
        exchange = new_exchange(state.rows(command.row.vhost), command)
        return [] if exchange is None else [ExchangePut(exchange)]
    if isinstance(command, CreateVhost) and command.name not in state.vhosts:
        return [VhostAdded(command.name)]
    if isinstance(command, PutRecords):
        return [*put_records(state.definitions, state.vhosts, command)]
    if isinstance(command, ChangeUser):
        return [*change_user(state.definitions, command)]
    if isinstance(command, AddNode):
        return [*add_node(state.definitions, state.vhosts.values(), command)]
    if isinstance(command, EnableFeatures):
        return [*enable_features(state.definitions, command)]
    return []


def _add(state: State, command: Command) -> Applied:
    changes = additions(state, command)
    effects: list[Effect] = []
    for change in changes:
        if isinstance(change, QueuePut):
            state.vhosts[change.row.vhost].put_queue(change.row)
            effects.append(StartQueue(change.row))
        elif isinstance(change, BindingAdded):
            state.vhosts[change.vhost].add_binding(change.binding, change.durable)
        elif isinstance(change, ExchangePut):
            state.vhosts[change.row.vhost].put_exchange(change.row)
        elif isinstance(change, VhostAdded):
            state.vhosts[change.vhost] = VhostRows(change.vhost)
            effects.append(StartVhost(change.vhost))
        elif isinstance(change, RecordPut):
            state.definitions.put(change.record)
    return Applied(changes, effects)


def _rows_for_queue(state: State, command: DeclareQueue) -> VhostRows:
    row = command.row
    if row.exclusive_owner is not None and row.exclusive_owner in state.ended_connections:
        # The connection's exclusive queues are being deleted, so nobody would delete this one.
        phrase = queue_phrase(row.vhost, row.name)
        raise AmqpError(CONNECTION_FORCED, f"the connection that declared {phrase} has ended")
    return state.rows(row.vhost)


def _end_connection(state: State, command: EndConnection) -> Applied:
    ended = state.ended_connections
    ended[command.connection_id] = None
    if len(ended) > ENDED_REMEMBERED:
        del ended[next(iter(ended))]
    return Applied([], [])


def _delete_vhost(state: State, command: DeleteVhost) -> Applied:
    rows = state.vhosts.pop(command.name, None)
    if rows is None:
        return Applied([], [])
    effects: list[Effect] = [] if command.is_ended else [StopVhost(command.name)]
    records = remove_all(state.definitions, state.definitions.of_vhost(command.name))
    return Applied([*rows.remove_everything(), *records, VhostRemoved(command.name)], effects)
