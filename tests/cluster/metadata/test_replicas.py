"""On each node the replicas run that the rows of mirrored queues list there, whatever happens to nodes and processes
(CL-28, CL-44, CL-92). The queues and their supervisors are stubs that record what they are told.
"""

from __future__ import annotations

from collections import Counter

import pytest

from warren.actors.contracts.metadata import to_metadata
from warren.actors.metadata.changing import Changing
from warren.actors.metadata.queues import replicas
from warren.actors.metadata.state.commands import (
    AddLearner,
    EvictFromRings,
    ForceRing,
    RemoveRecords,
    TransferRing,
)

from .group import Group, V
from .replicas import Mirrored, Replica

ALL = '{"ha-mode":"all"}'


@pytest.fixture
def declared(mirrored):
    """A queue that is mirrored on all three nodes, all of them in its ring, with the master on a."""
    mirrored.policy(ALL)
    first = mirrored.group.members[0]
    first.ask(first.declare("q"))
    # The declare is answered when all replicas run.
    assert all(mirrored.replica(member) is not None for member in mirrored.group.members)
    mirrored.settle()
    return mirrored


def test_a_declare_is_answered_when_all_replicas_run(declared):
    first, *others = declared.group.members
    assert declared.row(first).node == first.name and len(declared.ring()) == 3
    for other in others:
        assert declared.supervisor(other).calls == [("start", "q", False)]
    assert declared.supervisor(first).calls == []


def test_the_row_of_a_queue_that_is_declared_through_a_mirrors_node(mirrored):
    mirrored.policy('{"ha-mode":"nodes","ha-params":["warren@b","warren@c"]}')
    first = mirrored.group.members[0]
    row, _ = first.ask(first.declare("q"))
    assert row.node == "warren@b" and mirrored.ring() == ["warren@b", "warren@c"]
    mirrored.settle()


def test_a_policy_that_comes_later_makes_learners_and_one_that_goes_ends_them(mirrored):
    first, second, third = mirrored.group.members
    first.ask(first.declare("q"))
    own = mirrored.replica(first)
    mirrored.policy(ALL)
    mirrored.settle()
    assert mirrored.ring() == [first.name] and sorted(mirrored.learners()) == [second.name, third.name]
    assert mirrored.replica(first) is own, "the process of the queue goes on as its master"
    assert mirrored.supervisor(first).calls == [("mirror", "q", True)]
    mirrored.admit(second, third)
    mirrored.settle()
    assert sorted(mirrored.ring()) == [first.name, second.name, third.name]
    first.ask(to_metadata.change_definitions(RemoveRecords((("policies", (V, "user", "ha")),))))
    mirrored.group.until(lambda: mirrored.replica(second) is mirrored.replica(third) is None)
    mirrored.group.until(lambda: own.told[-1].group is None)
    mirrored.group.until(lambda: mirrored.supervisor(first).calls[-1] == ("mirror", "q", False))
    assert mirrored.supervisor(second).calls[-1][0] == "forget", "what it had is deleted"
    assert first.routing.queue(V, "q").group is None


def test_the_death_of_the_masters_node_makes_the_next_one_the_master_in_its_process(declared):
    first, *_ = declared.group.members
    second = declared.member(declared.ring()[1])
    replica = declared.replica(second)
    declared.take_down(first)
    declared.settle()
    assert declared.ring()[0] == second.name and declared.replica(second) is replica
    assert replica.told[-1].generation == 1
    declared.group.restart(first)
    declared.settle()
    assert declared.learners() == [first.name]
    assert declared.supervisor(first).calls == [("start", "q", True)], "it compares what its disk has"
    declared.admit(first)
    declared.settle()
    assert declared.ring()[-1] == first.name and declared.row(first).group.reign == 2
    declared.group.check_equal()


@pytest.mark.parametrize("stops", [False, True])
def test_a_node_that_stops_does_not_come_back_to_the_rings_that_its_masters_leave(declared, stops):
    first, *_ = declared.group.members
    row = declared.row(first)
    if stops:
        first.begin(to_metadata.node_stops())
    transfer = TransferRing(V, "q", row.queue_id, row.group.epoch, row.group.ring[1])
    first.ask(to_metadata.change_definitions(transfer))
    lost = first.ask(to_metadata.replica_ended(V, "q", row.queue_id, row.group.master.generation))
    assert lost is None
    declared.group.world.run(5.0)
    assert len(declared.ring()) == 2 and first.name not in declared.ring()
    assert declared.learners() == ([] if stops else [first.name])


