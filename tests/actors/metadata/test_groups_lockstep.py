"""Under random commands all copies of a state agree on its groups, and a ring changes only in ways that lose no
confirmed message (CL-28, CL-44).

Each command is made for the state at its turn; some name an epoch or a member of the past.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.metadata.state.commands import (
    AddLearner,
    AddNode,
    AdmitToRing,
    ChangeNodes,
    CreateVhost,
    DeclareQueue,
    DeleteQueue,
    EnableFeatures,
    EvictFromRings,
    ForceRing,
    LoseMember,
    PutRecords,
    RemoveLearner,
    RemoveNode,
    RemoveRecords,
    ReplaceMembers,
    SetMaintenance,
    TransferRing,
)
from warren.actors.metadata.state.groups import has_live_ring, is_live
from warren.actors.metadata.state.state import State
from warren.definitions.features import MIRRORED_QUEUES
from warren.definitions.records import EnabledFeature, Node, Policy
from warren.routing.rows import Member, MirrorGroup, QueueRow


def _loaded(path: Path) -> Any:
    """A test module that is loaded by its path, because the folders of tests are no packages."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lockstep = _loaded(Path(__file__).with_name("test_state_lockstep.py"))
outcome, restored, contents = lockstep.outcome, lockstep.restored, lockstep.contents

NODES = "abcd"
IDS = {"p": "1" * 32, "q": "2" * 32}
FEATURES = ("one", "two")
NOBODY = Member("a", "gone", 99)
POLICIES = (
    '{"ha-mode":"all"}',
    '{"ha-mode":"all","ha-promote-on-failure":"always"}',
    '{"ha-mode":"exactly","ha-params":2}',
    '{"ha-mode":"exactly","ha-params":3}',
    '{"ha-mode":"nodes","ha-params":["b","c"]}',
    '{"max-length":5}',
)


class Script:
    """Makes a command from a few numbers and the present state."""

    def __init__(self) -> None:
        self.runs = 0

    def command(self, state: State, kind: str, name: str, node: str, number: int) -> Any:
        row = state.queue("/", name)
        where = "/", name, IDS[name]
        group = None if row is None else row.group
        made: dict[str, Callable[[], Any]] = {
            "declare": lambda: DeclareQueue(
                QueueRow("/", name, None, IDS[name], number % 3 > 0, node=node, replicas=(node,)), False
            ),
            "delete": lambda: DeleteQueue(*where, False),
            "policy": lambda: PutRecords((Policy("/", "ha", "", POLICIES[number % len(POLICIES)]),)),
            "clear": lambda: RemoveRecords((("policies", ("/", "user", "ha")),)),
            "down": lambda: ChangeNodes(down=tuple(self._runs(state, node, number))),
            "up": lambda: ChangeNodes(up=self._next_run(node)),
            "over": lambda: ChangeNodes(down=tuple(self._runs(state, node, number)), up=self._next_run(node)),
            "all down": lambda: ChangeNodes(down=tuple(run for each in NODES for run in self._runs(state, each, 0))),
            "remove": lambda: RemoveNode(node),
            "add": lambda: AddNode(Node(node, node * 32, role="witness" if number % 3 == 0 else "data")),
            "maintain": lambda: SetMaintenance(node, number % 2 == 0),
            "enable": lambda: EnableFeatures(FEATURES[: number % 3]),
        }
        if kind in made:
            return made[kind]()
        return self._group_command(kind, where, group or MirrorGroup((NOBODY,)), state, node, number)

    def _group_command(self, kind: str, where: Any, group: MirrorGroup, state: State, node: str, number: int) -> Any:
        members = (*group.everyone, NOBODY)
        epoch = group.epoch - (number % 5 == 0)
        learner = (*group.learners, NOBODY)[0]
        record = state.definitions.node(node)
        return {
            "learn": AddLearner(*where, node, "" if record is None else record.incarnation),
            "unlearn": RemoveLearner(*where, learner),
            "admit": AdmitToRing(*where, epoch, learner),
            "evict": EvictFromRings(((*where, epoch),), node, "no progress"),
            "transfer": TransferRing(*where, epoch, members[number % len(members)]),
            "lose": LoseMember(*where, members[number % len(members)]),
            "force": ForceRing(*where, node, "anna"),
            "replace": ReplaceMembers(*where),
        }[kind]

    def _runs(self, state: State, node: str, number: int) -> list[tuple[str, str]]:
        record = state.definitions.node(node)
        if record is None or not record.incarnation:
            return []
        return [(node, "another" if number % 7 == 6 else record.incarnation)]

    def _next_run(self, node: str) -> tuple[Node, ...]:
        self.runs += 1
        features = FEATURES[: self.runs % 3]
        return (Node(node, node * 32, incarnation=f"{node}{self.runs}", features=features),)


KINDS = st.sampled_from(
    ("declare", "policy", "down", "up", "learn", "admit") * 3
    + ("learn", "admit") * 3
    + ("evict", "transfer", "lose", "over") * 2
    + ("delete", "clear", "unlearn", "force", "replace", "remove", "add", "all down", "maintain", "enable")
)
STEPS = st.lists(
    st.tuples(KINDS, st.sampled_from("pqq"), st.sampled_from(NODES), st.integers(0, 20)), min_size=20, max_size=60
)


