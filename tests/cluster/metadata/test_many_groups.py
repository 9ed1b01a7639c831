"""What a node's end and its return mean for very many mirrored queues is handled in turns of bounded work (CL-36)."""

from __future__ import annotations

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.state.commands import ChangeNodes, PutRecords, RemoveNode, RemoveRecords
from warren.definitions.features import FEATURES, MIRRORED_QUEUES
from warren.definitions.records import Policy
from warren.tests.turn_meter import metered

from . import group as stubs
from .group import Group, V
from .replicas import Mirrored, Supervisor

#: How many queues are mirrored.
MANY = 400
#: Most calls of a turn, which take 1.5 ms: what a slice makes, and the coroutines and messages that follow.
MOST = 15_000


@pytest.fixture
def turns(monkeypatch):
    monkeypatch.setattr(stubs, "StubSupervisor", Supervisor)
    monkeypatch.setitem(FEATURES, MIRRORED_QUEUES, "")
    with metered() as turns:
        yield turns


@pytest.fixture
def mirrored(turns):
    """Very many queues that are mirrored on all three nodes."""
    with Group() as group:
        mirrored = Mirrored(group)
        mirrored.policy('{"ha-mode":"all"}')
        first = group.members[0]
        asked = [first.begin(first.declare(f"q{number}")) for number in range(MANY)]
        group.until(lambda: all(each.is_here for each in asked), 300)
        group.wait_until_level()
        yield mirrored


def changed(group, command):
    leader = group.wait_for_leader()
    leader.ask(to_metadata.change_definitions(command))
    group.check_equal()


def rings(member):
    return {len(row.group.ring) for row in member.process.state.vhosts[V].queues.values() if row.group is not None}


def test_no_turn_handles_all_queues_of_a_node(mirrored, turns):
    """A node dies, comes back, and dies for good; then a policy takes all mirrors away. No turn of any process handles
    all queues because of that.
    """
    group = mirrored.group
    first, _, third = group.members
    run = third.run_of()
    third.kill()
    group.wait_for_leader()
    turns.forget()
    changed(group, ChangeNodes(down=((run.name, run.incarnation),)))
    group.world.run_until(lambda: False, 1)
    gone = turns.most
    assert rings(first) == {2} and gone.calls < MOST, gone
    turns.forget()
    third.boot()
    group.until(lambda: third.has_started)
    turns.forget()
    changed(group, ChangeNodes(up=(third.run_of(),)))
    group.world.run_until(lambda: False, 1)
    assert turns.most.calls < MOST, turns.most
    third.kill()
    group.wait_for_leader()
    turns.forget()
    changed(group, RemoveNode(third.name))
    assert turns.most.calls < MOST, turns.most
    turns.forget()
    changed(group, RemoveRecords((("policies", (V, "user", "ha")),)))
    assert rings(first) == set() and turns.most.calls < MOST, turns.most
    turns.forget()
    changed(group, PutRecords((Policy(V, "ha", "^q", '{"ha-mode":"all"}'),)))
    assert rings(first) == {1} and turns.most.calls < MOST, turns.most
