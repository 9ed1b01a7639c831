"""A reader that follows the changes between two states ends up with the second state."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings

from warren.actors.metadata.state.effects import EndQueue, StartQueue, StartVhost, StopVhost
from warren.actors.metadata.state.state import State
from warren.cluster.metadata.difference import replace_state
from warren.definitions.changes import RecordPut, RecordRemoved
from warren.routing.changes import VhostAdded
from warren.routing.table import RoutingTable


def _loaded(path: Path) -> Any:
    """A test module of another folder, which is loaded by its path because the folders of tests are no packages."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lockstep = _loaded(Path(__file__).parents[2] / "actors" / "metadata" / "test_state_lockstep.py")


def made(commands: list[Any]) -> State:
    state = State()
    for command in (lockstep.CreateVhost("/"), *commands):
        lockstep.outcome(state, command)
    return state


def with_ids_of_its_own(state: State) -> State:
    """The state with a unique id for each queue, as in a cluster; the few ids that the strategies draw would be drawn
    twice.
    """
    for rows in state.vhosts.values():
        for row in list(rows.queues.values()):
            rows.put_queue(replace(row, queue_id=f"9{row.queue_id}"))
    return state


def shown(table: RoutingTable, state: State) -> object:
    """What readers of the routing table see, and to which queues it routes messages to the names in the tests."""
    return {
        vhost: (
            {row.name: row for row in table.exchanges(vhost)},
            {row.name: row for row in table.queues(vhost)},
            {
                (exchange, key): {row.name for row in _routed(table, vhost, exchange, key)}
                for exchange in state.vhosts[vhost].exchanges
                for key in ("", "k", "a", "b")
            },
        )
        for vhost in table.vhosts()
    }


def _routed(table: RoutingTable, vhost: str, exchange: str, key: str) -> Any:
    try:
        return table.route(vhost, exchange, (key,))
    except Exception as error:  # an exchange of a missing type refuses to route
        assert type(error).__name__ == "AmqpError"
        return ()


def table_of(state: State) -> RoutingTable:
    table = RoutingTable()
    for name, rows in state.vhosts.items():
        table.add_vhost(name, rows)
        for row in rows.queues.values():
            table.put_queue(row)
    return table


@settings(max_examples=30)
@given(lockstep.SEQUENCES, lockstep.SEQUENCES)
def test_a_reader_that_follows_the_changes_has_the_new_state(first, second):
    state, new, wanted = made(first), with_ids_of_its_own(made(second)), with_ids_of_its_own(made(second))
    table = table_of(state)
    applied = replace_state(state, new)
    assert lockstep.contents(state) == lockstep.contents(wanted)
    rows = [change for change in applied.changes if not isinstance(change, (RecordPut, RecordRemoved))]
    table.publish(rows)
    # As in `Changing`, virtual hosts are shown once they have been started, and queues once they run.
    for change in rows:
        if isinstance(change, VhostAdded):
            table.add_vhost(change.vhost, state.vhosts[change.vhost])
    for effect in applied.effects:
        if isinstance(effect, StartQueue):
            table.put_queue(effect.row)
    assert shown(table, wanted) == shown(table_of(wanted), wanted)


@settings(max_examples=30)
@given(lockstep.SEQUENCES, lockstep.SEQUENCES)
def test_processes_are_started_and_ended_for_what_comes_and_goes(first, second):
    state, new = made(first), made(second)
    before = {row.queue_id for rows in state.vhosts.values() for row in rows.queues.values()}
    vhosts = set(state.vhosts)
    kept = {name for name in vhosts if name in new.vhosts}
    inside = {row.queue_id for name in kept for row in state.vhosts[name].queues.values()}
    effects = replace_state(state, new).effects
    after = {row.queue_id for rows in state.vhosts.values() for row in rows.queues.values()}
    assert {effect.name for effect in effects if isinstance(effect, StartVhost)} == set(state.vhosts) - vhosts
    assert {effect.name for effect in effects if isinstance(effect, StopVhost)} == vhosts - set(state.vhosts)
    started = {effect.row.queue_id for effect in effects if isinstance(effect, StartQueue)}
    ended = {effect.queue_id for effect in effects if isinstance(effect, EndQueue)}
    assert after - before <= started <= after
    assert inside - after <= ended <= inside