def test_channels_that_wait_for_another_master_get_its_row(declared):
    first, *others = declared.group.members
    second = declared.member(declared.ring()[1])
    waits = [each.begin(to_metadata.await_restart(V, "q", each.routing.queue(V, "q").address)) for each in others]
    declared.take_down(first)
    declared.group.until(lambda: all(each.is_here for each in waits))
    for member, answer in zip(others, waits):
        row = answer.value()
        assert row.node == second.name and row.address == member.routing.queue(V, "q").address


def test_a_replica_that_crashes_comes_back_as_another_member(declared):
    first, second, third = declared.group.members
    row = declared.row(first)
    before = row.group.member_on(second.name)
    declared.supervisor(second).queues.clear()
    second.port.tell(second.metadata, to_metadata.replica_ended(V, "q", row.queue_id, before.generation))
    declared.group.until(lambda: declared.learners() == [second.name])
    declared.settle()
    assert declared.row(first).group.member_on(second.name).generation == 4
    assert sorted(declared.ring()) == [first.name, third.name]
    second.port.tell(second.metadata, to_metadata.replica_ended(V, "q", row.queue_id, before.generation))
    declared.settle()
    assert declared.learners() == [second.name], "the report about an earlier process changes nothing"


def test_a_master_that_crashes_is_followed_by_the_next_of_the_ring(declared):
    first = declared.group.members[0]
    row = declared.row(first)
    declared.supervisor(first).queues.clear()
    first.port.tell(first.metadata, to_metadata.replica_ended(V, "q", row.queue_id, 1))
    declared.group.until(lambda: declared.learners() == [first.name])
    declared.settle()
    assert declared.ring()[0] != first.name and declared.row(first).generation == 1


@pytest.mark.parametrize("is_first", ["crash", "policy"])
@pytest.mark.parametrize("mode", [ALL, '{"ha-mode":"exactly","ha-params":1}'])
def test_a_master_that_crashes_while_its_policy_is_cleared_is_restarted(mirrored, is_first, mode):
    """The master of a queue crashed while its policy was cleared. Nobody restarted it: its supervisor had left that to
    Metadata, which found no group that the member could leave.
    """
    mirrored.policy(mode)
    first = mirrored.group.members[0]
    row, _ = first.ask(first.declare("q"))
    mirrored.settle()
    dead = first.routing.queue(V, "q").address
    mirrored.supervisor(first).queues.clear()
    ended = to_metadata.replica_ended(V, "q", row.queue_id, 1)
    clear = to_metadata.change_definitions(RemoveRecords((("policies", (V, "user", "ha")),)))
    waiting = first.begin(to_metadata.await_restart(V, "q", dead))
    if is_first == "crash":
        # Metadata proposes that the member leave the group after the policy was committed.
        done = [first.begin(each) for each in (clear, ended)]
    else:
        first.ask(clear)
        done = [first.begin(ended)]
    mirrored.group.until(lambda: waiting.is_here and all(each.is_here for each in done))
    assert waiting.value().address == first.routing.queue(V, "q").address != dead
    assert mirrored.supervisor(first).calls[-1] == ("restart", "q")
    now = mirrored.row(first)
    assert (now.node, now.state, now.group) == (first.name, "running", None)
    mirrored.group.check_equal()