def begun() -> tuple[State, State, Script]:
    states = State(), State()
    script = Script()
    up = [run for node in NODES[:3] for run in script._next_run(node)]
    for state in states:
        outcome(state, CreateVhost("/"))
        state.definitions.put(EnabledFeature(MIRRORED_QUEUES))
        for node in NODES:
            outcome(state, AddNode(Node(node, node * 32)))
        outcome(state, ChangeNodes(up=tuple(up)))
        outcome(state, PutRecords((Policy("/", "ha", "", POLICIES[0]),)))
    return *states, script


@given(STEPS, st.integers(0, 59))
@settings(max_examples=75, deadline=None)
def test_states_agree_on_the_groups(steps, cut):
    """Two states that apply the same commands agree on the groups, and so does a third, which is made in the middle
    from the stored rows of the first.
    """
    first, second, script = begun()
    third = None
    for number, step in enumerate(steps):
        if number == cut % len(steps):
            third = restored(first)
            assert contents(third) == contents(first)
        command = script.command(first, *step)
        found = outcome(first, command)
        assert outcome(second, command) == found
        if third is not None:
            assert outcome(third, command) == found
    for state in (second, third):
        assert state is None or contents(state) == contents(first)


@given(STEPS)
@settings(max_examples=125, deadline=None)
def test_a_ring_changes_only_as_the_proof_allows(steps):
    state, _, script = begun()
    for step in steps:
        before = dict(state.vhosts["/"].queues)
        command = script.command(state, *step)
        outcome(state, command)
        for name, row in state.vhosts["/"].queues.items():
            check_row(state, row)
            old = before.get(name)
            if row.group is not None and old is not None and old.group is not None and old.queue_id == row.queue_id:
                check_change(command, old.group, row.group)
                assert row.generation - old.generation == (row.group.master != old.group.master)


def check_row(state: State, row: QueueRow) -> None:
    group = row.group
    if group is None:
        assert row.replicas == (row.node,)
        return
    nodes = [member.node for member in group.everyone]
    assert group.ring and len(set(nodes)) == len(nodes), "a node has one member"
    assert row.node == group.master.node and row.replicas == tuple(nodes)
    assert all(member.generation <= group.members for member in group.everyone)
    assert 1 <= group.reign <= group.epoch
    assert all(is_live(state.definitions, member) for member in group.learners)
    if row.state == "down":
        assert row.durable and not has_live_ring(state.definitions, group)
    else:
        assert all(is_live(state.definitions, member) for member in group.ring)


def check_change(command: Any, old: MirrorGroup, new: MirrorGroup) -> None:
    """Assert that the ring is the same, smaller, in another order, or longer by one, unless no member of it
    was left.
    """
    assert new.epoch >= old.epoch and (new.ring == old.ring) == (new.epoch == old.epoch)
    assert new.members >= old.members
    if new.master != old.master:
        assert new.reign == new.epoch or new.reign > old.epoch
    else:
        assert new.reign == old.reign
    if isinstance(command, AdmitToRing):
        stays = [member for member in new.ring if member != command.member]
    elif isinstance(command, TransferRing):
        stays = [member for member in new.ring if member in old.ring]
        assert set(stays) == set(new.ring)
        return
    else:
        stays = list(new.ring)
    if set(stays) <= set(old.ring):
        order = [member for member in old.ring if member in stays]
        assert stays == order, "the first that is left behind a master has the longest prefix"
    else:
        assert len(new.ring) == 1 and isinstance(command, (ChangeNodes, LoseMember, ForceRing))


def test_the_home_of_a_queue_does_not_depend_on_the_order_of_the_records():
    """A queue whose chosen home has ended meanwhile gets the same home on all nodes, although a node that has started
    again has the records in another order.
    """
    state, _, _ = begun()
    for record in reversed(state.definitions.nodes.copy().values()):
        state.definitions.remove(record)
        state.definitions.put(record)
    outcome(state, DeclareQueue(QueueRow("/", "q", None, IDS["q"], True, node="d", replicas=("d",)), False))
    row = state.queue("/", "q")
    assert row is not None and row.node == "a"


def test_what_a_group_has_is_stored():
    state, _, _ = begun()
    group = MirrorGroup(
        (Member("a", "a1", 1), Member("b", "b2", 4)),
        (Member("c", "c3", 5),),
        7,
        6,
        ("a", "b", "c"),
        5,
        (("d", 3),),
        (("c", "no progress"),),
        (("anna", 2),),
    )
    row = QueueRow("/", "q", None, IDS["q"], True, node="a", replicas=("a", "b", "c"), generation=3, group=group)
    state.vhosts["/"].put_queue(row)
    found = restored(state).queue("/", "q")
    assert found == row and repr(found) == repr(row)
    state.vhosts["/"].put_queue(replace(row, group=None))
    assert restored(state).queue("/", "q") == replace(row, group=None)
