"""`replace_state`: replaces a state by a newer one, such as that of a snapshot, and returns the changes and effects.

The readers of the routing table get the same kinds of changes as from commands. So an exchange whose row differs, and a
queue that was deleted and declared again under its name, are removed with all their bindings and added again.
"""

from __future__ import annotations

from ...actors.metadata.state.effects import Applied, Change, Effect, EndQueue, StartQueue, StartVhost, StopVhost
from ...actors.metadata.state.state import State
from ...definitions.changes import RecordPut, RecordRemoved
from ...definitions.definitions import Definitions
from ...routing.changes import (
    BindingAdded,
    BindingRemoved,
    ExchangePut,
    ExchangeRemoved,
    QueuePut,
    QueueRemoved,
    VhostAdded,
    VhostRemoved,
)
from ...routing.rows import Binding
from ...routing.vhost_rows import VhostRows


def replace_state(state: State, new: State) -> Applied:
    """Make `state` what `new` is, and return what changed. `new` must not be used afterwards."""
    changes: list[Change] = []
    effects: list[Effect] = []
    for name in [name for name in state.vhosts if name not in new.vhosts]:
        changes += state.vhosts.pop(name).remove_everything()
        changes.append(VhostRemoved(name))
        effects.append(StopVhost(name))
    for name, rows in new.vhosts.items():
        before = state.vhosts.get(name)
        if before is None:
            changes.append(VhostAdded(name))
            effects.append(StartVhost(name))
            before = VhostRows(name)
        _compare(before, rows, changes, effects)
    state.vhosts.clear()
    state.vhosts.update(new.vhosts)
    changes += _replace_definitions(state.definitions, new.definitions)
    state.ended_connections = new.ended_connections
    return Applied(changes, effects)


def _compare(old: VhostRows, new: VhostRows, changes: list[Change], effects: list[Effect]) -> None:
    """Note the changes and effects that turn the rows `old` of a virtual host into `new`."""
    exchanges = {name for name, row in old.exchanges.items() if new.exchanges.get(name) != row}
    queues = {name for name, row in old.queues.items() if name not in new.queues or _is_another(old, new, name)}
    before, after = dict(old.bindings()), dict(new.bindings())

    def stays(binding: Binding) -> bool:
        ends = queues if binding.kind == "queue" else exchanges
        is_same = before.get(binding) == after.get(binding)
        return is_same and binding.source not in exchanges and binding.destination not in ends

    changes += [BindingRemoved(old.vhost, each, before[each]) for each in before if not stays(each)]
    for name in queues:
        changes.append(QueueRemoved(old.queues[name]))
        effects.append(EndQueue(old.vhost, old.queues[name].queue_id))
    changes += [ExchangeRemoved(old.exchanges[name]) for name in exchanges]
    changes += [ExchangePut(row) for name, row in new.exchanges.items() if old.exchanges.get(name) != row]
    for name, row in new.queues.items():
        found = old.queues.get(name)
        if found is None or name in queues:
            effects.append(StartQueue(row))
        if found != row:
            changes.append(QueuePut(row))
    changes += [BindingAdded(old.vhost, each, after[each]) for each in after if not stays(each)]


def _is_another(old: VhostRows, new: VhostRows, name: str) -> bool:
    return old.queues[name].queue_id != new.queues[name].queue_id


def _replace_definitions(old: Definitions, new: Definitions) -> list[Change]:
    changes: list[Change] = []
    for table, records in old.tables.items():
        for key, record in list(records.items()):
            if key not in new.tables[table]:
                old.remove(record)
                changes.append(RecordRemoved(record))
        for key, record in new.tables[table].items():
            before = old.record(table, key)
            if before != record:
                old.put(record)
                changes.append(RecordPut(record, before))
    return changes