def test_a_queue_that_comes_home_and_loses_its_policy_while_its_replica_ends_is_started(declared):
    """An operator made an evicted replica the only member while its process ended, and cleared the policy. The queue
    was at home on its node then, and nobody started a process of it.
    """
    first, _, third = declared.group.members
    row = declared.row(first)
    declared.supervisor(third).end_seconds = 1.0
    evict = EvictFromRings(((V, "q", row.queue_id, 1),), third.name, "no progress")
    force = ForceRing(V, "q", row.queue_id, third.name, "an operator")
    for command in (evict, force, RemoveRecords((("policies", (V, "user", "ha")),))):
        first.ask(to_metadata.change_definitions(command))
    declared.group.until(lambda: declared.row(third).group is None)
    assert declared.supervisor(third).calls[-1][0] == "end" and declared.row(third).node == third.name
    declared.group.until(lambda: declared.supervisor(third).calls[-1] == ("restart", "q"))
    declared.group.until(lambda: declared.supervisor(third).queues)
    address = declared.supervisor(third).queues[row.queue_id]
    declared.group.until(lambda: third.routing.queue(V, "q").address == address)
    declared.group.check_equal()


def test_a_queue_that_gets_a_policy_while_it_is_restarted_is_mirrored(mirrored):
    """A queue crashed, and a policy mirrored it before Metadata had the address of its next process. This process never
    got the group of the queue, so no replica could copy it.
    """
    first = mirrored.group.members[0]
    row, _ = first.ask(first.declare("q"))
    supervisor = mirrored.supervisor(first)
    again = first.machine.base.newPrimaryActor(Replica)
    assert first.port.request(again, ("begin", row))
    mirrored.policy(ALL)
    supervisor.queues[row.queue_id] = again
    first.port.tell(first.metadata, to_metadata.queue_restarted(V, "q", row.queue_id, again))
    mirrored.settle()
    assert mirrored.ring() == [first.name] and len(mirrored.learners()) == 2


def test_the_last_replica_starts_again_from_the_disk_until_it_has_crashed_too_often(mirrored):
    mirrored.policy('{"ha-mode":"exactly","ha-params":1}')
    first = mirrored.group.members[0]
    row, _ = first.ask(first.declare("q"))
    for generation in range(2, 7):
        address = first.routing.queue(V, "q").address
        waiting = first.begin(to_metadata.await_restart(V, "q", address))
        first.port.tell(first.metadata, to_metadata.replica_ended(V, "q", row.queue_id, generation - 1))
        mirrored.group.until(lambda waiting=waiting: waiting.is_here)
        assert waiting.value().address != address
        assert mirrored.row(first).group.ring[0].generation == generation
        mirrored.settle()
    assert mirrored.supervisor(first).calls == [("start", "q", True)] * 5
    first.port.tell(first.metadata, to_metadata.replica_ended(V, "q", row.queue_id, 6))
    mirrored.group.until(lambda: mirrored.row(first).state == "crashed")
    assert len(mirrored.supervisor(first).calls) == 5


def test_an_evicted_replica_keeps_what_it_has_and_is_a_learner(declared):
    first, second, third = declared.group.members
    row = declared.row(first)
    command = EvictFromRings(((V, "q", row.queue_id, 1),), third.name, "no progress")
    assert first.ask(to_metadata.change_definitions(command)) == 1
    assert first.ask(to_metadata.change_definitions(command)) == 0, "the epoch has moved"
    declared.settle()
    assert declared.learners() == [third.name] and third.name not in declared.ring()
    assert ("end", row.queue_id, True) in declared.supervisor(third).calls


def test_a_node_proposes_to_join_a_few_rings_at_a_time(mirrored, monkeypatch):
    """A node proposes to join few rings at a time. With ten thousand mirrored queues, a node's proposals once delayed
    its own start so long that it ended.
    """
    monkeypatch.setattr(replicas, "JOINING_AT_ONCE", 2)
    names = [f"q{number}" for number in range(7)]
    first, *others = mirrored.group.members
    for name in names:
        first.ask(first.declare(name))
    joining: Counter[int] = Counter()
    most: list[int] = []
    note = Changing.note

    async def noted(self, command):
        if isinstance(command, AddLearner):
            joining[id(self)] += 1
            most.append(joining[id(self)])
        await note(self, command)
        joining[id(self)] -= isinstance(command, AddLearner)

    monkeypatch.setattr(Changing, "note", noted)
    mirrored.policy(ALL)
    mirrored.group.until(lambda: all(len(mirrored.row(first, name).group.learners) == len(others) for name in names))
    assert max(most) == 2 and len(most) == len(names) * len(others)


