"""Faults of clusters that schedules have found; each test says what went wrong before. Faults of a single part have
their test beside the others of that part.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from warren.actors.contracts.membership import CountsAsDown
from warren.actors.contracts.node import to_node
from warren.actors.metadata.log.log import OutcomeUnknown
from warren.actors.metadata.state.commands import AddNode, ChangeNodes, CreateVhost, EnableFeatures, PutRecords
from warren.actors.node.vhost_supervisor import VhostSupervisor
from warren.amqp.errors import AmqpError
from warren.cluster.consensus.leader import Leader
from warren.cluster.metadata.in_force import TICK
from warren.cluster.metadata.process import ClusterMetadata
from warren.cluster.metadata.replication import LogReplication
from warren.runtime.sim.choosing import SeedChooser
from warren.runtime.sim.port import SimAnswer
from warren.simulation.cluster.clients import ClusterClient
from warren.simulation.cluster.faults import VHOST
from warren.simulation.cluster.plan import draw_cluster_plan, parse_cluster_plan
from warren.simulation.cluster.schedule import ClusterSchedule
from warren.simulation.model.copies import PromiseBroken
from warren.simulation.shrinking import plainest


@pytest.fixture
def cluster():
    """Three nodes that have found their cluster."""
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=3"), chooser=plainest())
    try:
        schedule.begin()
        yield schedule
    finally:
        schedule.close()


def leader(cluster):
    (found,) = [node for node in cluster.nodes if node.process(ClusterMetadata).agreed.replication.leads]
    return found


def test_a_node_that_was_forgotten_while_it_was_cut_off_ends(cluster):
    """When it reached the others again, it waited for a majority for ever, which refused it as no member (CL-46)."""
    node, other = cluster.nodes["c"], cluster.nodes["a"]
    cluster.faults.do_isolate(parse_cluster_plan("cluster nodes=3\nnet isolate node=c").actions[0])
    definitions = other.supervisor.context.definitions
    assert cluster.world.run_until(lambda: not definitions.node(node.name).incarnation and not node.listens, 60)
    forget = to_node.operate("forget_cluster_node", {"node": node.name, "accept_loss": True})
    forgetting = other.port.begin(other.address, forget)
    assert cluster.world.run_until(lambda: forgetting.is_here, 60)
    forgetting.value()
    cluster.nodes.mend(0.0)
    with pytest.raises(PromiseBroken, match="warren@c has ended by itself: .*is no member of the cluster of warren@"):
        cluster.world.run_until(lambda: False, 60)


def test_a_verdict_that_cannot_be_agreed_on_crashes_nobody(cluster, monkeypatch):
    handler = ClusterMetadata._handlers["change_definitions"]
    refused = []

    def change_definitions(self, sender, command):
        if isinstance(command, ChangeNodes) and not refused:
            refused.append(command)
            raise AmqpError(541, "this node has missed what became of this change")
        return handler(self, sender, command)

    monkeypatch.setitem(ClusterMetadata._handlers, "change_definitions", change_definitions)
    lost = next(node for node in cluster.nodes if node is not leader(cluster))
    cluster.perform(parse_cluster_plan(f"cluster nodes=3\n{lost.letter} kill for=1000").actions[0])
    cluster.finish()
    assert refused


@pytest.mark.parametrize("kind", [EnableFeatures, PutRecords, AddNode, ChangeNodes])
def test_a_start_goes_on_when_the_outcome_of_its_change_is_unknown(kind, monkeypatch):
    """A node got a snapshot while the outcome of its change was open: what it creates at its first start, or the
    admission of another node. Its start, or that of the other node, failed.
    """
    handler = ClusterMetadata._handlers["change_definitions"]
    refused = []

    def change_definitions(self, sender, command):
        if isinstance(command, kind) and not refused:
            refused.append(command)
            raise OutcomeUnknown(541, "this node has missed what became of this change")
        return handler(self, sender, command)

    monkeypatch.setitem(ClusterMetadata._handlers, "change_definitions", change_definitions)
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=3"), chooser=plainest())
    try:
        schedule.begin()
        schedule.finish()
    finally:
        schedule.close()
    assert refused


def test_queues_run_again_although_their_stop_was_agreed_on_late():
    """A node with a full disk reported its queues as stopped while no majority ran. When there was room again, it
    started them before the cluster had agreed that they were stopped.

    They then counted as stopped for ever, and clients got 404.
    """
    plan = """
        cluster nodes=3 files=small credit=8,4
        all kill
        net wait for=1600
        b kill then=400
        a kill then=150
        a disk for=1700 then=400
        c stop for=1000
        bob/3 declare then=400
        alice/1 publish queue=c.orders count=1 size=20 then=400
        carol/2 settle which=5 multiple=1 how=ack then=150
        alice/1 publish queue=c.orders count=3 size=20 then=8
        bob move then=60
        bob/3 delete then=400
        net slow from=c to=a delay=20 then=400
        bob/1 publish queue=b.orders count=8 size=700 by=fanout then=150
        carol/3 declare then=400
        bob/1 publish queue=b.orders count=2 size=20 then=150
        bob/1 publish queue=a.orders count=2 size=400 then=3
        alice/1 publish queue=a.orders count=8 size=4200 then=3
        b power-cut for=4500 after=6 then=400
        carol/3 look then=400
    """
    ClusterSchedule(parse_cluster_plan(plan), seed=4).run()


def test_a_new_leader_does_not_take_a_run_for_dead_because_its_host_refused_connections_before():
    """The host of a restarted node had refused connections before its new run, whose link came up late. A new leader
    took these refusals for the end of the new run, and declared it down although it held a lease.
    """
    plan = """
        cluster nodes=3 files=small credit=2,1
        alice/1 publish queue=b.orders count=1 size=20 then=150
        carol/3 look then=400
        alice/1 publish queue=b.orders count=2 size=20 then=150
        carol/1 publish queue=a.orders count=1 size=700 then=60
        net slow from=c to=a delay=400 then=8
        carol close
        alice/1 publish queue=a.orders count=2 size=400 then=8
        bob/2 consume queue=a.orders prefetch=2 then=3
        bob/3 look then=20
        bob/3 declare
        carol/2 settle which=3 how=ack then=150
        a kill for=20 then=3
        carol/2 consume queue=b.orders prefetch=10 then=20
        alice/3 declare then=400
        alice/1 publish queue=a.orders count=2 size=4200 then=400
        b stop for=2500 then=3
        alice/3 look then=20
        a kill for=300 then=20
        net wait for=1700 then=400
        bob/1 publish queue=b.orders count=3 size=20 then=60
        alice/2 settle which=7 how=ack then=150
    """
    ClusterSchedule(parse_cluster_plan(plan), seed=61_000_415).run()


def test_a_master_that_moves_again_at_once_leaves_enough_replicas_in_sync():
    """An operator's move was checked against the ring from before another operator's move. The queue then had one
    replica in sync where it needed two, and refused publishes (CL-98, CL-123).
    """
    plan = """
        cluster nodes=3 credit=2,1 turn=2 mirrored=1 type=stream
        bob/1 publish queue=b.orders count=3 size=700 by=fanout then=8
        b promote queue=a.orders then=8
        a promote queue=c.orders
        b promote queue=a.orders then=60
        bob/1 publish queue=b.orders count=2 size=700 then=60
        c promote queue=c.orders then=3
        c promote queue=b.orders
        b promote queue=b.orders then=3
        alice/1 publish queue=b.orders count=1 size=20 by=fanout then=60
        alice/1 publish queue=c.orders count=1 size=20 then=20
        a promote queue=c.orders then=8
        b promote queue=c.orders then=60
        c promote queue=a.orders then=3
        bob/3 declare then=150
        c promote queue=b.orders then=3
        carol/1 publish queue=c.orders count=1 size=20 then=400
        a promote queue=b.orders then=8
        carol/3 delete then=8
        b promote queue=b.orders then=20
        bob/2 settle which=6 how=ack then=20
        b promote queue=b.orders then=3
        c promote queue=b.orders then=60
        c promote queue=b.orders then=20
    """
    ClusterSchedule(parse_cluster_plan(plan), seed=71_100_102).run()


def test_an_operator_starts_a_node_again_that_came_up_without_its_virtual_host(cluster):
    """A node with a full disk comes up without its virtual host, and an operator starts the node again. Found with
    mirrored queues, which other nodes serve meanwhile.
    """
    node = cluster.nodes["b"]
    cluster.perform(parse_cluster_plan("cluster nodes=3\nb kill for=100").actions[0])
    assert cluster.world.run_until(lambda: node.process(VhostSupervisor) is not None, 60)
    cluster.perform(parse_cluster_plan("cluster nodes=3\nb disk for=60000").actions[0])
    assert cluster.world.run_until(lambda: node.is_up and VHOST in node.supervisor.routing.down, 60)
    cluster.finish()
    assert any("its virtual host is down" in text for _, _, text in cluster.told)


def test_a_mirrored_queue_is_stopped_whose_home_has_come_up_without_its_virtual_host(monkeypatch):
    """A node with a full disk came up without its virtual host. A queue that only this node had in sync counted as
    running, because other nodes had learners. Clients of the other nodes got their answers after 15 s.
    """
    plan = parse_cluster_plan("cluster nodes=3 mirrored=1\nall power-cut for=100\nb disk for=60000")
    schedule = ClusterSchedule(plan, chooser=plainest())
    begin, starting = VhostSupervisor._handlers["start"], []

    async def begin_late(self, sender, context, *args):
        """Have the others become learners before the virtual host starts here."""
        if context.node_name == "warren@b":
            starting.append(self)
            await self.sleep(0.5)
        return await begin(self, sender, context, *args)

    try:
        schedule.begin()
        monkeypatch.setitem(VhostSupervisor._handlers, "start", begin_late)
        node, other = schedule.nodes["b"], schedule.nodes["c"]
        schedule.perform(plan.actions[0])
        schedule.until(lambda: starting, 60, lambda: "the virtual host does not start")
        schedule.perform(plan.actions[1])
        schedule.until(lambda: node.is_up and other.is_up, 60, lambda: "the nodes do not start")
        assert VHOST in node.routing.down
        for row in (node.routing.queue(VHOST, "b.orders"), other.routing.queue(VHOST, "b.orders")):
            assert row.node == node.name and len(row.replicas) == 3 and row.state == "stopped"
        schedule.finish()
    finally:
        schedule.close()


def test_a_declare_is_answered_when_the_virtual_host_of_the_new_home_is_down():
    """A queue was declared and mirrored, but its home lost the others before they had answered that their replicas ran.
    The declare-ok came only when the home was stopped. By then the queue was at home on a node that had come up with a
    full disk and without its virtual host, and that did not show the queue, because another node had a learner (P6).
    """
    plan = """
        cluster nodes=3 credit=2,1 turn=2 mirrored=1
        net cut from=b to=a then=20
        bob/1 publish queue=b.orders count=1 size=20 then=400
        bob/1 publish queue=a.orders count=8 size=20 by=fanout then=60
        bob/1 publish queue=c.orders count=1 size=4200 then=150
        b power-cut for=20 after=1 then=200
        alice/3 declare then=150
        c kill for=300 then=8
        b disk for=4500 then=8
        net isolate node=a
        net wait for=1700
        alice/1 publish queue=a.orders count=1 size=20 then=20
        alice/3 declare then=8
        net wait for=2500
        a stop for=2500 then=75
    """
    ClusterSchedule(parse_cluster_plan(plan), seed=3).run()


@pytest.mark.parametrize("seed", [501_957, 510_294])
def test_what_the_master_before_may_have_delivered_comes_as_redelivered(seed):
    """When the master of a mirrored queue stops and a replica that has come back alone takes its place, all its
    messages are redelivered, because the master may have delivered them (P9).
    """
    drawn = draw_cluster_plan(SeedChooser(seed).below, is_mirrored=True)
    plan = replace(drawn, queue_type="classic", floor=1)  # the plan with which it was found
    ClusterSchedule(plan, seed=seed).run()


def test_a_node_without_a_lease_lacks_no_queue(cluster, monkeypatch):
    """A node without a lease at the end of a schedule is not checked for its queues: it may have lost the lease by a
    pause, which is no fault.
    """
    (action,) = parse_cluster_plan("cluster nodes=3\nalice/3 declare then=400").actions
    cluster.perform(action)
    check_equal = cluster.checks.check_equal

    def lose_lease():
        check_equal()
        cluster.nodes["b"].supervisor.context.lease.until = cluster.world.time

    monkeypatch.setattr(cluster.checks, "check_equal", lose_lease)
    cluster.finish()


def test_the_lease_of_a_leader_counts_from_before_its_question(cluster, monkeypatch):
    """A leader's tick may come half a tick early. Its lease was counted from the tick's planned time, and so ended too
    late (CL-51).
    """
    asked = {}
    tick = Leader.tick

    def note(leading, now):
        asked[leading, now] = cluster.world.time
        tick(leading, now)

    monkeypatch.setattr(Leader, "tick", note)
    replication = leader(cluster).process(ClusterMetadata).agreed.replication
    was_early = False
    for _ in range(100):
        cluster.world.run(0.03)
        replication._take_ticks()
        leading = replication.raft.leading
        if (leading, leading.contact) in asked:
            moment = asked[leading, leading.contact]
            assert replication.contact <= moment
            was_early |= replication.contact + TICK / 2 > moment
    assert was_early


def test_a_leader_of_an_earlier_term_knows_of_no_runs(cluster):
    """A leader that was paused while the others elected another one, which declared a new run of a node up, does not
    report that run as missing.
    """
    former = leader(cluster)
    other = next(node for node in cluster.nodes if node is not former)
    letters = former.letter, other.letter
    for line in (f"{letters[1]} power-cut for=300", f"{letters[0]} pause for=4500", "net wait for=4600"):
        for action in parse_cluster_plan(f"cluster nodes=3\n{line}").actions:
            cluster.perform(action)
    cluster.finish()


def test_the_home_of_a_queue_may_show_it_last(cluster, monkeypatch):
    """The client of a queue may have left before its declare was answered, so the home may show the queue last, when
    its answers are slow.
    """
    (declare,) = parse_cluster_plan("cluster nodes=3\nalice/3 declare then=400").actions
    cluster.perform(declare)
    check_equal = cluster.checks.check_equal

    def hide():
        check_equal()
        routing = cluster.nodes["a"].supervisor.routing
        row = routing.queue("/", "alice.1")
        routing.hide_queue("/", "alice.1")
        cluster.world.at(cluster.world.time + 0.2, lambda: routing.put_queue(row))

    monkeypatch.setattr(cluster.checks, "check_equal", hide)
    cluster.finish()


def test_a_node_that_starts_keeps_what_it_has_of_queues_whose_master_is_elsewhere(monkeypatch):
    """A starting node keeps the files of queues whose master is elsewhere, which an operator may need. The start of the
    virtual host once removed them (CL-100).
    """
    begin, kept = VhostSupervisor._handlers["start"], []

    def note(self, sender, context, name, rows, numbers):
        kept.append((context.node_name, {row.name for row in rows}, len(numbers)))
        return begin(self, sender, context, name, rows, numbers)

    plan = parse_cluster_plan("cluster nodes=3 mirrored=1\nb kill for=300\nnet wait for=2000")
    schedule = ClusterSchedule(plan, chooser=plainest())
    try:
        schedule.begin()
        monkeypatch.setitem(VhostSupervisor._handlers, "start", note)
        for action in plan.actions:
            schedule.perform(action)
        schedule.finish()
    finally:
        schedule.close()
    assert kept == [("warren@b", set(), 3)]


def test_a_majority_may_answer_a_leader_one_after_the_other():
    """Of four nodes, one answered what the leader had sent before it was cut off, and another one when the leader went
    on. The leader grants leases as long as both answers are recent enough.
    """
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=4"), chooser=plainest())
    try:
        schedule.begin()
        first = leader(schedule).letter
        paused, cut, dead = [letter for letter in schedule.plan.letters if letter != first]
        begun = schedule.world.time
        for line in (f"{paused} pause for=300", f"{dead} kill for=4500", "net wait for=100", f"net isolate node={cut}"):
            for action in parse_cluster_plan(f"cluster nodes=4\n{line}").actions:
                schedule.perform(action)
        assert schedule.faults.alone[first] == pytest.approx(begun, abs=0.01)
        schedule.perform(parse_cluster_plan("cluster nodes=4\nnet wait for=300").actions[0])
        assert schedule.faults.alone[first] == pytest.approx(begun + 0.1, abs=0.01)
        schedule.perform(parse_cluster_plan("cluster nodes=4\nnet wait for=3000").actions[0])
        schedule.finish()
    finally:
        schedule.close()


def test_a_node_that_reaches_only_the_leader_belongs_to_the_majority():
    """Of four nodes one is cut off, and two others reach only the leader and not each other; the leader and both of
    them are the majority.
    """
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=4"), chooser=plainest())
    try:
        schedule.begin()
        first = leader(schedule).letter
        one, other, third = [letter for letter in schedule.plan.letters if letter != first]
        for line in (f"net isolate node={third}", f"net cut from={one} to={other}", "net wait for=4500"):
            schedule.perform(parse_cluster_plan(f"cluster nodes=4\n{line}").actions[0])
        assert set(schedule.faults.alone) == {third}
        schedule.finish()
    finally:
        schedule.close()


def test_the_auditor_reads_a_stream_again_whose_leader_moves_meanwhile(monkeypatch):
    """The move of a master, which may wait until a replica is in sync, cancels the consumers of a stream. The auditor
    must then read the stream again; it once found all messages and no consumer, again and again.
    """
    plan = parse_cluster_plan(
        "cluster nodes=3 mirrored=1 type=stream\nalice/1 publish queue=a.orders count=3 size=40 then=400"
    )
    schedule = ClusterSchedule(plan, chooser=plainest())
    moved = []
    settle_all = ClusterClient.settle_all

    def move(client):
        if client.name == "auditor" and client.consumes_from("a.orders") and not moved:
            moved.append(client.node)
            schedule.perform(parse_cluster_plan("cluster nodes=3\nb promote queue=a.orders").actions[0])
            schedule.world.run_until(lambda: not client.consumes_from("a.orders"), 10)
        return settle_all(client)

    monkeypatch.setattr(ClusterClient, "settle_all", move)
    try:
        schedule.begin()
        for action in plan.actions:
            schedule.perform(action)
        schedule.finish()
    finally:
        schedule.close()
    assert moved


def test_a_node_that_is_declared_down_while_it_starts_is_started_again(cluster, monkeypatch):
    """A node that is declared down while it starts ends with `RunLost`, as an embedding program sees it, and the
    schedule starts it again. The schedule once took that for a fault.
    """
    node, answer = cluster.nodes["c"], cluster.nodes["c"].starting

    refused = SimAnswer()
    refused.settle(False, CountsAsDown(541, "warren@c counts as down in its cluster"))
    monkeypatch.setattr(node, "starting", refused)
    assert node.begins_anew and not node.is_up
    monkeypatch.setattr(node, "starting", answer)
    assert node.is_up and not node.begins_anew


def test_a_leader_whose_disk_hangs_serves_nobody(cluster, monkeypatch):
    """The others commit without the disk of a leader that hangs. The leader had its own lease prolonged all the same,
    and served clients with a table in which the changes of the others were missing (CL-32).
    """
    hanging = leader(cluster)
    other = next(node for node in cluster.nodes if node is not hanging)
    replication, write = hanging.process(ClusterMetadata).agreed.replication, LogReplication._write_disk

    async def hang(self, *what):
        if self is replication:
            await self._process.sleep(20.0)
        await write(self, *what)

    monkeypatch.setattr(LogReplication, "_write_disk", hang)
    answers = []
    metadata = other.process(ClusterMetadata)
    for name in ("one", "two"):  # the leader writes the first one while the second one is committed
        metadata.agreed.propose(CreateVhost(name), answers.append)
        metadata.request_turn()
        cluster.world.run(0.1)
    assert cluster.world.run_until(lambda: len(answers) == 2, 10.0)
    assert [answer.error for answer in answers] == [None, None]
    assert other.routing is not None
    assert replication.leads and not hanging.process(ClusterMetadata).state.vhosts.keys() >= {"one", "two"}
    assert hanging.routing is None, "it holds a lease"
    cluster.world.run(60.0)
    assert hanging.routing is not None


def test_mirrors_follow_the_mode_that_a_policy_sets():
    """A mirror read the mode of its queue when it started, and kept it whatever the policies said later. So mirrors of
    a queue that had been made lazy went on keeping its messages in memory.
    """
    schedule = ClusterSchedule(parse_cluster_plan("cluster nodes=3 mirrored=1"), chooser=plainest())
    try:
        schedule.begin()
        queues = [queue for node in schedule.nodes for queue in node.processes("Queue")]
        assert len(queues) == 9 and {queue.settings.queue_mode for queue in queues} == {"default"}
        definition = '{"ha-mode": "all", "queue-mode": "lazy"}'
        next(iter(schedule.nodes)).begin_operation("set_policy", name="mirrors", pattern="", definition=definition)
        schedule.until(
            lambda: {queue.state.backing._mode for queue in queues} == {"lazy"}, 5.0, lambda: "a mirror is not lazy"
        )
    finally:
        schedule.close()
