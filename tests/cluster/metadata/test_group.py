"""The Metadata of three nodes agree: a change that is answered on one node is in force on all (CL-25, CL-31, CL-33,
CL-37).
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from warren.actors.context.starting import to_new_metadata
from warren.actors.contracts.metadata import to_metadata
from warren.actors.disk.errors import StorageError
from warren.actors.metadata.process import Metadata
from warren.actors.metadata.state.commands import AddNode, ChangeNodes, DeleteQueue, EnableFeatures, RemoveNode
from warren.amqp.errors import AmqpError
from warren.cluster.metadata.contract import to_cluster_metadata
from warren.cluster.metadata.digest import Digests, Diverged
from warren.cluster.metadata.process import ClusterMetadata
from warren.definitions.errors import DefinitionError
from warren.runtime.sim.port import SimPort
from warren.runtime.sim.world import SimWorld
from warren.store.data_dir.metadata_store import MetadataStore, MetadataWriteError

from .group import Group, Member, V


@pytest.fixture
def group():
    with Group() as group:
        yield group


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_was_answered_on_one_node_is_in_force_on_all(group, at):
    asked = group.members[at]
    row, is_new = asked.ask(asked.declare("q"))
    assert is_new and row.node == asked.name
    for member in group.members:
        shown = member.routing.queue(V, "q")
        assert (shown.queue_id, shown.node) == (row.queue_id, asked.name)
    asked.ask(asked.bind("q", "amq.direct"))
    assert all(member.has_binding("q", "amq.direct") for member in group.members)
    asked.ask(to_metadata.delete_queue(V, "q", False, False, "c"))
    assert all(member.routing.queue(V, "q") is None for member in group.members)
    group.check_equal()


def code_of(answer) -> int | None:
    """The reply code of the error that answered an ask; None if the answer was no error."""
    assert answer.is_here
    try:
        answer.value()
    except AmqpError as error:
        return error.code
    return None


def cut(group: Group, *names: str) -> None:
    """Cut these nodes off from the others."""
    group.world.partition(list(names), [member.name for member in group.members if member.name not in names])


def test_of_two_nodes_that_declare_one_name_at_once_the_second_in_the_log_finds_the_queue(group):
    one, two, three = group.members
    asked = [member.begin(member.declare("q")) for member in (one, two)]
    asked.append(three.begin(three.declare("q", durable=False)))
    group.until(lambda: all(each.is_here for each in asked))
    assert sorted(code_of(each) or 0 for each in asked) in ([0, 0, 406], [0, 406, 406])
    group.check_equal()
    assert list(group.members[0].queues()) == ["q"]


def test_without_a_majority_a_change_gets_541_with_the_number_of_voters_that_can_be_reached(group):
    """A leader that is cut off answers a change with 541 and how many voters it reaches, and the change of the majority
    is in force on all nodes afterwards (CL-37).
    """
    leader = group.wait_for_leader()
    cut(group, leader.name)
    asked = leader.begin(leader.declare("q"))
    group.until(lambda: asked.is_here)
    with pytest.raises(AmqpError, match="metadata cannot be changed now: 1 of 3 voters can be reached") as caught:
        asked.value()
    assert caught.value.code == 541
    others = [member for member in group.members if member is not leader]
    others[0].ask(others[0].declare("r"))
    group.world.mend()
    group.check_equal()
    assert "r" in leader.queues()


def test_a_change_waits_for_the_next_leader_and_takes_effect_once(group):
    leader = group.wait_for_leader()
    asked = [member for member in group.members if member is not leader]
    group.world.run(0.5)
    answers = [member.begin(member.declare(f"q of {member.name}")) for member in asked]
    group.world.run_steps(8)
    leader.kill()
    group.until(lambda: all(each.is_here for each in answers))
    assert [code_of(each) for each in answers] == [None, None]
    group.check_equal()
    group.restart(leader)
    group.check_equal()
    assert sorted(leader.queues()) == sorted(f"q of {member.name}" for member in asked)


def test_a_killed_leader_is_replaced_within_a_second(group):
    leader = group.wait_for_leader()
    leader.kill()
    began = group.world.time
    # The other nodes notice at once that the leader was killed, because its connections are closed.
    group.until(lambda: group.leader() is not None)
    assert group.world.time - began < 1.5


def test_a_node_that_is_silent_delays_answers_for_two_seconds_at_most(group):
    """A member that is cut off delays one answer for about 2 s, and no later one. By then its lease has ended, so it
    serves no clients (CL-31).
    """
    leader = group.wait_for_leader()
    silent, asked = [member for member in group.members if member is not leader]
    cut(group, silent.name)
    began = group.world.time
    asked.ask(asked.declare("q"))
    assert 1.0 < group.world.time - began < 3.0
    began = group.world.time
    asked.ask(asked.declare("r"))
    assert group.world.time - began < 0.2


@pytest.mark.parametrize("at", [0, 1])
def test_everything_comes_back_when_all_nodes_are_killed_together(group, at):
    one = group.members[at]
    one.ask(one.declare("durable"))
    one.ask(one.declare("transient", durable=False))
    one.ask(one.bind("durable", "amq.direct"))
    group.wait_until_level()
    for member in group.members:
        member.kill()
    for member in group.members:
        member.boot()
    group.until(lambda: all(member.has_started for member in group.members))
    group.check_equal()
    assert one.queues() == {"durable": "running", "transient": "running"}
    leader = group.wait_for_leader()
    # One command tells the cluster that the runs of all members are new ones.
    runs = tuple(member.run_of() for member in group.members)
    leader.ask(to_metadata.change_definitions(ChangeNodes(up=runs)))
    group.check_equal()
    assert one.queues() == {"durable": "running"} and one.has_binding("durable", "amq.direct")


def test_a_run_that_counts_as_down_changes_nothing(group):
    """A run that counts as down cannot change anything: what belonged to the run was removed when it was declared down,
    so anything added later would stay for ever.
    """
    leader = group.wait_for_leader()
    late = next(member for member in group.members if member is not leader)
    leader.ask(to_metadata.change_definitions(ChangeNodes(down=((late.name, late.incarnation),))))
    with pytest.raises(AmqpError, match=f"{late.name} counts as down in its cluster"):
        late.ask(late.declare("q"))
    assert late.queues() == {}
    leader.ask(to_metadata.change_definitions(ChangeNodes(up=(late.run_of(),))))
    late.ask(late.declare("q"))
    group.check_equal()


def test_what_a_replaced_leader_has_decided_about_other_nodes_does_not_take_effect_later(group):
    """A verdict of a leader that was cut off has no effect when the next leader gets it: the old leader counted the
    others as lost only because it received nothing (CL-53).
    """
    cut_off = group.wait_for_leader()
    others = [member for member in group.members if member is not cut_off]
    term = cut_off.process.agreed.replication.raft.term
    cut(group, cut_off.name)
    down = tuple((member.name, member.incarnation) for member in others)
    verdict = cut_off.begin(to_metadata.change_definitions(ChangeNodes(down, (), term)))
    group.until(lambda: group.leader() in others)
    group.world.mend()
    group.until(lambda: verdict.is_here)
    with pytest.raises((DefinitionError, AmqpError)):
        verdict.value()
    group.check_equal()
    assert {node.incarnation for node in cut_off.process.state.definitions.nodes.values()} == {"1"}


def test_a_feature_is_enabled_when_all_members_know_it_and_on_all_nodes(group):
    """A feature can be enabled only when all members know it, and is then enabled on all nodes (CL-26)."""
    first, second, third = group.members
    enable = to_metadata.change_definitions(EnableFeatures(("teleport",)))
    for member in (first, second):
        first.ask(to_metadata.change_definitions(ChangeNodes(up=(replace(member.run_of(), features=("teleport",)),))))
    with pytest.raises(DefinitionError, match=f"'teleport' is not supported by {third.name}. Upgrade these nodes"):
        second.ask(enable)
    first.ask(to_metadata.change_definitions(ChangeNodes(up=(replace(third.run_of(), features=("teleport",)),))))
    assert second.ask(enable) == 1
    assert second.ask(enable) == 0
    assert all("teleport" in member.context.definitions.enabled_features() for member in group.members)
    group.check_equal()


@pytest.mark.parametrize(("kept", "more"), [("KEPT_ENTRIES", "COMPACT_AT"), ("KEPT_BYTES", "COMPACT_AT_BYTES")])
def test_a_node_that_missed_more_than_the_log_keeps_gets_the_state(group, monkeypatch, kept, more):
    """A node that was away for longer than the log reaches back gets the state, and shows and performs all differences
    as if it had applied the commands (CL-24).
    """
    few = 5 if kept == "KEPT_ENTRIES" else 1_000
    monkeypatch.setattr(f"warren.cluster.metadata.replication.{kept}", few)
    monkeypatch.setattr(f"warren.cluster.metadata.replication.{more}", few)
    monkeypatch.setattr("warren.cluster.metadata.snapshots.PART_BYTES", 500)
    leader = group.wait_for_leader()
    late = next(member for member in group.members if member is not leader)
    leader.ask(leader.declare("old"))
    leader.ask(to_metadata.create_vhost("gone"))
    cut(group, late.name)
    leader.ask(to_metadata.delete_vhost("gone"))
    leader.ask(to_metadata.delete_queue(V, "old", False, False, "c"))
    for number in range(30):
        leader.ask(leader.declare(f"q{number}", durable=bool(number % 2)))
    leader.ask(leader.bind("q1", "amq.fanout"))
    leader.ask(to_metadata.create_vhost("new"))
    entries = leader.process.agreed.replication.raft.log
    assert entries.start.index > late.process.agreed.replication.raft.log.last_index
    group.world.mend()
    group.check_equal()
    assert late.routing.vhosts() == leader.routing.vhosts() == (V, "new")
    assert [row.name for row in late.routing.queues(V)] == [f"q{number}" for number in range(30)]
    assert [row.name for row in late.routing.route(V, "amq.fanout", ("",))] == ["q1"]
    # The state that it got is on its disk, too.
    late.kill()
    group.restart(late)
    group.check_equal()


def test_without_disks_a_node_that_returns_gets_everything_again():
    with Group(has_disks=False) as group:
        one, two, three = group.members
        one.ask(one.declare("q"))
        group.check_equal()
        three.kill()
        two.ask(two.declare("r"))
        assert one.queues() == {"q": "running", "r": "running"}


def test_a_removed_node_is_no_voter_any_more(group):
    leader = group.wait_for_leader()
    gone = next(member for member in group.members if member is not leader)
    gone.ask(gone.declare("at home there"))
    gone.kill()
    leader.ask(to_metadata.change_definitions(RemoveNode(gone.name)))
    voters = leader.process.agreed.replication.raft.log
    group.until(lambda: gone.name not in voters.members.everyone)
    assert leader.queues() == {}
    assert sorted(leader.status()["voters"]) == sorted(each.name for each in group.running())


def test_a_witness_votes_and_hands_leadership_over(group):
    leader = group.wait_for_leader()
    witness = replace(leader.record, role="witness")
    leader.ask(to_metadata.change_definitions(AddNode(witness)))
    group.until(lambda: group.leader() not in (None, leader))
    assert group.leader().status()["witnesses"] == [leader.name]


def test_a_node_with_rows_of_its_own_founds_a_cluster_with_them():
    """A node that founds a cluster brings its rows along, also the transient ones, which only its memory has."""
    world = SimWorld()
    members = [Member(world, letter, True) for letter in "ab"]
    one, two = members
    try:
        world.run_until(lambda: one.has_started and two.has_started)
        one.ask(to_metadata.create_vhost(V))
        one.ask(one.declare("durable"))
        one.ask(one.declare("transient", durable=False))
        one.ask(one.bind("transient", "amq.direct"))
        assert one.status()["role"] == "alone"
        link = world.link_systems(one.name, two.name)
        world.run_until(lambda: link.session(one.name) is not None and link.session(two.name) is not None)
        one.ask(to_cluster_metadata.found(one.run_of()))
        two.ask(to_cluster_metadata.follow())
        one.ask(to_metadata.change_definitions(AddNode(two.record)))
        one.ask(to_metadata.change_definitions(ChangeNodes(up=(two.run_of(),))))
        two.ask(to_cluster_metadata.barrier())
        assert two.rows() == one.rows()
        assert two.queues() == {"durable": "running", "transient": "running"}
        assert two.has_binding("transient", "amq.direct")
    finally:
        for member in members:
            member.close()


@pytest.fixture
def full(monkeypatch):
    """A set of directories; a node whose directory is in it cannot write to its disk."""
    directories: set[str] = set()
    apply = MetadataStore.apply

    def refuse(store, *arguments):
        if any(store._path.startswith(directory) for directory in directories):
            raise MetadataWriteError("No space left on device")
        apply(store, *arguments)

    monkeypatch.setattr(MetadataStore, "apply", refuse)
    return directories


def test_a_full_disk_delays_the_others_for_three_seconds_at_most(group, full):
    """A member whose disk is full delays each answer for about 3 s at most, because it gets no lease until it has
    applied what was committed (CL-32).
    """
    leader = group.wait_for_leader()
    late, asked = [member for member in group.members if member is not leader]
    full.add(late.directory)
    began = group.world.time
    asked.ask(asked.declare("q"))
    asked.ask(asked.declare("r"))
    assert group.world.time - began < 7.0
    full.clear()
    group.check_equal()
    assert sorted(late.queues()) == ["q", "r"]


def test_a_leader_whose_disk_is_full_hands_over(group, full):
    leader = group.wait_for_leader()
    asked = next(member for member in group.members if member is not leader)
    full.add(leader.directory)
    asked.ask(asked.declare("q"))
    group.until(lambda: group.leader() not in (None, leader))
    full.clear()
    group.check_equal()
    assert sorted(leader.queues()) == ["q"]


def test_a_sole_voter_with_a_full_disk_refuses_additions_and_keeps_what_it_has_begun(full):
    """A sole voter whose disk is full refuses new rows, and keeps the change that it has begun until the disk accepts
    it, because a proposed entry cannot be taken back.
    """
    with Group("a") as group:
        [one] = group.members
        one.ask(one.declare("old"))
        full.add(one.directory)
        begun = one.begin(one.declare("begun"))
        group.world.run(1.0)
        assert not begun.is_here
        with pytest.raises(AmqpError, match="metadata cannot be written") as caught:
            one.ask(one.declare("late"))
        assert caught.value.code == 541
        removed = one.begin(to_metadata.delete_queue(V, "old", False, False, "c"))
        full.clear()
        group.until(lambda: begun.is_here and removed.is_here)
        assert code_of(begun) is None and code_of(removed) is None
        assert list(one.queues()) == ["begun"]


def test_a_node_without_a_cluster_port_refuses_the_directory_of_a_member(group):
    """A broker that is configured without a cluster refuses the data directory of a member, because it would change
    rows without the other members.
    """
    member = group.members[1]
    group.wait_until_level()
    member.kill()
    base = member.machine.boot()
    port = SimPort(base)
    metadata = base.newPrimaryActor(Metadata)
    with pytest.raises(StorageError, match="belongs to a member of a cluster"):
        port.request(metadata, to_new_metadata.start(member.context, metadata))


def test_digests_of_equal_states_are_equal_and_compared(group, monkeypatch):
    """Nodes with equal states have equal digests, also a node that was restarted and keeps its rows in another order
    (CL-27).
    """
    monkeypatch.setattr("warren.cluster.metadata.digest.EVERY", 5)
    compared = []
    compare = Digests.compare

    def note(digests, command):
        compared.append(command.index in digests._taken)
        compare(digests, command)

    monkeypatch.setattr(Digests, "compare", note)
    leader = group.wait_for_leader()
    late = next(member for member in group.members if member is not leader)
    for number in range(20):
        leader.ask(leader.declare(f"q{number}", durable=bool(number % 2), **{"x-max-length": number}))
        leader.ask(leader.bind(f"q{number}", "amq.topic", f"a.{number}"))
        if number == 9:
            group.wait_until_level()
            late.kill()
            group.restart(late)
    group.check_equal()
    assert compared.count(True) >= 15
    assert group.world.crashes == []


def test_a_node_whose_state_differs_ends(group, monkeypatch):
    monkeypatch.setattr("warren.cluster.metadata.digest.EVERY", 5)
    leader = group.wait_for_leader()
    wrong = next(member for member in group.members if member is not leader)
    leader.ask(leader.declare("q"))
    rows = wrong.process.state.vhosts[V]
    rows.put_queue(replace(rows.queues["q"], auto_delete=True))
    for number in range(6):
        leader.begin(leader.bind("q", "amq.topic", f"a.{number}"))
        group.world.run(0.1)
    [(address, error)] = group.world.crashes
    assert address == wrong.metadata.actorAddressString and isinstance(error, Diverged)
    assert "differs from that of the leader after entry" in str(error)


def test_a_node_that_starts_again_learns_what_is_in_force(group):
    """A node that starts again learns what is in force even if nothing changes, because a declare of something that
    exists waits for that.
    """
    leader = group.wait_for_leader()
    late = next(member for member in group.members if member is not leader)
    group.wait_until_level()
    late.kill()
    late.boot()
    group.until(lambda: late.has_started)
    replication = late.process.agreed.replication
    group.until(lambda: replication.in_force == replication.applied > 0, seconds=10.0)


def test_a_refused_change_keeps_nothing_of_a_node_that_has_ended(group):
    """A change that was refused does not keep the old Metadata alive: its store must be closed, because the node's next
    run may begin in the same process.
    """
    member = group.members[0]
    gc.disable()
    try:
        cut(group, member.name)
        refused = []

        async def change():
            try:
                await member.process.changing.change(RemoveNode("warren@c"))
            except AmqpError as error:
                refused.append(error.code)

        member.process.spawn(change())
        group.until(lambda: refused == [541])
        store = weakref.ref(member.process.agreed._local.store)
        member.kill()
        assert store() is None
    finally:
        gc.enable()


def test_a_node_applies_many_changes_in_several_turns(monkeypatch):
    """A node that has much of the log to apply, such as one that was away, does so in several turns, between which
    other processes work (CL-36).
    """
    turns: dict[str, list[int]] = {}
    applied, after_batch = ClusterMetadata.applied, ClusterMetadata.after_batch

    def count(self, command, outcome, is_own):
        turns.setdefault(self.myAddress.addressDetails, [0])[-1] += 1
        applied(self, command, outcome, is_own)

    def end_turn(self):
        after_batch(self)
        turns.setdefault(self.myAddress.addressDetails, [0]).append(0)

    monkeypatch.setattr(ClusterMetadata, "applied", count)
    monkeypatch.setattr(ClusterMetadata, "after_batch", end_turn)
    with Group() as group:
        leader = group.wait_for_leader()
        away = next(member for member in group.members if member is not leader)
        cut(group, away.name)
        asked = [leader.begin(leader.declare(f"q{number}")) for number in range(400)]
        group.until(lambda: all(each.is_here for each in asked))
        turns.clear()
        group.world.mend()
        group.check_equal()
    (counts,) = [counts for address, counts in turns.items() if address.startswith(f"{away.name}-")]
    assert sum(counts) >= 400 and max(counts) < 100


def test_deleting_a_queue_that_is_gone_needs_no_entry_also_while_others_are_in_flight(group):
    """A queue that is deleted has its row removed while it ends, so the command of the deletion itself finds nothing to
    delete. It needs no entry, and its answer waits only until the removal is in force.
    """
    asked = group.wait_for_leader()
    row, _ = asked.ask(asked.declare("q"))
    asked.ask(to_metadata.delete_queue(V, "q", False, False, "c"))
    other = asked.begin(asked.declare("other"))
    group.world.run_steps(3)
    log, outcomes = asked.process.agreed, []
    in_flight = len(log._proposals._open)
    assert in_flight and not other.is_here
    log.propose(DeleteQueue(V, "q", row.queue_id, is_ended=True), outcomes.append)
    assert len(log._proposals._open) == in_flight
    group.until(lambda: len(outcomes) == 1)
    assert outcomes[0].error is None