def test_a_replica_that_is_unfit_begins_again_without_messages(declared):
    first, second, _ = declared.group.members
    row = declared.row(first)
    before = row.group.member_on(second.name)
    declared.supervisor(second).queues.clear()
    second.port.tell(second.metadata, to_metadata.replica_ended(V, "q", row.queue_id, before.generation))
    declared.group.until(lambda: declared.learners() == [second.name])
    declared.settle()
    calls = declared.supervisor(second).calls
    assert calls == [("start", "q", False), ("start", "q", True)]
    generation = declared.row(first).group.member_on(second.name).generation
    second.port.tell(second.metadata, to_metadata.replica_unfit(V, "q", row.queue_id, before.generation))
    declared.settle()
    assert len(calls) == 2, "the report about an earlier process changes nothing"
    second.port.tell(second.metadata, to_metadata.replica_unfit(V, "q", row.queue_id, generation))
    declared.group.until(lambda: len(calls) == 4)
    declared.settle()
    assert calls[2:] == [("end", row.queue_id, True), ("start", "q", False)]
    assert declared.row(first).group.member_on(second.name).generation == generation + 1


def test_what_the_disk_has_is_not_compared_once_a_ring_was_forced(declared):
    """After an operator has forced a ring, another replica does not compare its disk with it, because the forced one
    may give numbers to new messages that only the others had given before.
    """
    first, second, third = declared.group.members
    row = declared.row(first)
    force = ForceRing(V, "q", row.queue_id, second.name, "an operator")
    assert first.ask(to_metadata.change_definitions(force)) == 1
    declared.group.until(lambda: sorted(declared.learners()) == [first.name, third.name])
    declared.settle()
    for member in (first, third):
        assert ("start", "q", False) in declared.supervisor(member).calls
        assert ("start", "q", True) not in declared.supervisor(member).calls


def test_a_node_that_is_not_wanted_any_more_deletes_what_it_has(declared):
    first = declared.group.members[0]
    row = declared.row(first)
    declared.policy('{"ha-mode":"exactly","ha-params":2}')
    declared.group.until(lambda: len(declared.ring()) == 2)
    declared.settle()
    (gone,) = [each for each in declared.group.members if each.name not in declared.ring()]
    declared.group.until(lambda: ("end", row.queue_id, False) in declared.supervisor(gone).calls)


def test_a_master_moves_to_where_the_policy_wants_it(declared):
    """A master comes to rest, and then moves to the node on which the policy wants it (CL-98)."""
    first, second, third = declared.group.members
    master = declared.replica(first)
    declared.policy('{"ha-mode":"nodes","ha-params":["warren@c","warren@b"]}')
    declared.group.until(lambda: sorted(declared.ring()) == ["warren@b", "warren@c"])
    declared.settle()
    assert declared.ring()[0] == "warren@c" and declared.replica(first) is None
    at = master.told.index("quiesce")
    assert master.told[at - 1].node == first.name and master.told[at + 1].node == third.name


def test_a_master_that_is_too_busy_to_move_is_moved_later(declared):
    first, *_ = declared.group.members
    master = declared.replica(first)
    master.busy = 2
    declared.policy('{"ha-mode":"nodes","ha-params":["warren@c","warren@b"]}')
    declared.group.until(lambda: master.told.count("quiesce") == 2)
    declared.group.world.run(0.5)
    assert declared.ring()[0] == first.name, "it does not move while publishers would see a failover"
    declared.group.until(lambda: sorted(declared.ring()) == ["warren@b", "warren@c"])
    assert master.told.count("quiesce") == 3


def test_a_policy_moves_no_master_while_too_few_replicas_would_stay(declared):
    """A policy does not move a master while fewer replicas than `ha-min-in-sync` would stay in sync, because the queue
    would refuse publishes (CL-123).
    """
    first, second, third = declared.group.members
    row, master = declared.row(first), declared.replica(first)
    before = row.group.member_on(second.name)
    declared.supervisor(second).queues.clear()
    second.port.tell(second.metadata, to_metadata.replica_ended(V, "q", row.queue_id, before.generation))
    declared.group.until(lambda: declared.learners() == [second.name])
    declared.settle()
    declared.policy('{"ha-mode":"nodes","ha-params":["warren@c","warren@b"],"ha-min-in-sync":2}')
    declared.group.world.run(8.0)
    assert declared.ring() == [first.name, third.name] and "quiesce" not in master.told
    declared.admit(second)
    declared.group.until(lambda: sorted(declared.ring()) == ["warren@b", "warren@c"])
    assert declared.ring()[0] == third.name


def test_a_deleted_queue_has_no_replicas(declared):
    first, *others = declared.group.members
    queue_id = declared.row(first).queue_id
    first.ask(to_metadata.delete_queue(V, "q", False, False, "c"))
    declared.group.until(lambda: not any(declared.supervisor(each).queues for each in others))
    declared.group.until(lambda: all(("forget", queue_id) in declared.supervisor(each).calls for each in others))
    assert all(each.routing.queue(V, "q") is None for each in declared.group.members)


def test_the_files_of_a_replica_that_has_ended_go_with_its_queue(declared):
    """A node whose replica has ended keeps the files, because it will have another one. They are removed when the queue
    is deleted before that.
    """
    first, second, _ = declared.group.members
    row, supervisor = declared.row(first), declared.supervisor(second)
    supervisor.fails.add("q")
    supervisor.queues.clear()
    generation = row.group.member_on(second.name).generation
    second.port.tell(second.metadata, to_metadata.replica_ended(V, "q", row.queue_id, generation))
    declared.group.until(
        lambda: ("start", "q", True) in supervisor.calls and declared.row(second).group.member_on(second.name) is None
    )
    first.ask(to_metadata.delete_queue(V, "q", False, False, "c"))
    declared.group.until(lambda: ("forget", row.queue_id) in supervisor.calls)


def test_a_replica_that_cannot_start_leaves_and_tries_again(mirrored):
    first, second, third = mirrored.group.members
    mirrored.policy(ALL)
    mirrored.supervisor(second).fails.add("q")
    first.ask(first.declare("q"))
    mirrored.group.until(lambda: second.name not in mirrored.ring())
    assert sorted(mirrored.ring()) == [first.name, third.name], "the queue runs without it"
    mirrored.supervisor(second).fails.clear()
    mirrored.group.until(lambda: mirrored.learners() == [second.name])
    mirrored.settle()


def test_a_node_whose_virtual_host_is_down_leaves_the_rings(declared):
    first, *_ = declared.group.members
    first.port.tell(first.metadata, to_metadata.vhost_down(V))
    declared.group.until(lambda: first.name not in declared.ring())
    assert len(declared.ring()) == 2 and declared.row(first).state == "running"


def test_a_queue_that_only_has_learners_elsewhere_is_stopped_with_its_virtual_host(mirrored):
    """It stayed running without a process, so that clients of other nodes waited for its answers in vain."""
    first, second, _ = mirrored.group.members
    first.ask(first.declare("q"))
    mirrored.policy(ALL)
    mirrored.settle()
    assert mirrored.ring() == [first.name] and len(mirrored.learners()) == 2
    first.ask(to_metadata.vhost_down(V))
    mirrored.group.until(lambda: second.routing.queue(V, "q").state == "stopped")
    mirrored.group.world.run(5.0)
    assert second.routing.queue(V, "q").state == "stopped"
    assert mirrored.ring() == [first.name]


def test_another_node_takes_the_place_of_one_that_does_not_come_back(can_mirror):
    """Another node takes the place of one that is away for more than a minute. A node that is only restarted gets its
    place back, and nothing is copied in vain (CL-92).
    """
    with Group("abcd") as group:
        mirrored = Mirrored(group)
        mirrored.policy('{"ha-mode":"exactly","ha-params":3}')
        first = group.members[0]
        first.ask(first.declare("q"))
        mirrored.settle()
        ring = mirrored.ring()
        lost = mirrored.member(ring[2])
        (spare,) = {each.name for each in group.members} - set(ring)
        mirrored.take_down(lost)
        mirrored.settle()
        began = group.world.now()
        group.until(lambda: mirrored.learners() == [spare], 120.0)
        assert group.world.now() - began > 50.0
        mirrored.settle()
